"""The sizes of a model that every reader of it asks for, whichever way the model is described."""

from __future__ import annotations

from typing import NamedTuple

from models.layers import LayerPattern
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
    """Returns the sizes of a model, from its pattern of layers, its architecture or else its block numbers.

    Of a pattern, heads are taken from the first layer with attention to all tokens (1 without any), and experts from
    the first mixture.

    Args:
        model: any model.
    """
    if model.layers is not None:
        return _pattern_dimensions(model.layers)
    found = model.architecture
    if found is None:
        block = model.calculon or model.require_block()
        return Dimensions(block.hidden, block.num_blocks, block.attn_heads, 0, 1)
    experts = found.experts
    return Dimensions(
        found.hidden, found.layers, found.heads, experts.routed if experts else 0, experts.top_k if experts else 1
    )


def _pattern_dimensions(pattern: LayerPattern) -> Dimensions:
    layers = [layer for block in pattern.blocks for layer in block.layers]
    heads = next((shape.heads for layer in layers if (shape := layer.softmax()) is not None), 1)
    routed, top_k = next(
        ((routing.routed, routing.top_k) for layer in layers if (routing := layer.routing()) is not None), (0, 1)
    )
    return Dimensions(pattern.hidden, pattern.layers, heads, routed, top_k)
