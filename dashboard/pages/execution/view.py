"""The Execution page: everything about one execution, and why another is faster or slower."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.palette import TIME_KINDS
from dashboard.charts.execution.memory_bars import memory_bars
from dashboard.charts.execution.time_bar import time_pieces, waterfall
from dashboard.compat.caches import remembered
from dashboard.files.execution_files import execution_json, for_reference, reference_models
from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.figures import FiguresView, parse_figures
from dashboard.link.shared import SharedView, parse_shared
from dashboard.pages.execution import training_run
from dashboard.pages.execution.block import block
from dashboard.pages.execution.detail import bandwidths, formula_panel, networks, parse_figure, pipeline
from dashboard.pages.execution.link import ExecutionLink
from dashboard.pages.execution.measured_step import draw_measured_step
from dashboard.pages.execution.step_parts import parts_of_step
from dashboard.queries import accuracy
from dashboard.queries.economics import days_for, flops_told, mfu_formula, mfu_label, told, utilisation
from dashboard.queries.executions import evaluated
from dashboard.widgets import launch, recommended, uncertainty
from dashboard.widgets.chart import show
from dashboard.widgets.controls import given, key_for, menu_key, shut, whole, whole_field
from dashboard.widgets.figures import doubts_markup
from dashboard.widgets.fragment_views import FragmentView
from dashboard.widgets.memory import capacities, memory_legends, offload_sentence
from dashboard.widgets.normal_runs import draw_normal_runs, parse_measured
from dashboard.widgets.nothing_runs import nothing_runs
from dashboard.widgets.own_run import declare_own_run
from dashboard.widgets.subject import Subject, refusal, subject
from dashboard.words.amounts import format_tokens
from dashboard.words.executions import choices, differences
from dashboard.words.markdown import literal
from dashboard.words.names import in_sentence
from dashboard.words.numbers import count, counted, days, format_value, gibibytes, percent, relative, share_of
from engine import Exploration, Scenario
from engine.columns import by_name
from engine.cost_models.registry import cost_model_of
from engine.executions.execution_names import execution_name
from engine.store import StoreCondition
from hardware import System

_HBM: Final = "proc_mem_tier1_cap_req"
_HOST: Final = "proc_mem_tier2_cap_req"
_LINKS: Final = ("tp_comm_link_time", "recomm_link_time", "pp_comm_link_time", "dp_comm_link_time")
_EXPOSED: Final = (
    "tp_comm_exposed_time",
    "recomm_exposed_time",
    "pp_comm_exposed_time",
    "dp_comm_exposed_time",
    "cp_comm_exposed_time",
    "ep_comm_exposed_time",
)
_OTHERS: Final = {
    "": "nothing",
    "best": "the fastest of all",
    "cell": "the fastest of its cell",
    "plain": "the fastest without offload",
    "kept": "the fastest without recompute",
}
_UNTOLD: Final = 0.1
"""Share of a difference that its explanation may leave out."""
_SELF: Final = "B is this one"
_OTHER: Final = re.compile(r"|best|cell|plain|kept|\d{1,18}")


@dataclass(frozen=True, slots=True)
class ExecutionView:
    """The page's part of the link."""

    exploration: Exploration
    mode: str
    """The theme: "light" or "dark"."""
    subject: Subject | None
    """The execution that the page is about."""
    shared: SharedView
    figures: FiguresView
    """Choice of the execution whose figures are shown."""
    fields: Mapping[str, LinkField]

    @property
    def other(self) -> str:
        """The execution B to compare with: a choice of `_OTHERS` or an id."""
        return str(self.fields["b"].value)


def parse(exploration: Exploration) -> ExecutionView:
    """Parse the page's part of the link."""
    reader, shared = LinkReader(ExecutionLink, "execution"), parse_shared()
    reader.read("b", pattern=_OTHER)
    reader.read("block")
    reader.fields["figure"] = parse_figure()
    figures = parse_figures()
    chosen = subject(exploration, shared, figures, "execution")
    fields = {**reader.fields, **parse_measured("execution")}
    return ExecutionView(exploration, state.theme_mode(), chosen, shared, figures, fields)


def render(view: ExecutionView) -> None:
    """Draws the page."""
    exploration, mode = view.exploration, view.mode
    chosen = view.subject
    if chosen is None:
        nothing_runs(exploration, "execution")
        return
    row = chosen.row
    other = _draw_head(exploration, chosen, view.other)
    refusal(exploration, chosen)
    st.html(markup.chips(choices(row, exploration.scenario.system)))
    if not chosen.has_figures:
        st.caption("An execution rejected for a reason other than memory has no figures.")
        return
    tiles = accuracy.marked(
        _headline_tiles(exploration, row, other, view.figures.tokens_to_train), exploration.scenario, row
    )
    strip = markup.figure_strip(tiles, accuracy.basis(exploration.scenario, row))
    st.html(strip + doubts_markup(exploration.scenario, row, chosen.remark))
    recommended.band(exploration, "execution", view.figures, view.shared, chosen.id)
    left, right = st.columns([1.45, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Where the time goes", "per step" + ("; B is the thin bar" if other else "")))
        show(waterfall(row, mode, other=other), "execution_time")
        st.markdown(_main_finding(row, other) + _describe_tie(exploration.scenario, row, other))
        if other:
            _draw_differences(row, other, exploration.scenario.system)
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Where the memory goes", "per GPU, peak"))
        bars = [("A", row), ("B", other)] if other else [("", row)]
        show(memory_bars(bars, capacities(exploration), mode), "execution_memory")
        memory_legends(exploration, bars)
        st.caption(offload_sentence(exploration, row))
    with st.container(border=True, gap="xsmall"):
        pipeline(exploration, row, mode)
    parts_of_step(exploration, row)
    if row["training"]:
        draw_measured_step(row)
    block(exploration, row, mode, view.fields["block"])
    networks(exploration, row, mode)
    with st.container(border=True, gap="xsmall"):
        bandwidths(exploration, row)
    with st.container(border=True, gap="xsmall"):
        draw_normal_runs(exploration, row, view.fields)
    launch.card(exploration.scenario, row, "execution_launch", is_current=True)
    with st.container(border=True, gap="xsmall"):
        formula_panel(exploration, row, FragmentView(view.fields["figure"], parse_figure))
    with st.container(border=True, gap="xsmall"):
        training_run.panel(row)


def _draw_head(exploration: Exploration, chosen: Subject, which: str) -> dict[str, Any] | None:
    """Draw title, comparison and export; return the execution to compare with."""
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.html(markup.head(execution_name(chosen.row), _describe_rank(exploration, chosen)))
        if chosen.runs:
            others = accuracy.ties(exploration, chosen.row) if chosen.why == "fastest of all" else None
            uncertainty.popover(exploration.scenario, chosen.row, "execution_accuracy", others=others)
        if chosen.why != "your execution":
            declare_own_run(chosen.row)
        other = _choose_other(exploration, chosen, which)
        _draw_json(exploration, chosen)
    return other


def _describe_rank(exploration: Exploration, chosen: Subject) -> str:
    place = f"execution {chosen.id:,}, {chosen.why}"
    if not chosen.runs:
        return place
    faster = _count_faster(exploration, exploration.key, float(chosen.row["sample_rate"]))
    return f"{place} · rank {faster + 1:,} of {count(exploration.feasible)}"


@remembered(256)
def _count_faster(_exploration: Exploration, key: str, rate: float) -> int:
    return _exploration.rows.count([StoreCondition("sample_rate", ">", rate)])


def _choose_other(exploration: Exploration, chosen: Subject, value: str) -> dict[str, Any] | None:
    """Draw the choice of an execution to compare with; return it, or None. value: the choice in the link."""
    name = "execution_b"
    options = dict(_OTHERS) | ({value: f"execution {int(value):,}"} if value.isdecimal() else {})
    key = key_for(f"_{name}", value)

    def changed() -> None:
        state.set_url_value(name, given(key) or None)

    st.selectbox(
        "compare with",
        list(options),
        list(options).index(value),
        key=key,
        on_change=changed,
        label_visibility="collapsed",
        width=280,
        format_func=lambda value: f"B is {options[value]}" if value else f"compare with {options[value]}",
    )
    with st.popover("Keep as B", icon=":material/compare_arrows:", key=menu_key("execution_keep")):
        st.caption("Keep this execution as B, then select another one on any page to compare the two.")
        st.button("Keep this one", key="execution_keep_this", on_click=_keep_as_b, args=(chosen.id,))
        label, last = "or compare with execution id", exploration.total - 1
        wanted = whole_field(label, 0, last, None, "execution_keep_id", placeholder="id")
        st.button(
            "Compare",
            key="execution_keep_other",
            disabled=wanted is None,
            on_click=_keep_as_b,
            args=(None if wanted is None else whole(wanted),),
        )
    found, why_not = _find_other(exploration, chosen, value)
    if why_not:
        st.caption(why_not)
    return found


def _keep_as_b(execution: int | None) -> None:
    """Make an execution B."""
    state.set_url_value("execution_b", None if execution is None else str(execution))
    shut("execution_keep")  # it would cover the comparison


def _find_other(exploration: Exploration, chosen: Subject, which: str) -> tuple[dict[str, Any] | None, str]:
    """Return the execution behind a choice, or (None, the reason in a few words)."""
    where: list[StoreCondition] = []
    if not which:
        return None, ""
    if which.isdecimal():
        if int(which) >= exploration.total:
            sentence = f"does not exist; ids run from 0 to {exploration.total - 1:,}. None is compared."
            state.complain("execution_b", f"The link's execution B {int(which):,} {sentence}")
            return None, ""
        if int(which) == chosen.id:
            return None, _SELF
        found = evaluated(exploration, exploration.key, int(which))
        return (found, "") if found["status"] == "ok" else (None, "B does not run")
    if which == "cell":
        where = [StoreCondition(name, "=", int(chosen.row[name])) for name in ("tensor_par", "pipeline_par")]
    elif which == "plain":
        where = [StoreCondition(f"{name}_offload", "=", False) for name in ("weight", "activations", "optimizer")]
    elif which == "kept":
        where = [StoreCondition("activation_recompute", "=", "none")]
    best = _best_id(exploration, exploration.key, tuple(tuple(condition) for condition in where))
    if best is None:
        return None, "no such execution runs"
    found = evaluated(exploration, exploration.key, best)
    ours = chosen.runs and all(chosen.row[condition.column] == condition.value for condition in where)
    if ours and found["sample_rate"] == chosen.row["sample_rate"]:  # one of several that tie
        return None, _SELF
    return found, ""


@remembered(256)
def _best_id(_exploration: Exploration, key: str, where: tuple[Any, ...]) -> int | None:
    found = _exploration.rows.top(1, where=list(where), names=["id"])["id"].to_pylist()
    return int(found[0]) if found else None


def _draw_json(exploration: Exploration, chosen: Subject) -> None:
    """Draw the execution as a file for the command line, and as one for Calculon."""
    scenario = exploration.scenario
    text = execution_json(chosen.row, scenario.cost_model)
    with st.popover("JSON", icon=":material/data_object:", key="execution_json"):
        files = {"": ("Download", text)}
        own = cost_model_of(scenario)
        of = f"{own.reference.split()[0]} and of " if own.reference else ""
        st.caption(f"The execution file of {of}`shardscape evaluate`; the button in its corner copies it.")
        for other in reference_models(scenario):
            found = for_reference(scenario, chosen.row, other)
            st.caption(literal(found.sentence))
            if found.text is not None:
                program, fewer = other.reference.split()[0], len(own.columns.fields) - len(other.columns.fields)
                if fewer > 0:
                    st.caption(f"{program} does not have the last {fewer} fields; its file leaves them out.")
                files[f"_{program.lower()}"] = (f"Download for {program}", found.text)
        st.code(text, language="json", height=330)
        with st.container(horizontal=True, gap="small"):
            for suffix, (label, content) in files.items():
                st.download_button(
                    label,
                    content,
                    file_name=f"execution_{chosen.id}{suffix}.json",
                    mime="application/json",
                    on_click="ignore",
                    key=f"execution_json_download{suffix}",
                    icon=":material/download:",
                )


def _headline_tiles(
    exploration: Exploration, row: dict[str, Any], other: dict[str, Any] | None, tokens: float
) -> list[markup.Tile]:
    """Return the headline figures; their second line is the value of B, or a context without B.

    tokens: of the training run.
    """
    scenario, capacity = exploration.scenario, capacities(exploration)[0]

    def compared(label: str, name: str, context: str) -> markup.Tile:
        """Return a tile of a figure whose better direction is in the register."""
        text, tone = (context, "") if other is None else _compare_figure(name, row, other)
        return markup.Tile(label, format_value(name, row[name]), text, tone, by_name(name).description)

    def beside(
        label: str, value: Callable[[dict[str, Any]], str], context: str, tone: str = "", formula: str = ""
    ) -> markup.Tile:
        """Return a tile of a figure next to B's value."""
        context, tone = (context, tone) if other is None else (f"B {value(other)}", "")
        return markup.Tile(label, value(row), context, tone, formula)

    def used(execution: dict[str, Any]) -> str:
        return percent(utilisation(scenario, float(execution["sample_rate"]), bool(execution["training"])))

    def share(*names: str) -> Callable[[dict[str, Any]], str]:
        return lambda one: percent(sum(float(one.get(name, 0.0)) for name in names) / float(one["total_time"]))

    rate, need = float(row["sample_rate"]), float(row[_HBM])
    links = sum(float(row[name]) for name in _LINKS)
    on_links = "of the step" if math.isnan(links) else f"{format_value('total_time', links)} on the links"
    return [
        compared("Step time", "total_time", counted(int(row["batch_size"]), "sequence")),
        compared("Throughput", "sample_rate", f"{told(scenario, 'tokens_per_gpu', rate)} per GPU"),
        beside(mfu_label(scenario), used, f"{flops_told(scenario, rate)} per GPU", formula=mfu_formula(scenario)),
        beside("Bubble", share("bubble_time"), "of the step"),
        beside("Comm. exposed", share(*_EXPOSED), on_links),
        beside("HBM", lambda one: gibibytes(one[_HBM]), share_of(need, capacity), "worse" if need > capacity else ""),
        beside("Host memory", lambda one: gibibytes(one[_HOST]), "per GPU"),
        beside(
            f"{format_tokens(tokens)} take",
            lambda one: days(days_for(scenario, float(one["sample_rate"]), tokens)),
            f"{told(scenario, 'usd', rate, tokens / 1e12)} · {told(scenario, 'energy', rate, tokens / 1e12)}",
        ),
    ]


def _compare_figure(name: str, row: dict[str, Any], other: dict[str, Any]) -> tuple[str, str]:
    """Return context line and tone of a figure of A against B: "▼ 24.5 % more than B", "worse"."""
    change = relative(row[name], other[name])
    if change in ("–", "±0"):
        return f"B {format_value(name, other[name])}", ""
    more = float(row[name]) > float(other[name])
    worse = more == (by_name(name).better == "lower")
    apart = percent(abs(float(row[name]) / float(other[name]) - 1.0))
    text = f"{'▼' if worse else '▲'} {apart} {'more' if more else 'less'} than B"
    return text, "worse" if worse else "better"


def _main_finding(row: dict[str, Any], other: dict[str, Any] | None) -> str:
    """Return the finding: the largest loss, or why one of two executions is faster, term by term."""
    names = {kind.key: in_sentence(kind.name) for kind in TIME_KINDS}
    mine = time_pieces(row)
    if other is None:
        losses = {key: size for key, size in mine.items() if key not in ("forward", "backward")}
        worst = max(losses, key=lambda key: losses[key])
        if losses[worst] <= 0:
            return "All of the step is forward and backward work."
        share, lost = percent(losses[worst] / float(row["total_time"])), format_value("total_time", losses[worst])
        return f"The largest loss is **{names[worst]}**: {lost}, {share} of the step."
    theirs = time_pieces(other)
    change = float(row["total_time"]) - float(other["total_time"])
    if change == 0:
        return "A and B take the same time."
    every = sorted(((mine[key] - theirs[key], key) for key in mine), key=lambda pair: -abs(pair[0]))
    terms, left = [], change
    for size, key in every:  # until the terms nearly add up to the difference
        if abs(left) <= _UNTOLD * abs(change) or size == 0:
            break
        terms.append((size, key))
        left -= size

    def told(sign: int) -> str:
        parts = [f"{format_value('total_time', abs(size))} of {names[key]}" for size, key in terms if size * sign > 0]
        return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))

    saves, loses = told(-1), told(1)
    account = ", but ".join(part for part in (saves and f"saves {saves}", loses and f"spends {loses} more") if part)
    word = "longer" if change > 0 else "less time"
    share = percent(abs(change) / float(other["total_time"]))
    return f"**A takes {share} {word} than B**, {format_value('total_time', abs(change))} per step: it {account}."


def _describe_tie(scenario: Scenario, row: dict[str, Any], other: dict[str, Any] | None) -> str:
    """Return a sentence if the difference of two executions is smaller than the error of either."""
    if other is None or not accuracy.is_tied(scenario, row, other):
        return ""
    return " That is within the error of predictions: **tied**."


def _draw_differences(row: dict[str, Any], other: dict[str, Any], system: System) -> None:
    """Draw the choices in which the two differ."""
    found = pd.DataFrame(differences(row, other, system), columns=["Choice", "A", "B"])
    st.dataframe(
        found,
        hide_index=True,
        height=min(38 + 28 * 12, 38 + 28 * max(1, len(found))),
        row_height=28,
        key="execution_differences",
        alt=f"{len(found)} choices in which A and B differ",
    )
