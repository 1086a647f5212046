"""How a published architecture becomes the six numbers of the block recipe, and what gets lost on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.schema import Architecture

UNRECORDED = (
    "Embedding, LM head and biases are in neither time nor memory; "
    "the published architecture is not recorded, so whatever else differs from it is not known."
)


def block_shape(architecture: Architecture) -> dict[str, int]:
    """The five numbers of the block recipe that follow from the architecture; the sixth, `seq_size`, is a choice.

    A gated MLP of width F becomes a two-matrix MLP of width 1.5 F, which has the same weights, 3 hidden F, and so the
    same matrix FLOPs. Every query head gets a key and a value head of its own.
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


def attention_weights(architecture: Architecture, kv_heads: int | None = None) -> int:
    """Weights of query, key, value and output matrices of one block; `kv_heads` replaces the published number."""
    kv = architecture.kv_heads if kv_heads is None else kv_heads
    return 2 * architecture.hidden * architecture.head_dim * (architecture.heads + kv)


def mlp_weights(architecture: Architecture) -> int:
    """Weights of the MLP's matrices of one block: three if gated, else two."""
    return (3 if architecture.gated_mlp else 2) * architecture.hidden * architecture.ffn


def embedding_weights(architecture: Architecture) -> int:
    """Weights of embedding and LM head: one matrix if tied, else two."""
    return (1 if architecture.tied_embeddings else 2) * architecture.hidden * architecture.vocab_padded


def parameters(architecture: Architecture) -> int:
    """All weights of the published model: matrices, query/key/value biases, two norms per block and a last one.

    Position embeddings, other biases and norms inside attention are not part of `Architecture`: well below 1 %.
    """
    block = attention_weights(architecture) + mlp_weights(architecture) + 2 * _norm_weights(architecture)
    block += _qkv_biases(architecture)
    return architecture.layers * block + embedding_weights(architecture) + _norm_weights(architecture)


def _norm_weights(architecture: Architecture) -> int:
    return architecture.hidden * (1 if architecture.norm == "RMSNorm" else 2)


def _qkv_biases(architecture: Architecture) -> int:
    if not architecture.qkv_bias:
        return 0
    return architecture.head_dim * (architecture.heads + 2 * architecture.kv_heads)


def differences(architecture: Architecture | None, seq_size: int) -> tuple[str, ...]:
    """One sentence for each thing in which the block recipe departs from the architecture, numbers included."""
    if architecture is None:
        return (UNRECORDED,)
    return tuple(_differences(architecture, seq_size))


def _differences(architecture: Architecture, seq_size: int) -> Iterator[str]:
    shape = block_shape(architecture)
    total = parameters(architecture)
    published_block = attention_weights(architecture) + mlp_weights(architecture)

    embedding = embedding_weights(architecture)
    size = f"{_count(embedding)} parameters, {embedding / total:.1%} of the model"
    if architecture.tied_embeddings:
        yield f"The embedding, which is the LM head too ({size}), is in neither time nor memory."
    else:
        yield f"Embedding and LM head ({size}) are in neither time nor memory."
    if architecture.kv_heads < architecture.heads:
        added = attention_weights(architecture, architecture.heads) - attention_weights(architecture)
        kind = "Multi-query" if architecture.kv_heads == 1 else "Grouped-query"
        heads = "head is" if architecture.kv_heads == 1 else "heads are"
        yield (
            f"{kind} attention: {architecture.kv_heads} key/value {heads} counted as {architecture.heads}, "
            f"which adds {added / published_block:.1%} to the block's weights."
        )
    if architecture.gated_mlp:
        width = shape["feedforward"]
        equal = "equal" if 2 * width == 3 * architecture.ffn else f"{2 * width / (3 * architecture.ffn) - 1:.2%} more"
        yield (
            f"The gated MLP of width {architecture.ffn} is counted as two matrices of width {width}: {equal} weights "
            f"and matrix FLOPs, but per token one activation of {width} elements in place of one of {architecture.ffn} "
            f"and a product of {architecture.ffn}."
        )
    if architecture.sliding_window is not None and architecture.sliding_window < seq_size:
        yield (
            f"Layers with a sliding window of {architecture.sliding_window} tokens are counted as attending to "
            f"all {seq_size}."
        )
    if architecture.parallel_residual:
        yield (
            "Attention and MLP, parallel in the published block, are counted one after the other, "
            "with two tensor-parallel exchanges per pass where one would do."
        )
    if architecture.norm == "RMSNorm":
        yield (
            f"RMSNorm is counted as LayerNorm: {4 * architecture.hidden} instead of {2 * architecture.hidden} "
            "norm weights per block, and the FLOPs of both moments."
        )
    if biases := _qkv_biases(architecture):
        yield f"The {biases} query, key and value biases of each block are not counted."
    if architecture.rope_theta is not None:
        yield "Rotating queries and keys by their position is not counted."
    published = architecture.params_published_b
    if published is not None and abs(total / (published * 1e9) - 1) > 0.01:
        yield (
            f"The recorded shape has {_count(total)} parameters, {abs(total / (published * 1e9) - 1):.1%} "
            f"{'fewer' if total < published * 1e9 else 'more'} than the {_count(published * 1e9)} published."
        )


def _count(number: float) -> str:
    """A parameter count as people write it: 1.05 B, 124 M."""
    return f"{number / 1e9:.2f} B" if number >= 1e9 else f"{number / 1e6:.3g} M"
