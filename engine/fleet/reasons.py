"""Reasons of an allocation: the best one with a node more, and with constraints lifted alone and in pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

from engine.fleet.allocation import LONGEST_S
from engine.fleet.chain import StagedPlan, plan_allocation
from engine.fleet.problem import Allocation, FleetProblem

__all__ = ["FleetChange", "explain_allocation", "in_turn", "without_changes", "without_growth"]

MOST_LIFTED: Final = 8
"""Constraints that are lifted in pairs; more would take too many solutions. Source: stated by us."""


@dataclass(frozen=True, slots=True)
class FleetChange:
    """Change of a problem, and its gain."""

    words: str
    value: float
    """The objective after it."""
    gain: float
    """By which the objective gets better; below 0 if worse."""
    holds: bool
    """True if all demand and deadlines hold after it."""


def explain_allocation(
    allocation: Allocation | StagedPlan,
    longest_s: float = LONGEST_S,
    tell: Callable[[float, str], None] = lambda share, doing: None,
) -> list[FleetChange]:
    """Return what one node more of each pool, and lifted constraints, bring; the largest gain first.

    Pairs of constraints are listed only where they bring more than the two of them alone: neither is to blame by
    itself then.

    Args:
        allocation: the best of its problem, or its stages.
        longest_s: time of each solution [s].
        tell: called with the share that is done and the current change.
    """
    problem = allocation.problem
    lifts = list(_lifts(problem))
    alone: dict[str, FleetChange] = {}
    changes = list(_nodes(problem))
    pairs = list(combinations(lifts[:MOST_LIFTED], 2))
    steps = len(changes) + len(lifts) + len(pairs)
    found = []
    for number, (words, change) in enumerate([*changes, *lifts]):
        tell(number / steps, words)
        alone[words] = _solve_changed(allocation, words, change(problem), longest_s)
        found.append(alone[words])
    for number, ((first, one), (second, other)) in enumerate(pairs, len(found)):
        tell(number / steps, first)
        words = f"{first}, and {second[0].lower()}{second[1:]}"
        both = _solve_changed(allocation, words, other(one(problem)), longest_s)
        more = both.gain > alone[first].gain + alone[second].gain + 1e-6 * max(abs(allocation.value), 1e-30)
        if more or (both.holds and not alone[first].holds and not alone[second].holds):
            found.append(both)
    return sorted(found, key=lambda change: (not change.holds, -change.gain))


def without_changes(problem: FleetProblem) -> FleetProblem:
    """Return the problem in which no job changes its size.

    Args:
        problem: of a fleet.
    """
    return replace(problem, jobs=tuple(replace(job, is_elastic=False) for job in problem.jobs))


def without_growth(problem: FleetProblem) -> FleetProblem:
    """Return the problem in which no job changes its size, and every service keeps the replicas of its peak.

    Args:
        problem: of a fleet.
    """
    peaks = tuple(
        replace(service, demand=service.demand * 0.0 + service.demand.max(initial=0.0)) for service in problem.services
    )
    return replace(without_changes(problem), services=peaks)


def in_turn(problem: FleetProblem) -> FleetProblem:
    """Return the problem in which each job with tokens waits for the one before it.

    Args:
        problem: without chains.
    """
    jobs, last = [], None
    for job in problem.jobs:
        jobs.append(job if job.tokens is None else replace(job, after=last))
        last = last if job.tokens is None else job.name
    return replace(problem, jobs=tuple(jobs))


def _nodes(problem: FleetProblem) -> Iterator[tuple[str, Callable[[FleetProblem], FleetProblem]]]:
    for number, pool in enumerate(problem.pools):

        def grow(given: FleetProblem, at: int = number) -> FleetProblem:
            pools = list(given.pools)
            pools[at] = replace(pools[at], gpus=pools[at].gpus + pools[at].node)
            return replace(given, pools=tuple(pools))

        yield f"One more node of {pool.name} ({pool.node} GPUs)", grow


def _lifts(problem: FleetProblem) -> Iterator[tuple[str, Callable[[FleetProblem], FleetProblem]]]:
    for number, job in enumerate(problem.jobs):
        if job.needed_rate > 0:

            def end_late(given: FleetProblem, at: int = number) -> FleetProblem:
                jobs = list(given.jobs)
                jobs[at] = replace(jobs[at], deadline_days=None)
                return replace(given, jobs=tuple(jobs))

            yield f"No deadline of {job.name}", end_late
    for number, service in enumerate(problem.services):

        def serve_less(given: FleetProblem, at: int = number) -> FleetProblem:
            services = list(given.services)
            services[at] = replace(services[at], demand=0.9 * services[at].demand)
            return replace(given, services=tuple(services))

        yield f"A tenth less demand of {service.name}", serve_less
    if any(pool.spares for pool in problem.pools):
        yield (
            "No spare nodes",
            lambda given: replace(given, pools=tuple(replace(pool, spares=0) for pool in given.pools)),
        )


def _solve_changed(
    allocation: Allocation | StagedPlan, words: str, problem: FleetProblem, longest_s: float
) -> FleetChange:
    found = plan_allocation(problem, longest_s)
    before, after = allocation.value, found.value
    gain = after - before if problem.objective == "progress" else before - after
    return FleetChange(words, after, gain, found.holds)
