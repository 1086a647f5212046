"""Counts of a model: weights in all, weights that a token passes through, and what a sequence keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from models.layers.pattern import Block, LayerPattern

__all__ = ["ParameterCounts", "pattern_counts"]

BYTES: Final = 2
"""Bytes of an element of caches and states in bfloat16."""


@dataclass(frozen=True, slots=True)
class ParameterCounts:
    """Weights of a model without multi-token prediction, and bytes that a sequence keeps in bfloat16."""

    total: int
    """All weights."""
    active: int
    """Weights that one token passes through; embedding and head count whole."""
    embedding: int
    lm_head: int
    """Weights of the head; 0 if it is the embedding."""
    products: int
    """Weights of the products in blocks that one token passes through."""
    layer_kinds: Mapping[str, int]
    """Number of blocks by kind, such as "gated_deltanet|experts"; "#2" marks another shape of the same kind."""
    cache_bytes_per_token: float
    """Cache that grows with every token [bytes]."""
    window_bytes_per_sequence: float
    """Cache inside full windows [bytes]."""
    state_bytes_per_sequence: int
    """States of a fixed size [bytes]."""
    tower: int = 0
    """Weights of the tower that reads images, in none of the other counts."""


def pattern_counts(pattern: LayerPattern) -> ParameterCounts:
    """Return the counts of a model.

    Args:
        pattern: of its blocks.
    """
    hidden = pattern.hidden
    embedding = pattern.vocab * hidden
    head = 0 if pattern.tied_embeddings else embedding
    outside = embedding + head + pattern.final_norms * pattern.norm_width * hidden + pattern.other_parameters
    outside += sum(each.parameters for each in pattern.edges)
    total = active = outside
    products, state = 0, 0
    cache = window = 0.0
    kinds: dict[str, int] = {}
    for block, count in pattern.counted_blocks():
        norms = block.norms * pattern.norm_width * hidden
        total += count * (norms + sum(each.count_parameters(hidden) for each in block.layers))
        active += count * (norms + sum(each.count_visited_parameters(hidden) for each in block.layers))
        products += count * sum(
            product.visited_parameters for each in block.layers for product in each.products(hidden)
        )
        for kept in (each.sequence_state(hidden) for each in block.mixers):
            cache += count * sum(kept.per_token.values())
            window += count * kept.windowed * kept.window
            state += count * sum(kept.per_sequence.values())
        kinds[_free_word(block, kinds)] = count
    return ParameterCounts(
        total, active, embedding, head, products, kinds, BYTES * cache, BYTES * window, BYTES * state
    )


def _free_word(block: Block, taken: Mapping[str, int]) -> str:
    """Return the word of a block, numbered if blocks of another shape have the same."""
    others = sum(word.partition("#")[0] == block.word for word in taken)
    return f"{block.word}#{others + 1}" if others else block.word
