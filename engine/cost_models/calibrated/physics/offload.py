"""Offloading to the second memory tier: traffic, exposed time, and the data that stay in the first tier.

Per block and microbatch the forward pass fetches weights while it sends kept activations away (two directions, so the
larger counts); the backward pass fetches both (`stage_times.offloaded_flow`). Optimizer
state and gradients travel once per step. Traffic that is longer than the computation of the block, or of the update, is
exposed. Two blocks of all offloaded data stay in the first tier, the one in use and the one in transit. So do the
weights of embedding and head, which every microbatch needs; their gradients and optimizer state are offloaded with the
blocks'. The rules follow Calculon 0.1.0, except for the optimizer, which there moves with every microbatch.

Source: Calculon 0.1.0, `llm.py` `_get_fw_offload_size` and `_get_bw_offload_size`; the optimizer's part, stated by us.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.cost_models.calibrated.physics.inputs import Floats
from engine.cost_models.calibrated.physics.memory import StageMemory
from engine.executions.arrays import Flags

__all__ = ["RESERVE", "Exposed", "Offloadable", "fitting", "offloadable", "tiers", "tiers_of", "with_state"]

RESERVE = 2.0**30
"""Memory of a processor that is not for tensors [bytes]: driver context and buffers of collectives. Source: stated by
us; allocated tensors of measured runs reach 96 % of the capacity."""


@dataclass(slots=True)
class Exposed:
    """Offloading that shows per step [s], forward, backward and in the update; the slowest stage with it, per
    microbatch [s]; bandwidth that would hide it [bytes/s], infinite where there is no time to hide behind."""

    forward: Floats
    backward: Floats
    update: Floats
    slowest: Floats
    bandwidth: Floats


def with_state(
    forward: Floats,
    backward: Floats,
    slowest: Floats,
    bandwidth: Floats,
    *,
    state: Floats,
    rate: float,
    optimizer: Floats,
) -> Exposed:
    """Return the exposed time of offloading in a step, with optimizer state and gradients included [rows] [s, bytes/s].

    Args:
        forward, backward, slowest, bandwidth: fields of `stage_times.OffloadedFlow` [rows] [s, s, s, bytes/s].
        state: bytes of optimizer state and gradients that are offloaded [bytes].
        rate: rate of the link to the second tier per direction [bytes/s]; 0 without one.
        optimizer: seconds of the update, which hides the transfer [s].
    """
    seconds = 1.0 / rate if rate > 0 else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        # Where neither is anything, nothing is needed.
        needed = np.fmax(bandwidth, state / optimizer)
    # Gradients and optimizer state move once per step, behind the update.
    return Exposed(forward, backward, np.maximum(state * seconds - optimizer, 0.0), slowest, needed)


@dataclass(slots=True)
class Offloadable:
    """Inputs of offloading for one stage, arrays of any shapes that broadcast [bytes].

    `peak` is the memory without offloading; `weights` are the weights of its blocks; `held` are gradients and optimizer
    state; `left`
    and `left_kept` are the shares of weights or state, and of kept activations, that leave the first tier.
    """

    peak: Floats
    weights: Floats
    activations: Floats
    held: Floats
    left: Floats
    left_kept: Floats


def offloadable(stage: StageMemory) -> Offloadable:
    """Return the inputs of `tiers_of` for a stage, independent of the offloaded kinds [bytes].

    Args:
        stage: memory of the stage without offloading [bytes].
    """
    return Offloadable(
        stage.peak(), stage.block_weights, stage.activations, stage.state(), stage.movable, stage.movable_kept
    )


def tiers(
    stages: Sequence[StageMemory], weights: Floats | float, activations: Floats | float, state: Floats | float
) -> tuple[Floats, Floats]:
    """Return the memory of the first and the second tier, each on the stage with the most of it [rows] [bytes].

    Args:
        stages: memory of the stages without offloading [bytes].
        weights, activations, state: 1 if weights, kept activations, or gradients with optimizer state are
            offloaded, else 0.
    """
    return tiers_of([offloadable(stage) for stage in stages], weights, activations, state)


def tiers_of(
    stages: Sequence[Offloadable], weights: Floats | float, activations: Floats | float, state: Floats | float
) -> tuple[Floats, Floats]:
    """Return the same as `tiers`, for stages prepared by `offloadable` [rows] [bytes].

    Args:
        stages: what `offloadable` says of each stage [bytes].
        weights, activations, state: as for `tiers`.
    """
    first: Floats = np.zeros(())
    second: Floats = np.zeros(())
    for stage in stages:
        weight, kept, held = (
            _where_set(flag, value)
            for flag, value in ((weights, stage.weights), (activations, stage.activations), (state, stage.held))
        )
        # What moves out leaves the first tier, but for the two blocks that stay (`memory.RESIDENT_BLOCKS`).
        left = stage.peak - ((weight + held) * stage.left + kept * stage.left_kept) + RESERVE
        first, second = np.maximum(first, left), np.maximum(second, weight + kept + held)
    return first, second


def fitting(
    stages: Sequence[Offloadable],
    weights: float,
    activations: float,
    state: float,
    *,
    capacities: tuple[float, float],
    shape: tuple[int, ...],
) -> Flags:
    """Return where the memory of both tiers from `tiers_of` is within the capacities, exact to the bit. The sums are
    never formed in full, since most of their terms have fewer dimensions.

    Args:
        stages: inputs of each stage, from `offloadable` [bytes].
        weights, activations, state: as for `tiers`, of all rows.
        capacities: capacities of the first and the second tier [bytes].
        shape: shape to which the figures of stages broadcast.
    """
    found = np.full(shape, capacities[0] >= 0.0 and capacities[1] >= 0.0)
    left = np.empty(shape)
    for stage in stages:
        # Sums in the order of `tiers_of`, without what is nothing.
        outside = [each for flag, each in ((weights, stage.weights), (state, stage.held)) if flag]
        blocks = [(outside[0] if len(outside) == 1 else outside[0] + outside[1]) * stage.left] if outside else []
        kept = [stage.activations * stage.left_kept] if activations else []
        gone = [*blocks, *kept]
        if len(gone) == 2:
            np.add(gone[0], gone[1], out=left)
            np.subtract(stage.peak, left, out=left)
        elif gone:
            np.subtract(stage.peak, gone[0], out=left)
        else:
            left[...] = stage.peak
        left += RESERVE
        found &= left <= capacities[0]
        there = [each for flag, each in ((weights, stage.weights), (activations, stage.activations)) if flag]
        there += [stage.held] if state else []
        if there:
            found &= sum(there[1:], start=there[0]) <= capacities[1]
    return found


def _where_set(flag: Floats | float, values: Floats) -> Floats:
    """Return the values where the flag is 1, else 0. A single flag avoids the multiplication of many values."""
    if np.ndim(flag):
        return flag * values
    return values if flag else np.zeros(())
