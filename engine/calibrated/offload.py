"""Offloading to the second memory tier: what moves, what of it shows, what stays beside the processor.

Per block and microbatch the forward pass fetches weights while it sends kept activations away (two directions, so the
larger counts); the backward pass fetches both. Optimizer state and gradients travel once per step. What does not fit
behind the computation of the block, or of the update, is exposed. Two blocks of whatever is offloaded stay beside the
processor: the one at work and the one in transit. The same rules as Calculon 0.1.0 (Q13), but for the optimizer,
which there moves with every microbatch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.calibrated.inputs import Floats
from engine.calibrated.memory import StageMemory

__all__ = [
    "RESERVE", "BlockMoves", "Exposed", "Offloadable", "exposed", "moved_shares", "offloadable", "tiers", "tiers_of",
]  # fmt: skip

RESERVE = 2.0**30
"""Bytes of a processor's memory that are not for tensors: driver context and buffers of collectives. Stated; allocated
tensors of measured runs reach 96 % of the capacity."""

RESIDENT_BLOCKS = 2.0


@dataclass(slots=True)
class BlockMoves:
    """What offloading moves, arrays [rows]: bytes per block and microbatch of weights and kept activations, bytes per
    step of optimizer state with gradients; and the seconds of a block and microbatch that hide the first two.
    """

    weights: Floats
    activations: Floats
    state: Floats
    forward: Floats
    backward: Floats


@dataclass(slots=True)
class Exposed:
    """Offloading that shows per step [s], forward, backward and in the update; bandwidth that would hide it [bytes/s].

    The bandwidth is infinite where there is no time to hide behind.
    """

    forward: Floats
    backward: Floats
    update: Floats
    bandwidth: Floats


def exposed(
    moves: BlockMoves,
    *,
    rate: float,
    weights: Floats,
    activations: Floats,
    state: Floats,
    repeats: Floats,
    optimizer: Floats,
) -> Exposed:
    """What of the traffic shows in a step.

    Args:
        moves: what there is to move.
        rate: rate of the link to the second tier per direction [bytes/s]; 0 where there is none.
        weights, activations, state: 1 where they are offloaded, else 0.
        repeats: blocks x microbatches of a step on the critical path.
        optimizer: seconds of the update [s].
    """
    there = weights * moves.weights
    kept = activations * moves.activations
    forward, backward, once = np.maximum(there, kept), there + kept, state * moves.state
    seconds = 1.0 / rate if rate > 0 else 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.maximum(forward / moves.forward, backward / moves.backward)
        needed = np.maximum(needed, np.where(once > 0, once / optimizer, 0.0))
    return Exposed(
        repeats * np.maximum(forward * seconds - moves.forward, 0.0) * (forward > 0),
        repeats * np.maximum(backward * seconds - moves.backward, 0.0) * (backward > 0),
        np.maximum(once * seconds - optimizer, 0.0) * (once > 0),
        np.nan_to_num(needed, nan=0.0, posinf=np.inf),
    )


def moved_shares(stage: StageMemory) -> tuple[Floats, Floats]:
    """Shares of a stage's weights or state, and of its kept activations, that offloading takes from the first tier."""
    return (
        1.0 - np.minimum(RESIDENT_BLOCKS / np.maximum(stage.blocks, 1.0), 1.0),
        1.0 - np.minimum(RESIDENT_BLOCKS / np.maximum(stage.blocks * stage.flying, 1.0), 1.0),
    )


@dataclass(slots=True)
class Offloadable:
    """A stage as offloading sees it, arrays of any shapes that broadcast [bytes].

    `peak` is what it needs without; `held` are gradients and optimizer state; `left` and `left_kept` are what
    `moved_shares` says.
    """

    peak: Floats
    weights: Floats
    activations: Floats
    held: Floats
    left: Floats
    left_kept: Floats


def offloadable(stage: StageMemory) -> Offloadable:
    """What `tiers_of` needs of a stage, whatever is offloaded."""
    return Offloadable(
        stage.peak(), stage.weights, stage.activations, stage.gradients + stage.optimizer, *moved_shares(stage)
    )


def tiers(
    stages: tuple[StageMemory, StageMemory], weights: Floats | float, activations: Floats | float, state: Floats | float
) -> tuple[Floats, Floats]:
    """Bytes that the first and the second memory tier need, the larger of first and last stage [bytes].

    Args:
        stages: memory of the first and the last stage without offloading.
        weights, activations, state: 1 where weights, kept activations, or gradients with optimizer state are offloaded.
    """
    return tiers_of((offloadable(stages[0]), offloadable(stages[1])), weights, activations, state)


def tiers_of(
    stages: tuple[Offloadable, Offloadable], weights: Floats | float, activations: Floats | float, state: Floats | float
) -> tuple[Floats, Floats]:
    """The same as `tiers`, for stages that are asked about more than once."""
    first: list[Floats] = []
    second: list[Floats] = []
    for stage in stages:
        weight, kept, held = (
            _where(flag, value)
            for flag, value in ((weights, stage.weights), (activations, stage.activations), (state, stage.held))
        )
        first.append(stage.peak - ((weight + held) * stage.left + kept * stage.left_kept) + RESERVE)
        second.append(weight + kept + held)
    return np.maximum(*first), np.maximum(*second)


def _where(flag: Floats | float, values: Floats) -> Floats:
    """Values where the flag is 1, else 0. One flag for all is not multiplied by: there are many values."""
    if np.ndim(flag):
        return flag * values
    return values if flag else np.zeros(())
