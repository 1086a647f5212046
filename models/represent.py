"""Derivation of the six numbers of Calculon's block recipe from a published architecture, and its losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from models.parameters import attention_weights, embedding_weights, mlp_weights, norm_weights, parameters, qkv_biases

if TYPE_CHECKING:
    from models.architecture import Architecture

UNRECORDED = (
    "Embedding, LM head and biases are in neither time nor memory; "
    "the published architecture is not recorded, so whatever else differs from it is not known."
)


def obstacles(architecture: Architecture) -> tuple[str, ...]:
    """Returns the parts of the architecture that six block numbers cannot represent even roughly; empty for dense
    models.

    Args:
        architecture: the published one.
    """
    found = []
    if architecture.latent_attention is not None:
        found.append("multi-head latent attention")
    if architecture.sparse_attention is not None:
        found.append(f"attention to {architecture.sparse_attention.top_k} tokens that an indexer picks")
    if architecture.experts is not None:
        found.append(f"a mixture of {architecture.experts.routed} experts")
    return tuple(found)


def block_shape(architecture: Architecture) -> dict[str, int]:
    """Returns the five numbers of the block recipe that follow from the architecture; the sixth, `seq_size`, is a
    choice.

    A gated MLP of width F becomes a two-matrix MLP of width 1.5 F, which has the same weights, 3 hidden F, and so the
    same matrix FLOPs. Every query head gets a key and a value head of its own. Meant for architectures without
    `obstacles`.

    Args:
        architecture: the published one.
    """
    ffn = architecture.ffn
    return {
        "hidden": architecture.hidden,
        # rounded half up, so that an odd width never loses weights
        "feedforward": (3 * ffn + 1) // 2 if architecture.gated_mlp else ffn,
        "attn_heads": architecture.heads,
        "attn_size": architecture.head_dim,
        "num_blocks": architecture.layers,
    }


def differences(architecture: Architecture | None, seq_size: int, feedforward: int | None = None) -> tuple[str, ...]:
    """Returns one sentence for each thing in which the block recipe departs from the architecture, numbers included.

    `feedforward` is the MLP width that the recipe reads where it is not the derived one. Where the recipe cannot stand
    for the architecture at all, the one sentence says so.

    Args:
        architecture: the published one; None where it is not recorded.
        seq_size: of the block recipe [tokens].
        feedforward: MLP width that the recipe reads [elements]; the derived one where None.
    """
    if architecture is None:
        return (UNRECORDED,)
    if found := obstacles(architecture):
        return (f"Calculon's block recipe cannot represent {' and '.join(found)}, so the model has no block numbers.",)
    return tuple(_list_differences(architecture, seq_size, feedforward))


def _list_differences(architecture: Architecture, seq_size: int, feedforward: int | None) -> Iterator[str]:
    total = parameters(architecture)
    published_block = attention_weights(architecture) + mlp_weights(architecture)

    embedding = embedding_weights(architecture)
    size = f"{_count_text(embedding)} parameters, {_percent_text(embedding / total)} of the model"
    if architecture.tied_embeddings:
        yield f"The embedding, which is the LM head too ({size}), is in neither time nor memory."
    else:
        yield f"Embedding and LM head ({size}) are in neither time nor memory."
    if architecture.positions == "learned":
        yield f"The embedding of {architecture.max_seq:,} positions is not counted."
    if architecture.positions == "relative":
        yield "Relative positions, with a projection of their own in every block, are not counted."
    if architecture.kv_heads < architecture.heads:
        added = attention_weights(architecture, architecture.heads) - attention_weights(architecture)
        kind = "Multi-query" if architecture.kv_heads == 1 else "Grouped-query"
        heads = f"head{'' if architecture.kv_heads == 1 else 's'} {_verb_for(architecture.kv_heads)}"
        yield (
            f"{kind} attention: {architecture.kv_heads} key/value {heads} counted as {architecture.heads}, "
            f"which adds {_percent_text(added / published_block)} to the block's weights."
        )
    yield from _mlp_differences(architecture, feedforward)
    if architecture.sliding_window is not None and architecture.sliding_window < seq_size:
        windowed = sum(window is not None for window in architecture.windows)
        which = "All layers" if windowed == architecture.layers else f"The {windowed} of {architecture.layers} layers"
        yield (
            f"{which} with a {architecture.window_kind} window of {architecture.sliding_window:,} tokens are counted "
            f"as attending to all {seq_size:,}."
        )
    if architecture.parallel_residual:
        yield (
            "Attention and MLP, parallel in the published block, are counted one after the other, "
            "with two tensor-parallel exchanges per pass where one would do."
        )
    if architecture.norm == "RMSNorm":
        yield (
            f"RMSNorm is counted as LayerNorm: {4 * architecture.hidden:,} instead of "
            f"{architecture.norms_per_block * norm_weights(architecture):,} norm weights per block, "
            "and the FLOPs of both moments."
        )
    if architecture.norms_per_block > 2:
        yield f"{architecture.norms_per_block} norms per block are counted as 2."
    if architecture.qk_norm:
        yield "Normalising queries and keys is not counted."
    if biases := qkv_biases(architecture):
        yield f"The {biases:,} query, key and value biases of each block are not counted."
    if architecture.rope_theta is not None or architecture.positions == "rotary":
        yield "Rotating queries and keys by their position is not counted."
    if architecture.prediction_layers:
        extra = architecture.prediction_layers
        blocks = "block" if extra == 1 else f"{extra} blocks"
        yield f"The {blocks} for multi-token prediction {_verb_for(extra)} not counted."
    published = architecture.params_published_b
    if published is not None and abs(total / (published * 1e9) - 1) > 0.01:
        difference = _percent_text(abs(total / (published * 1e9) - 1))
        yield (
            f"The recorded shape has {_count_text(total)} parameters, {difference} "
            f"{'fewer' if total < published * 1e9 else 'more'} than the {_count_text(published * 1e9)} published."
        )


def _mlp_differences(architecture: Architecture, feedforward: int | None) -> Iterator[str]:
    derived = block_shape(architecture)["feedforward"]
    width = derived if feedforward is None else feedforward
    weights = 2 * architecture.hidden * width
    share = weights / mlp_weights(architecture) - 1
    equal = "equal" if share == 0 else f"{_percent_text(abs(share), 2)} {'more' if share > 0 else 'fewer'}"
    if architecture.gated_mlp:
        yield (
            f"The gated MLP of width {architecture.ffn:,} is counted as two matrices of width {width:,}: {equal} "
            f"weights and matrix FLOPs, but per token one activation of {width:,} elements in place of one of "
            f"{architecture.ffn:,} and a product of {architecture.ffn:,}."
        )
    elif width != derived:
        yield f"The MLP of width {architecture.ffn:,} is counted as one of width {width:,}: {equal} weights."


def _percent_text(share: float, decimals: int = 1) -> str:
    return f"{100 * share:.{decimals}f} %"


def _verb_for(number: int) -> str:
    return "is" if number == 1 else "are"


def _count_text(number: float) -> str:
    """A parameter count as people write it: 1.05 bn, 124 M."""
    return f"{number / 1e9:.2f} bn" if number >= 1e9 else f"{number / 1e6:.3g} M"
