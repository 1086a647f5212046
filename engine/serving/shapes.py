"""Shapes of a model for serving: the share of each half of a block on a processor, and the blocks of a stage."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated import (
    ModelShapes,
    attention_weights,
    dense_weights,
    embedding_weights,
    expert_weights,
    model_shapes,
    modelled_layers,
    router_weights,
    shared_weights,
)
from engine.executions.arrays import Floats
from models import LayerPattern, Model, unrepresented
from models.layers import LayerKind

__all__ = [
    "BlockPattern",
    "ServingStage",
    "Weights",
    "cached_elements",
    "held_weights",
    "key_value_heads",
    "layer_pattern_of",
    "longest_context",
    "not_represented",
    "pattern_of",
    "stages",
]


@dataclass(frozen=True, slots=True)
class BlockPattern:
    """Parts of each block, from the first, by position: attention and MLP of a plain model, of `PLAIN_PARTS`, or the
    kind of block of a model with a pattern."""

    blocks: tuple[tuple[int, ...], ...]
    parts: int
    """Different parts."""
    is_routed: bool
    """True if some block has experts."""
    is_dense: bool
    """True if some block has a plain MLP."""


PLAIN_PARTS = ("full", "windowed", "dense", "sparse")
"""Parts of a plain model's blocks: attention to everything, within a window; an MLP, a mixture of experts."""


class ServingStage(NamedTuple):
    """Equal stages: their number, parts of blocks in the order of their pattern, and whether they hold embedding and
    head."""

    stages: int
    parts: tuple[int, ...]
    embedding: bool
    head: bool


def pattern_of(model: Model) -> BlockPattern:
    """Returns the blocks of a model; one known by Calculon's six numbers has full attention and plain MLPs.

    Args:
        model: one of the library's kind, with its architecture or without.
    """
    pattern = layer_pattern_of(model)
    if pattern is not None:
        kinds = tuple((run.block,) for run in pattern.runs for _ in range(run.count))
        routed = [any(layer.routing() for layer in block.layers) for block in pattern.blocks]
        dense = [any(map(_is_dense, block.feedforwards)) for block in pattern.blocks]
        return BlockPattern(kinds, len(pattern.blocks), any(routed), any(dense))
    found = model.architecture
    if found is None:
        return BlockPattern(((0, 2),) * model.num_blocks, len(PLAIN_PARTS), False, True)
    experts = found.expert_layers
    halves = zip((window is not None for window in found.windows), experts, strict=True)
    blocks = tuple((int(windowed), 2 + mixture) for windowed, mixture in halves)
    return BlockPattern(blocks, len(PLAIN_PARTS), any(experts), not all(experts))


def _is_dense(layer: LayerKind) -> bool:
    return layer.activation() is not None and layer.routing() is None


def layer_pattern_of(model: Model) -> LayerPattern | None:
    """Returns the pattern of layers that serving reads of a model; None for plain attention in every block.

    Args:
        model: one of the library's kind, with its architecture or without.
    """
    return model_shapes(model).pattern


def longest_context(model: Model) -> int | None:
    """Returns the longest context that the authors of a model state [tokens]; None where they state none.

    Args:
        model: one of the library's kind, with its architecture or without.
    """
    if model.layers is not None:
        return model.layers.max_seq
    return None if model.architecture is None else model.architecture.max_seq


def stages(pattern: BlockPattern, pipeline_par: int) -> tuple[ServingStage, ...]:
    """Returns the stages of a pipeline, equal ones together. The first stages hold one block more where blocks do not
    divide.

    At most as many stages as blocks.

    Args:
        pattern: kinds of the model's blocks, from the first.
        pipeline_par: stages that blocks are split into; at most as many as blocks.
    """
    blocks = len(pattern.blocks)
    least, more = divmod(blocks, pipeline_par)
    counted: dict[tuple[tuple[int, ...], bool, bool], int] = {}
    start = 0
    for position in range(pipeline_par):
        end = start + least + (position < more)
        held = Counter(part for block in pattern.blocks[start:end] for part in block)
        kind = (tuple(held[part] for part in range(pattern.parts)), start == 0, end == blocks)
        counted[kind] = counted.get(kind, 0) + 1
        start = end
    return tuple(ServingStage(number, *kind) for kind, number in counted.items())


def key_value_heads(model: ModelShapes, tensor_par: Floats) -> Floats:
    """Returns the key and value heads on one processor: split over the group, repeated where it has more ranks than
    heads.

    Args:
        model: sizes of a block.
        tensor_par: processors that share every layer [rows].
    """
    return np.maximum(model.key_value_heads / tensor_par, 1.0)


def cached_elements(model: ModelShapes, heads: Floats) -> Floats:
    """Returns the elements that one token leaves in the cache of one block with `heads` key and value heads.

    Latent attention caches the compressed vector and the rotated key, for any number of heads (DeepSeek-V2,
    arXiv:2405.04434, section 2.1.4); every processor of the group holds all of it.

    Args:
        model: sizes of a block.
        heads: key and value heads that are held [rows].
    """
    # DeepSeek-V2, section 2.1.4: d_c + d_h^R elements per token.
    latent = model.key_value_rank + model.rope_size
    return np.where(model.latent > 0, latent, heads * (model.attn_size + model.value_size))


class Weights(NamedTuple):
    """Weights on one processor [elements]: attention, MLP, routed experts, shared experts and router, one vocabulary
    matrix."""

    attention: Floats
    dense: Floats
    experts: Floats
    shared: Floats
    router: Floats
    vocabulary: Floats


def held_weights(model: ModelShapes, tensor_par: Floats, expert_par: Floats) -> Weights:
    """Returns the weights of one processor under tensor and expert parallelism [elements].

    Compressions of latent attention, and key and value heads beyond those there are, are repeated on every rank.

    Args:
        model: sizes of a block.
        tensor_par: processors that share every layer [rows].
        expert_par: processors that experts are spread over [rows].
    """
    t = tensor_par
    return Weights(
        attention_weights(model, t),
        dense_weights(model) / t,
        expert_weights(model) / np.maximum(expert_par, t),
        shared_weights(model) / t,
        router_weights(model),
        embedding_weights(model) / t,
    )


def not_represented(model: Model) -> tuple[str, ...]:
    """Returns sentences on the parts of a published model that serving leaves out or changes.

    Args:
        model: one of the library's kind, with its architecture or without.
    """
    pattern = layer_pattern_of(model)
    if pattern is not None:
        modelled = modelled_layers(pattern)
        words = (
            f"Layers of {' and '.join(modelled)}: time and memory are modelled from operations, bytes and states; no "
            "measured server has such layers.",
        )
        return (*(words if modelled else ()), *unrepresented(model))
    found = model.architecture
    if found is None:
        return ("The model is known by six numbers only: plain attention, no gate in its MLP, no vocabulary.",)
    remarks = list(unrepresented(model))
    if found.sliding_window is not None and found.window_kind == "chunked":
        remarks.append("While decoding, chunked windows are taken as sliding ones of the same size.")
    if found.trained_prediction_layers:
        remarks.append("Tokens are generated one by one unless draft tokens are stated: multi-token prediction.")
    return tuple(remarks)
