"""The Fleet page: a fleet, its plan by hour, jobs, services, simpler plans, and what binds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st
from pydantic import ValidationError

from dashboard.charts.elements import markup
from dashboard.charts.plans.fleet import gpus_by_hour
from dashboard.jobs.fleet_plans import FleetPlanJob
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.link.catalogue import system_of
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.fleet.link import ASKED_FIELDS, OWN, OWN_PARAMETER, PAGE_NAME, FleetLink
from dashboard.widgets.chart import show
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.job_card import found_soon
from dashboard.widgets.link_fields import draw_choice, draw_segments, draw_switch
from dashboard.widgets.own_table import KEPT, draw_own_table, parse_own_table, use_own_text
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import percent, plain
from engine.fleet.documents import list_holders, list_hours
from engine.fleet.ready import READY_FLEETS, ready_fleet
from engine.planners.contract import PlanError
from engine.questions.documents.fleet import FleetQuestion
from models.documents import DocumentError, parse_json, sentence

__all__ = ["FleetView", "parse", "render"]

MOST_MEGABYTES: Final = 1
LARGEST: Final = 200_000
"""Longest document [characters]."""
_DRAFT: Final = "fleet_draft"


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
    return FleetView(mode, question, text, {**page.fields, **asked.fields})


def _rest() -> list[str]:
    return [name for name in FleetQuestion.model_fields if name not in ASKED_FIELDS]


def _ready_name(name: str) -> str:
    """Return the name of a ready fleet: the first in place of one's own, which it begins with."""
    return name if name in READY_FLEETS else next(iter(READY_FLEETS))


def render(view: FleetView) -> None:
    """Draw the page."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        draw_choice(view.fields["example"], width=420, resets=("fleet_objective", "fleet_figures_of", "fleet_why"))
        _draw_editor(view.text)
    if view.problem:
        st.error(literal(view.problem), icon=":material/error:")
    question = view.question
    if question is None:
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        draw_segments(view.fields["objective"])
        draw_segments(view.fields["figures_of"])
        draw_switch(view.fields["why"])
    shared, watcher = server(), state.watcher()
    title = ", ".join(f"{pool.num_procs:,} x {_pool_title(pool.system)}" for pool in question.pools)
    job = shared.board.post(FleetPlanJob(shared.fleet_plans, question, title), watcher)
    plan = found_soon(job, FleetPlanJob, watcher, lambda one: one.plan)
    if plan is not None:
        _draw_plan(view, plan)


def _pool_title(system: Any) -> str:
    name = system if isinstance(system, str) else str(system.get("name", "system"))
    try:
        return system_of(name).title or name
    except (KeyError, ValueError):
        return name


def _draw_editor(text: str) -> None:
    """Draw the menu in which the fleet is read, changed and opened."""
    with st.popover("Edit fleet", icon=":material/edit:", help="The fleet as JSON: change it, or open another."):
        st.markdown("Pools, jobs and services, in the form that the guide explains. Changes make it your own.")
        written = st.text_area("Fleet (JSON)", text, key=f"{_DRAFT}_{hash(text)}", height=320, max_chars=LARGEST)
        try:
            if was_clicked("Use it", type="primary", key="fleet_use"):
                read_fleet_text(written)
                _use_text(written)
                st.rerun()
            draw_own_table("Open a fleet", OWN_PARAMETER, MOST_MEGABYTES, read_fleet_text, ("json",), OWN_CHOICE)
        except PlanError as problem:
            st.error(literal(str(problem)), icon=":material/error:")
        st.caption(KEPT)


OWN_CHOICE: Final = {f"{PAGE_NAME}_example": OWN}


def _use_text(text: str) -> None:
    use_own_text(OWN_PARAMETER, text)
    state.set_url_values({f"{PAGE_NAME}_example": OWN})


def _draw_plan(view: FleetView, plan: dict[str, Any]) -> None:
    st.html(markup.figure_strip(_tiles(plan), _basis(plan)))
    st.caption(literal(plan["proof"]))
    for missed in plan["missed"]:
        st.warning(literal(missed), icon=":material/schedule:")
    for name, reason in plan["refused"].items():
        st.caption(f"**{literal(name)}**: {literal(reason)}")
    holders = list_holders(plan)
    for number, pool in enumerate(plan["pools"]):
        title = _pool_title(pool["name"])
        with st.container(border=True, gap="xsmall"):
            spares = f", {pool['spares']:,} of {pool['gpus']:,} spare" if pool["spares"] else ""
            st.html(markup.head(title, f"GPUs by hour{spares}"))
            held = {name: gpus[pool["name"]] for name, gpus in holders}
            show(gpus_by_hour(held, pool["gpus"], pool["spares"], title, view.mode), f"fleet_pool_{number}")
    _draw_tables(plan)
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
        tiles.append(markup.Tile("Cost", _usd(plan["usd"]), f"of the GPUs in use in {plan['hours']:,} hours"))
    used = sum(sum(pool["used"]) for pool in plan["pools"]) / plan["hours"]
    there = sum(pool["gpus"] for pool in plan["pools"])
    tiles.append(markup.Tile("GPUs in use", f"{used:,.0f}", f"of {there:,} on average"))
    demand = sum(sum(each["demand"]) for each in plan["services"])
    short = sum(sum(each["unserved"]) for each in plan["services"])
    late = [job["name"] for job in plan["jobs"] if job["is_late"]]
    if plan["services"]:
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


def _draw_tables(plan: dict[str, Any]) -> None:
    if plan["jobs"]:
        _draw_table("Jobs", "fleet_jobs", pd.DataFrame([_job_row(job) for job in plan["jobs"]]))
    if plan["services"]:
        _draw_table("Services", "fleet_services", pd.DataFrame([_service_row(each) for each in plan["services"]]))
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
            replicas.append(f"{min(counts):,} to {max(counts):,} x {choice['gpus']:,} {choice['pool']}")
    demand = service["demand"]
    return {
        "Service": service["name"],
        "Replicas": ", ".join(replicas) or "none",
        "Peak, requests/s": max(demand),
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
            key=key,
            alt=f"{title} of the fleet.",
            column_config={
                name: st.column_config.NumberColumn(name, format="%,.4g")
                for name in table.columns
                if table[name].dtype.kind == "f"
            },
        )
