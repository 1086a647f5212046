"""Ranks of one job beside each other: steps, computation, and who waits for whom.

A collective lasts until the slowest rank has come and everything is sent, so its shortest duration over the ranks is
the sending, and the rest is waiting. Clocks of ranks differ; durations are compared, never moments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

import numpy as np

from engine.traces.events import RankTrace
from engine.traces.figures import COPIES, step_seconds
from engine.traces.intervals import measure, unite

__all__ = ["RanksCompared", "compare_ranks"]

SLOWER: Final = 0.01
"""Further computation from which the rank that waits least is called a straggler [dimensionless]. Source: stated by
us, above the spread of repeated steps."""


@dataclass(frozen=True, slots=True)
class RanksCompared:
    """Figures of each rank, in the order of the traces: step [s], None without steps; computation and waiting [s], None
    where no collective could be matched. `straggler`: position of the rank that the others wait for, if one is."""

    names: tuple[int | str, ...]
    step_s: tuple[float | None, ...]
    compute_s: tuple[float, ...]
    waiting_s: tuple[float | None, ...]
    matched: int
    straggler: int | None

    def figures(self) -> dict[str, Any]:
        """Return the figures by rank, and the spread over the ranks."""
        steps = [each for each in self.step_s if each is not None]
        return {
            "step_s": dict(zip(map(str, self.names), self.step_s, strict=True)),
            "compute_s": dict(zip(map(str, self.names), self.compute_s, strict=True)),
            "waiting_s": dict(zip(map(str, self.names), self.waiting_s, strict=True)),
            "median_step_s": median(steps) if steps else None,
            "step_spread_percent": 100 * (max(steps) - min(steps)) / median(steps) if steps else None,
            "matched_collectives": self.matched,
            "straggler": None if self.straggler is None else self.names[self.straggler],
        }


def compare_ranks(traces: Sequence[RankTrace]) -> RanksCompared:
    """Return the ranks beside each other.

    Args:
        traces: one per rank, at least one.
    """
    compute = []
    for trace in traces:
        works = ~trace.events.is_of("comm", *COPIES)
        compute.append(measure(unite(trace.events.start[works], trace.events.end[works])) / 1e9)
    keyed = [_key_collectives(trace) for trace in traces]
    shared = set(keyed[0]).intersection(*keyed[1:]) if len(keyed) > 1 else set()
    waiting: list[float | None] = [None] * len(traces)
    straggler = None
    if shared:
        durations = np.array([[own[key] for key in sorted(shared)] for own in keyed], np.float64)
        waits = (durations - durations.min(axis=0)).sum(axis=1) / 1e9
        waiting = [float(each) for each in waits]
        least = int(np.argmin(waits))
        if compute[least] > (1 + SLOWER) * median(compute):
            straggler = least
    return RanksCompared(
        tuple(trace.source if trace.rank is None else trace.rank for trace in traces),
        tuple(step_seconds(trace.steps) for trace in traces),
        tuple(compute),
        tuple(waiting),
        len(shared),
        straggler,
    )


def _key_collectives(trace: RankTrace) -> dict[tuple[str, str, int], int]:
    """Return the duration of each collective of several ranks [ns], by group, operation and its number there."""
    found: dict[tuple[str, str, int], int] = {}
    count: dict[tuple[str, str], int] = {}
    duration = trace.events.duration()
    for place in np.flatnonzero(trace.events.collective >= 0).tolist():
        collective = trace.collectives[trace.events.collective[place]]
        group = collective.group_description or collective.group_name
        key = (group, collective.operation)
        number = count[key] = count.get(key, -1) + 1
        found[(*key, collective.sequence if collective.sequence >= 0 else number)] = int(duration[place])
    return found
