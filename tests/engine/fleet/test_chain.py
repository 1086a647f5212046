"""Chains of jobs: equal to all sizes tried, deadlines of whole chains, and the check from the document."""

from __future__ import annotations

import copy
import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from engine.fleet import (
    OBJECTIVES,
    FleetError,
    FleetJob,
    FleetProblem,
    FleetService,
    GpuPool,
    JobSize,
    Objective,
    ReplicaChoice,
    StagedPlan,
    allocate,
    allocate_in_turn,
    find_faults,
    plan_allocation,
)
from engine.fleet.documents import describe_fleet_plan, describe_proof, list_missed
from tests.engine.fleet.test_allocation import DAY, random_problem

SIZES = tuple(JobSize(0, gpus, 100.0 * gpus) for gpus in (8, 16, 24, 32))
POOL = GpuPool("a", 32, 8, usd_per_h=2.0)


def job(name: str, days_alone: float, after: str | None = None, **more: Any) -> FleetJob:
    """Return a job that takes so many days on all GPUs."""
    return FleetJob(name, SIZES, days_alone * DAY * 3_200.0, after=after, **more)


def random_chain(seed: int) -> FleetProblem:
    """Return three jobs, one after the other, and a service that starts with the second."""
    plain = random_problem(seed, "days")
    draw = np.random.default_rng(1_000 + seed)
    names = ("pre", "sft", "rl")
    jobs = tuple(
        replace(
            plain.jobs[0],
            name=name,
            tokens=float(draw.uniform(1, 3)) * 1e9,
            deadline_days=None,
            is_elastic=False,
            after=names[at - 1] if at else None,
        )
        for at, name in enumerate(names)
    )
    service = replace(plain.services[0], demand=draw.uniform(0, 3, 2), after="pre")
    return replace(plain, jobs=jobs, services=(service,))


def can_serve(problem: FleetProblem, size: JobSize) -> bool:
    """Return whether replicas beside a size serve all demand of each hour."""
    (service,) = problem.services
    free = [pool.gpus - pool.spares - size.gpus * (at == size.pool) for at, pool in enumerate(problem.pools)]
    most = [max(free[each.pool], 0) // each.gpus for each in service.choices]
    served = [each.capacity * count for each, count in zip(service.choices, most, strict=True)]
    return min(free) >= 0 and sum(served) >= service.demand.max() * (1 - 1e-9)  # each choice has a pool of its own


def test_a_chain_alone_ends_as_early_as_any() -> None:
    compared = 0
    for seed in range(16):
        problem = random_chain(seed)
        ends = []
        for sizes in itertools.product(problem.jobs[0].sizes, repeat=3):
            first_fits = sizes[0].gpus <= problem.pools[sizes[0].pool].gpus - problem.pools[sizes[0].pool].spares
            if first_fits and all(can_serve(problem, size) for size in sizes[1:]):
                pairs = zip(problem.jobs, sizes, strict=True)
                ends.append(sum((each.tokens or 0) / size.tokens_per_s / DAY for each, size in pairs))
        found = plan_allocation(problem)
        assert isinstance(found, StagedPlan)
        document = describe_fleet_plan(found)
        assert find_faults(document) == [], seed
        assert found.holds == bool(ends), seed
        if not ends:
            continue
        compared += 1
        assert found.value == pytest.approx(min(ends), rel=3e-4), seed
        assert found.gap == pytest.approx(0.0, abs=3e-4)
        assert [stage.ended for stage in found.stages] == [("pre",), ("sft",), ("rl",), ()]
    assert compared >= 5


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_plans_in_turn_hold_their_document_and_bound(objective: Objective) -> None:
    for seed in range(4):
        plain = random_problem(seed, objective)
        first, second = (replace(each, tokens=1e9, deadline_days=400.0) for each in plain.jobs)
        third = replace(first, name="third", after=first.name)
        endless = replace(second, name="endless", tokens=None, deadline_days=None)
        problem = replace(plain, jobs=(first, second, third, endless))
        found = plan_allocation(problem)
        document = describe_fleet_plan(found)
        assert find_faults(document) == [], seed
        assert describe_proof(document).startswith(("Each stage", "Proven"))
        if objective == "days":
            assert found.bound <= found.value
        wrong = copy.deepcopy(document)
        wrong["stages"][1]["start_days"] += 1.0
        assert find_faults(wrong)
        wrong = copy.deepcopy(document)
        row = next(each for each in wrong["chain"] if each["name"] == "third")
        row["end_days"] = 0.5
        assert find_faults(wrong)


def test_one_job_alone_is_the_plan_of_the_day() -> None:
    for seed in range(3):
        plain = random_problem(seed, "days")
        alone = replace(plain, jobs=(replace(plain.jobs[0], tokens=1e9, deadline_days=None),))
        whole, day = allocate_in_turn(alone), allocate(alone)
        assert whole.value == pytest.approx(day.value)
        assert np.array_equal(whole.stages[0].allocation.sizes[0], day.sizes[0])


def test_a_deadline_counts_for_the_whole_chain() -> None:
    chain = (job("pre", 10.0), job("sft", 10.0, "pre", deadline_days=25.0))
    hungry = FleetJob("hungry", SIZES, weight=100.0)
    alone = plan_allocation(FleetProblem((POOL,), chain, ()))
    beside = plan_allocation(FleetProblem((POOL,), (*chain, hungry), ()))
    assert isinstance(beside, StagedPlan)
    assert beside.holds
    assert beside.stages[0].allocation.gpus_of_job(0)[0, 0] == 32  # 24 GPUs would take 13.3 of 12.5 days
    assert list_missed(alone) == []
    late = plan_allocation(FleetProblem((POOL,), (chain[0], replace(chain[1], deadline_days=15.0)), ()))
    assert not late.holds
    (sentence,) = list_missed(late)
    assert "needs 20 days" in sentence
    assert "too early by 5" in sentence
    (sentence,) = list_missed(plan_allocation(FleetProblem((POOL,), (job("pre", 10.0, deadline_days=4.0),), ())))
    assert "needs 10 days" in sentence


def test_a_service_waits_for_the_job_that_makes_its_model() -> None:
    chat = FleetService("chat", (ReplicaChoice(0, 8, 1.0),), np.array([1.0, 2.0]), after="pre")
    found = plan_allocation(FleetProblem((POOL,), (job("pre", 3.0),), (chat,), 2, "days"))
    assert isinstance(found, StagedPlan)
    assert [len(stage.allocation.problem.services) for stage in found.stages] == [0, 1]
    assert found.stages[1].start_days == pytest.approx(3.0)
    assert math.isinf(found.stages[1].days)
    assert found.stages[1].allocation.gpus_of_service(0).tolist() == [[8, 16]]  # and no more, though all are free


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ((job("a", 1.0, "b"), job("b", 1.0, "a")), "in a circle: a after b after a"),
        ((job("a", 1.0, "a"),), "in a circle: a after a"),
        ((job("a", 1.0, "x"),), "which is no job; jobs: a"),
        ((FleetJob("a", SIZES), job("b", 1.0, "a")), "which has no tokens and never ends"),
    ],
)
def test_chains_that_cannot_be_are_refused(jobs: tuple[FleetJob, ...], words: str) -> None:
    with pytest.raises(FleetError, match=words):
        plan_allocation(FleetProblem((POOL,), jobs, ()))
