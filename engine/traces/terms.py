"""The step of a trace in terms of the cost model: parts that add up to the time of the step.

At every moment of a device's step one thing counts: computation, else communication that nothing hides, else copies,
else idle time. A moment with several phases or groups belongs to each in equal parts. So the parts add up, like the
cost model's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from engine.traces.events import DeviceEvents, RankTrace
from engine.traces.figures import COPIES, is_inside, phase_of_events, step_of_events
from engine.traces.groups import GROUPS, group_of
from engine.traces.intervals import Intervals, measure, share_exposed, unite

__all__ = ["TERMS", "StepTerms", "terms_of_step"]

PHASE_TERMS: Final = {
    "forward_and_other": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "unknown": "unknown phase",
}
TERMS: Final = (
    "forward",
    "backward",
    "recomputation",
    "optimizer",
    "unknown phase",
    *(f"{group} communication" for group in GROUPS),
    "copies",
    "host",
    "other idle time",
)
"""Parts of a step: computation by phase, communication by group that nothing hides, copies that nothing hides, and
idle time while the host had not launched what comes next, or for another reason."""


@dataclass(frozen=True, slots=True)
class StepTerms:
    """The median step of a rank: its name, number of steps, and parts by name of `TERMS`, without zeros [s].

    `window_s`: from its first kernel to that of the next step [s]; the parts add up to it. `spread`: of the windows of
    all steps, longest less shortest over the median one [dimensionless]; 0 for a single step.
    """

    name: str
    num_steps: int
    window_s: float
    spread: float
    parts_s: dict[str, float]
    hidden_communication_s: float


def terms_of_step(trace: RankTrace) -> StepTerms:
    """Return the parts of the median step of a trace; of the whole trace where it has no steps.

    Args:
        trace: of one rank.
    """
    windows = _windows_of(trace)
    lengths = np.array([end - start for _, start, end in windows])
    # Of an even number, the shorter of the two in the middle: a step that there was.
    middle = int(np.argsort(lengths, kind="stable")[(len(windows) - 1) // 2])
    name, start, end = windows[middle]
    parts, hidden = _parts_within(trace, start, end)
    return StepTerms(
        name=name,
        num_steps=len(windows),
        window_s=(end - start) / 1e9,
        spread=float((lengths.max() - lengths.min()) / lengths[middle]),
        parts_s={term: value / 1e9 for term, value in parts.items() if value},
        hidden_communication_s=hidden / 1e9,
    )


def _windows_of(trace: RankTrace) -> list[tuple[str, int, int]]:
    """Return the steps on the device, with their starts and ends [ns]: each ends where the next begins."""
    step = step_of_events(trace.events, trace.steps)
    whole = [("whole trace", int(trace.events.start.min()), int(trace.events.end.max()))]
    present = [place for place in range(len(trace.steps)) if (step == place).any()]
    if not present:
        return whole
    first = [int(trace.events.start[step == place].min()) for place in present]
    last = int(trace.events.end[step == present[-1]].max())
    found = [
        (trace.steps.names[place], start, end)
        for place, start, end in zip(present, first, [*first[1:], last], strict=True)
        if end > start
    ]
    return found or whole


def _parts_within(trace: RankTrace, start: int, end: int) -> tuple[dict[str, float], float]:
    """Return the parts of a window, and the communication in it that computation hides [ns]."""
    inside = (trace.events.end > start) & (trace.events.start < end)
    events = trace.events.take(inside)
    begin, until = np.maximum(events.start, start), np.minimum(events.end, end)

    def union(chosen: npt.NDArray[np.bool_]) -> Intervals:
        return unite(begin[chosen], until[chosen])

    comm, copies = events.is_of("comm"), events.is_of(*COPIES)
    computes = ~comm & ~copies
    phase = _term_of_phase(trace)[inside]
    group = _term_of_group(trace)[inside]
    parts = dict.fromkeys(TERMS, 0.0)
    for term_of_event, chosen, hiding in (
        (phase, computes, np.zeros(len(events), bool)),
        (group, comm, computes),
        (np.full(len(events), TERMS.index("copies")), copies, ~copies),
    ):
        present = np.unique(term_of_event[chosen]).tolist()
        sets = [union(chosen & (term_of_event == term)) for term in present]
        for term, value in zip(present, share_exposed(sets, union(hiding))[0], strict=True):
            parts[TERMS[term]] += value
    host = _host_time(events, start, end)
    busy = measure(union(np.ones(len(events), bool)))
    parts["host"] = float(host)
    parts["other idle time"] = float(end - start - busy - host)
    exposed = sum(parts[f"{name} communication"] for name in GROUPS)
    return parts, measure(union(comm)) - exposed


def _term_of_phase(trace: RankTrace) -> npt.NDArray[np.int64]:
    """Return the part that each event's computation belongs to, as positions in `TERMS` [events]."""
    terms = np.array([TERMS.index(term) for term in PHASE_TERMS.values()])
    found = terms[phase_of_events(trace)]
    repeated = is_inside(trace.events, trace.recompute) & (found == TERMS.index("backward"))
    found[repeated] = TERMS.index("recomputation")
    return found


def _term_of_group(trace: RankTrace) -> npt.NDArray[np.int64]:
    """Return the part that each event's communication belongs to, as positions in `TERMS` [events]."""
    of_collective = np.array([TERMS.index(f"{group_of(each)} communication") for each in trace.collectives], np.int64)
    found = np.full(len(trace.events), TERMS.index("unknown communication"))
    known = trace.events.collective >= 0
    found[known] = of_collective[trace.events.collective[known]]
    return found


def _host_time(events: DeviceEvents, start: int, end: int) -> int:
    """Return the idle time within a window in which the call that launches the next work had not returned [ns]."""
    reach = np.maximum(np.maximum.accumulate(np.concatenate(([start], events.end))), start)[:-1]
    gap = np.clip(np.minimum(events.start, end) - reach, 0, None)
    late = np.clip(events.launch_end - reach, 0, gap)
    return int(late[events.thread >= 0].sum())
