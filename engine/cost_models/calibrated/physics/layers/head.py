"""The ends of the model: embedding on the first stage, output projection and loss on the last, always in 16 bits.

A layer for multi-token prediction looks the next token up, projects it and the last block's output to one vector, runs
a block like the last, and takes head and loss again (DeepSeek-V3, arXiv:2412.19437, section 2.2). Its block counts with
the blocks of its stage (`layouts`); the rest is here. Its two norms are not counted.

Source: the calibration study on 1,147 measured rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.inputs import Case, Floats
from engine.cost_models.calibrated.physics.layers.block import tensor_exchange
from engine.cost_models.calibrated.physics.layers.gemm import Linear, LinearLayer, MatrixUnit
from engine.cost_models.calibrated.physics.layers.launch import launch_time
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.parameters import Parameters

__all__ = ["FORWARD_SHARE", "EndShares", "Ends", "end_shares", "ends", "head_layer", "prediction_layer"]

LOGIT_FORWARD = 12.0
"""Bytes per logit of the 32-bit softmax and loss forward [bytes]. Source: count of the kernels' reads and writes, taken
from the calibration study on 1,147 measured rows."""
LOGIT_BACKWARD = 14.0
"""The same backward [bytes]. Source: as for `LOGIT_FORWARD`."""
EMBEDDING_FORWARD = 6.0
"""Bytes per element that is looked up, forward [bytes]. Source: as for `LOGIT_FORWARD`."""
EMBEDDING_BACKWARD = 10.0
"""The same backward [bytes]. Source: as for `LOGIT_FORWARD`."""


FORWARD_SHARE = 1.0 / 3.0
"""Share of the ends' seconds that is forward, and as much that is gradients of weights [dimensionless]: one each of the
head's three products. Source: stated by us."""


class EndShares(NamedTuple):
    """Shares of the ends' seconds [dimensionless]: of the forward pass, and of gradients of weights."""

    forward: Floats | float
    weights: Floats | float


def end_shares(case: Case) -> EndShares:
    """Return the shares of the ends' seconds by pass [rows] [dimensionless].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    # Frozen weights have no product for their gradients: one of two products is forward.
    trained = EndShares(FORWARD_SHARE, FORWARD_SHARE) if case.frozen is None else EndShares(0.5, 0.0)
    alone = case.forward_only
    if alone is None:
        return trained
    return EndShares(np.where(alone, 1.0, trained.forward), np.where(alone, 0.0, trained.weights))


class Ends(NamedTuple):
    """Seconds per microbatch, forward and backward together [s]: embedding on the first stage, head on the last."""

    embedding: Floats
    head: Floats


@once_per_case
def head_layer(case: Case) -> LinearLayer:
    """Returns the output projection on one processor of the last stage, its vocabulary split over the tensor-parallel
    group.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    return LinearLayer(case.tokens, case.model.vocabulary / case.layout.tensor_par, case.model.hidden)


@once_per_case
def prediction_layer(case: Case) -> LinearLayer:
    """Returns the projection of two vectors to one of a layer for multi-token prediction, its columns split over the
    tensor-parallel group.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    return LinearLayer(case.tokens, case.model.hidden / case.layout.tensor_par, 2.0 * case.model.hidden)


def _without_gradients(case: Case, layer: Linear) -> Linear:
    """Return a layer without the gradient of its weights if they are frozen, and forward alone where only that runs."""
    if case.frozen is not None:
        layer = Linear(layer.forward, layer.backward - layer.weight, np.zeros(()))
    if case.forward_only is not None:
        layer = Linear(layer.forward, *(np.where(case.forward_only, 0.0, each) for each in layer[1:]))
    return layer


def ends(case: Case, rates: SustainedRates, p: Parameters) -> Ends:
    """Returns the seconds of embedding and head per microbatch, not below their host-bound floors [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
    """
    model, t = case.model, case.layout.tensor_par
    unit = MatrixUnit(rates.matrix16, rates.memory, case.accelerator.multiprocessors, p)
    logits, alone = _without_gradients(case, head_layer(case).time(unit)), case.forward_only
    per_logit: Floats = np.asarray(LOGIT_FORWARD + LOGIT_BACKWARD)
    # Nothing before the embedding needs its gradient, nor does a frozen one.
    per_lookup: Floats = np.asarray(EMBEDDING_FORWARD + (EMBEDDING_BACKWARD if case.frozen is None else 0.0))
    if alone is not None:
        per_logit = np.where(alone, LOGIT_FORWARD, per_logit)
        per_lookup = np.where(alone, EMBEDDING_FORWARD, per_lookup)
    # Softmax and cross entropy over T V / t logits.
    loss = per_logit * case.tokens * model.vocabulary / t / rates.memory
    head = logits.forward + logits.backward + loss
    looked_up = per_lookup * case.split_tokens * model.hidden / rates.memory
    # Each rank looks up its part of the vocabulary: an all-reduce completes the vectors.
    exchanged = np.where(t > 1, tensor_exchange(case, rates, p), 0.0)
    embedding = looked_up + exchanged
    host = launch_time(case, p) * p.edge_launches
    if alone is not None:
        host = host * np.where(alone, FORWARD_SHARE, 1.0)
    again = model.prediction_layers
    predicting = host_again = np.zeros(())
    if np.any(again > 0):
        projected = _without_gradients(case, prediction_layer(case).time(unit))
        one = head + looked_up + projected.forward + projected.backward + exchanged
        predicting, host_again = again * one, again * host
    staged = case.layout.pipeline_par > 1
    # Without a pipeline both ends are on the same processors and share one floor.
    alone = np.maximum(host - embedding - head, 0.0)
    return Ends(
        # The first stage has about half of the kernels of both ends.
        np.where(staged, np.maximum(embedding, host / 2.0), embedding),
        np.where(staged, np.maximum(head, host), head + alone) + np.maximum(predicting, host_again),
    )
