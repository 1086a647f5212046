"""The scheduler of the Morphling/Rubick artifact, including the effects of its dead code and of its tables' order.

Source: AlibabaPAI/reconfigurable-dl-scheduler at 80e8524 (Apache-2.0), `sched/morphling_sched/policy/morphling.py` and
`simulator/simulator.py`, restated in our own words. Behaviour that only the code shows:

- A job's slope is taken at the GPUs it had before the round. One that was considered and never placed has an entry of
  no GPUs, whose throughput is written -1, so its slope is too large by 1 / baseline.
- Victims never shrink: the test that shall skip large models is always true.
- Large jobs on 32 GPUs and more lose them each round (below 7 restarts) and go on running where they were, because the
  simulator compares its new allocation with itself; placing them on the same shape again is no change.
- Nodes for large jobs come off a list that is popped as a heap and never was made one; each gives one digit at most.
- Scaling up a node counts its free GPUs before the last job of the round was placed, and a job's GPUs as before the
  round; so a job may get the same GPUs again, or fewer.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.planners.elastic.cluster.cluster import Cluster
from engine.planners.elastic.cluster.jobs import ReplayedJob
from engine.planners.elastic.cluster.policies.policy import Allocations
from engine.planners.elastic.cluster.speeds import Placement
from engine.reproductions.rubick.scheduler_tables import SchedulerTables, scheduler_tables

__all__ = ["ArtifactPolicy"]

STARVED_AGE: Final = 200_000.0
"""Age from which a job counts as starved [s]. Source: as for the module."""
STARVED_SLOPE: Final = 1e9
"""Slope of a starved job, larger than any real one. Source: as for the module."""
RELEASED_GPUS: Final = 32
"""GPUs from which a large job loses its allocation every round. Source: as for the module."""
RELEASES: Final = 7
"""Changes of allocation below which it does. Source: as for the module."""
MANY_GUARANTEED: Final = 12
"""Guaranteed jobs above which it always does. Source: as for the module."""
LENIENCE: Final = 1.5
"""Factor on the predicted throughput of a guaranteed job before it is compared with its request. Source: as for the
module."""
NODE_GPUS: Final = 8
"""GPUs of a node. Source: as for the module."""
UNKNOWN: Final = "3D"
"""The plan word of three degrees: no measured plan is called that, so the mean of all plans there counts."""


@dataclass
class ArtifactPolicy:
    """The artifact's scheduler; the module's docstring lists its actual behaviour."""

    cluster: Cluster
    name: str = "artifact"
    title: str = "Morphling, as its artifact behaves"
    keeps_running: bool = True
    _seen: list[str] = field(default_factory=list)
    _tables: dict[str, SchedulerTables] = field(default_factory=dict)

    def allocate(self, now: float, active: Sequence[ReplayedJob], held: Allocations) -> Allocations:
        """Returns who has which GPUs from now on; see `engine.planners.elastic.cluster.policies.policy.Policy`."""
        for job in active:
            model = job.application
            if model.name not in self._tables:
                self._tables[model.name] = scheduler_tables(model, self.cluster.gpus_per_node)
        return _ArtifactRound(self.cluster, now, active, held, self._queue(active), self._tables).solved()

    def _queue(self, active: Sequence[ReplayedJob]) -> list[str]:
        known = set(self._seen)
        names = {each.job.name for each in active}
        new = [each.job.name for each in active if each.job.name not in known]
        self._seen = [name for name in self._seen if name in names] + new
        return self._seen


class _ArtifactRound:
    """One round of the scheduler."""

    def __init__(
        self,
        cluster: Cluster,
        now: float,
        active: Sequence[ReplayedJob],
        held: Allocations,
        queue: Sequence[str],
        tables: Mapping[str, SchedulerTables],
    ) -> None:
        self.cluster = cluster
        self.now = now
        self.jobs = {each.job.name: each for each in active}
        self.tables = {each.job.name: tables[each.application.name] for each in active}
        self.plan = held.without(frozenset(held.gpus) - frozenset(self.jobs))
        self.before: dict[str, int] = {name: len(nodes) for name, nodes in self.plan.gpus.items()}
        slopes = self._slopes(queue, 1)
        self.by_slope = sorted(slopes, key=lambda name: slopes[name])

    def solved(self) -> Allocations:
        guaranteed = [name for name in self.by_slope if self.jobs[name].job.guaranteed]
        order = guaranteed + [name for name in self.by_slope if not self.jobs[name].job.guaranteed]
        for name in order:
            self._release(name, len(guaranteed))
        free: Mapping[int, int] = {}
        for name in order:
            self.before.setdefault(name, 0)
            self.plan.gpus.setdefault(name, [])
            self.plan.plans.setdefault(name, "")
            free = self.plan.free(self.cluster)
            if self.tables[name].large:
                self._place_large(name, free)
            else:
                self._place_small(name, free)
        for node in range(self.cluster.nodes):
            self._scale_up(node, free.get(node, 0))
        for name in self.by_slope:
            if self.tables[name].large:
                self._grow_large(name)
        return self.plan

    def _release(self, name: str, guaranteed: int) -> None:
        job = self.jobs[name]
        if (
            self.tables[name].large
            and len(self.plan.gpus.get(name, ())) >= RELEASED_GPUS
            and (job.changes < RELEASES or guaranteed > MANY_GUARANTEED)
        ):
            self.plan.gpus[name] = []
            self.plan.plans[name] = ""

    def _slopes(self, names: Sequence[str], more: int) -> dict[str, float]:
        return {name: self._slope(self.jobs[name], more) for name in names}

    def _slope(self, job: ReplayedJob, more: int) -> float:
        if self.now - job.job.submission > STARVED_AGE:
            return STARVED_SLOPE
        tables = self.tables[job.job.name]
        had = self.before.get(job.job.name)
        if had is None:
            gain = abs(tables.point(more).throughput)
        else:
            gain = abs(tables.point(had).throughput - tables.point(min(had + more, NODE_GPUS)).throughput)
        return abs(gain / job.application.baseline / more)

    def _place_small(self, name: str, free: Mapping[int, int]) -> None:
        """Place a small job on the node with most free GPUs: all its free GPUs, reduced to the count on the stored
        curve."""
        job, tables = self.jobs[name].job, self.tables[name]
        own = self.plan.gpus[name]
        for node in sorted(range(self.cluster.nodes), key=lambda each: -free.get(each, 0)):
            if own and node not in own:
                continue
            had = own.count(node)
            point = tables.point(free.get(node, 0) + had)
            enough = LENIENCE * point.throughput >= self._required(name) if job.guaranteed else free.get(node, 0) > 0
            if enough:
                self._set(name, node, point.gpus)
                return

    def _required(self, name: str) -> float:
        """Returns the guaranteed throughput: as measured for the requested plan and GPUs."""
        job, model = self.jobs[name].job, self.jobs[name].application
        seconds = model.speeds.seconds((job.gpus,), job.plan)
        return float("inf") if seconds is None else model.batch / seconds

    def _set(self, name: str, node: int, gpus: int) -> None:
        if gpus == 0:
            self.plan.gpus[name] = []
            self.plan.plans[name] = ""
            return
        self.plan.gpus[name] = [each for each in self.plan.gpus[name] if each != node] + [node] * gpus
        self.plan.plans[name] = self.tables[name].point(gpus).plan

    def _scale_up(self, node: int, left: int) -> None:
        here = [name for name, nodes in self.plan.gpus.items() if node in nodes]
        small = [name for name in here if not self.tables[name].large]
        changed: dict[str, int] = {}
        while left > 0 and small:
            slopes = self._slopes(here, left)
            name = next(each for each in sorted(slopes, key=lambda each: -slopes[each]) if each in small)
            had = self.before[name]
            changed[name] = self.tables[name].point(min(had + left, NODE_GPUS)).gpus
            last = sorted(slopes, key=lambda each: -slopes[each])[-1] == name
            left -= changed[name] - had
            if last or changed[name] == had:
                break
        for name, gpus in changed.items():
            self._set(name, node, gpus)

    def _place_large(self, name: str, free: Mapping[int, int]) -> None:
        for gpus, placements in self.tables[name].table:
            if self._try(name, gpus, placements, free):
                return

    def _grow_large(self, name: str) -> None:
        """Tries the largest entries of the table first, as if the job had no GPUs."""
        own = len(self.plan.gpus[name])
        others = self.plan.free(self.cluster, but=name)
        for gpus, placements in sorted(self.tables[name].table, key=lambda entry: -entry[0]):
            if own > gpus:
                continue
            own = 0
            if self._try(name, gpus, placements, others):
                return

    def _try(self, name: str, gpus: int, placements: Sequence[Placement], free: Mapping[int, int]) -> bool:
        if sum(free.values()) < gpus:
            return False
        for placement in placements:
            nodes = _pop_nodes(sorted(placement, reverse=True), gpus, free)
            if nodes is not None:
                self.plan.gpus[name] = nodes
                plan = self.tables[name].plans[placement]
                self.plan.plans[name] = plan if not plan.isdigit() else UNKNOWN
                return True
        return False


def _pop_nodes(digits: list[int], gpus: int, free: Mapping[int, int]) -> list[int] | None:
    """Returns the nodes that hold the digits of a placement, one digit at most each, None where they do not fit."""
    queue = [(left, node) for node, left in free.items()]
    taken: list[int] = []
    while len(taken) < gpus and queue:
        left, node = heapq.heappop(queue)
        for at, digit in enumerate(digits):
            if digit and digit <= left:
                taken += [node] * digit
                digits[at] = 0
                break
    return taken if len(taken) >= gpus else None
