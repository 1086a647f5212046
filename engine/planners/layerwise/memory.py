"""Memory of a stage on each of its devices: parameters with their optimizer, and activations in flight.

Stage x of S keeps the activations of K = min(S - x, M) microbatches under early backward scheduling, policy A of Fan et
al., "DAPPLE" (PPoPP 2021), section 3, or K = min(2 (S - x) - 1, M) under policy B. Recomputation keeps the input of the
stage for each microbatch, and the activations of one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.executions.arrays import Floats

__all__ = ["POLICIES", "in_flight", "stage_memory"]

POLICIES: Final = ("A", "B")


def in_flight(behind: Any, count: int, policy: str) -> Any:
    """Returns microbatches whose activations a stage keeps, `behind` being the number of stages from it to the last,
    itself included; whole numbers or arrays of them.

    Args:
        behind: stages from it to the last, itself included; a whole number or an array of them.
        count: microbatches of one pipeline.
        policy: one of `POLICIES`: "A" keeps as many as `behind`, "B" one less than twice as many.
    """
    # DAPPLE, section 3: K = min(S - x, M) of policy A, min(2 (S - x) - 1, M) of policy B.
    return np.minimum(behind if policy == "A" else 2 * behind - 1, count)


def stage_memory(
    parameters: Floats, activations: Floats, entering: Floats, kept: Any, optimizer: float, *, recompute: bool
) -> Floats:
    """Returns memory of one device of a stage [bytes].

    Args:
        parameters: of the stage [bytes].
        activations, entering: all activations and the stage's input, of one microbatch on one device [bytes].
        kept: microbatches in flight.
        optimizer: parameters, gradients and optimizer states in multiples of the parameters.
        recompute: whether only the stage's input is kept, and the rest computed again.
    """
    states = optimizer * parameters
    # Recomputed: K inputs and the activations of one microbatch; else K times all activations.
    made: Floats = states + kept * entering + activations if recompute else states + kept * activations
    return made
