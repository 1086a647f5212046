"""The Plan a run page: the run, days against cost of all sizes, the sizes, the launch script and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.run_plan import days_against_cost
from dashboard.files.run_plan_report import (
    build_report,
    cost_unit,
    describe_basis,
    describe_outlay,
    plan_tiles,
    run_points,
    sizes_table,
    system_label,
)
from dashboard.jobs.run_plans import RunPhasesJob, RunPlanJob
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.link.fields import LinkField
from dashboard.link.run_phases import RunPhasesLink
from dashboard.pages.plan_run.inputs import draw_inputs, parse_inputs
from dashboard.pages.plan_run.link import PlanRunLink
from dashboard.pages.plan_run.phases_view import draw_phases_plan
from dashboard.widgets import launch, share
from dashboard.widgets.chart import show
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.job_card import found_soon
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from engine.questions.documents.cost import PlanRunQuestion
from engine.recommendation.training_plans import RunPlan, SystemRuns

__all__ = ["PlanRunView", "parse", "render"]


@dataclass(frozen=True, slots=True)
class PlanRunView:
    """All that the link says of the page."""

    mode: str
    """The theme: "light" or "dark"."""
    question: PlanRunQuestion | None
    link: PlanRunLink
    phases: RunPhasesLink
    fields: Mapping[str, LinkField]
    problem: str = ""
    """Reason if the link holds no question."""


def parse() -> PlanRunView:
    """Parse the page's part of the link."""
    try:
        question, link, phases, fields = parse_inputs()
    except ValueError as problem:
        return PlanRunView(state.theme_mode(), None, PlanRunLink(), RunPhasesLink(), {}, str(problem))
    return PlanRunView(state.theme_mode(), question, link, phases, fields)


def render(view: PlanRunView) -> None:
    """Draw the page."""
    question = view.question
    if question is None:
        st.error(literal(view.problem), icon=":material/error:")
        return
    draw_inputs(view.link, view.phases, view.fields)
    title = view.fields["model"].options[view.fields["model"].value]
    shared, watcher = server(), state.watcher()
    if question.phases is not None:
        phased = shared.board.post(RunPhasesJob(shared.run_plans, question, title), watcher)
        chain = found_soon(phased, RunPhasesJob, watcher, lambda one: one.plan)
        if chain is not None:
            draw_phases_plan(question, chain, title, view.mode)
        return
    job = shared.board.post(RunPlanJob(shared.run_plans, question, title), watcher)
    plan = found_soon(job, RunPlanJob, watcher, lambda one: one.plan)
    if plan is not None:
        _draw_plan(view, question, plan, title)


def _draw_plan(view: PlanRunView, question: PlanRunQuestion, plan: RunPlan, title: str) -> None:
    run, chosen = plan.run, plan.chosen
    if run is None or chosen is None:
        reasons = " ".join(f"**{literal(system_label(each))}**: {literal(each.obstacle)}" for each in plan.systems)
        st.warning(f"Nothing reaches the goal. {reasons}", icon=":material/block:")
    else:
        st.html(markup.figure_strip(plan_tiles(run, system_label(chosen)), describe_basis(run)))
        if run.outlay_usd is not None:
            st.caption(literal(describe_outlay(run, chosen.offer)))
    unit, address = cost_unit(plan), share.current_link()
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Days against cost", "each point a number of GPUs with its execution"))
        budget = plan.goal.usd if unit == "USD" else None
        chart = days_against_cost(run_points(plan), unit, days=plan.goal.days, cost=budget, mode=view.mode)
        show(chart, "plan_run_curve")
        st.caption("Large: chosen. Diamond: the knee, from which on fewer days get dear. Hollow: misses a limit.")
        draw_download(
            "Report",
            lambda: build_report(question, plan, title, address),
            "training-plan.html",
            "text/html",
            key="plan_run_report",
            help="One HTML file that opens offline; print it for PDF.",
        )
    for number, each in enumerate(plan.systems):
        _draw_system(each, number)
    if run is not None:
        launch.card(run.scenario, run.execution, "plan_run_launch")


def _draw_system(runs: SystemRuns, number: int) -> None:
    """Draw the sizes of a system."""
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head(system_label(runs), "sizes that were tried"))
        if runs.obstacle:
            st.caption(literal(runs.obstacle))
        if runs.thrifty and runs.chosen is not None:
            own = runs.chosen.hours_per_token
            words = ", ".join(
                f"{each.num_procs:,} GPUs ({1 - each.hours_per_token / own:.1%})" for each in runs.thrifty
            )
            st.caption(f"Sizes that waste less, by GPU-hours per token: {words}.")
        table = sizes_table(runs)
        if len(table):
            st.dataframe(
                table,
                hide_index=True,
                height=height_of(len(table), 700),
                key=f"plan_run_sizes_{number}",
                alt=f"Sizes of {system_label(runs)} with days, cost, energy, failures and layout.",
            )
