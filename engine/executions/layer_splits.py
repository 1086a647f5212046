"""Numbers of layers per pipeline stage, as frameworks cut models.

Sources: NVIDIA/Megatron-LM, `core/transformer/transformer_block.py` and its options; pytorch/torchtitan,
`distributed/pipeline_parallel.py`. Both are restated from their results.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from engine.columns.stage_layouts import BALANCED, EVEN, LAYOUTS, StageLayout, layout_of_word, list_of_layers

__all__ = [
    "COUNTED",
    "LayerSplitError",
    "StageCut",
    "even_cut",
    "even_split",
    "megatron_split",
    "split_of",
    "stage_cut",
    "torchtitan_split",
]

COUNTED: Final = {"embedding_counted": (True, False), "loss_counted": (False, True), "both_counted": (True, True)}
"""Rules that count the embedding or the loss as layers: flags of both by the word of the rule."""


class LayerSplitError(ValueError):
    """Split that a framework refuses or that does not fit the model; the message has the reason."""


class StageCut(NamedTuple):
    """Layers of every stage of the model, in the order in which a token passes them [stages of the model].

    The first stage also has the embedding, the last one the head and the loss.
    """

    blocks: tuple[int, ...]
    predictions: tuple[int, ...]

    @property
    def word(self) -> str:
        """Returns the cut as a list of layers, as Megatron-LM writes it."""
        return list_of_layers(self.blocks, self.predictions)


def stage_cut(layers: int, predictions: int, ranks: int, chunks: int, layout: str) -> StageCut:
    """Returns how a stage layout cuts a model, as far as the number of its layers decides.

    Args:
        layers: blocks of the model.
        predictions: layers for multi-token prediction that are trained.
        ranks: pipeline parallel degree.
        chunks: chunks per rank.
        layout: in the words of the field `stage_layout`; "balanced" weighs blocks and is refused here.

    Raises LayerSplitError where the layout does not divide these layers.
    """
    asked, slots = layout_of_word(layout), ranks * chunks
    if asked.rule == BALANCED:
        raise LayerSplitError("balanced weighs the blocks of a model, which a cost model has to do")
    blocks = even_cut(layers, slots) if asked.rule == EVEN else split_of(asked, layers, ranks, chunks)
    if asked.layers and predictions and sum(asked.predictions) != predictions:
        raise LayerSplitError(
            f"it lists {sum(asked.predictions)} prediction layers, m, and the model trains {predictions}"
        )
    listed = asked.predictions if predictions else ()
    return StageCut(blocks, listed or (*[0] * (slots - 1), predictions))


def even_cut(layers: int, stages: int) -> tuple[int, ...]:
    """Returns the blocks of every stage of the model under the layout "even" [stages of the model].

    As many everywhere; where layers + 2 divide and layers do not, embedding and loss count as layers; otherwise the
    remainder goes to the last stages before the last one.

    Args:
        layers: blocks of the model.
        stages: stages of the model.
    """
    least, more = divmod(layers, stages)
    sizes = [least] * stages
    if more and (layers + 2) % stages == 0:
        sizes = [(layers + 2) // stages] * stages
        sizes[0], sizes[-1] = sizes[0] - 1, sizes[-1] - 1
    else:
        sizes[stages - 1 - more : stages - 1] = [least + 1] * more
    return tuple(sizes)


def split_of(layout: StageLayout, layers: int, ranks: int, chunks: int) -> tuple[int, ...]:
    """Returns the layers of every stage of the model under a stage layout [stages of the model].

    Args:
        layout: numbers, or a rule that counts embedding or loss as layers.
        layers: transformer layers of the model.
        ranks: pipeline parallel degree.
        chunks: chunks per rank.

    Raises LayerSplitError where the layout does not divide these layers.
    """
    if layout.layers:
        stages = len(layout.layers)
        if stages != ranks * chunks:
            raise LayerSplitError(f"it lists {stages} stages of the model, and there are {ranks} x {chunks}")
        if sum(layout.layers) != layers:
            raise LayerSplitError(f"it lists {sum(layout.layers)} blocks")
        return layout.layers
    if layout.first is not None or layout.last is not None:
        return tuple(megatron_split(layers, ranks, virtual=chunks, first=layout.first, last=layout.last))
    embedding, loss = COUNTED[LAYOUTS[layout.rule]]
    found = megatron_split(layers, ranks, virtual=chunks, account_for_embedding=embedding, account_for_loss=loss)
    if min(found) < 0:
        raise LayerSplitError("embedding or loss would be the only layer of a stage, and none is left for the other")
    return tuple(found)


def even_split(layers: int, stages: int) -> list[int]:
    """Return layers per stage; the first stages take the remainder.

    Args:
        layers: layers of the model [count].
        stages: stages of the pipeline [count].
    """
    _check_counts(layers=layers, stages=stages)
    return [layers // stages + (stage < layers % stages) for stage in range(stages)]


def megatron_split(
    layers: int,
    ranks: int,
    *,
    virtual: int = 1,
    first: int | None = None,
    last: int | None = None,
    account_for_embedding: bool = False,
    account_for_loss: bool = False,
) -> list[int]:
    """Returns layers per stage of the model in the order of the loop, as Megatron cuts them.

    Args:
        layers: transformer layers of the model.
        ranks: pipeline parallel degree.
        virtual: chunks per rank.
        first: layers of the first rank (`--decoder-first-pipeline-num-layers`); the rest divides over the others.
        last: layers of the last rank (`--decoder-last-pipeline-num-layers`).
        account_for_embedding: whether the embedding counts as a layer (`--account-for-embedding-in-pipeline-split`).
        account_for_loss: whether the loss counts as a layer (`--account-for-loss-in-pipeline-split`).

    Raises LayerSplitError, in words, where Megatron refuses.
    """
    _check_counts(layers=layers, ranks=ranks, virtual=virtual)
    if first is not None or last is not None:
        if account_for_embedding or account_for_loss:
            raise LayerSplitError(
                "Megatron takes layers of the first or last rank, or counts embedding and loss; not both."
            )
        return _first_and_last(layers, ranks, virtual, first, last)
    counted = layers + account_for_embedding + account_for_loss
    if counted % ranks:
        raise LayerSplitError(f"Megatron refuses {counted} layers on {ranks} ranks: they do not divide.")
    per_rank = counted // ranks
    if per_rank % virtual:
        raise LayerSplitError(f"Megatron refuses {per_rank} layers of a rank in {virtual} chunks: they do not divide.")
    found = [per_rank // virtual] * (ranks * virtual)
    found[0] -= account_for_embedding
    found[-1] -= account_for_loss
    return found


def _first_and_last(layers: int, ranks: int, virtual: int, first: int | None, last: int | None) -> list[int]:
    """Return the split with a different number of layers on the first or last rank, equal for all its chunks."""
    ends = [each for each in (first, last) if each is not None]
    if any(isinstance(each, bool) or not isinstance(each, int) or each < 1 for each in ends):
        raise LayerSplitError("The layers of the first and of the last rank must be whole numbers of at least 1.")
    others, rest = ranks - len(ends), layers - sum(ends)
    if rest < 0 or (others == 0 and rest) or others < 0:
        raise LayerSplitError(f"Megatron refuses {sum(ends)} layers at the ends of {layers} on {ranks} ranks.")
    if others and rest % others:
        raise LayerSplitError(f"Megatron refuses {rest} other layers on {others} ranks: they do not divide.")
    middle = rest // others if others else 0
    per_rank = [first if first is not None else middle, *[middle] * (ranks - 2), last if last is not None else middle]
    per_rank = per_rank[:ranks] if ranks > 1 else [layers]
    for each in per_rank:
        if each % virtual:
            raise LayerSplitError(f"Megatron refuses {each} layers of a rank in {virtual} chunks: they do not divide.")
    return [each // virtual for each in per_rank] * virtual


def torchtitan_split(layers: int, stages: int, *, input_weight: int = 1, output_weight: int = 1) -> list[int]:
    """Return layers per stage by torchtitan's rule, in which embedding and head count as layers.

    Args:
        layers: transformer layers of the model.
        stages: of the model.
        input_weight: layers that the embedding counts as (`pipeline_parallel_first_stage_less_layers`).
        output_weight: layers that the head counts as (`pipeline_parallel_last_stage_less_layers`).

    Raises LayerSplitError, in words, where torchtitan refuses.
    """
    _check_counts(layers=layers, stages=stages)
    for name, weight in (("input_weight", input_weight), ("output_weight", output_weight)):
        if isinstance(weight, bool) or not isinstance(weight, int) or weight < 0:
            raise LayerSplitError(f"{name} must be a whole number of at least 0, and is {str(weight)[:20]}.")
    if stages == 1:
        return [layers]
    counted = layers + input_weight + output_weight
    if counted < stages:
        raise LayerSplitError(f"torchtitan refuses {counted} layers with embedding and head on {stages} stages.")
    if max(input_weight, output_weight) > counted // stages:
        raise LayerSplitError(
            f"torchtitan refuses embedding or head that count as more than the {counted // stages} layers of the "
            "smallest stage."
        )
    found = even_split(counted, stages)
    found[0] -= input_weight
    found[-1] -= output_weight
    return found


def _check_counts(**numbers: int) -> None:
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
            raise LayerSplitError(f"{name} must be a whole number from 1 to 1,000,000, and is {str(value)[:40]}.")
