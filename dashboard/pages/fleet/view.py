"""The Fleet page: a fleet, its plan by hour and stage, jobs, services, a simpler plan beside, and what binds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st
from pydantic import ValidationError

from dashboard.charts.elements import markup
from dashboard.charts.plans.fleet import FleetBar, gpus_by_hour, jobs_by_day
from dashboard.jobs.fleet_plans import FleetPlanJob
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.link.catalogue import system_of
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.fleet.editor import draw_editor
from dashboard.pages.fleet.link import ASKED_FIELDS, OWN, OWN_PARAMETER, PAGE_NAME, FleetLink
from dashboard.widgets.chart import show
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.job_card import found_soon
from dashboard.widgets.link_fields import draw_choice, draw_segments, draw_switch
from dashboard.widgets.own_table import parse_own_table
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, percent, plain, signed_percent
from engine.fleet.documents import list_holders, list_hours
from engine.fleet.ready import READY_FLEETS, ready_fleet
from engine.planners.contract import PlanError
from engine.questions.documents.fleet import FleetQuestion
from models.documents import DocumentError, parse_json, sentence

__all__ = ["FleetView", "parse", "render"]

RESETS: Final = ("fleet_objective", "fleet_figures_of", "fleet_why", "fleet_stage", "fleet_lost")
"""Parameters of the link that another fleet removes."""


@dataclass(frozen=True, slots=True)
class FleetView:
    """All that the link says of the page."""

    mode: str
    """The theme: "light" or "dark"."""
    question: FleetQuestion | None
    text: str
    """Document of the fleet."""
    fields: Mapping[str, LinkField]
    problem: str = ""
    """Reason if the link holds no question."""


def read_fleet_text(text: str) -> FleetQuestion:
    """Return the question of a document.

    Args:
        text: JSON.

    Raises `PlanError` with one sentence for another document.
    """
    try:
        return FleetQuestion.model_validate(parse_json(text.encode(), "The fleet", "fleet", DocumentError))
    except ValidationError as problem:
        raise PlanError(sentence(problem, FleetQuestion, "The fleet")) from None
    except DocumentError as problem:
        raise PlanError(str(problem)) from None


def parse() -> FleetView:
    """Parse the page's part of the link."""
    page, asked = LinkReader(FleetLink, PAGE_NAME), LinkReader(FleetQuestion, PAGE_NAME)
    own = parse_own_table(OWN_PARAMETER, "fleet", read_fleet_text)
    name = str(page.read("example", options={**READY_FLEETS, OWN: "My own fleet"}))
    mode = state.theme_mode()
    text = own.text if name == OWN and own.text is not None else json.dumps(ready_fleet(_ready_name(name)), indent=2)
    if name == OWN and own.problem:
        return FleetView(mode, None, text, page.fields, own.problem)
    document = read_fleet_text(text)
    for each in ASKED_FIELDS:
        asked.read(each, default=getattr(document, each))
    question = asked.build(**{field: getattr(document, field) for field in _rest()})
    page.read("stage")
    systems = [str(pool.system if isinstance(pool.system, str) else pool.system["name"]) for pool in document.pools]
    page.read("lost", options={"": "None", **{each: _pool_title(each) for each in systems}})
    return FleetView(mode, question, text, {**page.fields, **asked.fields})


def _rest() -> list[str]:
    return [name for name in FleetQuestion.model_fields if name not in ASKED_FIELDS]


def _ready_name(name: str) -> str:
    """Return the name of a ready fleet: the first in place of one's own, which it begins with."""
    return name if name in READY_FLEETS else next(iter(READY_FLEETS))


def render(view: FleetView) -> None:
    """Draw the page."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        draw_choice(view.fields["example"], width=420, resets=RESETS)
    draw_editor(view.question, view.text, view.mode, read_fleet_text)
    if view.problem:
        st.error(literal(view.problem), icon=":material/error:")
    question = view.question
    if question is None:
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        draw_segments(view.fields["objective"])
        draw_segments(view.fields["figures_of"])
        draw_switch(view.fields["why"])
    plan = _find_plan(question)
    if plan is not None:
        _draw_plan(view, question, plan)


def _find_plan(question: FleetQuestion) -> dict[str, Any] | None:
    """Return the plan of a question, or draw how far it is."""
    shared, watcher = server(), state.watcher()
    title = ", ".join(f"{pool.num_procs:,} x {_pool_title(pool.system)}" for pool in question.pools)
    job = shared.board.post(FleetPlanJob(shared.fleet_plans, question, title), watcher)
    return found_soon(job, FleetPlanJob, watcher, lambda one: one.plan)


def _pool_title(system: Any) -> str:
    name = system if isinstance(system, str) else str(system.get("name", "system"))
    try:
        return system_of(name).title or name
    except (KeyError, ValueError):
        return name


def _draw_plan(view: FleetView, question: FleetQuestion, plan: dict[str, Any]) -> None:
    st.html(markup.figure_strip(_tiles(plan), _basis(plan)))
    st.caption(literal(plan["proof"]))
    for missed in plan["missed"]:
        st.warning(literal(missed), icon=":material/schedule:")
    for name, reason in plan["refused"].items():
        st.caption(f"**{literal(name)}**: {literal(reason)}")
    stage = plan
    if plan["stages"]:
        stage = _draw_chain(view, plan)
    holders = list_holders(stage)
    for number, pool in enumerate(stage["pools"]):
        title = _pool_title(pool["name"])
        with st.container(border=True, gap="xsmall"):
            spares = f", {pool['spares']:,} of {pool['gpus']:,} spare" if pool["spares"] else ""
            st.html(markup.head(title, f"GPUs by hour{spares}"))
            held = {name: gpus[pool["name"]] for name, gpus in holders}
            show(gpus_by_hour(held, pool["gpus"], pool["spares"], title, view.mode), f"fleet_pool_{number}")
    _draw_tables(plan, stage)
    _draw_loss(view, question, plan)
    with st.container(horizontal=True, gap="small"):
        draw_download(
            "GPUs by hour",
            lambda: list_hours(plan).to_csv(index=False),
            "fleet.csv",
            "text/csv",
            key="fleet_hours",
            help="Who holds how many GPUs of which system in which hour.",
        )
        draw_download(
            "The plan as JSON",
            lambda: json.dumps(plan, indent=1),
            "fleet-plan.json",
            "application/json",
            key="fleet_json",
            help="All figures, from which every one can be computed again.",
        )
    st.caption(literal(" ".join(plan["not_modelled"])))


def _tiles(plan: dict[str, Any]) -> list[markup.Tile]:
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
    tiles = [markup.Tile(label, shown, note)]
    if plan["usd"] is not None and plan["objective"] != "usd":
        until = "until the last job is done" if plan["stages"] else f"in {plan['hours']:,} hours"
        tiles.append(markup.Tile("Cost", _usd(plan["usd"]), f"of the GPUs in use {until}"))
    used = sum(sum(pool["used"]) for pool in plan["pools"]) / plan["hours"]
    there = sum(pool["gpus"] for pool in plan["pools"])
    first = ", first stage" if plan["stages"] else ""
    tiles.append(markup.Tile("GPUs in use", f"{used:,.0f}", f"of {there:,} on average{first}"))
    served = [each for stage in plan["stages"] or [plan] for each in stage["services"]]
    demand = sum(sum(each["demand"]) for each in served)
    short = sum(sum(each["unserved"]) for each in served)
    late = [each["name"] for each in plan["chain"] or plan["jobs"] if each["is_late"]]
    if served:
        tiles.append(markup.Tile("Demand served", percent(1.0 - short / (demand or 1.0)), "headroom included"))
    if late:
        tiles.append(markup.Tile("Late", f"{len(late):,}", ", ".join(late)))
    return tiles


def _proof_words(plan: dict[str, Any]) -> str:
    if plan["gap"] is None:
        return "each stage proven best"
    return "proven best" if not plan["gap"] else f"at most {percent(plan['gap'])} from the best"


def _basis(plan: dict[str, Any]) -> str:
    return "Rates are predicted, failures included; latencies under load are modelled; no shared fleet was measured."


def _usd(value: float) -> str:
    return f"{value:,.0f} USD"


def _draw_chain(view: FleetView, plan: dict[str, Any]) -> dict[str, Any]:
    """Draw the jobs by day and the choice of a stage; return the stage whose hours are shown."""
    bars = [
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
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Jobs by day", "from start to end"))
        show(jobs_by_day(bars, view.mode), "fleet_chain")
    words = {number: _stage_words(number, stage) for number, stage in enumerate(plan["stages"], 1)}
    chosen = view.fields["stage"].among(words, 1)
    draw_choice(chosen, width=420)
    found: dict[str, Any] = plan["stages"][chosen.value - 1]
    return found


def _stage_words(number: int, stage: dict[str, Any]) -> str:
    start = plain(stage["start_days"], 4)
    if stage["days"] is None:
        return f"{number}: from day {start} on"
    return f"{number}: day {start} to {plain(stage['start_days'] + stage['days'], 4)}"


def _draw_loss(view: FleetView, question: FleetQuestion, plan: dict[str, Any]) -> None:
    """Draw the choice of a system that loses a node, and the difference."""
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Lose a node", "a spare one takes over where there is one"))
        draw_segments(view.fields["lost"])
        lost = view.fields["lost"].value
        if not lost:
            return
        pools = list(question.pools)
        place = next(at for at, pool in enumerate(plan["pools"]) if pool["name"] == lost)
        pool = plan["pools"][place]
        if pool["gpus"] <= pool["node"]:
            st.markdown(f"{_pool_title(lost)} has one node; without it there is no such system.")
            return
        left = {
            "num_procs": pool["gpus"] - pool["node"],
            "spare_nodes": max(pool["spares"] // pool["node"] - 1, 0),
        }
        pools[place] = pools[place].model_copy(update=left)
        other = _find_plan(question.model_copy(update={"pools": pools, "why": False}))
        if other is None:
            return
        rows = _compared(plan, plan, other, "With the node", "Without it")
        if pool["spares"]:
            st.markdown("A spare node takes its place.")
        st.dataframe(rows, hide_index=True, key="fleet_lost_table", alt="The plan with and without the node.")


def _ends_of(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """Return speed and end of each job of a plan."""
    if plan["chain"]:
        return [
            {"name": each["name"], "tokens_per_s": None, "days": each["end_days"], "is_late": each["is_late"]}
            for each in plan["chain"]
            if not each["is_service"]
        ]
    return [{name: job[name] for name in ("name", "tokens_per_s", "days", "is_late")} for job in plan["jobs"]]


def _compared(plan: dict[str, Any], first: Any, second: Any, before: str, after: str) -> pd.DataFrame:
    """Return two plans side by side: the objective, cost, and each job's day of its end or speed.

    plan: whose objective counts. first, second: with value, usd, holds and jobs.
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


def _jobs_of(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return _ends_of(plan) if "chain" in plan else list(plan["jobs"])


def _draw_tables(plan: dict[str, Any], stage: dict[str, Any]) -> None:
    if plan["baselines"]:
        # The last one is the simplest: services at their peak, and jobs on the rest.
        simplest = plan["baselines"][-1]
        with st.container(border=True, gap="xsmall"):
            st.html(markup.head("Now and proposed", "now: services keep their peak, jobs have the rest"))
            st.dataframe(
                _compared(plan, simplest, plan, "Now", "Proposed"),
                hide_index=True,
                key="fleet_gain",
                alt="The simplest plan and the proposed one.",
            )
    # In a stage, a job leaves the jobs after it their share of the time.
    limits = {"Deadline, days": "Must end within, days"} if plan["stages"] else {}
    of = f", stage from day {plain(stage['start_days'], 4)}" if plan["stages"] else ""
    if stage["jobs"]:
        _draw_table(
            f"Jobs{of}", "fleet_jobs", pd.DataFrame([_job_row(job) for job in stage["jobs"]]).rename(columns=limits)
        )
    if stage["services"]:
        _draw_table(f"Services{of}", "fleet_services", pd.DataFrame([_service_row(each) for each in stage["services"]]))
    better = plan["objective"] == "progress"
    simpler = [
        {"Plan": each["words"], **_value_cells(plan, each["value"]), "Demand and deadlines": _held(each["holds"])}
        for each in plan["baselines"]
    ]
    _draw_table("Simpler plans", "fleet_simpler", pd.DataFrame(simpler))
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
        _draw_table("What would change it", "fleet_changes", table)


def _value_cells(plan: dict[str, Any], value: float | None) -> dict[str, float | None]:
    label = {"progress": "Progress, %", "days": "Last job done, days", "usd": "Cost, USD"}[plan["objective"]]
    return {label: None if value is None else (100.0 * value if plan["objective"] == "progress" else value)}


def _held(holds: bool) -> str:
    return "held" if holds else "not held"


def _job_row(job: dict[str, Any]) -> dict[str, Any]:
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


def _service_row(service: dict[str, Any]) -> dict[str, Any]:
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


def _draw_table(title: str, key: str, table: pd.DataFrame) -> None:
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head(title, ""))
        st.dataframe(
            table,
            hide_index=True,
            height=height_of(len(table), 500),
            placeholder=ABSENT,
            key=key,
            alt=f"{title} of the fleet.",
            column_config={
                name: st.column_config.NumberColumn(name, format="%,.4g")
                for name in table.columns
                if table[name].dtype.kind == "f"
            },
        )
