"""Layers of a pattern, each with the case that plain formulas read: the rows with that layer's sizes as the model's.

Source: sizes that the layers of `models.layers` state.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.inputs import SIZES, Case, ModelShapes
from models import LayerPattern
from models.layers import LayerKind

__all__ = ["layer_cases", "modelled_layers", "pattern_shapes", "split_sizes"]


@once_per_case
def layer_cases(case: Case) -> tuple[tuple[tuple[LayerKind, Case], ...], ...]:
    """Returns the layers of every kind of block with the case of each; layers of equal sizes share one.

    Args:
        case: rows of a model with a pattern.
    """
    if case.model.pattern is None:
        return ()
    cases: dict[LayerKind, Case] = {}
    found = []
    for block in case.model.pattern.blocks:
        for layer in block.layers:
            if layer not in cases:
                sizes: dict[str, Any] = {name: np.asarray(float(value)) for name, value in _sizes_of(layer).items()}
                view = replace(case, model=replace(case.model, pattern=None, **sizes)) if sizes else case
                cases[layer] = view if case.known is None else view.remembering()
        found.append(tuple((layer, cases[layer]) for layer in block.layers))
    return tuple(found)


@lru_cache(maxsize=1024)
def _sizes_of(layer: LayerKind) -> dict[str, float]:
    """Return the sizes of a layer by the names of `ModelShapes`."""
    found: dict[str, float] = {}
    if (softmax := layer.softmax()) is not None:
        found |= {
            "attn_heads": softmax.heads,
            "key_value_heads": softmax.kv_heads,
            "attn_size": softmax.key_width,
            "value_size": softmax.value_width,
            "latent": softmax.is_latent,
            "query_rank": softmax.query_rank,
            "key_value_rank": softmax.kv_rank,
            "rope_size": softmax.rope_width,
            "window": softmax.window or 0,
            "window_chunked": 0,
        }
    routing, activation = layer.routing(), layer.activation()
    if activation is not None:
        found |= {"gated": activation.gated, "feedforward": activation.width}
    if routing is not None:
        found |= {
            "experts": routing.routed,
            "experts_per_token": routing.top_k,
            "expert_feedforward": routing.width,
            # Shared experts count in widths of a routed one.
            "shared_experts": routing.shared_width / routing.width,
            "expert_groups": routing.groups,
            "groups_per_token": routing.groups_per_token,
        }
    return found


def modelled_layers(pattern: LayerPattern | None) -> tuple[str, ...]:
    """Returns the titles of layers whose work is modelled from operations, bytes and launches: no measured run has any.

    Args:
        pattern: of the blocks; None for a model without one.
    """
    if pattern is None:
        return ()
    mixers = (layer for block in pattern.blocks for layer in block.mixers)
    return tuple(dict.fromkeys(layer.title for layer in mixers if layer.softmax() is None))


@lru_cache(maxsize=256)
def split_sizes(
    pattern: LayerPattern, *, with_repeated: bool = True
) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
    """Returns the sizes that a tensor-parallel degree must divide, and sizes that its product with the context-parallel
    degree must divide, each with its name.

    Args:
        pattern: of the blocks.
        with_repeated: False leaves out sizes that serving engines repeat on ranks.
    """
    tensor: dict[tuple[str, int], None] = {}
    context: dict[tuple[str, int], None] = {}
    for layer in (each for block in pattern.blocks for each in block.layers):
        sizes = layer.tensor_divisors().items()
        free = frozenset() if with_repeated else layer.repeated_sizes()
        tensor |= dict.fromkeys((name, size) for name, size in sizes if name not in free)
        context |= dict.fromkeys(layer.context_divisors().items())
    return tuple(tensor), tuple(context)


def pattern_shapes(pattern: LayerPattern, seq_size: int, prediction_layers: int = 0) -> ModelShapes:
    """Returns the shapes of a model with a pattern, as plain numbers.

    Sizes for rules about the whole model come from its first attention and its first feed-forward layer.

    Args:
        pattern: of the blocks.
        seq_size: length of a training sample [tokens].
        prediction_layers: further blocks like the last that are trained for multi-token prediction.
    """
    values: dict[str, float] = dict.fromkeys(SIZES, 0.0)
    values |= {"attn_heads": 1.0, "key_value_heads": 1.0, "experts_per_token": 1.0}
    values |= {"expert_groups": 1.0, "groups_per_token": 1.0, "prediction_layers": float(prediction_layers)}
    layers = [layer for block in pattern.blocks for layer in block.layers]
    for layer in reversed(layers):
        values |= _sizes_of(layer)
    dense = [acted.width for layer in layers if (acted := layer.activation()) and layer.routing() is None]
    values |= {
        "hidden": pattern.hidden,
        "feedforward": max(dense, default=int(values["expert_feedforward"])),
        "num_blocks": pattern.layers,
        "vocabulary": pattern.vocab,
        "seq_size": seq_size,
        "tied_embeddings": pattern.tied_embeddings,
        "window": 0.0,
        "window_chunked": 0.0,
    }
    return ModelShapes.of({**values, "pattern": pattern})
