"""Jobs that wait for other jobs: stages of a fleet, each with the best allocation of its hours, one after the other.

In a stage run all jobs whose predecessor has ended, on hours that repeat. It lasts until the first of them ends; then
the next stage is planned. A job shares the time until the deadline of its chain with the jobs after it in proportion
to their least times, so that it must keep at least that pace, and the earliest end counts the whole chain.

Each stage is proven. Of the whole, a bound on the end is known: no job is faster than alone beside the services that
must run with it. A single chain reaches it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from engine.fleet.allocation import LONGEST_S, FleetError, allocate, check_problem
from engine.fleet.problem import SECONDS_OF_DAY, Allocation, FleetJob, FleetProblem
from models.documents import shown

__all__ = ["ChainTime", "FleetStage", "StagedPlan", "allocate_in_turn", "check_chain", "plan_allocation"]

HOURS_OF_DAY: Final = 24.0
SAME: Final = 1e-6
"""Relative difference of two ends that count as one: the solver's tolerance."""


@dataclass(frozen=True, slots=True, eq=False)
class FleetStage:
    """Hours that repeat until a job ends: the allocation of jobs with the tokens that are left of them."""

    start_days: float
    days: float
    """Length; infinite for the last one, in which no further job ends."""
    allocation: Allocation
    ended: tuple[str, ...]
    """Names of the jobs that end with it."""


@dataclass(frozen=True, slots=True)
class ChainTime:
    """Start and end of a job or service [days]; infinite if never."""

    name: str
    after: str | None
    start_days: float
    end_days: float
    tokens: float | None = None
    deadline_days: float | None = None
    is_service: bool = False

    @property
    def is_late(self) -> bool:
        """True if it misses its deadline."""
        return self.deadline_days is not None and self.end_days > self.deadline_days * (1.0 + SAME)


@dataclass(frozen=True, eq=False)
class StagedPlan:
    """Stages of a fleet whose jobs wait for other jobs."""

    problem: FleetProblem
    stages: tuple[FleetStage, ...]
    end_bound: float
    """Days before which no plan ends all jobs."""

    @cached_property
    def times(self) -> tuple[ChainTime, ...]:
        """Start and end of every job and service."""
        ends = {name: stage.start_days + stage.days for stage in self.stages for name in stage.ended}
        starts: dict[str, float] = {}
        for stage in self.stages:
            for each in stage.allocation.problem.holders:
                starts.setdefault(each.name, stage.start_days)
        jobs = (
            ChainTime(
                job.name,
                job.after,
                starts.get(job.name, math.inf),
                ends.get(job.name, math.inf),
                job.tokens,
                job.deadline_days,
            )
            for job in self.problem.jobs
        )
        services = (
            ChainTime(each.name, each.after, starts.get(each.name, math.inf), math.inf, is_service=True)
            for each in self.problem.services
        )
        return (*jobs, *services)

    @property
    def days(self) -> float:
        """Days until the last job with tokens is done; infinite if one never is."""
        return max((each.end_days for each in self.times if each.tokens is not None), default=0.0)

    @property
    def usd(self) -> float:
        """Cost of the GPUs in use until the last job is done [USD]; not a number where a price in use is unknown."""
        if not math.isfinite(self.days):
            return math.inf
        return float(
            sum(
                stage.allocation.usd / stage.allocation.problem.hours * HOURS_OF_DAY * stage.days
                for stage in self.stages
                if math.isfinite(stage.days)
            )
        )

    @property
    def value(self) -> float:
        """Value of the objective: the mean progress until the last job is done, its day, or USD until then."""
        if self.problem.objective == "days":
            return self.days
        if self.problem.objective == "usd":
            return self.usd
        timed = [stage for stage in self.stages if math.isfinite(stage.days)]
        if not timed or not math.isfinite(self.days):
            return self.stages[-1].allocation.value
        return sum(stage.allocation.value * stage.days for stage in timed) / sum(stage.days for stage in timed)

    @property
    def bound(self) -> float:
        """No plan is better than this; not a number where no bound is known."""
        return min(self.end_bound, self.value) if self.problem.objective == "days" else math.nan

    @property
    def gap(self) -> float:
        """Share by which a better plan may exist; not a number where no bound is known."""
        if not math.isfinite(self.value) or not math.isfinite(self.bound):
            return math.nan
        gap = 1.0 - self.bound / self.value if self.value > 0 else 0.0
        return 0.0 if gap < 1e-6 else gap

    @property
    def holds(self) -> bool:
        """True if all demand is served and no job is late."""
        served = all(
            not stage.allocation.unserved(at).any()
            for stage in self.stages
            for at in range(len(stage.allocation.problem.services))
        )
        return served and not any(each.is_late for each in self.times)


def plan_allocation(problem: FleetProblem, longest_s: float = LONGEST_S) -> Allocation | StagedPlan:
    """Return the allocation of a fleet, or its stages if a job or service waits for a job.

    Args:
        problem: pools, jobs and services.
        longest_s: time of each solution [s].

    Raises as `engine.fleet.allocate` does.
    """
    return allocate_in_turn(problem, longest_s) if problem.has_chain else allocate(problem, longest_s)


def check_chain(problem: FleetProblem) -> None:
    """Raise `FleetError` for a predecessor that does not exist or never ends, and for jobs that wait in a circle.

    Args:
        problem: pools, jobs and services.
    """
    jobs = {job.name: job for job in problem.jobs}
    for each in problem.holders:
        if each.after is None:
            continue
        if each.after not in jobs:
            known = ", ".join(jobs) or "none"
            raise FleetError(f"{each.name} waits for {shown(each.after)}, which is no job; jobs: {known}.")
        if jobs[each.after].tokens is None:
            raise FleetError(f"{each.name} waits for {each.after}, which has no tokens and never ends; give it tokens.")
        seen, at = [each.name], each.after
        while at not in seen:
            seen.append(at)
            before = jobs[at].after
            if before is None or before not in jobs:
                break
            at = before
        else:
            circle = " after ".join([*seen[seen.index(at) :], at])
            raise FleetError(f"Jobs wait in a circle: {circle}; one of them must wait for none.")


def allocate_in_turn(
    problem: FleetProblem,
    longest_s: float = LONGEST_S,
    tell: Callable[[float, str], None] = lambda share, doing: None,
) -> StagedPlan:
    """Return the stages of a fleet, each with its best allocation.

    Args:
        problem: pools, jobs and services.
        longest_s: time of each solution [s].
        tell: called with the share of the jobs that are done, and the current stage.

    Raises as `engine.fleet.allocate` and `check_chain` do.
    """
    check_problem(problem)
    check_chain(problem)
    left = {job.name: job.tokens for job in problem.jobs}
    timed = [job.name for job in problem.jobs if job.tokens is not None]
    done: set[str] = set()
    stages: list[FleetStage] = []
    now = 0.0
    while True:
        tell(len(done) / max(len(timed), 1), f"stage {len(stages) + 1}")
        allocation = allocate(_stage_problem(problem, left, done, now), longest_s)
        jobs = allocation.problem.jobs
        ends = {job.name: allocation.days(at) for at, job in enumerate(jobs) if job.tokens is not None}
        days = min(ends.values(), default=math.inf)
        ended = tuple(name for name, end in ends.items() if math.isfinite(days) and end <= days * (1.0 + SAME))
        stages.append(FleetStage(now, days, allocation, ended))
        if not ended:
            break
        done |= {*ended}
        for at, job in enumerate(jobs):
            tokens = left[job.name]
            if tokens is not None and job.name not in done:
                left[job.name] = max(tokens - allocation.rate(at) * days * SECONDS_OF_DAY, 0.0)
        now += days
        if len(done) == len(timed) and not _has_more(problem):
            break
    return StagedPlan(problem, tuple(stages), _bound_end(problem, longest_s))


def _has_more(problem: FleetProblem) -> bool:
    return bool(problem.services) or any(job.tokens is None for job in problem.jobs)


def _stage_problem(problem: FleetProblem, left: Mapping[str, float | None], done: set[str], now: float) -> FleetProblem:
    """Return the problem of the jobs that can run, with the tokens that are left, deadlines and factors of chains."""
    jobs = []
    for job in problem.jobs:
        if job.name in done or (job.after is not None and job.after not in done):
            continue
        mine = _least_days(job, left[job.name])
        paths = [(last, length) for last, length in _walk_paths(problem, job, left) if math.isfinite(length)]
        shares = [
            (last.deadline_days - now) * mine / length
            for last, length in paths
            if last.deadline_days is not None and length > 0
        ]
        jobs.append(
            replace(
                job,
                tokens=left[job.name],
                # A deadline that cannot be held any more asks for the highest speed.
                deadline_days=max(min(shares), mine) if shares else None,
                chain_factor=max((length / mine for _, length in paths), default=1.0) if mine > 0 else 1.0,
            )
        )
    services = tuple(each for each in problem.services if each.after is None or each.after in done)
    objective = problem.objective
    if objective == "days" and all(job.tokens is None for job in jobs):
        objective = "progress"  # of the last stage, after all jobs that end
    return replace(problem, jobs=tuple(jobs), services=services, objective=objective)


def _least_days(job: FleetJob, tokens: float | None) -> float:
    """Return the days of a job alone on the fleet; infinite if it never ends."""
    if tokens is None or job.best_rate <= 0:
        return math.inf
    return tokens / job.best_rate / SECONDS_OF_DAY


def _walk_paths(
    problem: FleetProblem, job: FleetJob, left: Mapping[str, float | None]
) -> Iterator[tuple[FleetJob, float]]:
    """Yield a job and all that wait for it, with the least days from its start to their ends."""
    yield job, _least_days(job, left[job.name])
    for follower in problem.jobs:
        if follower.after == job.name:
            for last, length in _walk_paths(problem, follower, left):
                yield last, _least_days(job, left[job.name]) + length


def _bound_end(problem: FleetProblem, longest_s: float) -> float:
    """Return the days before which no plan ends all jobs: each alone beside the services that run with it for sure."""
    jobs = {job.name: job for job in problem.jobs}
    least: dict[str, float] = {}
    ends: dict[str, float] = {}

    def list_before(job: FleetJob) -> list[str]:
        return [] if job.after is None else [*list_before(jobs[job.after]), job.after]

    for job in problem.jobs:
        if job.tokens is None:
            continue
        before = list_before(job)
        services = tuple(each for each in problem.services if each.after is None or each.after in before)
        alone = replace(job, deadline_days=None, after=None)
        found = allocate(replace(problem, jobs=(alone,), services=services, objective="days"), longest_s)
        least[job.name] = found.bound
    for name in least:
        ends[name] = sum(least[each] for each in (*list_before(jobs[name]), name))
    return max(ends.values(), default=0.0)
