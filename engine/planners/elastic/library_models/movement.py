"""Bytes that move when a job changes from one execution on some GPUs to another on others.

A GPU holds a box of the model: a range of the layers, by its pipeline stage; a range of every layer's width, by its
tensor rank; and of optimizer states, and of weights in ZeRO stage 3, a range of that, by its replica. The part of its
new box that it already holds stays; the rest comes from GPUs that hold it, or else from a checkpoint. Ranks are
numbered tensor first, then data, then pipeline. Experts and context parallelism divide the box further, as the cost
model's bytes say, and nothing stays where they change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from engine.executions.arrays import Floats, Ints
from hardware import System

__all__ = ["HeldBoxes", "Movement", "Placed", "movement"]

FULLY_SHARDED: Final = 3
"""ZeRO stage from which weights are shared out among replicas too. Source: Rajbhandari et al. 2020, section 5.3."""

OPTIMIZER_SHARDED: Final = 1
"""ZeRO stage from which optimizer states are. Source: Rajbhandari et al. 2020, section 5.1."""


class Placed(Protocol):
    """An execution on GPUs."""

    @property
    def gpus(self) -> int:
        """Returns all GPUs."""

    @property
    def system(self) -> System:
        """Returns the system that they are of."""

    @property
    def execution(self) -> Mapping[str, Any]:
        """Returns fields and statistics."""


@dataclass(frozen=True)
class HeldBoxes:
    """Ranges that each rank holds, [ranks, 2] each, as shares of the whole: layers, width, and the part that replicas
    share."""

    layers: Floats
    width: Floats
    shard: Floats


@dataclass(frozen=True)
class Movement:
    """Traffic of one change.

    `received` are bytes that each rank of the new execution gets, weights and optimizer states together; `seconds` is
    the least time of the rank that gets most, over the outermost network of the job; `lost` are bytes of the model that
    no surviving GPU held and only a checkpoint has.
    """

    received: Floats
    seconds: float
    lost: float

    @property
    def most(self) -> float:
        """Returns the bytes of the rank that gets most."""
        return float(self.received.max(initial=0.0))

    @property
    def total(self) -> float:
        """Returns the bytes of all ranks."""
        return float(self.received.sum())


def movement(
    before: Placed, after: Placed, kept: Sequence[int] | None = None, survivors: Sequence[int] | None = None
) -> Movement:
    """Returns the traffic of a change from one execution to another.

    Args:
        before: on its GPUs, numbered from 0.
        after: on its own.
        kept: for each GPU of `after` its number in `before`, -1 for a new one; the first ones stay in order where None.
        survivors: numbers in `before` of the GPUs that can send; the GPUs in `kept` where None.
    """
    ranks = np.arange(after.gpus)
    old = np.where(ranks < before.gpus, ranks, -1) if kept is None else np.array(kept, np.int64)
    alive = old[old >= 0] if survivors is None else np.array(survivors, np.int64)
    same_cut = all(
        _degree_of(before.execution, name) == _degree_of(after.execution, name)
        for name in ("context_par", "expert_par")
    )
    received = np.zeros(after.gpus)
    lost = 0.0
    for space, stage in (("weight_space", FULLY_SHARDED), ("optimizer_space", OPTIMIZER_SHARDED)):
        there, here = _held_boxes(before.execution, before.gpus, stage), _held_boxes(after.execution, after.gpus, stage)
        size = float(after.execution[space])
        # What a GPU holds already of its new box does not move.
        stays = (
            np.where(old >= 0, _overlap_shares(here, there, np.maximum(old, 0)), 0.0)
            if same_cut
            else np.zeros(after.gpus)
        )
        received += size * (1.0 - stays)
        lost += _lost_share(there, alive) * _model_bytes(before.execution, space, stage, before.gpus)
    return Movement(received, float(received.max(initial=0.0)) / _receive_bandwidth(after), lost)


def _degree_of(execution: Mapping[str, Any], name: str) -> int:
    value = execution.get(name)
    return 1 if value is None or value != value else int(value)


def _held_boxes(execution: Mapping[str, Any], gpus: int, stage: int) -> HeldBoxes:
    """Returns the box of each GPU for state that replicas share from a ZeRO stage on."""
    tp, pp, dp = (_degree_of(execution, name) for name in ("tensor_par", "pipeline_par", "data_par"))
    cp = _degree_of(execution, "context_par")
    ranks: Ints = np.arange(gpus)
    replica = ranks // (tp * cp) % dp
    # Cost models without stages of ZeRO say only whether the optimizer is sharded.
    zero = execution.get("zero_stage", OPTIMIZER_SHARDED if execution.get("optimizer_sharding") else 0)
    sharded = int(zero) >= stage
    return HeldBoxes(
        _unit_interval(ranks // (tp * cp * dp) % pp, pp),
        _unit_interval(ranks % tp, tp),
        _unit_interval(replica, dp) if sharded else _unit_interval(np.zeros(gpus, np.int64), 1),
    )


def _unit_interval(position: Ints, parts: int) -> Floats:
    return np.stack([position / parts, (position + 1) / parts], axis=1)


def _overlap_shares(here: HeldBoxes, there: HeldBoxes, old: Ints) -> Floats:
    """Returns the share of each rank's new box that lies in the box of the GPU's old rank."""
    share = np.ones(len(old))
    for name in ("layers", "width", "shard"):
        mine, theirs = getattr(here, name), getattr(there, name)[old]
        # Common part of two intervals, as a share of the new one.
        common = np.minimum(mine[:, 1], theirs[:, 1]) - np.maximum(mine[:, 0], theirs[:, 0])
        share *= np.clip(common, 0.0, None) / (mine[:, 1] - mine[:, 0])
    return share


def _lost_share(there: HeldBoxes, alive: Ints) -> float:
    """Returns the share of the model that no surviving GPU holds, by counting boxes, which are equal or disjoint."""
    boxes = np.concatenate([there.layers, there.width, there.shard], axis=1)
    distinct, which = np.unique(boxes.round(12), axis=0, return_inverse=True)
    survives = np.zeros(len(distinct), np.bool_)
    survives[which.reshape(-1)[alive]] = True
    return float(1.0 - survives.mean())


def _model_bytes(execution: Mapping[str, Any], space: str, stage: int, gpus: int) -> float:
    """Returns the bytes of the whole model, from the bytes of one rank."""
    boxes = _held_boxes(execution, gpus, stage)
    volume = np.prod([getattr(boxes, name)[0, 1] - getattr(boxes, name)[0, 0] for name in ("layers", "width", "shard")])
    return float(execution[space]) / float(volume)


def _receive_bandwidth(after: Placed) -> float:
    """Returns the bytes per second that a GPU can receive over the outermost network of the job."""
    network = after.system.network_spanning(after.gpus)
    return network.bandwidth_gb_per_s * 1e9 * network.efficiency
