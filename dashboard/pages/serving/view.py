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
from dashboard.pages.serving.inputs import LAUNCHED, draw_inputs, parse_inputs, write_inputs
from dashboard.pages.serving.link import ServingLink
from dashboard.pages.serving.measured_servers import draw_measured_servers
from dashboard.pages.serving.own_server import draw_own_server
from dashboard.pages.serving.queries import changes, chips, curves, explored, per_degree, question_key, title
from dashboard.pages.serving.service import draw_service
from dashboard.pages.serving.tables import draw_deployments, draw_rejected
from dashboard.widgets import launch
from dashboard.widgets.chart import clicked, show
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, format_value, gibibytes, percent
from engine.questions.documents.serving import DeploymentsQuestion, ServiceQuestion
from engine.serving import FigureRange, ServingExploration, by_name, figure_ranges, not_represented
from engine.serving.uncertainty import SHARE

__all__ = ["ServingView", "parse", "render"]

CHARTS_KEPT: Final = 32
"""Most cached charts of each kind."""
_BASIS: Final = (
    "Modelled with constants fitted to measured kernels and servers. Ranges hold most servers of models that were left "
    "out of the fit."
)


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

    @property
    def deployment(self) -> int | None:
        """Id of the chosen deployment; None for the best."""
        return int(self.link.id) if self.link.id else None


def parse() -> ServingView:
    """Parse the page's part of the link."""
    try:
        question, service, link, fields = parse_inputs()
    except ValueError as problem:
        return ServingView(state.theme_mode(), None, None, ServingLink(), {}, str(problem))
    return ServingView(state.theme_mode(), question, service, link, fields)


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
        _draw_nothing_runs(question, found, mode)
        draw_service(view.service, view.fields, mode)
        return
    chosen = _chosen_deployment(found, view.deployment)
    _draw_strip(found, chosen)
    left, right = st.columns([1.6, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Output per GPU against speed for a user", "frontier of every tensor parallel degree"))
        chart = _frontier_chart(found, question_key(question), chosen, int(chosen["id"]), mode, is_narrow())
        show(chart, "serving_plot", on_click=_pick_point)
        st.caption("Large marks: no deployment gives both more output per GPU and more speed per user. Click a mark.")
    with right.container(border=True, gap="xsmall", height="stretch"):
        _draw_panel(question, found, chosen, mode)
    left, right = st.columns([1.6, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Where the memory goes", "per GPU, most output of every tensor parallel degree"))
        chart = _memory_chart(found, question_key(question), mode)
        show(chart, "serving_memory", on_click=_pick_bar)
        st.html(markup.legend(MEMORY))
    with right.container(border=True, gap="xsmall", height="stretch"):
        draw_rejected(found, question_key(question))
    draw_service(view.service, view.fields, mode)
    draw_deployments(question.by, view.link, view.fields, found)
    launch.deployment_card(found.model, found.system, chosen, "serving_launch")
    draw_own_server(found)
    draw_measured_servers(found, chosen)
    _draw_remarks(found)


def _chosen_deployment(found: ServingExploration, wanted: int | None) -> dict[str, Any]:
    """Return the chosen deployment: the link's if it runs, otherwise the best."""
    if wanted is not None and wanted < found.total:
        row = found.evaluate_ids([wanted]).iloc[0]
        if row["status"] == "ok":
            return {str(name): value for name, value in row.items()}
    if wanted is not None:
        why = "does not run" if wanted < found.total else f"does not exist; ids run from 0 to {found.total - 1:,}"
        state.complain("serving_id", f"The link's deployment {wanted:,} {why}. Showing the best instead.")
    assert found.best is not None
    return found.best


@st.cache_resource(show_spinner=False, max_entries=CHARTS_KEPT)
def _frontier_chart(
    _found: ServingExploration, key: str, _chosen: Mapping[str, Any], chosen: int, mode: str, narrow: bool
) -> Chart:
    return serving_frontier(curves(_found), mode, chosen={**_chosen, "title": title(_chosen)}, narrow=narrow)


@st.cache_resource(show_spinner=False, max_entries=CHARTS_KEPT)
def _memory_chart(_found: ServingExploration, key: str, mode: str) -> Chart:
    return serving_memory(per_degree(_found), mode)


@st.cache_resource(show_spinner=False, max_entries=CHARTS_KEPT)
def _time_charts(_row: Mapping[str, Any], key: str, chosen: int, mode: str, narrow: bool) -> tuple[Chart, Chart]:
    """Return the charts of a decode step and of a request."""
    return decode_step(_row, mode, narrow), request_time(_row, mode, narrow)


def _pick_point() -> None:
    _pick_clicked("serving_plot")


def _pick_bar() -> None:
    _pick_clicked("serving_memory")


def _pick_clicked(key: str) -> None:
    if found := clicked(key):
        write_inputs(id=str(int(found[0])))


def _format_figure(row: dict[str, Any], name: str) -> str:
    return format_value(by_name(name), row[name])


def _draw_strip(found: ServingExploration, row: dict[str, Any]) -> None:
    best = found.best
    assert best is not None
    is_best = int(best["id"]) == int(row["id"])
    what = "Best" if is_best else "Chosen"
    bits = f"weights in {row['weight_bits']} bits, KV cache in {row['kv_bits']}"
    how = f"{bits}, {LAUNCHED[str(row['launch'])]}; modelled"
    st.html(markup.head(f"{what}: {title(row)}", how))
    recorded = "at the price given" if found.price is not None else "at the recorded price"
    if pd.isna(row["cost_per_million_tokens"]):
        recorded = "no price is recorded"
    slack = [
        f"limit {format_value(by_name(name), limit)}" if limit is not None else free
        for name, limit, free in (
            ("time_to_first_token", found.time_to_first_token, "no queue"),
            ("time_per_output_token", found.time_per_output_token, "no limit"),
        )
    ]
    ranges = figure_ranges(found.model, found.system, row)
    formula = {name: by_name(name).description for name in row if name not in ("reason", "status")}
    for name, each in ranges.items():
        formula[name] += (
            f" {SHARE:.0%} of {each.rows:,} comparable measured servers ({each.described}) are between {each.low:.2f} "
            f"and {each.high:.2f} times the figure."
        )
    tiles = [
        markup.Tile(
            "Output per GPU",
            _format_figure(row, "tokens_per_s_per_processor"),
            _describe_range(row, ranges, "tokens_per_s_per_processor", "every replica full"),
            formula=formula["tokens_per_s_per_processor"],
        ),
        markup.Tile(
            "Output per user",
            _format_figure(row, "tokens_per_s_per_user"),
            _describe_range(row, ranges, "tokens_per_s_per_user", "while it generates"),
            formula=formula["tokens_per_s_per_user"],
        ),
        markup.Tile(
            "Time to first token",
            _format_figure(row, "time_to_first_token"),
            _describe_range(row, ranges, "time_to_first_token", slack[0]),
            formula=formula["time_to_first_token"],
        ),
        markup.Tile(
            "Time per output token",
            _format_figure(row, "time_per_output_token"),
            _describe_range(row, ranges, "time_per_output_token", slack[1]),
            formula=formula["time_per_output_token"],
        ),
        markup.Tile(
            "Cost per million tokens",
            _format_figure(row, "cost_per_million_tokens"),
            recorded,
            formula=formula["cost_per_million_tokens"],
        ),
        markup.Tile(
            "Energy per token",
            _format_figure(row, "energy_per_token"),
            "board power",
            formula=formula["energy_per_token"],
        ),
        markup.Tile(
            "HBM needed",
            gibibytes(row["memory_total"]),
            f"{percent(row['memory_total'] / row['memory_capacity'], 0)} of {gibibytes(row['memory_capacity'])}",
            formula=formula["memory_total"],
        ),
        markup.Tile("Deployments that run", f"{found.feasible:,}", f"of {count(found.total)}"),
    ]
    st.html(markup.figure_strip(tiles, _BASIS))


def _describe_range(row: Mapping[str, Any], ranges: Mapping[str, FigureRange], name: str, words: str) -> str:
    """Return the words below a figure, with its range where servers like it were measured."""
    if name not in ranges:
        return f"{words}; error unknown"
    low, high = (format_value(by_name(name), row[name] * factor) for factor in (ranges[name].low, ranges[name].high))
    return f"{low} to {high}; {words}"


def _draw_panel(question: DeploymentsQuestion, found: ServingExploration, row: dict[str, Any], mode: str) -> None:
    """Draw the chosen deployment in words, and the parts of its decode step."""
    best = found.best
    is_best = best is not None and int(best["id"]) == int(row["id"])
    st.html(markup.head(title(row), "most output per GPU" if is_best else f"deployment {int(row['id']):,}"))
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
    st.html(markup.head("One decode step", f"a token for {int(row['batch']):,} requests, modelled"))
    step, request = _time_charts(row, question_key(question), int(row["id"]), mode, is_narrow())
    show(step, "serving_step")
    st.html(markup.head("One request", f"{int(row['prompt']):,} tokens in, {int(row['output']):,} out, modelled"))
    show(request, "serving_request")
    if not is_best:
        st.button(
            "Show the best", icon=":material/star:", key="serving_best", on_click=write_inputs, kwargs={"id": None}
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
    near = pd.DataFrame([{**row, "label": title(row)} for row in rows.values()])
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
        texts = [f"{title(rows[code])}. {rows[code]['reason_text']}" for code in late]
        return f"{found.total:,} deployments were tried. Nearest: {' '.join(texts)}"
    if "memory" in rows:
        return (
            f"None of {found.total:,} deployments fits. The least demanding is {title(rows['memory'])}. "
            f"{rows['memory']['reason_text']}"
        )
    return found.obstacle


def _draw_remarks(found: ServingExploration) -> None:
    """Draw the assumptions of the figures."""
    words = "Replicas are full, requests do not queue, experts are visited evenly, tokens come one by one."
    st.caption(literal(" ".join([words, *not_represented(found.model)])))
