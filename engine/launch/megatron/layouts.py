"""How Megatron-Core cuts layers into stages, by its flags and as a stage layout of an execution.

Source: megatron/core/transformer/pipeline_parallel_layer_layout.py and transformer_config.py. The words of layouts are
those of `engine.columns.stage_layouts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.columns.stage_layouts import StageLayoutError, layout_of_word
from engine.launch.contract import LaunchError

__all__ = ["cut_of", "layout_of", "list_of"]

MOST_CHUNKS: Final = 2_000
_LETTERS: Final = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
_COUNTED: Final = {(True, False): "embedding_counted", (False, True): "loss_counted", (True, True): "both_counted"}
ACCOUNTS: Final = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
ENDS: Final = ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers")


def list_of(layout: Any) -> tuple[str, int]:
    """Returns a list of layers in the one form that equal ones share, and how many stages of the model it names.

    Args:
        layout: a text such as "Et*2|(t*2|)*34,t*3|tL", or a list of lists of names.

    Raises `LaunchError` for what is none.
    """
    if isinstance(layout, list | tuple):
        slots = [each for each in layout if isinstance(each, list | tuple)]
        if len(slots) != len(layout) or len(slots) > MOST_CHUNKS:
            raise LaunchError("The pipeline layout is no list of lists of layers.")
        layout = "|".join("".join(_LETTERS.get(str(name), "?") for name in each) for each in slots)
    try:
        found = layout_of_word(str(layout).strip())
    except StageLayoutError as problem:
        raise LaunchError(str(problem)) from None
    if not found.layers:
        raise LaunchError(f"The pipeline layout is {str(layout)[:60]!r}; it must be a list such as Et*3|(tt|)*29m|L.")
    return found.word, len(found.layers)


def cut_of(layers: int, pipeline: int, chunks: int, layout: str) -> dict[str, Any]:
    """Returns the arguments that cut layers as a stage layout says; none where they divide evenly.

    Args:
        layers: blocks of the model.
        pipeline: ranks of the pipeline.
        chunks: chunks of each rank.
        layout: in the words of the field `stage_layout`, "balanced" not among them.

    Raises `LaunchError` where Megatron refuses it.
    """
    if pipeline == 1:
        return {}
    found = layout_of_word(layout)
    if found.layers:
        return {"pipeline_model_parallel_layout": found.word}
    virtual = {"num_virtual_stages_per_pipeline_rank": chunks} if chunks > 1 else {}
    if layout in _COUNTED.values():
        which = next(pair for pair, word in _COUNTED.items() if word == layout)
        return virtual | {name: True for name, on in zip(ACCOUNTS, which, strict=True) if on}
    if found.first is not None or found.last is not None:
        given = zip(ENDS, (found.first, found.last), strict=True)
        return virtual | {name: number for name, number in given if number is not None}
    return virtual | _even(layers, pipeline, chunks)


def _even(layers: int, pipeline: int, chunks: int) -> dict[str, Any]:
    """How layers that do not divide evenly are cut: embedding and loss count as layers, or the ends hold others."""
    if layers % (pipeline * chunks) == 0:
        return {}
    if (layers + 2) % (pipeline * chunks) == 0:
        return dict.fromkeys(ACCOUNTS, True)
    if chunks > 1:
        raise LaunchError(
            f"{layers} layers are no multiple of {pipeline} stages of {chunks} chunks, nor with embedding and loss; "
            "Megatron takes them with a stage layout only."
        )
    if pipeline == 2:
        return dict(zip(ENDS, (layers // 2, -(-layers // 2)), strict=True))
    middle = -(-layers // pipeline)
    ends = layers - middle * (pipeline - 2)
    while ends < 2 and middle > 1:
        middle -= 1
        ends = layers - middle * (pipeline - 2)
    first = -(-ends // 2)
    return dict(zip(ENDS, (first, ends - first), strict=True))


def layout_of(arguments: Mapping[str, Any], layers: int | None, pipeline: int, chunks: int) -> str | None:
    """Returns the stage layout that arguments come to; None where stages are even, as they are by themselves.

    Args:
        arguments: those of `ACCOUNTS` and `ENDS` that are set, and `pipeline_model_parallel_layout`.
        layers: blocks of the model, None where nothing says it.
        pipeline: ranks of the pipeline.
        chunks: chunks of each rank.

    Raises `LaunchError` for a list of layers that is none.
    """
    listed = arguments.get("pipeline_model_parallel_layout")
    if pipeline == 1 or not arguments:
        return None
    if listed:
        return list_of(listed)[0]
    if layers is not None:
        try:
            usual = _even(layers, pipeline, chunks)
        except LaunchError:
            usual = None
        if usual == dict(arguments):
            return None
    counted = (bool(arguments.get(ACCOUNTS[0])), bool(arguments.get(ACCOUNTS[1])))
    if any(counted):
        return _COUNTED[counted]
    ends = [f"{word}_{int(arguments[name])}" for word, name in zip(("first", "last"), ENDS, strict=True)
            if arguments.get(name)]  # fmt: skip
    return "_".join(ends) or None
