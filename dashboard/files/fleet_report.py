"""A plan of a fleet on one page: figures, GPUs by hour, jobs, services and what binds; for the page and as HTML."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from functools import partial
from html import escape
from typing import Any, Final

import pandas as pd

from dashboard.charts.elements.markup import Tile, figure_strip
from dashboard.charts.elements.template import Chart
from dashboard.charts.plans.fleet import FleetBar, gpus_by_hour, jobs_by_day
from dashboard.files.exports import version
from dashboard.files.report import drawn, page, whole
from dashboard.files.report_parts import Figure
from dashboard.files.run_plan_report import table_markup
from dashboard.link.catalogue import system_of
from dashboard.words.numbers import ABSENT, percent, plain, signed_percent
from engine.fleet.documents import list_holders
from engine.questions.documents.fleet import FleetQuestion

__all__ = [
    "BASIS",
    "build_fleet_report",
    "chain_bars",
    "compare_fleet_plans",
    "fleet_tables",
    "fleet_tiles",
    "pool_title",
]

BASIS: Final = (
    "Rates are predicted, failures included; latencies under load are modelled; no shared fleet was measured."
)
"""Basis of the figures, below them."""


def pool_title(system: Any) -> str:
    """Return the title of a pool's system, or its name.

    Args:
        system: name, or a whole document.
    """
    name = system if isinstance(system, str) else str(system.get("name", "system"))
    try:
        return system_of(name).title or name
    except (KeyError, ValueError):
        return name


def fleet_tiles(plan: Mapping[str, Any]) -> list[Tile]:
    """Return the headline figures of a plan.

    Args:
        plan: answer to `plan_fleet`.
    """
    value = plan["value"]
    proven = _proof_words(plan)
    labels = {
        "progress": ("Progress", "" if value is None else f"of the jobs alone on the fleet; {proven}"),
        "days": ("Last job done", proven),
        "usd": ("Cost of the GPUs in use", proven),
    }
    label, note = labels[plan["objective"]]
    units = {"progress": lambda each: percent(each), "days": lambda each: f"{plain(each, 4)} days", "usd": _usd}
    shown = "No progress" if value is None else units[plan["objective"]](value)
    tiles = [Tile(label, shown, note)]
    if plan["usd"] is not None and plan["objective"] != "usd":
        until = "until the last job is done" if plan["stages"] else f"in {plan['hours']:,} hours"
        tiles.append(Tile("Cost", _usd(plan["usd"]), f"of the GPUs in use {until}"))
    used = sum(sum(pool["used"]) for pool in plan["pools"]) / plan["hours"]
    there = sum(pool["gpus"] for pool in plan["pools"])
    first = ", first stage" if plan["stages"] else ""
    tiles.append(Tile("GPUs in use", f"{used:,.0f}", f"of {there:,} on average{first}"))
    served = [each for stage in plan["stages"] or [plan] for each in stage["services"]]
    demand = sum(sum(each["demand"]) for each in served)
    short = sum(sum(each["unserved"]) for each in served)
    late = [each["name"] for each in plan["chain"] or plan["jobs"] if each["is_late"]]
    if served:
        tiles.append(Tile("Demand served", percent(1.0 - short / (demand or 1.0)), "headroom included"))
    if late:
        tiles.append(Tile("Late", f"{len(late):,}", ", ".join(late)))
    return tiles


def _proof_words(plan: Mapping[str, Any]) -> str:
    if plan["gap"] is None:
        return "each stage proven best"
    return "proven best" if not plan["gap"] else f"at most {percent(plan['gap'])} from the best"


def _usd(value: float) -> str:
    return f"{value:,.0f} USD"


def chain_bars(plan: Mapping[str, Any]) -> list[FleetBar]:
    """Return when each job and service of a chain runs.

    Args:
        plan: answer to `plan_fleet`, with stages.
    """
    return [
        FleetBar(
            each["name"],
            each["start_days"],
            each["end_days"],
            each["deadline_days"],
            each["is_service"] or each["tokens"] is None,
            each["is_late"],
        )
        for each in plan["chain"]
    ]


def _ends_of(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return speed and end of each job of a plan."""
    if plan["chain"]:
        return [
            {"name": each["name"], "tokens_per_s": None, "days": each["end_days"], "is_late": each["is_late"]}
            for each in plan["chain"]
            if not each["is_service"]
        ]
    return [{name: job[name] for name in ("name", "tokens_per_s", "days", "is_late")} for job in plan["jobs"]]


def compare_fleet_plans(plan: Mapping[str, Any], first: Any, second: Any, before: str, after: str) -> pd.DataFrame:
    """Return two plans side by side, in words: the objective, cost, and each job's day of its end or speed.

    Args:
        plan: whose objective counts.
        first, second: with value, usd, holds and jobs.
        before, after: heads of their columns.
    """
    rows: list[tuple[str, float | None, float | None]] = []
    labels = {"progress": "Progress, %", "days": "Last job done, days", "usd": "Cost, USD"}
    factor = 100.0 if plan["objective"] == "progress" else 1.0
    values = [None if each["value"] is None else factor * each["value"] for each in (first, second)]
    rows.append((labels[plan["objective"]], values[0], values[1]))
    if plan["objective"] != "usd":
        rows.append(("Cost, USD", first["usd"], second["usd"]))
    for one, other in zip(_jobs_of(first), _jobs_of(second), strict=True):
        is_timed = one["days"] is not None or other["days"] is not None or one["tokens_per_s"] is None
        field, unit = ("days", "done after days") if is_timed else ("tokens_per_s", "tokens/s")
        rows.append((f"{one['name']}, {unit}", one[field], other[field]))
    table = [
        {
            "Figure": label,
            before: ABSENT if one is None else plain(one, 4),
            after: ABSENT if other is None else plain(other, 4),
            "Change": ABSENT if one is None or other is None or not one else signed_percent(other / one - 1.0),
        }
        for label, one, other in rows
    ]
    held = {
        "Figure": "Demand and deadlines",
        before: _held(first["holds"]),
        after: _held(second["holds"]),
        "Change": "",
    }
    return pd.DataFrame([*table, held])


def _jobs_of(plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    return _ends_of(plan) if "chain" in plan else list(plan["jobs"])


def fleet_tables(plan: Mapping[str, Any], stage: Mapping[str, Any]) -> list[tuple[str, str, pd.DataFrame]]:
    """Return tables of a plan with their titles and keys: jobs, services, simpler plans, and what would change it.

    Args:
        plan: answer to `plan_fleet`.
        stage: the plan itself, or one of its stages.
    """
    # In a stage, a job leaves the jobs after it their share of the time.
    limits = {"Deadline, days": "Must end within, days"} if plan["stages"] else {}
    of = f", stage from day {plain(stage['start_days'], 4)}" if plan["stages"] else ""
    found = []
    if stage["jobs"]:
        jobs = pd.DataFrame([_job_row(job) for job in stage["jobs"]]).rename(columns=limits)
        found.append((f"Jobs{of}", "fleet_jobs", jobs))
    if stage["services"]:
        services = pd.DataFrame([_service_row(each) for each in stage["services"]])
        found.append((f"Services{of}", "fleet_services", services))
    better = plan["objective"] == "progress"
    simpler = [
        {"Plan": each["words"], **_value_cells(plan, each["value"]), "Demand and deadlines": _held(each["holds"])}
        for each in plan["baselines"]
    ]
    found.append(("Simpler plans", "fleet_simpler", pd.DataFrame(simpler)))
    if plan["changes"]:
        changes = [
            {
                "Change": each["words"],
                "Gain": None if each["gain"] is None else (100.0 * each["gain"] if better else each["gain"]),
                **_value_cells(plan, each["value"]),
                "Demand and deadlines": _held(each["holds"]),
            }
            for each in plan["changes"]
        ]
        unit = {"progress": "%", "days": "days", "usd": "USD"}[plan["objective"]]
        table = pd.DataFrame(changes).rename(columns={"Gain": f"Gain, {unit}"})
        found.append(("What would change it", "fleet_changes", table))
    return found


def _value_cells(plan: Mapping[str, Any], value: float | None) -> dict[str, float | None]:
    label = {"progress": "Progress, %", "days": "Last job done, days", "usd": "Cost, USD"}[plan["objective"]]
    return {label: None if value is None else (100.0 * value if plan["objective"] == "progress" else value)}


def _held(holds: bool) -> str:
    return "held" if holds else "not held"


def _job_row(job: Mapping[str, Any]) -> dict[str, Any]:
    held = [job["curve"][at] for at in sorted({at for at in job["hours"] if at is not None})]
    gpus = []
    for pool in dict.fromkeys(size["pool"] for size in held):
        sizes = [size["gpus"] for size in held if size["pool"] == pool]
        gpus.append(f"{min(sizes):,}{f' to {max(sizes):,}' if len(sizes) > 1 else ''} x {pool}")
    layouts = list(dict.fromkeys(size["layout"] for size in held))
    return {
        "Job": job["name"],
        "GPUs": ", ".join([*gpus, *(["paused"] if None in job["hours"] else [])]),
        "Tokens/s": job["tokens_per_s"],
        "Days": job["days"],
        "Deadline, days": job["deadline_days"],
        "Late": "late" if job["is_late"] else "no",
        "Layout": layouts[0] if len(layouts) == 1 else "by hour, in the JSON" if layouts else "",
    }


def _service_row(service: Mapping[str, Any]) -> dict[str, Any]:
    replicas = []
    for choice, counts in zip(service["choices"], service["replicas"], strict=True):
        if any(counts):
            replicas.append(f"{min(counts):,} to {max(counts):,}, each {choice['gpus']:,} x {choice['pool']}")
    demand = service["demand"]
    return {
        "Service": service["name"],
        "Replicas": ", ".join(replicas) or "none",
        "Peak with headroom, requests/s": max(demand),
        "Each holds, requests/s": max((choice["capacity"] for choice in service["choices"]), default=None),
        "Not served, %": 100.0 * sum(service["unserved"]) / (sum(demand) or 1.0),
    }


def build_fleet_report(asked: FleetQuestion, plan: Mapping[str, Any], address: str = "") -> bytes:
    """Return the report of a plan as a UTF-8 HTML document that opens offline; of a chain it has every stage.

    Args:
        asked: the question.
        plan: its answer.
        address: link to the plan, printed as text.
    """
    name = "Fleet: " + ", ".join(f"{pool['gpus']:,} x {pool_title(pool['name'])}" for pool in plan["pools"])
    stages = plan["stages"] or [plan]
    figures = [
        Figure(
            f"hours-{number}-{place}",
            pool_title(pool["name"]),
            f"GPUs by hour{', from day ' + plain(stage['start_days'], 4) if plan['stages'] else ''}",
            partial(_draw_hours, stage, pool),
        )
        for number, stage in enumerate(stages)
        for place, pool in enumerate(stage["pools"])
    ]
    if plan["chain"]:
        figures.insert(0, Figure("chain", "Jobs by day", "from start to end", partial(_draw_chain, plan)))
    places, data = drawn(figures)
    tables = "".join(
        f"<h2>{escape(title)}</h2>{table_markup(_in_words(table))}"
        for number, stage in enumerate(stages)
        for title, key, table in fleet_tables(plan, stage)
        if len(table) and (number == len(stages) - 1 or key in ("fleet_jobs", "fleet_services"))
    )
    said = "".join(
        f"<p>{escape(text)}</p>"
        for text in [
            plan["proof"],
            *plan["missed"],
            *(f"{who}: {reason}" for who, reason in plan["refused"].items()),
        ]
    )
    left_out = "".join(f"<li>{escape(each)}</li>" for each in plan["not_modelled"])
    made = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    body = (
        f"<h1>{escape(name)}</h1>{figure_strip(fleet_tiles(plan), BASIS)}{said}{places}{tables}"
        f"<h2>Not modelled</h2><ul>{left_out}<li>Shardscape {escape(version())}, {made}.</li></ul>"
        f"{whole('fleet', asked.model_dump(mode='json', exclude_defaults=True), address, 'on the Fleet page')}"
    )
    return page(name, body, data).encode("utf-8", "replace")


def _draw_hours(stage: Mapping[str, Any], pool: Mapping[str, Any], mode: str) -> Chart:
    held = {name: gpus[pool["name"]] for name, gpus in list_holders(stage)}
    return gpus_by_hour(held, pool["gpus"], pool["spares"], pool_title(pool["name"]), mode)


def _draw_chain(plan: Mapping[str, Any], mode: str) -> Chart:
    return jobs_by_day(chain_bars(plan), mode)


def _in_words(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table as text: numbers with four digits, a dash for a missing value."""
    return table.map(lambda cell: ABSENT if pd.isna(cell) else cell if isinstance(cell, str) else plain(float(cell), 4))
