"""The paper's objective: the latency of a step of a synchronous pipeline, from the stage that sets its pace.

Fan et al., "DAPPLE" (PPoPP 2021), section 4: with the pivot stage Q, L = T_warmup + T_steady + T_ending, where
transfers between stages are stages of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

__all__ = ["EXCEEDED", "Latency", "MicrobatchWork", "latency"]

EXCEEDED = 1 + 1e-9
"""Factor by which a stage must be longer than the pivot to replace it: more than rounding of equal times."""


@dataclass(frozen=True, slots=True)
class MicrobatchWork:
    """Work of a stage for one microbatch: forward and backward pass [s], and its all-reduce once per step [s]."""

    forward: float
    backward: float
    reduce: float = 0.0

    @property
    def both(self) -> float:
        """Returns forward and backward pass [s]."""
        return self.forward + self.backward


@dataclass(frozen=True, slots=True)
class Latency:
    """A step in its three phases [s], and the pivot's position among all stages, network stages included."""

    warmup: float
    steady: float
    ending: float
    pivot: int

    @property
    def total(self) -> float:
        """Returns the step [s]."""
        return self.warmup + self.steady + self.ending


def latency(stages: Sequence[MicrobatchWork], count: int) -> Latency:
    """Returns the latency of stages, network stages between them, with `count` microbatches.

    The pivot starts at the last stage; going to the front, a stage whose steady phase is longer than the pivot's and
    all passes between them takes its place. The ending of a stage up to the pivot waits for the backward passes from
    the pivot to it; behind the pivot, stages have finished earlier. The paper counts the pivot itself among the
    latter, by which a single stage would end before its last backward pass; here it is counted among the former.

    Args:
        stages: seconds of the passes of each, from the first on, with network stages in between.
        count: microbatches of a step.

    Raises `ValueError` without stages.
    """
    if not stages:
        raise ValueError("A pipeline has at least one stage.")
    pivot, between = len(stages) - 1, 0.0
    for position in range(len(stages) - 2, -1, -1):
        # DAPPLE, section 4: a stage is the new pivot if (M - 1)(F_s + B_s) > (M - 1)(F_Q + B_Q) + passes between.
        if (count - 1) * stages[position].both > ((count - 1) * stages[pivot].both + between) * EXCEEDED:
            pivot, between = position, 0.0
        else:
            between += stages[position].both
    backward = list(accumulate((stage.backward for stage in stages), initial=0.0))
    # T_e = max_s (AR_s + sum of backward passes from Q to s, or less those from Q to s behind it).
    ending = max(
        stage.reduce
        + (backward[pivot + 1] - backward[position] if position <= pivot else backward[pivot] - backward[position + 1])
        for position, stage in enumerate(stages)
    )
    # T_w = F_1 + ... + F_Q,  T_s = (M - 1)(F_Q + B_Q).
    warmup = sum(stage.forward for stage in stages[: pivot + 1])
    return Latency(warmup, (count - 1) * stages[pivot].both, ending, pivot)
