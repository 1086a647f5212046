"""The best allocation of a fleet, found and proven by mixed-integer linear programming (HiGHS, by SciPy).

Every job holds at most one of its sizes: the same in all hours, or, if it is elastic, one per hour. Services have any
whole number of replicas of each of their deployments in each hour. In each hour and pool, the GPUs of all of them fit
beside the spares. Where demand or deadlines cannot all be held, the sum of their relative shortfalls comes first, and
the objective second.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from engine.executions.arrays import Floats
from engine.fleet.problem import (
    SECONDS_OF_DAY,
    SECONDS_OF_HOUR,
    Allocation,
    FleetProblem,
)

__all__ = ["LONGEST_S", "FleetError", "allocate", "check_problem", "measure_objective"]

LONGEST_S: Final = 30.0
"""Time after which the best allocation found so far is returned, with its bound [s]. Source: stated by us."""
THRIFT: Final = 1e-5
"""Worth of leaving the whole fleet idle beside an objective of 1: of equal allocations the one with the fewest
GPU-hours is returned."""
PROVEN: Final = 1e-4
"""Relative distance to the bound at which an allocation counts as the best. Source: stated by us; HiGHS' default."""
SLACK: Final = 1e-7
"""Relative excess over the least shortfall that the second solution may have: the solver's tolerance."""


_SOLVING: Final = threading.Lock()


class FleetError(ValueError):
    """A fleet cannot be planned; the message is one sentence."""


@contextmanager
def _spare_standard_output() -> Iterator[None]:
    """Send what HiGHS prints to standard error: it prints a line of its own debugging to standard output, where JSON
    goes. One solution at a time, as the redirection is the whole process's."""
    with _SOLVING:
        sys.stdout.flush()
        kept = os.dup(1)
        try:
            os.dup2(2, 1)
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)


@dataclass
class _Program:
    """Variables and constraints of a linear program, one after the other."""

    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    whole: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)

    def add_variable(self, upper: float, is_whole: bool = True, lower: float = 0.0) -> int:
        """Add a variable; return its position."""
        self.lower.append(lower)
        self.upper.append(upper)
        self.whole.append(int(is_whole))
        return len(self.lower) - 1

    def add_constraint(
        self, terms: Iterable[tuple[int, float]], least: float = -math.inf, most: float = math.inf
    ) -> None:
        """Add bounds of a sum of variables with factors."""
        for column, value in terms:
            self.rows.append(len(self.least))
            self.columns.append(column)
            self.values.append(value)
        self.least.append(least)
        self.most.append(most)

    def solve(self, goal: Floats, longest_s: float) -> Any:
        """Return the solver's result for the least sum of variables with factors."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        shape = (len(self.least), len(self.lower))
        matrix = csr_array((self.values, (self.rows, self.columns)), shape=shape)
        with _spare_standard_output():
            return milp(
                goal,
                integrality=np.array(self.whole),
                bounds=Bounds(np.array(self.lower), np.array(self.upper)),
                constraints=LinearConstraint(matrix, np.array(self.least), np.array(self.most)) if self.least else None,
                options={"time_limit": longest_s, "mip_rel_gap": PROVEN},
            )


class _FleetProgram(_Program):
    """The program of a fleet."""

    def __init__(self, problem: FleetProblem) -> None:
        super().__init__()
        self.problem = problem
        self.held: list[list[list[int]]] = []
        """Variables of each job by hour and size: 1 if it holds the size. Jobs that do not change have one hour."""
        self.started: list[list[list[int]]] = []
        """Variables of each elastic job by hour and size: 1 if it holds the size, and restarted for it."""
        self.counts: list[list[list[int]]] = []
        """Variables of each service by choice and hour: the replicas."""
        self.used: list[list[dict[int, float]]] = [[{} for _ in range(problem.hours)] for _ in problem.pools]
        """GPUs by pool and hour, as factors of variables."""
        self.shortfall: dict[int, float] = {}
        """Factors of the variables whose sum is the relative shortfall."""
        for number in range(len(problem.jobs)):
            self._add_job(number)
        for number in range(len(problem.services)):
            self._add_service(number)
        for number, pool in enumerate(problem.pools):
            for hour in range(problem.hours):
                self.add_constraint(self.used[number][hour].items(), most=pool.gpus - pool.spares)

    def _add_job(self, number: int) -> None:
        said, hours = self.problem.jobs[number], self.problem.hours
        times = range(hours) if said.is_elastic else range(1)
        held = [[self.add_variable(1.0) for _ in said.sizes] for _ in times]
        self.held.append(held)
        self.started.append([])
        for time in times:
            self.add_constraint(((each, 1.0) for each in held[time]), most=1.0)
        if said.is_elastic and said.restart_s > 0 and hours > 1:
            for time in times:
                starts = [self.add_variable(1.0, is_whole=False) for _ in said.sizes]
                self.started[number].append(starts)
                for place, (start, now) in enumerate(zip(starts, held[time], strict=True)):
                    # It restarts if it holds the size, and held none before that changes into it.
                    kept = [each for at, each in enumerate(held[time - 1]) if not said.restarts(place, at)]
                    self.add_constraint([(start, 1.0), (now, -1.0), *((each, 1.0) for each in kept)], least=0.0)
        for hour in range(hours):
            for size, variable in zip(said.sizes, held[hour if said.is_elastic else 0], strict=True):
                self._use(size.pool, hour, variable, size.gpus)
        if said.needed_rate > 0:
            missed = self.add_variable(1.0, is_whole=False)
            self.shortfall[missed] = 1.0
            terms = self.rate_terms(number)
            scale = said.needed_rate
            self.add_constraint([*((at, factor / scale) for at, factor in terms.items()), (missed, 1.0)], least=1.0)

    def rate_terms(self, number: int) -> dict[int, float]:
        """Return the average rate of a job as factors of variables [tokens/s]."""
        said, hours = self.problem.jobs[number], self.problem.hours
        terms: dict[int, float] = {}
        for time, variables in enumerate(self.held[number]):
            share = 1.0 / hours if said.is_elastic else 1.0
            for place, (size, variable) in enumerate(zip(said.sizes, variables, strict=True)):
                terms[variable] = size.tokens_per_s * share
                if self.started[number]:
                    lost = min(said.restart_s / SECONDS_OF_HOUR, 1.0)
                    terms[self.started[number][time][place]] = -size.tokens_per_s * share * lost
        return terms

    def _add_service(self, number: int) -> None:
        said, pools = self.problem.services[number], self.problem.pools
        counts = []
        for choice in said.choices:
            most = (pools[choice.pool].gpus - pools[choice.pool].spares) // choice.gpus
            counts.append([self.add_variable(float(most)) for _ in range(self.problem.hours)])
            for hour, variable in enumerate(counts[-1]):
                self._use(choice.pool, hour, variable, choice.gpus)
        self.counts.append(counts)
        lost = said.startup_s / SECONDS_OF_HOUR
        started = [
            [self._add_starts(hours[hour], hours[hour - 1]) for hour in range(self.problem.hours)]
            for hours in counts
            if lost and self.problem.hours > 1
        ]
        total = float(said.demand.sum())
        for hour, demand in enumerate(said.demand):
            if demand <= 0:
                continue
            unserved = self.add_variable(1.0, is_whole=False)
            self.shortfall[unserved] = float(demand) / total
            served = [(counts[at][hour], each.capacity / demand) for at, each in enumerate(said.choices)]
            # A replica that starts in the hour serves the rest of it.
            missing = [
                (starts[hour], -each.capacity / demand * lost)
                for starts, each in zip(started, said.choices[: len(started)], strict=True)
            ]
            self.add_constraint([*served, *missing, (unserved, 1.0)], least=1.0)

    def _add_starts(self, now: int, before: int) -> int:
        """Add the replicas that start between two hours; return the variable."""
        starts = self.add_variable(math.inf, is_whole=False)
        self.add_constraint([(starts, 1.0), (now, -1.0), (before, 1.0)], least=0.0)
        return starts

    def _use(self, pool: int, hour: int, variable: int, gpus: int) -> None:
        self.used[pool][hour][variable] = self.used[pool][hour].get(variable, 0.0) + gpus

    def shortfall_goal(self) -> Floats:
        """Return the factors of the relative shortfall."""
        goal = np.zeros(len(self.lower))
        for variable, factor in self.shortfall.items():
            goal[variable] = factor
        return goal

    def objective_goal(self) -> Floats:
        """Return the factors of the objective, which is made least."""
        goal = getattr(self, f"_{self.problem.objective}_goal")()
        goal = np.concatenate([goal, np.zeros(len(self.lower) - len(goal))])
        capacity = sum(pool.gpus for pool in self.problem.pools) * self.problem.hours
        # Without jobs the fewest GPU-hours are all that is left to make best.
        scale = self._scale() if goal.any() else 1.0 / THRIFT
        for pool in self.used:
            for hour in pool:
                for variable, gpus in hour.items():
                    goal[variable] += THRIFT * scale * gpus / capacity
        return np.asarray(goal)

    def _scale(self) -> float:
        """Return the size of a large value of the objective."""
        if self.problem.objective != "usd":
            return 1.0
        return sum(pool.usd_per_h * pool.gpus * self.problem.hours for pool in self.problem.pools)

    def _progress_goal(self) -> Floats:
        goal = np.zeros(len(self.lower))
        able = [(number, job) for number, job in enumerate(self.problem.jobs) if job.best_rate > 0]
        weights = sum(job.weight for _, job in able) or 1.0
        for number, job in able:
            for variable, factor in self.rate_terms(number).items():
                goal[variable] -= job.weight / weights * factor / job.best_rate
        return goal

    def _days_goal(self) -> Floats:
        # The last job is done after 1 / pace days; every job keeps at least that pace.
        scale = largest_pace(self.problem)
        pace = self.add_variable(1.0, is_whole=False)
        for number, job in enumerate(self.problem.jobs):
            if job.tokens is not None and job.best_rate > 0:
                need = job.tokens * job.chain_factor / SECONDS_OF_DAY * scale
                terms = {at: factor / need for at, factor in self.rate_terms(number).items()}
                self.add_constraint([*terms.items(), (pace, -1.0)], least=0.0)
        goal = np.zeros(len(self.lower))
        goal[pace] = -1.0
        return goal

    def _usd_goal(self) -> Floats:
        goal = np.zeros(len(self.lower))
        for pool, hours in zip(self.problem.pools, self.used, strict=True):
            for hour in hours:
                for variable, gpus in hour.items():
                    goal[variable] += pool.usd_per_h * gpus
        return goal


def allocate(problem: FleetProblem, longest_s: float = LONGEST_S) -> Allocation:
    """Return the best allocation of a fleet, with a bound on any better one.

    Args:
        problem: pools, jobs and services.
        longest_s: time after which the best found so far is returned [s].

    Raises `FleetError` for an objective that lacks tokens or prices, and if nothing was found in time.
    """
    check_problem(problem)
    program = _FleetProgram(problem)
    goal = program.objective_goal()
    shortfall = np.concatenate([program.shortfall_goal(), np.zeros(len(goal) - len(program.shortfall_goal()))])
    if program.shortfall:
        held = _solve(program, shortfall, longest_s)
        least = max(float(shortfall @ held.x), 0.0)
        program.add_constraint(
            ((at, factor) for at, factor in program.shortfall.items()), most=least + SLACK * max(1.0, least)
        )
    found = _solve(program, goal, longest_s)
    return _read_allocation(program, found, goal)


def check_problem(problem: FleetProblem) -> None:
    """Raise `FleetError` for a fleet without jobs and services, and for an objective that lacks tokens or prices.

    Args:
        problem: pools, jobs and services; their sizes and choices may be missing yet.
    """
    if not problem.jobs and not problem.services:
        raise FleetError("Nothing shall run on the fleet; give jobs or services.")
    if problem.objective == "days" and not any(job.tokens is not None for job in problem.jobs):
        raise FleetError("The earliest end needs a job with tokens to train; give tokens, or another objective.")
    if problem.objective == "usd":
        for pool in problem.pools:
            if not math.isfinite(pool.usd_per_h):
                raise FleetError(f"{pool.name} has no recorded price; give usd_per_h, or another objective.")


def _solve(program: _Program, goal: Floats, longest_s: float) -> Any:
    if not program.lower:
        # Nothing that shall run has a size: the solver takes no program without variables.
        return SimpleNamespace(x=np.zeros(0), mip_dual_bound=0.0)
    found = program.solve(goal, longest_s)
    if found.x is None:
        raise FleetError(f"No allocation was found in {longest_s:g} s ({found.message}); plan fewer hours or jobs.")
    return found


def _read_allocation(program: _FleetProgram, found: Any, goal: Floats) -> Allocation:
    problem, values = program.problem, np.rint(found.x)
    sizes = []
    for job, held in zip(problem.jobs, program.held, strict=True):
        chosen = [next((at for at, each in enumerate(hour) if values[each] > 0.5), -1) for hour in held]
        sizes.append(np.array(chosen if job.is_elastic else chosen * problem.hours, np.int64))
    replicas = tuple(
        np.array([[int(values[each]) for each in hours] for hours in counts], np.int64).reshape(-1, problem.hours)
        for counts in program.counts
    )
    plain = Allocation(problem, tuple(sizes), replicas, 0.0, 0.0)
    value = measure_objective(plain)
    # The solver's bound holds for the objective with the worth of idle GPUs, which it contains.
    reached, proven = float(goal @ found.x), float(found.mip_dual_bound if found.mip_dual_bound is not None else 0.0)
    missing = max(reached - proven, 0.0)
    if problem.objective == "days":
        pace = 1.0 / value if value > 0 else 0.0
        most = pace + missing * largest_pace(problem)
        bound = min(1.0 / most, value) if most > 0 else math.inf
    else:
        bound = value + missing if problem.objective == "progress" else value - missing
    return Allocation(problem, plain.sizes, replicas, value, bound)


def largest_pace(problem: FleetProblem) -> float:
    """Return the share of its tokens that the slowest job trains in a day with the fleet for itself [1/day].

    Args:
        problem: with a job that has tokens and runs.
    """
    able = [job for job in problem.jobs if job.tokens is not None and job.best_rate > 0]
    return min(
        (job.largest_rate * SECONDS_OF_DAY / float(job.tokens or 1.0) / job.chain_factor for job in able), default=1.0
    )


def measure_objective(allocation: Allocation) -> float:
    """Return the value of an allocation's objective.

    Args:
        allocation: of a fleet.
    """
    problem = allocation.problem
    if problem.objective == "usd":
        return allocation.usd
    if problem.objective == "days":
        return max(
            allocation.days(number) * job.chain_factor
            for number, job in enumerate(problem.jobs)
            if job.tokens is not None
        )
    able = [(number, job) for number, job in enumerate(problem.jobs) if job.best_rate > 0]
    weights = sum(job.weight for _, job in able) or 1.0
    return sum(job.weight / weights * allocation.rate(number) / job.best_rate for number, job in able)
