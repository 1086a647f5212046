"""The scheduler with the rules that were published: fewest GPUs for what is guaranteed, then growth by sensitivity.

The rules, as far as they are known to us (the specification's summary of Rubick, MLSys 2025): it runs when a job is
submitted or through; guaranteed jobs come first and get the fewest resources that reach the performance of the plan
that they asked for; then jobs grow by their sensitivity, the gain in throughput per GPU over the job's own baseline;
those that gain little give GPUs to jobs that gain more. What is ours because no source says it: a running job only
grows if that saves more than the pause that a change costs, and a job that was submitted `patience` ago and waits may
take GPUs from best-effort jobs as a guaranteed one does; it then keeps as many as it needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.planners.elastic.cluster.applications import Application
from engine.planners.elastic.cluster.cluster import Cluster
from engine.planners.elastic.cluster.jobs import ReplayedJob
from engine.planners.elastic.cluster.policies.fitting import Level, asked_options, levels, put
from engine.planners.elastic.cluster.policies.policy import Allocations

__all__ = ["PublishedPolicy"]


@dataclass
class PublishedPolicy:
    """Guarantees first, then sensitivity. `pause` is what a change costs a job [s], `patience` how long a job waits
    before it is served like a guaranteed one [s]; `kept` are jobs that no other may put off all their GPUs."""

    cluster: Cluster
    name: str = "published"
    title: str = "Morphling, by its published rules"
    keeps_running: bool = False
    pause: float = 260.0
    patience: float = 3600.0
    _known: frozenset[str] = frozenset()
    _levels: dict[str, tuple[Level, ...]] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)

    def allocate(self, now: float, active: Sequence[ReplayedJob], held: Allocations) -> Allocations:
        """Returns who has which GPUs from now on; see `engine.planners.elastic.cluster.policies.policy.Policy`."""
        names = frozenset(each.job.name for each in active)
        impatient = any(self._waited(each, now) and each.job.name not in held.gpus for each in active)
        if names == self._known and not impatient:
            return held
        self._known = names
        for job in active:
            model = job.application
            if model.name not in self._levels:
                self._levels[model.name] = levels(model, self.cluster.gpus)
        return _Round(self, now, active, held).solved()

    def _waited(self, job: ReplayedJob, now: float) -> bool:
        return not job.placement and now - job.job.submission > self.patience

    def levels(self, model: Application) -> tuple[Level, ...]:
        """Returns the levels of a model on this cluster.

        Args:
            model: of an active job.
        """
        return self._levels[model.name]


class _Round:
    """One round: who is at which level, -1 for jobs that wait."""

    def __init__(self, policy: PublishedPolicy, now: float, active: Sequence[ReplayedJob], held: Allocations) -> None:
        self.policy, self.now = policy, now
        self.jobs = {each.job.name: each for each in active}
        self.plan = held.without(frozenset(held.gpus) - frozenset(self.jobs))
        self.levels = {name: policy.levels(job.application) for name, job in self.jobs.items()}
        self.at = {name: self._level_now(name) for name in self.jobs}
        self.least = {name: self._least(name) for name in self.jobs}
        self.running = frozenset(self.plan.gpus)

    def solved(self) -> Allocations:
        waiting = [name for name in self.jobs if name not in self.plan.gpus and self.levels[name]]
        urgent = [each for each in waiting if self.jobs[each].job.guaranteed or self._waited(each)]
        for name in urgent:
            self._admit(name, preempting=True)
            if name in self.plan.gpus:
                self.policy.kept.add(name)
        others = [name for name in waiting if name not in self.plan.gpus and name not in urgent]
        for name in sorted(others, key=lambda each: -self._gain(each, -1, 0)):
            self._admit(name, preempting=False)
        while self._grow():
            pass
        return self.plan

    def _waited(self, name: str) -> bool:
        return self.now - self.jobs[name].job.submission > self.policy.patience

    def _level_now(self, name: str) -> int:
        gpus = len(self.plan.gpus.get(name, ()))
        return next((at for at, level in enumerate(self.levels[name]) if level.gpus == gpus), -1) if gpus else -1

    def _least(self, name: str) -> int:
        """Returns the lowest level at which the job keeps its guarantee, 0 for best-effort jobs."""
        job = self.jobs[name]
        asked = asked_options(job) if job.job.guaranteed else ()
        if not asked:
            return 0
        return next((at for at, level in enumerate(self.levels[name]) if level.seconds <= asked[0].seconds * 1.0001), 0)

    def _throughput(self, name: str, at: int) -> float:
        model = self.jobs[name].application
        return model.batch / self.levels[name][at].seconds / model.baseline if at >= 0 else 0.0

    def _gpus(self, name: str, at: int) -> int:
        return self.levels[name][at].gpus if at >= 0 else 0

    def _gain(self, name: str, low: int, high: int) -> float:
        """Returns the gain in throughput over the baseline, per GPU, between two levels."""
        more = self._gpus(name, high) - self._gpus(name, low)
        return (self._throughput(name, high) - self._throughput(name, low)) / max(more, 1)

    def _set(self, name: str, at: int) -> bool:
        """Puts a job on a level, on its own nodes and free ones; or off all of them."""
        if at < 0:
            del self.plan.gpus[name], self.plan.plans[name]
            self.at[name] = at
            return True
        free = self.plan.without(frozenset({name})).free(self.policy.cluster)
        if put(self.plan, name, self.levels[name][at].options, free) is None:
            return False
        self.at[name] = at
        return True

    def _admit(self, name: str, *, preempting: bool) -> None:
        """Starts a job at its least level, by GPUs of jobs that lose least where it does not fit, or not at all."""
        least = self.least[name]
        if self._set(name, least):
            return
        before = self.plan.without(frozenset())
        levels_before = dict(self.at)
        worth = self._gain(name, -1, least)
        while victim := self._victim(name, worth, preempting=preempting):
            if not self._set(victim, self.at[victim] - 1):
                break
            if self._set(name, least):
                return
        self.plan, self.at = before, levels_before

    def _victim(self, name: str, worth: float, *, preempting: bool) -> str | None:
        losses: dict[str, float] = {}
        for other in self.plan.gpus:
            at = self.at[other]
            floor = self.least[other] if other in self.policy.kept or not preempting else -1
            if other == name or at <= floor:
                continue
            loss = self._gain(other, at - 1, at)
            if preempting or loss < worth:
                losses[other] = loss + (1e6 if at == 0 else 0.0)
        return min(losses, key=lambda each: losses[each], default=None)

    def _grow(self) -> bool:
        """Lets the job that gains most per GPU have its next level that fits, and returns whether there was one."""
        wishes = []
        for name in self.plan.gpus:
            at = self.at[name]
            if 0 <= at < len(self.levels[name]) - 1 and self._pays(name, at, at + 1):
                wishes.append((-self._gain(name, at, at + 1), name))
        return any(self._set(name, self.at[name] + 1) for _, name in sorted(wishes))

    def _pays(self, name: str, low: int, high: int) -> bool:
        if name not in self.running:
            return True
        saved = self.levels[name][low].seconds - self.levels[name][high].seconds
        return self.jobs[name].remaining() * saved > self.policy.pause
