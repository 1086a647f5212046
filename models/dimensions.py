"""The sizes of a model that every reader of it asks for, whichever way the model is described."""

from __future__ import annotations

from typing import NamedTuple

from models.schema import Model

__all__ = ["Dimensions", "dimensions"]


class Dimensions(NamedTuple):
    """Sizes of a model: width of the residual stream, blocks, attention heads, routed experts of a block that has
    them, and how many of these a token visits. A model without experts has 0 of them."""

    hidden: int
    num_blocks: int
    attn_heads: int
    experts: int
    experts_per_token: int


def dimensions(model: Model) -> Dimensions:
    """Returns the sizes of a model, from its architecture or else from its block numbers.

    Args:
        model: with an architecture or block numbers.
    """
    found = model.architecture
    if found is None:
        block = model.require_block()
        return Dimensions(block.hidden, block.num_blocks, block.attn_heads, 0, 1)
    experts = found.experts
    return Dimensions(
        found.hidden, found.layers, found.heads, experts.routed if experts else 0, experts.top_k if experts else 1
    )
