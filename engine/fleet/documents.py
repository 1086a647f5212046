"""An allocation as a plain document, from which all its figures can be computed again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from engine.fleet.problem import Allocation

__all__ = ["describe_allocation", "list_holders", "list_hours"]


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
    """Return a row for each hour, job or service and pool: hour, name, system, gpus.

    Args:
        document: of an allocation.
    """
    return pd.DataFrame(
        [
            {"hour": hour, "name": name, "system": pool, "gpus": gpus[hour]}
            for name, held in list_holders(document)
            for pool, gpus in held.items()
            for hour in range(document["hours"])
        ]
    )
