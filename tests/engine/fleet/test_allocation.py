"""Allocations of fleets: equal to all possibilities tried, laws, and the check from the document."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.fleet import (
    FleetError,
    FleetJob,
    FleetProblem,
    FleetService,
    GpuPool,
    JobSize,
    Objective,
    ReplicaChoice,
    allocate,
    explain_allocation,
    find_faults,
    spare_nodes,
)
from engine.fleet.documents import describe_allocation

OBJECTIVES: tuple[Objective, ...] = ("progress", "days", "usd")
DAY = 86_400.0


def random_problem(seed: int, objective: Objective) -> FleetProblem:
    """Return a fleet of two pools, two jobs and a service over two hours."""
    draw = np.random.default_rng(seed)
    pools = tuple(
        GpuPool(name, 8 * int(draw.integers(2, 5)), 8, 8 * int(draw.integers(0, 2)), float(draw.uniform(1, 4)))
        for name in ("a", "b")
    )
    jobs = []
    for number in range(2):
        speed = draw.uniform(50, 150, 2)
        sizes = tuple(
            JobSize(pool, 8 * nodes, float(speed[pool] * (8 * nodes) ** draw.uniform(0.7, 1.0)), group=number or None)
            for pool in range(2)
            for nodes in (1, 2)
        )
        is_timed = number == 0 or objective == "days"
        deadline = float(draw.uniform(5, 40)) if number == 0 and draw.random() < 0.7 else None
        jobs.append(
            FleetJob(
                f"job {number}",
                sizes,
                tokens=float(draw.uniform(1, 3)) * 1e9 if is_timed else None,
                deadline_days=deadline,
                weight=float(draw.uniform(0.5, 2)),
                is_elastic=bool(draw.random() < 0.5),
                restart_s=float(draw.choice([0.0, 900.0])),
            )
        )
    choices = (ReplicaChoice(0, 4, float(draw.uniform(1, 3))), ReplicaChoice(1, 8, float(draw.uniform(2, 6))))
    service = FleetService("chat", choices, draw.uniform(0, 6, 2), startup_s=float(draw.choice([0.0, 1_800.0])))
    return FleetProblem(pools, tuple(jobs), (service,), 2, objective)


def all_allocations(problem: FleetProblem) -> Iterator[tuple[float, float]]:
    """Yield the shortfall and the objective of every allocation that fits, less being better."""
    hours = range(problem.hours)
    choices = []
    for job in problem.jobs:
        options = range(-1, len(job.sizes))
        choices.append(list(itertools.product(options, repeat=2)) if job.is_elastic else [(at, at) for at in options])
    (service,) = problem.services
    most = [(problem.pools[each.pool].gpus - problem.pools[each.pool].spares) // each.gpus for each in service.choices]
    for held in itertools.product(*choices):
        used = [[0, 0] for _ in problem.pools]
        rates = []
        for job, sequence in zip(problem.jobs, held, strict=True):
            tokens = 0.0
            for hour in hours:
                if (at := sequence[hour]) >= 0:
                    used[job.sizes[at].pool][hour] += job.sizes[at].gpus
                    before = sequence[hour - 1]
                    is_kept = before == at or (
                        # The rollout alone grows or shrinks where sizes on one pool are of one group.
                        before >= 0
                        and job.sizes[at].group is not None
                        and job.sizes[at].group == job.sizes[before].group
                        and job.sizes[at].pool == job.sizes[before].pool
                    )
                    lost = job.restart_s if job.is_elastic and not is_kept else 0.0
                    tokens += job.sizes[at].tokens_per_s * (3600.0 - lost)
            rates.append(tokens / (3600.0 * problem.hours))
        free = [[pool.gpus - pool.spares - used[at][hour] for hour in hours] for at, pool in enumerate(problem.pools)]
        if min(map(min, free)) < 0:
            continue
        missed = sum(
            max(1.0 - rate / job.needed_rate, 0.0)
            for job, rate in zip(problem.jobs, rates, strict=True)
            if job.needed_rate
        )
        fitting: list[list[tuple[int, ...]]] = [[], []]
        for hour in hours:
            for counts in itertools.product(*(range(each + 1) for each in most)):
                gpus = [0, 0]
                for each, count in zip(service.choices, counts, strict=True):
                    gpus[each.pool] += each.gpus * count
                if all(need <= free[pool][hour] for pool, need in enumerate(gpus)):
                    fitting[hour].append(counts)
        by_day = []
        for counts in itertools.product(*fitting):
            short = cost = 0.0
            for hour in hours:
                served = 0.0
                for each, count, before in zip(service.choices, counts[hour], counts[hour - 1], strict=True):
                    served += each.capacity * (count - max(count - before, 0) * service.startup_s / 3600.0)
                    cost += count * each.gpus * problem.pools[each.pool].usd_per_h
                short += max(service.demand[hour] - served, 0.0) / service.demand.sum()
            by_day.append((short, cost))
        served_best = min(by_day)
        jobs_cost = sum(problem.pools[at].usd_per_h * sum(used[at]) for at in range(len(problem.pools)))
        if problem.objective == "usd":
            value = jobs_cost + served_best[1]
        elif problem.objective == "days":
            value = max(
                job.tokens / rate / DAY if rate else math.inf
                for job, rate in zip(problem.jobs, rates, strict=True)
                if job.tokens
            )
        else:
            weights = sum(job.weight for job in problem.jobs)
            value = -sum(
                job.weight / weights * rate / max(size.tokens_per_s for size in job.sizes)
                for job, rate in zip(problem.jobs, rates, strict=True)
            )
        yield missed + served_best[0], value


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_allocation_is_the_best_of_all(objective: Objective) -> None:
    for seed in range(12):
        problem = random_problem(seed, objective)
        every = list(all_allocations(problem))
        least = min(short for short, _ in every)
        best = min(value for short, value in every if short <= least + 1e-9)
        found = allocate(problem)
        value = -found.value if objective == "progress" else found.value
        assert value == pytest.approx(best, rel=3e-4, abs=1e-9), (seed, least)
        assert found.holds == (least < 1e-9), seed
        document = describe_allocation(found)
        assert find_faults(document) == []
        better = found.bound >= found.value if objective == "progress" else found.bound <= found.value
        assert better, seed


def test_more_gpus_and_less_demand_are_never_worse() -> None:
    for seed in range(8):
        problem = replace(random_problem(seed, "progress"), pools=tuple(GpuPool(name, 64, 8) for name in "ab"))
        found = allocate(problem)
        assert all(change.gain >= -1e-4 for change in explain_allocation(found)), seed


def test_the_check_finds_what_was_changed() -> None:
    document = describe_allocation(allocate(random_problem(1, "progress")))
    assert not find_faults(document)

    def changed(*path: Any, to: Any) -> list[str]:
        wrong = copy.deepcopy(document)
        place: Any = wrong
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to
        return find_faults(wrong)

    assert changed("value", to=document["value"] * 1.01)
    assert changed("pools", 0, "gpus", to=0)
    assert changed("services", 0, "replicas", to=[[0, 0], [0, 0]])
    assert changed("jobs", 0, "tokens_per_s", to=1.0)
    held = document["jobs"][0]["hours"]
    assert changed("jobs", 0, "hours", to=[None if held[0] is not None else 0] * 2)


def test_spares_cover_failures_under_repair() -> None:
    for gpus, node, mtbf_h, repair_h in (
        (256, 8, 50_680.0, 24.0),
        (16_384, 8, 50_680.0, 24.0),
        (512, 72, 1_000.0, 48.0),
    ):
        mean = gpus * repair_h / mtbf_h

        def share_covered(spare: int, mean: float = mean) -> float:
            return math.fsum(math.exp(-mean + k * math.log(mean) - math.lgamma(k + 1)) for k in range(spare + 1))

        found = spare_nodes(gpus, node, mtbf_h, repair_h)
        assert found == gpus // node or share_covered(found) >= 0.99
        assert found == 0 or share_covered(found - 1) < 0.99


def test_an_objective_without_what_it_needs_is_refused() -> None:
    job = FleetJob("job", (JobSize(0, 8, 10.0),))
    with pytest.raises(FleetError, match="needs a job with tokens"):
        allocate(FleetProblem((GpuPool("a", 8, 8),), (job,), (), 24, "days"))
    with pytest.raises(FleetError, match="no recorded price"):
        allocate(FleetProblem((GpuPool("a", 8, 8),), (job,), (), 24, "usd"))
    with pytest.raises(FleetError, match="give jobs or services"):
        allocate(FleetProblem((GpuPool("a", 8, 8),), (), ()))
