"""Long schedules without their repetitions: only filling, a steady stretch and draining are kept.

Past the fill every additional group of microbatches adds the same time, so a replay of fewer microbatches shows the
same picture; the omitted time is stated next to it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.simulate.schedules.contract import ScheduleRule, ScheduleShape

__all__ = ["FoldedPicture", "kept_microbatches"]


@dataclass(frozen=True, slots=True)
class FoldedPicture:
    """Omitted part of a shortened picture."""

    microbatches: int = 0
    time: float = 0.0
    """By how much the shown schedule is shorter [s]."""
    cut: float = math.inf
    """Position on the shown axis at which the repetitions are left out [s]."""


def kept_microbatches(rule: ScheduleRule, shape: ScheduleShape, most_actions: int) -> int:
    """Returns how many microbatches to show: all, or the fewest of the same remainder that show every phase.

    Args:
        rule: the schedule.
        shape: its numbers.
        most_actions: beyond which repetitions are left out, never the filling and draining.
    """
    total = shape.microbatches
    actions = (3 if rule.splits else 2) * shape.ranks * shape.chunks
    if actions * total <= most_actions or rule.timed:
        return total
    # Interleaved, paired and split orders repeat by groups; three of them show fill, steady state and drain.
    if shape.chunks > 1 or rule.pairs or rule.splits:
        group = math.lcm(shape.ranks, shape.group or shape.ranks)
        least = 3 * group
    else:
        group, least = 1, 2 * shape.ranks + 6
    if rule.name == "looped-bfs" or rule.name == "gpipe":
        group, least = 1, shape.ranks + 4
    return total - max(0, total - least) // group * group
