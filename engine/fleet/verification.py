"""Check of an allocation from its document alone: every figure once more, hour by hour, without the solver."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

__all__ = ["find_faults"]

TOLERANCE: Final = 1e-6
"""Relative difference of two figures that count as equal: the solver's tolerance."""


def find_faults(document: Mapping[str, Any]) -> list[str]:
    """Return what does not hold in an allocation, a sentence for each; empty if all does.

    Args:
        document: as `engine.fleet.documents.describe_allocation` returns it.
    """
    if document.get("stages"):
        return list(_walk_chain_faults(document))
    return list(_walk_faults(document))


def _walk_chain_faults(document: Mapping[str, Any]) -> Iterator[str]:
    """Walk through the stages once more: who may run, the tokens that are left, who ends when."""
    times = {each["name"]: each for each in document["chain"]}
    left = {name: each["tokens"] for name, each in times.items()}
    starts: dict[str, float] = {}
    ends: dict[str, float] = {}
    now = usd = weighted = 0.0
    served = True
    for number, stage in enumerate(document["stages"], 1):
        yield from (f"Stage {number}: {each}" for each in _walk_faults(stage))
        if not _is_equal(now, stage["start_days"]):
            yield f"Stage {number} starts on day {now:g}, not {stage['start_days']:g}."
        running = {each["name"] for each in (*stage["jobs"], *stage["services"])}
        allowed = {
            name
            for name, each in times.items()
            if name not in ends and (each["after"] is None or each["after"] in ends)
        }
        for name in sorted(running ^ allowed):
            yield f"Stage {number}: {name} {'runs too early or too late' if name in running else 'is missing'}."
        days = math.inf
        for job in stage["jobs"]:
            starts.setdefault(job["name"], now)
            if job["tokens"] is not None:
                if not _is_equal(job["tokens"], left[job["name"]]):
                    yield f"Stage {number}: {job['name']} has {left[job['name']]:g} tokens left, not {job['tokens']:g}."
                days = min(days, math.inf if job["days"] is None else job["days"])
        for service in stage["services"]:
            starts.setdefault(service["name"], now)
            served = served and not any(
                short > TOLERANCE * demand for short, demand in zip(service["unserved"], service["demand"], strict=True)
            )
        if not _is_equal(days, math.inf if stage["days"] is None else stage["days"]):
            yield f"Stage {number} lasts {days:g} days, not {stage['days']}."
        if not math.isfinite(days):
            break
        for job in stage["jobs"]:
            if job["tokens"] is None:
                continue
            left[job["name"]] -= job["tokens_per_s"] * days * 86_400.0
            if left[job["name"]] <= TOLERANCE * job["tokens"]:
                ends[job["name"]] = now + days
        if {*stage["ended"]} != {name for name, end in ends.items() if end == now + days}:
            yield f"Stage {number} ends with other jobs than is said."
        usd += (stage["usd"] or 0.0) / stage["hours"] * 24.0 * days
        weighted += (stage["value"] or 0.0) * days
        now += days
    late = False
    for name, each in times.items():
        end = math.inf if each["end_days"] is None else each["end_days"]
        start = math.inf if each["start_days"] is None else each["start_days"]
        if not _is_equal(start, starts.get(name, math.inf)) or not _is_equal(end, ends.get(name, math.inf)):
            yield f"{name} starts or ends on another day than is said."
        is_late = each["deadline_days"] is not None and end > each["deadline_days"] * (1.0 + TOLERANCE)
        late = late or is_late
        if is_late and not each["is_late"]:
            yield f"{name} is late."
    if document["holds"] and (late or not served):
        yield "Not all demand and deadlines are held, as is said."
    all_end = all(name in ends for name, each in times.items() if each["tokens"] is not None)
    last = document["stages"][-1]["value"]
    mean = weighted / now if now and all_end else math.inf if last is None else last
    value = {"days": now, "usd": usd}.get(document["objective"], mean) if all_end else mean
    if document["objective"] != "progress" and not all_end:
        value = math.inf
    if not _is_equal(value, math.inf if document["value"] is None else document["value"]):
        yield f"The objective is {value:g}, not {document['value']}."


def _walk_faults(document: Mapping[str, Any]) -> Iterator[str]:
    hours = document["hours"]
    used = {pool["name"]: [0] * hours for pool in document["pools"]}
    rates = {}
    for job in document["jobs"]:
        tokens = 0.0
        for hour, at in enumerate(job["hours"]):
            if at is None:
                continue
            size = job["curve"][at]
            used[size["pool"]][hour] += size["gpus"]
            changed = job["is_elastic"] and hours > 1 and _restarts(job["curve"], at, job["hours"][hour - 1])
            tokens += size["tokens_per_s"] * (3600.0 - (min(job["restart_s"], 3600.0) if changed else 0.0))
        alone = job["alone_tokens_per_s"]
        if alone and not any(_is_equal(alone, size["tokens_per_s"]) for size in job["curve"]):
            yield f"{job['name']} has no size with its {alone:g} tokens/s alone on the fleet."
        if not job["is_elastic"] and len(set(job["hours"])) > 1:
            yield f"{job['name']} changes its size, which it cannot."
        rates[job["name"]] = rate = tokens / (3600.0 * hours)
        if not _is_equal(rate, job["tokens_per_s"]):
            yield f"{job['name']} trains {rate:g} tokens/s, not {job['tokens_per_s']:g}."
        if job["tokens"] is not None:
            days = job["tokens"] / rate / 86_400.0 if rate else math.inf
            if not _is_equal(days, math.inf if job["days"] is None else job["days"]):
                yield f"{job['name']} takes {days:g} days, not {job['days']}."
            is_late = job["deadline_days"] is not None and days > job["deadline_days"] * (1.0 + TOLERANCE)
            if is_late and not job["is_late"]:
                yield f"{job['name']} is late."
    short = False
    for service in document["services"]:
        for hour, demand in enumerate(service["demand"]):
            served = 0.0
            for choice, counts in zip(service["choices"], service["replicas"], strict=True):
                started = max(counts[hour] - counts[hour - 1], 0) * service["startup_s"] / 3600.0
                served += choice["capacity"] * (counts[hour] - started)
                used[choice["pool"]][hour] += choice["gpus"] * counts[hour]
            missing = max(demand - served, 0.0)
            short = short or missing > TOLERANCE * demand
            if abs(missing - service["unserved"][hour]) > TOLERANCE * max(demand, 1e-30):
                yield f"{service['name']} lacks {missing:g} requests/s in hour {hour}, not what is said."
    for pool in document["pools"]:
        for hour, gpus in enumerate(used[pool["name"]]):
            if gpus > pool["gpus"] - pool["spares"]:
                yield f"{gpus:,} GPUs of {pool['name']} are used in hour {hour}; there are {pool['gpus']:,}."
            if gpus != pool["used"][hour]:
                yield f"{gpus:,} GPUs of {pool['name']} are used in hour {hour}, not {pool['used'][hour]:,}."
    if document["holds"] and (short or any(job["is_late"] for job in document["jobs"])):
        yield "Not all demand and deadlines are held, as is said."
    value = _objective_value(document, used, rates)
    if not _is_equal(value, math.inf if document["value"] is None else document["value"]):
        yield f"The objective is {value:g}, not {document['value']}."


def _objective_value(document: Mapping[str, Any], used: Mapping[str, list[int]], rates: Mapping[str, float]) -> float:
    jobs = document["jobs"]
    if document["objective"] == "usd":
        return float(sum(pool["usd_per_h"] * sum(used[pool["name"]]) for pool in document["pools"]))
    if document["objective"] == "days":
        timed = [job for job in jobs if job["tokens"] is not None]
        return max(
            job["tokens"] / rates[job["name"]] / 86_400.0 * job["chain_factor"] if rates[job["name"]] else math.inf
            for job in timed
        )
    best = {job["name"]: job["alone_tokens_per_s"] for job in jobs}
    able = [job for job in jobs if best[job["name"]] > 0]
    weights = sum(job["weight"] for job in able) or 1.0
    return float(sum(job["weight"] / weights * rates[job["name"]] / best[job["name"]] for job in able))


def _restarts(curve: list[Mapping[str, Any]], at: int, before: int | None) -> bool:
    if at == before or before is None:
        return at != before
    now, then = curve[at], curve[before]
    return now["group"] is None or (now["pool"], now["group"]) != (then["pool"], then["group"])


def _is_equal(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= TOLERANCE * max(abs(one), abs(other))
