"""Equal share: all jobs get the same number of GPUs, up to the most that they can use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.planners.elastic.cluster.cluster import Cluster
from engine.planners.elastic.cluster.jobs import ReplayedJob
from engine.planners.elastic.cluster.policies.fitting import Level, levels, put
from engine.planners.elastic.cluster.policies.policy import Allocations

__all__ = ["EqualSharePolicy"]


@dataclass
class EqualSharePolicy:
    """GPUs divided by jobs, recomputed at every arrival and completion.

    A job runs on the largest number of GPUs within its share that makes it faster. A job that cannot run on its share
    takes the fewest GPUs on which it runs while any are free, in the order of submission.
    """

    cluster: Cluster
    name: str = "equal-share"
    title: str = "Equal share"
    keeps_running: bool = False
    _known: frozenset[str] = frozenset()
    _sizes: dict[str, int] = field(default_factory=dict)

    def allocate(self, now: float, active: Sequence[ReplayedJob], held: Allocations) -> Allocations:
        """Returns who has which GPUs from now on; see `engine.planners.elastic.cluster.policies.policy.Policy`."""
        names = frozenset(each.job.name for each in active)
        if names == self._known:
            return held
        self._known = names
        share = max(self.cluster.gpus // len(active), 1)
        wanted: dict[str, Level] = {}
        for job in active:
            known = levels(job.application, self.cluster.gpus)
            within = [each for each in known if each.gpus <= share]
            if within or known:
                wanted[job.job.name] = within[-1] if within else known[0]
        sizes = {name: level.gpus for name, level in wanted.items()}
        plan = held.without(frozenset(each for each in held.gpus if self._sizes.get(each) != sizes.get(each)))
        within_share = [each for each in wanted if sizes[each] <= share]
        for name in within_share + [each for each in wanted if sizes[each] > share]:
            if name not in plan.gpus:
                self._put(plan, name, wanted[name])
        self._sizes = sizes
        return plan

    def _put(self, plan: Allocations, name: str, level: Level) -> None:
        put(plan, name, level.options, plan.free(self.cluster))
