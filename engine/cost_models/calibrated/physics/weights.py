"""Parameters of a block, an expert layer and the vocabulary, in elements of the whole model (not yet split).

Sources: counts of the layers' matrices; latent attention, DeepSeek-V2 (arXiv:2405.04434, section 2.1).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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
from engine.cost_models.calibrated.physics.pipeline.schedules import DUALPIPE, copies
from engine.cost_models.calibrated.physics.pipeline.stages import BOTH, ENDS, TURN, StageBlocks, placement_of

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
    "vocabulary_matrices",
]


class LocalWeights(NamedTuple):
    """Parameters on one processor [elements]: a dense block, a block of experts without and its routed experts alone,
    one vocabulary matrix."""

    dense: Floats
    sparse: Floats
    experts: Floats
    vocabulary: Floats


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
    blocks = times * stage.dense * local.dense
    if not np.any(stage.experts):
        return HeldParameters(blocks, none, vocabulary)
    sparse = times * stage.experts
    return HeldParameters(blocks + sparse * local.sparse, sparse * local.experts, vocabulary)


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
    t = layout.tensor_par
    attention = attention_weights(model, t)
    split = layout.expert_par * layout.expert_tensor_par
    return LocalWeights(
        # The router is whole on every rank; experts are split over expert ranks and slices.
        attention + dense_weights(model) / t,
        attention + shared_weights(model) / t + router_weights(model),
        np.where(model.experts > 0, expert_weights(model) / split, 0.0),
        embedding_weights(model) / t,
    )
