"""Guarantees first, then sensitivity: every guaranteed job keeps its throughput on the fewest GPUs, and the rest of
the cluster goes to the jobs that gain most from it.

The rules follow the specification of Rubick (Zhang et al., MLSys 2025):

- It runs when a job is submitted or finishes.
- Guaranteed jobs come first, then the most sensitive, which gain most throughput per GPU over their own baseline. A job
  submitted `STARVED_AGE` ago is the most sensitive of its class.
- A guaranteed job gets the fewest GPUs on which `LENIENCE` times its throughput reaches that of the plan and GPUs that
  it asked for, any other job the fewest on which it runs.
- Where these are not free, jobs that lose least make room, as long as they keep their own guarantee, lose less than is
  gained, and were moved fewer than `MOST_MOVES` times. For a guaranteed job best-effort jobs make room at any loss, and
  wait if necessary.
- The remaining GPUs go to the jobs that gain most per GPU.

Ours, because no source specifies it: a job that makes room moves to other nodes first, then to fewer GPUs; and a
running job only grows if that saves more time than the pause that a move costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from engine.planners.elastic.cluster.applications import Application
from engine.planners.elastic.cluster.cluster import Cluster
from engine.planners.elastic.cluster.jobs import ReplayedJob
from engine.planners.elastic.cluster.policies.fitting import Level, asked_options, levels, put
from engine.planners.elastic.cluster.policies.policy import Allocations
from engine.planners.elastic.cluster.speeds import Option

__all__ = ["PublishedPolicy"]

STARVED_AGE: Final = 200_000.0
"""Since when a job was submitted for it to be the most sensitive [s]."""
STARVED_SLOPE: Final = 1e9
"""Sensitivity of a starved job, larger than any real one. Source: as in the artifact."""
LENIENCE: Final = 1.5
"""Factor by which the throughput of a guaranteed job may fall short of its request, as in the artifact."""
LAST: Final = 1e3
"""Penalty for displacing a guaranteed job, larger than any throughput, so that such jobs are displaced last."""
MOST_MOVES: Final = 5
"""Moves from which a job does not make room any more."""


@dataclass
class PublishedPolicy:
    """Guarantees first, then sensitivity. `pause` is what a move costs a job [s]; `lenience` times its throughput is at
    least what a guaranteed job asked for."""

    cluster: Cluster
    name: str = "published"
    title: str = "Morphling, by its published rules"
    keeps_running: bool = False
    pause: float = 260.0
    lenience: float = LENIENCE
    _known: frozenset[str] = frozenset()
    _levels: dict[str, tuple[Level, ...]] = field(default_factory=dict)

    def allocate(self, now: float, active: Sequence[ReplayedJob], held: Allocations) -> Allocations:
        """Returns who has which GPUs from now on; see `engine.planners.elastic.cluster.policies.policy.Policy`."""
        names = frozenset(each.job.name for each in active)
        if names == self._known:
            return held
        self._known = names
        for job in active:
            model = job.application
            if model.name not in self._levels:
                self._levels[model.name] = levels(model, self.cluster.gpus)
        return _PublishedRound(self, now, active, held).solved()

    def levels(self, model: Application) -> tuple[Level, ...]:
        """Returns the levels of a model on this cluster.

        Args:
            model: of an active job.
        """
        return self._levels[model.name]


class _PublishedRound:
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
        for name in sorted(waiting, key=self._order):
            self._admit(name)
        while self._grow():
            pass
        return self.plan

    def _order(self, name: str) -> tuple[bool, float]:
        """Guaranteed jobs first, then the most sensitive; jobs of equal rank stay in the order of submission."""
        job = self.jobs[name].job
        starved = self.now - job.submission > STARVED_AGE
        return not job.guaranteed, -(STARVED_SLOPE if starved else self._slope(name, -1, 0))

    def _level_now(self, name: str) -> int:
        gpus = len(self.plan.gpus.get(name, ()))
        return next((at for at, level in enumerate(self.levels[name]) if level.gpus == gpus), -1) if gpus else -1

    def _least(self, name: str) -> int:
        """Returns the lowest level at which the job keeps its guarantee, 0 for best-effort jobs. Where no number of
        GPUs is as fast as what was asked for, that is the fastest."""
        job = self.jobs[name]
        asked = asked_options(job) if job.job.guaranteed else ()
        if not asked:
            return 0
        known = self.levels[name]
        most = asked[0].seconds * self.policy.lenience * (1 + 1e-9)
        enough = (at for at, level in enumerate(known) if level.seconds <= most)
        return next(enough, max(len(known) - 1, 0))

    def _throughput(self, name: str, at: int) -> float:
        """Returns the throughput over the model's baseline, 0 for a job that waits."""
        model = self.jobs[name].application
        return model.batch / self.levels[name][at].seconds / model.baseline if at >= 0 else 0.0

    def _slope(self, name: str, low: int, high: int) -> float:
        """Returns the gain in throughput over the baseline, per GPU, between two levels."""
        known = self.levels[name]
        more = known[high].gpus - (known[low].gpus if low >= 0 else 0)
        return (self._throughput(name, high) - self._throughput(name, low)) / max(more, 1)

    def _set(self, name: str, at: int) -> bool:
        """Puts a job on a level, on its own nodes and free ones, and returns whether it fits."""
        free = self.plan.free(self.policy.cluster, but=name)
        if put(self.plan, name, self.levels[name][at].options, free) is None:
            return False
        self.at[name] = at
        return True

    def _movable(self, name: str) -> bool:
        return name not in self.running or self.jobs[name].changes < MOST_MOVES

    def _admit(self, name: str) -> None:
        """Start a job at its smallest level, on free GPUs or on the GPUs of other jobs, if possible."""
        if self._set(name, self.least[name]):
            return
        for option in self.levels[name][self.least[name]].options:
            if self._make_room(name, option):
                return

    def _make_room(self, name: str, option: Option) -> bool:
        """Gives a job the nodes on which others lose least, and puts these elsewhere or on fewer GPUs."""
        urgent = self.jobs[name].job.guaranteed
        chosen = self._cheapest(option, urgent)
        if chosen is None:
            return False
        nodes, victims = chosen
        plan, at = self.plan, dict(self.at)
        before = sum(self._throughput(each, self.at[each]) for each in victims)
        self.plan = plan.without(frozenset(victims))
        self.plan.gpus[name], self.plan.plans[name] = nodes, option.plan
        self.at[name] = self.least[name]
        for victim in sorted(victims, key=self._order):
            fits = any(self._set(victim, each) for each in range(at[victim], self.least[victim] - 1, -1))
            if not fits:
                self.at[victim] = -1
        kept = all(self.at[each] >= 0 or (urgent and not self.jobs[each].job.guaranteed) for each in victims)
        loss = before - sum(self._throughput(each, self.at[each]) for each in victims)
        if kept and (urgent or loss < self._throughput(name, self.at[name])):
            return True
        self.plan, self.at = plan, at
        return False

    def _cheapest(self, option: Option, urgent: bool) -> tuple[list[int], list[str]] | None:
        """Returns the node of each GPU of a placement and the jobs to displace, which lose least; None where it does
        not fit even so."""
        free = self.plan.free(self.policy.cluster)
        gone: list[str] = []
        taken: list[int] = []
        for digit in sorted(option.placement, reverse=True):
            offers = []
            for node in range(self.policy.cluster.nodes):
                offer = None if node in taken else self._offer(node, digit, free, gone, urgent)
                if offer is not None:
                    offers.append((*offer, node))
            if not offers:
                return None
            _, victims, node = min(offers, key=lambda each: (each[0], len(each[1]), each[2]))
            taken += [node] * digit
            for victim in victims:
                gone.append(victim)
                for other in self.plan.gpus[victim]:
                    free[other] = free.get(other, 0) + 1
            free[node] = free.get(node, 0) - digit
        return taken, gone

    def _offer(
        self, node: int, digit: int, free: dict[int, int], gone: Sequence[str], urgent: bool
    ) -> tuple[float, list[str]] | None:
        """Returns the loss of freeing a number of GPUs on a node, and the jobs that lose them; None where it is
        impossible."""
        left, loss = free.get(node, 0), 0.0
        victims: list[str] = []
        costs: dict[str, tuple[float, int]] = {}
        for name, nodes in self.plan.gpus.items():
            if node in nodes and name not in gone and self._movable(name):
                costs[name] = self._cost(name, nodes.count(node), digit - left)
        # For a guaranteed job those without guarantees go first.
        guaranteed = {name: urgent and self.jobs[name].job.guaranteed for name in costs}
        for name in sorted(costs, key=lambda each: (guaranteed[each], costs[each][0] / costs[each][1])):
            if left >= digit:
                break
            left += costs[name][1]
            loss += costs[name][0] + (LAST if guaranteed[name] else 0.0)
            victims.append(name)
        return (loss, victims) if left >= digit else None

    def _cost(self, name: str, own: int, needed: int) -> tuple[float, int]:
        """Returns the throughput that a job loses at least where it frees GPUs of a node by going to a lower level
        there, or all of it where it has to go elsewhere; and the GPUs that this frees."""
        at, known = self.at[name], self.levels[name]
        all_ = self._throughput(name, at)
        for level in range(at - 1, self.least[name] - 1, -1):
            freed = known[at].gpus - known[level].gpus
            if freed >= min(needed, own) and own == known[at].gpus:
                return all_ - self._throughput(name, level), freed
        return all_, own

    def _grow(self) -> bool:
        """Lets the job that gains most per GPU have its next level that fits, and returns whether there was one."""
        wishes = []
        for name in self.plan.gpus:
            at = self.at[name]
            if 0 <= at < len(self.levels[name]) - 1 and self._pays(name, at, at + 1):
                wishes.append((-self._slope(name, at, at + 1), name))
        return any(self._set(name, self.at[name] + 1) for _, name in sorted(wishes))

    def _pays(self, name: str, low: int, high: int) -> bool:
        if name not in self.running:
            return True
        saved = self.levels[name][low].seconds - self.levels[name][high].seconds
        return self.jobs[name].remaining() * saved > self.policy.pause
