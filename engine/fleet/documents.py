"""An allocation as a plain document, from which all its figures can be computed again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from engine.fleet.chain import ChainTime, StagedPlan
from engine.fleet.problem import SECONDS_OF_DAY, Allocation

__all__ = [
    "describe_allocation",
    "describe_fleet_plan",
    "describe_proof",
    "list_ends",
    "list_holders",
    "list_hours",
    "list_missed",
]


def describe_fleet_plan(plan: Allocation | StagedPlan) -> dict[str, Any]:
    """Return a plan as lists and numbers. Jobs, services and GPUs of a chain are from its first stage; `stages` has
    all, and `chain` the start and end of each job and service; both are empty without one.

    Args:
        plan: of a fleet.
    """
    if isinstance(plan, Allocation):
        return {**describe_allocation(plan), "stages": [], "chain": []}
    stages = [
        {
            "start_days": stage.start_days,
            "days": _number_or_none(stage.days),
            "ended": list(stage.ended),
            **describe_allocation(stage.allocation),
        }
        for stage in plan.stages
    ]
    first = {name: stages[0][name] for name in ("hours", "pools", "jobs", "services")}
    return {
        "objective": plan.problem.objective,
        **first,
        "value": _number_or_none(plan.value),
        "bound": _number_or_none(plan.bound),
        "gap": _number_or_none(plan.gap),
        "usd": _number_or_none(plan.usd),
        "holds": plan.holds,
        "stages": stages,
        "chain": [_describe_time(each) for each in plan.times],
    }


def _describe_time(time: ChainTime) -> dict[str, Any]:
    return {
        "name": time.name,
        "after": time.after,
        "is_service": time.is_service,
        "tokens": time.tokens,
        "start_days": _number_or_none(time.start_days),
        "end_days": _number_or_none(time.end_days),
        "deadline_days": time.deadline_days,
        "is_late": time.is_late,
    }


def describe_proof(document: Mapping[str, Any]) -> str:
    """Return a sentence about the proof of a plan.

    Args:
        document: of the plan.
    """
    value, bound, gap = document["value"], document["bound"], document["gap"]
    if not document["stages"]:
        if not gap:
            return "Proven: no plan is better."
        return f"Best found in time: a plan that is {gap:.2%} better is not ruled out."
    turn = "Each stage is proven best by itself; stages follow when a job ends, and their order is not proven."
    if gap is None or value is None or bound is None:
        return turn
    if not gap:
        return "Proven: no plan ends earlier."
    return f"{turn} No plan ends before day {bound:,.4g}."


def list_ends(plan: Allocation | StagedPlan) -> list[dict[str, Any]]:
    """Return speed and day of the end of each job.

    Args:
        plan: of a fleet.
    """
    if isinstance(plan, StagedPlan):
        return [
            {
                "name": each.name,
                "tokens_per_s": None,
                "days": _number_or_none(each.end_days),
                "is_late": each.is_late,
            }
            for each in plan.times
            if not each.is_service
        ]
    return [
        {
            "name": job.name,
            "tokens_per_s": plan.rate(number),
            "days": _number_or_none(plan.days(number)),
            "is_late": number in plan.late,
        }
        for number, job in enumerate(plan.problem.jobs)
    ]


def list_missed(plan: Allocation | StagedPlan) -> list[str]:
    """Return a sentence about each missed deadline, with the least one that would hold.

    Args:
        plan: of a fleet.
    """
    found = []
    jobs = {job.name: (number, job) for number, job in enumerate(plan.problem.jobs)}
    for number, job in jobs.values():
        if isinstance(plan, Allocation):
            end, is_late = plan.days(number), number in plan.late
        else:
            time = plan.times[number]
            end, is_late = time.end_days, time.is_late
        if not is_late or job.deadline_days is None:
            continue
        least, at = 0.0, job
        while True:
            rate = at.best_rate
            least += (at.tokens or 0.0) / rate / SECONDS_OF_DAY if rate > 0 else math.inf
            if at.after is None:
                break
            at = jobs[at.after][1]
        if not math.isfinite(least):
            found.append(f"{job.name} never ends: it, or a job before it, runs at no size of the fleet.")
        elif least > job.deadline_days:
            found.append(
                f"{job.name} needs {least:,.4g} days with the fleet for itself"
                f"{'' if job.after is None else ' and the jobs before it'}; its deadline of {job.deadline_days:,.4g} "
                f"days is too early by {least - job.deadline_days:,.3g}."
            )
        elif math.isfinite(end):
            found.append(
                f"{job.name} is done after {end:,.4g} days beside the others, {end - job.deadline_days:,.3g} days "
                "after its deadline."
            )
        else:
            found.append(f"{job.name} gets no GPUs beside the others, and misses its deadline.")
    return found


def describe_allocation(allocation: Allocation) -> dict[str, Any]:
    """Return an allocation as lists and numbers: what was asked, who has what, and the figures.

    Args:
        allocation: of a fleet.
    """
    problem = allocation.problem
    names = [pool.name for pool in problem.pools]
    used = allocation.gpus
    jobs = []
    for number, job in enumerate(problem.jobs):
        jobs.append(
            {
                "name": job.name,
                "tokens": job.tokens,
                "deadline_days": job.deadline_days,
                "weight": job.weight,
                "is_elastic": job.is_elastic,
                "restart_s": job.restart_s,
                "after": job.after,
                "chain_factor": job.chain_factor,
                "alone_tokens_per_s": job.best_rate,
                "curve": [
                    {
                        "pool": names[size.pool],
                        "gpus": size.gpus,
                        "tokens_per_s": size.tokens_per_s,
                        "group": size.group,
                    }
                    for size in job.sizes
                ],
                "hours": [None if at < 0 else int(at) for at in allocation.sizes[number]],
                "tokens_per_s": allocation.rate(number),
                "days": _number_or_none(allocation.days(number)),
                "is_late": number in allocation.late,
            }
        )
    services = []
    for number, service in enumerate(problem.services):
        services.append(
            {
                "name": service.name,
                "after": service.after,
                "startup_s": service.startup_s,
                "demand": [float(each) for each in service.demand],
                "choices": [
                    {"pool": names[each.pool], "gpus": each.gpus, "capacity": each.capacity} for each in service.choices
                ],
                "replicas": allocation.replicas[number].tolist(),
                "unserved": [float(each) for each in allocation.unserved(number)],
            }
        )
    return {
        "objective": problem.objective,
        "hours": problem.hours,
        "pools": [
            {
                "name": pool.name,
                "gpus": pool.gpus,
                "node": pool.node,
                "spares": pool.spares,
                "usd_per_h": _number_or_none(pool.usd_per_h),
                "used": used[number].tolist(),
            }
            for number, pool in enumerate(problem.pools)
        ],
        "jobs": jobs,
        "services": services,
        "value": _number_or_none(allocation.value),
        "bound": _number_or_none(allocation.bound),
        "gap": allocation.gap,
        "usd": _number_or_none(allocation.usd),
        "holds": allocation.holds,
    }


def _number_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def list_holders(document: Mapping[str, Any]) -> list[tuple[str, dict[str, list[int]]]]:
    """Return the names of all jobs and services, and the GPUs of each by pool and hour.

    Args:
        document: of an allocation.
    """
    names = [pool["name"] for pool in document["pools"]]
    hours = range(document["hours"])
    found = []
    for job in document["jobs"]:
        held = {name: [0 for _ in hours] for name in names}
        for hour, at in enumerate(job["hours"]):
            if at is not None:
                held[job["curve"][at]["pool"]][hour] += job["curve"][at]["gpus"]
        found.append((job["name"], held))
    for service in document["services"]:
        held = {name: [0 for _ in hours] for name in names}
        for choice, counts in zip(service["choices"], service["replicas"], strict=True):
            for hour, count in enumerate(counts):
                held[choice["pool"]][hour] += choice["gpus"] * count
        found.append((service["name"], held))
    return found


def list_hours(document: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each hour, job or service and pool: hour, name, system, gpus; of a chain, by stage.

    Args:
        document: of an allocation.
    """
    if document["stages"]:
        tables = [
            list_hours({**stage, "stages": []}).assign(stage=number, start_days=stage["start_days"])
            for number, stage in enumerate(document["stages"], 1)
        ]
        whole = pd.concat(tables, ignore_index=True)
        return whole[["stage", "start_days", "hour", "name", "system", "gpus"]]
    return pd.DataFrame(
        [
            {"hour": hour, "name": name, "system": pool, "gpus": gpus[hour]}
            for name, held in list_holders(document)
            for pool, gpus in held.items()
            for hour in range(document["hours"])
        ]
    )
