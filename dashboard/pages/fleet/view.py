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
from dashboard.charts.plans.fleet import gpus_by_hour, jobs_by_day
from dashboard.files.fleet_report import (
    BASIS,
    build_fleet_report,
    chain_bars,
    compare_fleet_plans,
    fleet_tables,
    fleet_tiles,
    pool_title,
)
from dashboard.jobs.fleet_plans import FleetPlanJob
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.fleet.editor import draw_editor
from dashboard.pages.fleet.link import ASKED_FIELDS, OWN, OWN_PARAMETER, PAGE_NAME, FleetLink
from dashboard.widgets import share
from dashboard.widgets.chart import show
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.job_card import found_soon
from dashboard.widgets.link_fields import draw_choice, draw_segments, draw_switch
from dashboard.widgets.own_table import parse_own_table
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, plain
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
    address: str = ""
    """Link to the plan, for its report."""


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
    page.read("lost", options={"": "None", **{each: pool_title(each) for each in systems}})
    return FleetView(mode, question, text, {**page.fields, **asked.fields}, address=share.current_link())


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
    title = ", ".join(f"{pool.num_procs:,} x {pool_title(pool.system)}" for pool in question.pools)
    job = shared.board.post(FleetPlanJob(shared.fleet_plans, question, title), watcher)
    return found_soon(job, FleetPlanJob, watcher, lambda one: one.plan)


def _draw_plan(view: FleetView, question: FleetQuestion, plan: dict[str, Any]) -> None:
    st.html(markup.figure_strip(fleet_tiles(plan), BASIS))
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
        title = pool_title(pool["name"])
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
            "Report",
            lambda: build_fleet_report(question, plan, view.address),
            "fleet.html",
            "text/html",
            key="fleet_report",
            help="One HTML file that opens offline; print it for PDF.",
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


def _draw_chain(view: FleetView, plan: dict[str, Any]) -> dict[str, Any]:
    """Draw the jobs by day and the choice of a stage; return the stage whose hours are shown."""
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Jobs by day", "from start to end"))
        show(jobs_by_day(chain_bars(plan), view.mode), "fleet_chain")
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
            st.markdown(f"{pool_title(lost)} has one node; without it there is no such system.")
            return
        left = {
            "num_procs": pool["gpus"] - pool["node"],
            "spare_nodes": max(pool["spares"] // pool["node"] - 1, 0),
        }
        pools[place] = pools[place].model_copy(update=left)
        other = _find_plan(question.model_copy(update={"pools": pools, "why": False}))
        if other is None:
            return
        rows = compare_fleet_plans(plan, plan, other, "With the node", "Without it")
        if pool["spares"]:
            st.markdown("A spare node takes its place.")
        st.dataframe(rows, hide_index=True, key="fleet_lost_table", alt="The plan with and without the node.")


def _draw_tables(plan: dict[str, Any], stage: dict[str, Any]) -> None:
    if plan["baselines"]:
        # The last one is the simplest: services at their peak, and jobs on the rest.
        simplest = plan["baselines"][-1]
        with st.container(border=True, gap="xsmall"):
            st.html(markup.head("Now and proposed", "now: services keep their peak, jobs have the rest"))
            st.dataframe(
                compare_fleet_plans(plan, simplest, plan, "Now", "Proposed"),
                hide_index=True,
                key="fleet_gain",
                alt="The simplest plan and the proposed one.",
            )
    for title, key, table in fleet_tables(plan, stage):
        _draw_table(title, key, table)


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
