"""The Elastic page: one job through phases of different resources, along one resource, and what else was looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elastic import resource_curve, throughput_over_time
from dashboard.charts.elements import markup
from dashboard.compat.caches import remembered
from dashboard.link import state
from dashboard.widgets.chart import show
from dashboard.widgets.controls import choose, given, key_for, segments
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, percent, plain
from engine.planners import elastic
from engine.planners.contract import PlanError

__all__ = ["View", "parse", "render"]

_EXAMPLE: Final = "30@8888x2, 30@4444x2, 30@4x2, 30@1x2, 30@1x4"
_MOST_TEXT: Final = re.compile(r"[\d@x., ;]{1,400}")
_PHASE: Final = re.compile(r"(\d{1,7}(?:\.\d{1,3})?)@([0-8]{1,64})x(\d{1,3})")
_OVER: Final = {"gpus": "GPUs", "cpu_threads": "CPU threads per GPU", "bandwidth": "Bandwidth"}
_LABELS: Final = {"gpus": "GPUs", "cpu_threads": "CPU threads per GPU", "bandwidth": "bandwidth limit [0: NVLink]"}
_VARIANTS: Final = {"artifact": "As published", "physical": "Calibrated"}
_PAUSES: Final = {"0": "none", "60": "1 minute", "260": "260 s", "600": "10 minutes"}
_BASES: Final = {"measured": "Measured", "predicted": "Predicted"}
_COLUMNS: Final = {
    "plan": "plan", "feasible": "runs", "throughput": "samples/s", "iteration_ms": "iteration, ms",
    "memory_gib": "memory, GiB", "reason": "why not",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class View:
    """What the link says of the page as a whole; its fields read their parts themselves."""

    mode: str
    """The theme: "light" or "dark"."""


def parse() -> View:
    """Reads the page's part of the link."""
    return View(state.theme_mode())


def render(view: View) -> None:
    """Draws the page."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        titles = {name: elastic.load_card(name).title for name in elastic.card_names()}
        card = choose("Model card", titles, "elastic_card", default="llama7_bsz16", width=230)
        variant = segments("Performance model", _VARIANTS, "elastic_variant")
        pause = choose(
            "Pause at a change", _PAUSES, "elastic_pause", width=140,
            help="Time without work whenever the plan or the GPUs change.",
        )  # fmt: skip
        text = _phases_field()
        measured = card == "llama7_bsz16" and text == _EXAMPLE
        basis = segments("Times", _BASES, "elastic_basis", default="measured" if measured else "predicted")
    try:
        phases = _phases(text)
        found = _timeline(card, text, variant, float(pause), basis)
    except PlanError as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    st.html(markup.figure_strip(_tiles(found)))
    unmeasured = found.table["measured_s"].isna() & found.table["predicted_s"].notna()
    if basis == "measured" and unmeasured.any():
        st.caption(f"{int(unmeasured.sum())} of {len(found.table)} times were never measured and count as not running.")
    left, right = st.columns([1.25, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Throughput while resources change", f"{found.basis} times; GPUs on each node above"))
        chart = throughput_over_time(found, view.mode)
        show(chart, "elastic_timeline")
        st.caption(literal(chart.alt))
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Along one resource", "the plan that wins at every value"))
        over = segments("Resource", _OVER, "elastic_over")
        _curve(card, over, variant, view.mode)
    with st.container(border=True, gap="xsmall"):
        _plans(card, variant, phases)
    _timeline_table(found)


def _phases_field() -> str:
    """Draws the field of the phases; returns its text."""
    value = state.url_value("elastic_phases", _EXAMPLE, _MOST_TEXT)
    key = key_for("_elastic_phases", value)

    def changed() -> None:
        new = str(given(key)).strip()
        state.set_url_value("elastic_phases", None if new in ("", _EXAMPLE) else new)

    st.text_input(
        "Phases: minutes @ GPUs on each node x CPU threads", value, key=key, on_change=changed, max_chars=400,
        width=420, help="Separated by commas. 30@8888x2 is half an hour on four nodes with eight GPUs each and two CPU "
        "threads per GPU; 5@0x1 is five minutes without any GPU.",
    )  # fmt: skip
    return value


def _phases(text: str) -> list[elastic.Phase]:
    """Returns phases from their text.

    Raises: PlanError naming the phase at fault.
    """
    found = []
    for part in re.split(r"[,;]", text):
        matched = _PHASE.fullmatch(part.strip())
        if matched is None:
            raise PlanError(
                f"The phase {part.strip()!r} must be minutes, @, the GPUs on each node, x, and CPU threads per GPU, "
                "such as 30@8888x2."
            )
        minutes, nodes, threads = matched.groups()
        placed = () if not nodes.strip("0") else tuple(int(digit) for digit in nodes)
        found.append(elastic.Phase(60 * float(minutes), placed, int(threads)))
    return found


@remembered(32)
def _timeline(card: str, phases: str, variant: str, pause: float, basis: str) -> elastic.Timeline:
    """The job through the phases."""
    return elastic.timeline(card, _phases(phases), variant=variant, pause_s=pause, basis=basis)


@remembered(32)
def _resource(card: str, over: str, variant: str) -> pd.DataFrame:
    """The best throughput along one resource."""
    return elastic.curve(card, over=over, variant=variant)


@remembered(32)
def _table(card: str, variant: str, placement: str, threads: int) -> pd.DataFrame:
    """Every plan under one limit."""
    return elastic.plans_table(card, placement=placement, cpu_threads=threads, variant=variant)


def _tiles(found: elastic.Timeline) -> list[markup.Tile]:
    """The means of all strategies, the planner's first."""
    tiles = []
    for place, row in enumerate(found.summary().to_dict("records")):
        if place == 0:
            context = f"mean; {counted(int(found.table['phase'].nunique()), 'phase')}"
        else:
            context = f"the planner {percent(row['gain'], 1)} more" if row["mean"] else "runs nothing"
        tiles.append(markup.Tile(str(row["strategy"]), f"{plain(row['mean'], 4)} samples/s", context))
    return tiles


def _curve(card: str, over: str, variant: str, mode: str) -> None:
    """Draws the best throughput along one resource."""
    try:
        curve = _resource(card, over, variant)
    except PlanError as problem:
        st.caption(literal(str(problem)))
        return
    chart = resource_curve(curve, over, _LABELS[over], mode)
    show(chart, "elastic_curve")
    st.caption(literal(chart.alt))


def _plans(card: str, variant: str, phases: list[elastic.Phase]) -> None:
    """Draws every plan in one of the phases, with what speaks against it."""
    names = {
        str(number): f"{number}: {''.join(map(str, phase.nodes))}, {counted(phase.cpu_threads, 'thread')}"
        for number, phase in enumerate(phases, 1) if phase.nodes
    }  # fmt: skip
    st.html(markup.head("Every plan of a phase", "digits are pipeline, tensor, data degrees; words are data parallel"))
    if not names:
        st.caption("No phase has a GPU.")
        return
    phase = phases[int(choose("Phase", names, "elastic_phase", width=230)) - 1]
    try:
        table = _table(card, variant, "".join(map(str, phase.nodes)), phase.cpu_threads)
    except PlanError as problem:
        st.caption(literal(str(problem)))
        return
    shown = table[list(_COLUMNS)].rename(columns=_COLUMNS).dropna(axis="columns", how="all")
    shown = shown.round(dict.fromkeys(("samples/s", "iteration, ms", "memory, GiB"), 2))
    shown.attrs.clear()  # how plans are written, for the engine
    st.dataframe(
        shown, hide_index=True, height=height_of(len(shown), 360), key="elastic_plans",
        alt="Every plan of the phase, with throughput, iteration time and the reason for which it is not chosen.",
    )  # fmt: skip


def _timeline_table(found: elastic.Timeline) -> None:
    """Offers the timeline as a table."""
    with st.expander("As table"):
        table = found.table.drop(columns=["paused_s"])
        table.attrs.clear()
        st.dataframe(
            table, hide_index=True, height=height_of(len(table), 400), key="elastic_table",
            alt="Every strategy in every phase: plan, iteration time and throughput, predicted and measured.",
        )  # fmt: skip
