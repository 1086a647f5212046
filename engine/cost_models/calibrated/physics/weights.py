"""Parameters of a block, an expert layer and the vocabulary, in elements of the whole model (not yet split).

Sources: counts of the layers' matrices; latent attention, DeepSeek-V2 (arXiv:2405.04434, section 2.1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated.physics.adapters import local_adapters
from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layers.matrices import (
    attention_weights,
    dense_weights,
    embedding_weights,
    expert_weights,
    router_weights,
    shared_weights,
)
from engine.cost_models.calibrated.physics.pipeline.layouts import sizes_of
from engine.cost_models.calibrated.physics.pipeline.schedules import DUALPIPE, copies
from engine.cost_models.calibrated.physics.pipeline.stages import BOTH, ENDS, TURN, StageBlocks, placement_of
from models import LayerPattern

__all__ = [
    "HeldParameters",
    "LocalWeights",
    "attention_weights",
    "dense_weights",
    "embedding_weights",
    "expert_weights",
    "heads",
    "held_on",
    "local_weights",
    "replicas_of",
    "router_weights",
    "shared_weights",
    "trained_on",
    "vocabulary_matrices",
]


class LocalWeights(NamedTuple):
    """Parameters on one processor [elements]: of a block of every size outside routed experts, of its routed experts
    (0 in a dense block), and of one vocabulary matrix."""

    blocks: tuple[Floats, ...]
    experts: tuple[Floats, ...]
    vocabulary: Floats

    def whole(self) -> tuple[Floats, ...]:
        """Return the parameters of a block of every size, with its routed experts [rows] [elements]."""
        return tuple(
            block + routed if np.any(routed) else block for block, routed in zip(self.blocks, self.experts, strict=True)
        )


class HeldParameters(NamedTuple):
    """Parameters of one stage on one processor [elements]: of blocks outside experts, of experts, of the vocabulary,
    with which projections of prediction layers count."""

    blocks: Floats
    experts: Floats
    vocabulary: Floats


def held_on(case: Case, local: LocalWeights, stage: StageBlocks, number: int) -> HeldParameters:
    """Returns the parameters that a stage holds on one processor, of both directions where it works in both [rows]
    [elements].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        local: what tensor and expert parallelism leave on one processor [rows] [elements].
        stage: the stage, with its blocks of every kind.
        number: 0 for the first stage, 1 for the last, more for those between them.
    """
    none: Floats = np.zeros(())
    vocabulary = none
    if number < ENDS:
        vocabulary = local.vocabulary * vocabulary_matrices(case, number)
        if np.any(case.model.prediction_layers > 0):
            # DeepSeek-V3, section 2.2: a prediction layer projects 2 h columns to h.
            projections = 2.0 * case.model.hidden**2 / case.layout.tensor_par
            vocabulary = vocabulary + case.model.prediction_layers * heads(case, number) * projections
    times = copies(case.layout.schedule) if np.any(case.layout.schedule == DUALPIPE) else np.ones(())
    blocks = experts = none
    sizes = sizes_of(case.model)
    for count, weights, routed in zip(stage.by_size(sizes), local.blocks, local.experts, strict=True):
        if np.any(count):
            blocks = blocks + times * count * weights
            if np.any(routed):
                experts = experts + times * count * routed
    return HeldParameters(blocks, experts, vocabulary)


def trained_on(case: Case, held: HeldParameters, stage: StageBlocks) -> HeldParameters:
    """Return the trained parameters of a stage on one processor [rows] [elements]: all, or its adapters.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        held: parameters that the stage holds, of `held_on`.
        stage: the stage, with its blocks of every kind.
    """
    if case.frozen is None:
        return held
    times = copies(case.layout.schedule) if np.any(case.layout.schedule == DUALPIPE) else np.ones(())
    outside = inside = np.zeros(())
    for count, (plain, routed) in zip(stage.by_size(sizes_of(case.model)), local_adapters(case), strict=True):
        outside, inside = outside + times * count * plain, inside + times * count * routed
    return HeldParameters(outside, inside, np.zeros(()))


@once_per_case
def replicas_of(case: Case) -> tuple[Floats, Floats]:
    """Returns how many processors hold the same parameters outside experts, and the same experts [rows] [processors].

    Both directions of a pipeline are among them.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    layout = case.layout
    replicas = layout.data_par * layout.context_par
    if np.any(layout.schedule == DUALPIPE):
        replicas = replicas * copies(layout.schedule)
    split = layout.expert_par * layout.expert_tensor_par
    # The same expert is on one in e x (slices) of all data x context x tensor processors.
    return replicas, np.maximum(replicas * layout.tensor_par / split, 1.0)


def vocabulary_matrices(case: Case, number: int) -> Floats:
    """Return the number of vocabulary matrices on an end of the pipeline [rows] [matrices].

    One, or two on a stage with both ends of the model, unless embedding and head are tied, and on a last stage whose
    prediction layers look tokens up.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        number: 0 for the first stage, 1 for the last.
    """
    alone = case.layout.pipeline_par == 1
    both = np.where(case.model.tied_embeddings == 0, 2.0, 1.0)
    found = np.where(alone, both, 1.0)
    if number > 0 and np.any(case.model.prediction_layers > 0):
        found = np.where(case.model.prediction_layers > 0, both, found)
    placement = placement_of(case)
    if placement.any():
        turned = both if number == 0 else 0.0
        found = np.where((placement == TURN) & ~alone, turned, np.where((placement == BOTH) & ~alone, both, found))
    return np.asarray(found)


def heads(case: Case, number: int) -> Floats:
    """Returns 1 where an end of the pipeline has head and loss, 0 where not [rows] [dimensionless].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        number: 0 for the first stage, 1 for the last.
    """
    alone = case.layout.pipeline_par == 1
    found = np.asarray(alone, np.float64) if number == 0 else np.ones(())
    placement = placement_of(case)
    if placement.any():
        turned = 1.0 if number == 0 else 0.0
        found = np.where((placement == TURN) & ~alone, turned, np.where((placement == BOTH) & ~alone, 1.0, found))
    return np.asarray(found)


@once_per_case
def local_weights(case: Case) -> LocalWeights:
    """Return the weights on one processor after tensor and expert parallelism [rows] [elements]; 0 experts for dense
    models.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model, layout = case.model, case.layout
    if model.pattern is not None:
        return _local_weights_of_pattern(case, model.pattern)
    t = layout.tensor_par
    attention = attention_weights(model, t)
    split = layout.expert_par * layout.expert_tensor_par
    return LocalWeights(
        # The router is whole on every rank; experts are split over expert ranks and slices.
        (attention + dense_weights(model) / t, attention + shared_weights(model) / t + router_weights(model)),
        (np.zeros(()), np.where(model.experts > 0, expert_weights(model) / split, 0.0)),
        embedding_weights(model) / t,
    )


def _local_weights_of_pattern(case: Case, pattern: LayerPattern) -> LocalWeights:
    """Return the weights on one processor of every kind of block of a pattern [rows] [elements]."""
    t, split = case.layout.tensor_par, case.layout.expert_par * case.layout.expert_tensor_par
    outside, routed = [], []
    for block in pattern.blocks:
        around = experts = np.zeros(())
        for product in (each for layer in block.layers for each in layer.products(pattern.hidden)):
            if product.held > 1:
                experts = experts + product.parameters / split
            else:
                around = around + product.local_weights(t)
        outside.append(around)
        routed.append(experts)
    return LocalWeights(tuple(outside), tuple(routed), embedding_weights(case.model) / t)
