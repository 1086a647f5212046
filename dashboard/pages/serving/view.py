"""The Serving page: the best way to serve a model, output for users and per processor, and memory by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.template import Chart
from dashboard.charts.serving import MEMORY, decode_step, request_time, serving_frontier, serving_memory
from dashboard.link import state
from dashboard.link.fields import LinkField
from dashboard.pages.serving.changes import draw_changes
from dashboard.pages.serving.comparison import draw_comparison, keep_to_compare
from dashboard.pages.serving.inputs import draw_inputs, parse_inputs, pick_deployment, write_inputs
from dashboard.pages.serving.link import ServingLink
from dashboard.pages.serving.measured_servers import draw_measured_servers
from dashboard.pages.serving.own_factors import draw_adjusted
from dashboard.pages.serving.own_server import draw_own_server
from dashboard.pages.serving.queries import changes, explored, question_key, recommended
from dashboard.pages.serving.recommended import draw_band
from dashboard.pages.serving.service import draw_service
from dashboard.pages.serving.tables import draw_deployments, draw_rejected
from dashboard.queries.serving import (
    basis_of,
    chips,
    curves,
    deployment_tiles,
    origin_words,
    per_degree,
    refused_part,
    token_factor,
)
from dashboard.widgets import launch, share
from dashboard.widgets.chart import clicked, show
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.numbers import format_value
from dashboard.words.serving import precision_words
from engine.questions.documents.serving import DeploymentsQuestion, ServiceQuestion
from engine.questions.serving import list_ineffective, serving_assumptions
from engine.questions.serving_launch import launch_settings
from engine.serving import DeploymentRecommendation, ServingExploration, by_name, deployment_name, not_represented

__all__ = ["ServingView", "parse", "render"]

CHARTS_KEPT: Final = 32
"""Most cached charts of each kind."""


@dataclass(frozen=True, slots=True)
class ServingView:
    """All that the link says of the page."""

    mode: str
    """The theme: "light" or "dark"."""
    question: DeploymentsQuestion | None
    service: ServiceQuestion | None
    """Question about a load; None without one."""
    link: ServingLink
    fields: Mapping[str, LinkField]
    problem: str = ""
    """Reason if the link holds no question."""
    address: str = ""
    """Link to the page, for its report."""


def parse() -> ServingView:
    """Parse the page's part of the link."""
    try:
        question, service, link, fields = parse_inputs()
    except ValueError as problem:
        return ServingView(state.theme_mode(), None, None, ServingLink(), {}, str(problem))
    return ServingView(state.theme_mode(), question, service, link, fields, address=share.current_link())


def render(view: ServingView) -> None:
    """Draws the page."""
    mode, question = view.mode, view.question
    if question is None:
        st.error(literal(view.problem), icon=":material/error:")
        return
    draw_inputs(view.fields)
    try:
        found = explored(question)
    except ValueError as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    if not found.feasible:
        draw_adjusted(question, found, view.fields)
        _draw_nothing_runs(question, found, mode)
        draw_service(view.service, view.fields, mode)
        return
    key = question_key(question)
    advice = recommended(key, question.cache_room, found)
    chosen = _chosen_deployment(found, advice, question.chosen)
    draw_adjusted(question, found, view.fields)
    draw_band(question, found, advice, chosen, view.address)
    _draw_strip(found, chosen, advice)
    left, right = st.columns([1.6, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Output per GPU against speed for a user", "frontier of every tensor parallel degree"))
        chart = _frontier_chart(found, key, chosen, int(chosen["id"]), mode, is_narrow())
        show(chart, "serving_plot", on_click=_pick_point)
        words = "Large marks: no deployment gives both more output per GPU and more speed per user. Click a mark."
        st.caption(f"{words} Hollow: misses a limit." if found.refused_ids else words)
    with right.container(border=True, gap="xsmall", height="stretch"):
        _draw_panel(question, found, chosen, advice, mode)
    left, right = st.columns([1.6, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Where the memory goes", "per GPU, most output of every tensor parallel degree"))
        chart = _memory_chart(found, key, mode)
        show(chart, "serving_memory", on_click=_pick_bar)
        st.html(markup.legend(MEMORY))
    with right.container(border=True, gap="xsmall", height="stretch"):
        draw_rejected(found, key)
    draw_changes(question, found, advice)
    draw_comparison(question, view.fields, found, advice, chosen, mode)
    draw_service(view.service, view.fields, mode, (question, chosen))
    draw_deployments(question.by, view.link, view.fields, found)
    settings = launch_settings(question)
    launch.deployment_card(found.model, found.system, chosen, "serving_launch", settings=settings)
    draw_own_server(found, chosen)
    draw_measured_servers(found, chosen)
    _draw_remarks(question, found)


def _chosen_deployment(
    found: ServingExploration, advice: DeploymentRecommendation, wanted: int | None
) -> dict[str, Any]:
    """Return the chosen deployment: the link's if it runs within the limits, otherwise the recommended one."""
    if wanted is not None:
        why = f"does not exist; ids run from 0 to {found.total - 1:,}."
        if wanted < found.total:
            row = found.evaluate_ids([wanted]).iloc[0]
            if row["status"] == "ok":
                return {str(name): value for name, value in row.items()}
            why = f"does not run within the limits. {row['reason_text']}"
        state.complain("serving_id", f"The link's deployment {wanted:,} {why} Showing the recommended one instead.")
    assert advice.row is not None
    return dict(advice.row)


@st.cache_resource(show_spinner=False, max_entries=CHARTS_KEPT)
def _frontier_chart(
    _found: ServingExploration, key: str, _chosen: Mapping[str, Any], chosen: int, mode: str, narrow: bool
) -> Chart:
    return serving_frontier(
        curves(_found),
        mode,
        chosen={**_chosen, "title": deployment_name(_chosen)},
        narrow=narrow,
        refused=refused_part(_found),
        limits=(_found.time_to_first_token, _found.time_per_output_token),
    )


@st.cache_resource(show_spinner=False, max_entries=CHARTS_KEPT)
def _memory_chart(_found: ServingExploration, key: str, mode: str) -> Chart:
    return serving_memory(per_degree(_found), mode)


@st.cache_resource(show_spinner=False, max_entries=CHARTS_KEPT)
def _time_charts(
    _row: Mapping[str, Any], key: str, chosen: int, gained: float, factor: float, mode: str, narrow: bool
) -> tuple[Chart, Chart]:
    """Return the charts of a decode step and of a request."""
    return decode_step(_row, mode, narrow), request_time(_row, mode, narrow, gained, factor)


def _pick_point() -> None:
    _pick_clicked("serving_plot")


def _pick_bar() -> None:
    _pick_clicked("serving_memory")


def _pick_clicked(key: str) -> None:
    if found := clicked(key):
        pick_deployment(int(found[0]))


def _format_figure(row: dict[str, Any], name: str) -> str:
    return format_value(by_name(name), row[name])


def _draw_strip(found: ServingExploration, row: dict[str, Any], advice: DeploymentRecommendation) -> None:
    what = "Recommended" if _is_recommended(row, advice) else "Chosen"
    st.html(markup.head(f"{what}: {deployment_name(row)}", f"{precision_words(row)}; {origin_words(found.factors)}"))
    st.html(markup.figure_strip(deployment_tiles(found, row), basis_of(found.factors)))


def _is_recommended(row: Mapping[str, Any], advice: DeploymentRecommendation) -> bool:
    return advice.row is not None and int(advice.row["id"]) == int(row["id"])


def _draw_panel(
    question: DeploymentsQuestion,
    found: ServingExploration,
    row: dict[str, Any],
    advice: DeploymentRecommendation,
    mode: str,
) -> None:
    """Draw the chosen deployment in words, and the parts of its decode step."""
    is_recommended = _is_recommended(row, advice)
    name = f"deployment {int(row['id']):,}"
    st.html(markup.head(deployment_name(row), f"recommended, {name}" if is_recommended else name))
    st.html(markup.chips(chips(row)))
    st.html(
        markup.facts(
            [
                ("all replicas", _format_figure(row, "tokens_per_s")),
                ("requests", _format_figure(row, "requests_per_s")),
                ("a whole request", _format_figure(row, "request_latency")),
            ]
        )
        + markup.facts(
            [
                ("decode step", _format_figure(row, "decode_step_time")),
                ("prefill, busy", _format_figure(row, "prefill_time")),
                ("largest batch", f"{int(row['largest_batch']):,}"),
            ]
        )
    )
    origin = "modelled" if found.factors is None else "modelled, without factors"
    st.html(markup.head("One decode step", f"a token for {int(row['batch']):,} requests, {origin}"))
    gained = serving_assumptions(question).tokens_per_step
    key, factor = question_key(question), token_factor(found.factors, row)
    step, request = _time_charts(row, key, int(row["id"]), gained, factor, mode, is_narrow())
    show(step, "serving_step")
    st.html(markup.head("One request", f"{int(row['prompt']):,} tokens in, {int(row['output']):,} out, modelled"))
    show(request, "serving_request")
    with st.container(horizontal=True, gap="small"):
        if not is_recommended:
            st.button(
                "Show the recommended",
                icon=":material/verified:",
                key="serving_best",
                on_click=pick_deployment,
                args=(None,),
            )
        st.button(
            "Keep to compare",
            icon=":material/compare_arrows:",
            key="serving_keep",
            help="Shows it below, next to the deployment that you choose after it.",
            on_click=keep_to_compare,
            args=(int(row["id"]),),
        )


def _draw_nothing_runs(question: DeploymentsQuestion, found: ServingExploration, mode: str) -> None:
    """Draw why nothing runs, the nearest deployments, and changes that would help."""
    name = found.model.title or found.model.name
    rows = {code: found.evaluate_ids([number]).iloc[0].to_dict() for code, number in found.nearest.items()}
    told = _describe_reasons(question, found, rows)
    st.warning(f"**{literal(name)} cannot be served like this.** {literal(told)}", icon=":material/block:")
    possible = changes(question_key(question), question)
    if possible:
        st.html(markup.head("What would help", "each of these was tried"))
        with st.container(horizontal=True, gap="small"):
            for position, change in enumerate(possible):
                st.button(
                    f"{change.words} · {change.runs:,} would run",
                    key=f"serving_change_{position}",
                    icon=":material/auto_fix_high:",
                    on_click=write_inputs,
                    kwargs=change.values,
                )
    else:
        st.caption("Neither other limits, weights in 4 bits, nor 64 times the GPUs would help.")
    near = pd.DataFrame([{**row, "label": deployment_name(row)} for row in rows.values()])
    left, right = st.columns([1.6, 1], gap="medium")
    if len(near):
        with left.container(border=True, gap="xsmall"):
            st.html(markup.head("Memory of the nearest", "per GPU"))
            show(serving_memory(near, mode), "serving_memory")
            st.html(markup.legend(MEMORY))
    with (right if len(near) else left).container(border=True, gap="xsmall"):
        draw_rejected(found, question_key(question), nearest=False)


def _describe_reasons(question: DeploymentsQuestion, found: ServingExploration, rows: dict[str, Any]) -> str:
    """Return the reasons in a sentence or two, nearest miss first."""
    late = [code for code in rows if code != "memory"]
    if late:
        texts = [f"{deployment_name(rows[code])}. {rows[code]['reason_text']}" for code in late]
        return f"{found.total:,} deployments were tried. Nearest: {' '.join(texts)}"
    if "memory" in rows:
        return (
            f"None of {found.total:,} deployments fits. The least demanding is {deployment_name(rows['memory'])}. "
            f"{rows['memory']['reason_text']}"
        )
    return found.obstacle


def _draw_remarks(question: DeploymentsQuestion, found: ServingExploration) -> None:
    """Draw the assumptions of the figures."""
    words = "Replicas are full, requests do not queue, experts are visited evenly, tokens come one by one."
    st.caption(literal(" ".join([words, *list_ineffective(question), *not_represented(found.model)])))
