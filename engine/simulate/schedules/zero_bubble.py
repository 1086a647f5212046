"""Schedules that do gradients of weights apart, one chunk per rank: ZB-H1 and ZB-H2 by hand.

Source: Qi et al., "Zero Bubble Pipeline Parallelism" (arXiv:2401.10241), section 2; the list of ZB-H1 is the one that
torch.distributed.pipelining (InterleavedZeroBubble with one stage per rank), the authors' program at memory limit P and
Victarry/PP-Schedule-Visualization agree on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from engine.simulate.schedules.contract import (
    Entry,
    ScheduleError,
    ScheduleRule,
    ScheduleShape,
    forward,
    input_gradient,
    weight_gradient,
)

__all__ = ["RULES"]


def _by_hand(depth: int) -> Callable[[ScheduleShape], list[list[Entry]]]:
    """Returns the rule of `depth` forwards ahead for each rank behind and as many weight gradients kept per rank."""

    def order(shape: ScheduleShape) -> list[list[Entry]]:
        lists = []
        for rank in range(shape.ranks):
            # ZB-H1 runs P - 1 - r forwards ahead and keeps r gradients of weights pending, ZB-H2 twice as many of both.
            ahead = min(shape.microbatches, depth * (shape.ranks - 1 - rank))
            entries = [forward(rank, m) for m in range(ahead)]
            done = 0
            for m in range(shape.microbatches):
                if ahead + m < shape.microbatches:
                    entries.append(forward(rank, ahead + m))
                entries.append(input_gradient(rank, m))
                if m >= depth * rank:
                    entries.append(weight_gradient(rank, done))
                    done += 1
            entries += [weight_gradient(rank, m) for m in range(done, shape.microbatches)]
            lists.append(entries)
        return lists

    return order


def _check_second(shape: ScheduleShape) -> None:
    if shape.microbatches < 2 * shape.ranks - 1:
        raise ScheduleError(
            f"ZB-H2 needs at least 2P-1 = {2 * shape.ranks - 1} microbatches on {shape.ranks} ranks; there are "
            f"{shape.microbatches}."
        )


def _remarks_of_first(shape: ScheduleShape) -> list[str]:
    rounds = max(1, shape.microbatches // shape.ranks)
    if shape.microbatches % rounds:
        return [f"torch refuses {shape.microbatches} microbatches: they do not divide into {rounds} rounds."]
    return []


RULES: Final = (
    ScheduleRule(
        name="zb-h1",
        title="ZB-H1",
        order=_by_hand(1),
        splits=True,
        remarks=_remarks_of_first,
        source="Qi et al. 2023 (arXiv:2401.10241), section 2.1",
        frameworks={"torch": "InterleavedZeroBubble", "zero-bubble": "--enable-zero-bubble"},
    ),
    ScheduleRule(
        name="zb-h2",
        title="ZB-H2",
        order=_by_hand(2),
        splits=True,
        check=_check_second,
        source="Qi et al. 2023 (arXiv:2401.10241), section 2.2, as a rule by hand",
        frameworks={"zero-bubble": "--zero-bubble-max-pending-backward 2P, which plans its own order"},
    ),
)
