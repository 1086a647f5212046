"""The plan of several phases: figures, phases over time, days against cost, what binds, and the report."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.run_phases import phases_over_time
from dashboard.charts.plans.run_plan import days_against_cost
from dashboard.files.run_phases_report import (
    bars_of,
    binds_table,
    build_phases_report,
    chain_points,
    chain_tiles,
    chain_unit,
    phases_table,
    question_document,
    system_title,
)
from dashboard.widgets import launch, share
from dashboard.widgets.chart import show
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from engine.questions.documents.cost import PlanRunQuestion
from engine.questions.run_phases import pretrain_scenario
from engine.questions.scenario_documents import found_system

__all__ = ["draw_phases_plan"]


def draw_phases_plan(question: PlanRunQuestion, plan: dict[str, Any], title: str, mode: str) -> None:
    """Draw a plan of phases.

    Args:
        question: with phases.
        plan: its answer's `chain`.
        title: of the model.
        mode: the theme.
    """
    if plan["chosen"] is None:
        reasons = " ".join(
            f"**{literal(system_title(each))}**: {literal(each['obstacle'])} {literal(each['relaxation'])}"
            for each in plan["systems"]
        )
        st.warning(f"Nothing reaches the goal. {reasons}", icon=":material/block:")
    else:
        st.html(markup.figure_strip(chain_tiles(plan), plan["basis"]))
        with st.container(border=True, gap="xsmall"):
            st.html(markup.head("Phases", "over days; a line for the interval of each end"))
            show(phases_over_time(bars_of(plan), deadline=question.deadline_days, mode=mode), "plan_run_phases")
            _draw_table("Phases", "plan_run_phases_table", phases_table(plan))
    _draw_front(question, plan, title, mode)
    if plan["changes"]:
        with st.container(border=True, gap="xsmall"):
            st.html(markup.head("What binds", "limits that are moved, alone and together"))
            _draw_table("What binds", "plan_run_binds", binds_table(plan))
    _draw_launch(question, plan)
    st.caption(literal(" ".join(plan["not_modelled"])))


def _draw_launch(question: PlanRunQuestion, plan: dict[str, Any]) -> None:
    """Draw the launch card of the first pre-training."""
    phases = () if plan["chosen"] is None else plan["chosen"]["phases"]
    row = next((each for each in phases if each["kind"] == "pretrain"), None)
    phase = next((each for each in question.phases or () if each.kind == "pretrain"), None)
    offer = next((each for each in question.systems if _name_of(each.system) == plan["system"]), None)
    if row is not None and phase is not None and offer is not None:
        scenario = pretrain_scenario(question, phase, found_system(offer.system), row["num_procs"])
        launch.card(scenario, row["execution"], "plan_run_phases_launch")


def _name_of(system: str | dict[str, Any]) -> str:
    return system if isinstance(system, str) else str(system.get("name"))


def _draw_front(question: PlanRunQuestion, plan: dict[str, Any], title: str, mode: str) -> None:
    unit, address = chain_unit(plan), share.current_link()
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Days against cost", "each point a number of GPUs for every phase"))
        budget = question.budget_usd if unit == "USD" else None
        points = chain_points(plan)
        show(days_against_cost(points, unit, days=question.deadline_days, cost=budget, mode=mode), "plan_run_front")
        st.caption("Large: chosen. Hollow: misses a limit. No other plan is both shorter and cheaper than a point.")
        with st.container(horizontal=True, gap="small"):
            draw_download(
                "Report",
                lambda: build_phases_report(question, plan, title, address),
                "phases-plan.html",
                "text/html",
                key="plan_run_phases_report",
                help="One HTML file that opens offline; print it for PDF.",
            )
            draw_download(
                "Question as JSON",
                lambda: json.dumps(question_document(question), indent=1),
                "life.json",
                "application/json",
                key="plan_run_question",
                help="For shardscape plan run life.json, and to add what the page leaves out.",
            )


def _draw_table(title: str, key: str, table: pd.DataFrame) -> None:
    st.dataframe(table, hide_index=True, height=height_of(len(table), 500), key=key, alt=f"{title} of the plan.")
