"""The Intra-operator page: the plan under a limit of memory, every vector, the blocks, what changes the answer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.intra_operator import along_curves, best_named, rate_bars, time_bars, vector_points
from dashboard.link import state
from dashboard.link.fields import LinkField
from dashboard.pages.intra_operator.inputs import (
    OWN,
    IntraOperatorInputs,
    draw_inputs,
    parse_inputs,
)
from dashboard.pages.intra_operator.layers import chosen_words, draw_layers
from dashboard.pages.intra_operator.link import IntraOperatorLink
from dashboard.pages.intra_operator.measured import draw_measured, draw_published, measured_marks, parse_log, upload
from dashboard.pages.intra_operator.queries import (
    beside_table,
    limited,
    swept,
    systems_table,
)
from dashboard.pages.intra_operator.tables import vectors_table
from dashboard.widgets.chart import show
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.link_fields import draw_segments, draw_switch
from dashboard.widgets.own_table import NO_TABLE, OwnTable
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, format_value, gibibytes, percent, plain, relative
from dashboard.words.strategies import short_solution, short_vector
from engine.planners.intra_operator import IntraOperatorPlan, StepCosts
from engine.planners.intra_operator.names import MIXED
from hardware import GIB
from hardware import names as system_names

__all__ = ["IntraOperatorView", "parse", "render"]

BARS: Final = 12
STEPS: Final = 2_000
"""Most steps drawn of the line of least times: more would be narrower than the line."""
QUICK: Final = 0.7
"""Time of a search up to which sweeps run without asking [s]."""
SLOW: Final = 3.0
"""Time of a search above which there are no sweeps [s]."""
COMPARED: Final = (
    "v100_32g_sxm",
    "a100_80g_sxm",
    "h100_80g_sxm",
    "h200_141g_sxm",
    "b200_180g_sxm",
    "mi300x_192g",
    "l40s_48g",
    "tpu_v5p_95g",
)


@dataclass(frozen=True, slots=True)
class IntraOperatorView:
    """All that the link says of the page."""

    mode: str
    """The theme: "light" or "dark"."""
    asked: IntraOperatorInputs | None
    link: IntraOperatorLink
    fields: Mapping[str, LinkField]
    log: OwnTable = NO_TABLE
    """The user's measured points."""
    problem: str = ""
    """Reason for a missing question; empty if there is one."""


def parse() -> IntraOperatorView:
    """Parse the page's part of the link."""
    try:
        asked, link, fields = parse_inputs()
    except ValueError as problem:
        return IntraOperatorView(state.theme_mode(), None, IntraOperatorLink(), {}, problem=str(problem))
    return IntraOperatorView(state.theme_mode(), asked, link, fields, parse_log())


def render(view: IntraOperatorView) -> None:
    """Draws the page."""
    asked = view.asked
    if asked is None:
        st.error(literal(view.problem), icon=":material/error:")
        return
    inputs = st.container(gap="small")
    with inputs:
        first = st.container()
        place = st.container(horizontal=True, gap="medium", vertical_alignment="bottom")
    try:
        with first:
            draw_inputs(view.fields, asked.depth, place)
        points = upload(place, asked, view.log)
        wanted = asked.question.memory_limit_gib
        answer = limited(asked, asked.mesh.memory if wanted is None else wanted * GIB)
        if answer is None:
            return
        found, took = answer
        with place:
            _draw_limit_slider(asked, found)
    except ValueError as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    if found.chosen is None:
        st.warning(literal(_too_little(asked, found)), icon=":material/memory_alt:")
    else:
        basis = "Modelled with the inputs under Rates and memory; measured values are marked."
        st.html(markup.figure_strip(_plan_tiles(asked, found, found.chosen), basis))
        name = found.chosen.solution
        named = "" if name == MIXED else f"{name[:1].upper()}{name[1:]}. "
        st.caption(literal(named + chosen_words(found, found.chosen)))
    _draw_points(asked, found, points, view.mode)
    _draw_vectors(view, found)
    if points is not None:
        draw_measured(asked, points)
    draw_layers(found, view.fields["layer"], view.mode)
    _draw_sweeps(view, asked, found, took)
    if asked.published:
        with st.container(border=True, gap="xsmall"):
            draw_published()
    if not asked.published:
        _draw_comparison(view, asked, found)
    for note in found.notes:
        st.caption(literal(note))


def _draw_limit_slider(asked: IntraOperatorInputs, found: IntraOperatorPlan) -> None:
    """Draw the limit of memory, from just below the smallest plan to just above the fastest."""
    low = math.floor(float(found.frontier["memory"].min()) / GIB * 9) / 10
    high = math.ceil(max(float(found.frontier["memory"].max()) / GIB * 1.1, low + 1) * 10) / 10
    capacity = asked.mesh.memory
    default = high if capacity is None else min(max(math.floor(capacity / GIB * 10) / 10, low), high)
    wanted = default if found.memory_limit is None else found.memory_limit / GIB
    value = round(min(max(wanted, low), high), 1)
    key = key_for("_intra_operator_limit", value)

    def changed() -> None:
        new = float(given(key))
        state.set_url_value("intra_operator_limit", None if abs(new - default) < 0.05 else f"{new:.1f}")

    of = "" if capacity is None else f", which has {gibibytes(capacity)}"
    st.slider(
        f"Memory limit of a device{of}", low, high, value, 0.1, key=key, on_change=changed, format="%.1f GiB", width=520
    )


def _too_little(asked: IntraOperatorInputs, found: IntraOperatorPlan) -> str:
    least = float(found.frontier["memory"].min())
    return (
        f"No plan fits {gibibytes(found.memory_limit)} of a device; the least that {asked.title} with "
        f"{counted(asked.layers, 'layer')} takes on {counted(asked.mesh.devices, 'device')} is {gibibytes(least)}. "
        "Fewer layers, a smaller batch or more devices take less."
    )


def _plan_tiles(asked: IntraOperatorInputs, found: IntraOperatorPlan, chosen: StepCosts) -> list[markup.Tile]:
    several = len(set(chosen.vectors))
    context = "one vector" if several == 1 else f"{several} different vectors"
    devices = asked.mesh.devices
    solution = short_solution(chosen.solution, 25)
    tiles = [
        markup.Tile(
            "Chosen",
            solution[:1].upper() + solution[1:],
            "one vector per kind" if several > 1 and _is_uniform(found, chosen) else context,
        ),
        markup.Tile(
            "Step",
            format_value("total_time", chosen.seconds),
            f"collectives {percent(chosen.communication_seconds / chosen.seconds)}",
        ),
        markup.Tile(
            "Throughput",
            f"{plain(found.tflops)} TFLOP/s",
            f"of {counted(devices, 'device')}; {plain(found.tflops / devices)} of each",
        ),
        markup.Tile("Volume", f"{plain(chosen.volume / 1e9)} GB", "per device and step"),
        markup.Tile("Memory", gibibytes(chosen.memory), "of a device"),
    ]
    named = found.named
    for name in best_named(named)[:2]:
        row = named[named["solution"] == name].iloc[0]
        ratio = relative(float(row["seconds"]), chosen.seconds)
        told = "cannot be split so" if row["reason"] else "does not fit" if not row["fits"] else ratio
        context = f"{'as long' if told == '±0' else told}; {gibibytes(float(row['memory']))}"
        label = short_solution(name, 25)
        label = f"{label[:1].upper()}{label[1:]}"
        tiles.append(markup.Tile(label, format_value("total_time", float(row["seconds"])), context))
    return tiles


def _draw_points(asked: IntraOperatorInputs, found: IntraOperatorPlan, points: pd.DataFrame | None, mode: str) -> None:
    """Draw every vector against memory and against volume."""
    best, limit, table = found.chosen, found.memory_limit, found.vectors
    left, right = st.columns(2, gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("What memory buys", "each point one vector in all layers; the line mixes vectors"))
        chosen = {} if best is None else {"memory": best.memory, "seconds": best.seconds}
        most = float(found.vectors["memory"].max())
        line = limit if limit is not None and limit < 1.5 * most else None
        chart = vector_points(
            table, "memory", "seconds", mode, chosen=chosen, limit=line, frontier=found.some_of_frontier(STEPS)
        )
        show(chart, "intra_operator_memory")
        st.caption(literal(f"{chart.alt} {found.exactness}"))
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Volume against time", "collectives of a step, on a device"))
        chosen = {} if best is None else {"volume": best.volume, "communication_seconds": best.communication_seconds}
        measured = measured_marks(asked, found, points)
        chart = vector_points(table, "volume", "communication_seconds", mode, chosen=chosen, measured=measured)
        show(chart, "intra_operator_volume")
        st.caption(literal(chart.alt))
        if measured and points is None:
            st.caption(
                "Crosses are CFP’s measurements of the same vectors: an all-to-all takes 3.5 times as long per byte as "
                "other collectives, so that volume alone does not rank plans. See the table of published volumes."
            )


def _draw_vectors(view: IntraOperatorView, found: IntraOperatorPlan) -> None:
    """Draw the table of vectors and the time of the best ones."""
    left, right = st.columns([1.6, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        vectors_table(found, view.fields)
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Where the time goes", "the fastest that fit, and named ones"))
        chart = time_bars(_time_rows(found), view.mode)
        show(chart, "intra_operator_times")
        st.caption(literal(chart.alt))


def _time_rows(found: IntraOperatorPlan) -> pd.DataFrame:
    """Return the chosen plan, the fastest vectors that fit, and the fastest named ones."""
    table = found.vectors[found.vectors["reason"] == ""].sort_values("seconds", kind="stable")
    fitting = table[table["fits"]]
    named = table[table["solution"].isin(best_named(table))].drop_duplicates("solution")
    rows = pd.concat([fitting.head(BARS - len(named)), named]).drop_duplicates("vector")
    rows = rows.sort_values("seconds", kind="stable")
    labels = [_bar_label(row) for row in rows.to_dict("records")]
    rows = rows.assign(label=labels)
    best = found.chosen
    if best is not None and not _is_uniform(found, best):
        own = {
            "label": "chosen, mixed layers",
            "seconds": best.seconds,
            "compute_seconds": best.compute_seconds,
            **{f"{name}_seconds": seconds for name, seconds in best.collective_seconds.items()},
        }
        rows = pd.concat([pd.DataFrame([own]), rows])
    return rows.reset_index(drop=True)


def _bar_label(row: Mapping[Any, Any]) -> str:
    """Return the label of a vector's bar: its strategies and its name; of a long vector the name alone."""
    vector = short_vector(row["vector"])
    name = "" if row["solution"] == MIXED else short_solution(row["solution"])
    label = name if name and len(vector) > 10 else f"{vector} {name}".strip()
    return label + ("" if row["fits"] else " (too large)")


def _is_uniform(found: IntraOperatorPlan, chosen: StepCosts) -> bool:
    """Return True if all layers of a kind have the same vector."""
    pairs = {(graph.name, vector) for graph, vector in zip(found.layers, chosen.vectors, strict=True)}
    return len(pairs) == len({name for name, _ in pairs})


def _draw_sweeps(view: IntraOperatorView, asked: IntraOperatorInputs, found: IntraOperatorPlan, took: float) -> None:
    """Draw sweeps and other systems."""
    best = found.chosen
    if took > QUICK:
        with st.container(border=True, gap="xsmall"):
            st.html(markup.head("What changes the answer", "sweeps and other systems"))
            if took > SLOW:
                st.caption(f"A search took {took:.0f} s, and this takes about twenty: use fewer devices or layers.")
                return
            draw_switch(view.fields["sweeps"], label=f"Compute them (about {20 * took:.0f} s)")
        if not view.link.sweeps:
            return
    left, right = st.columns(2, gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("What changes the answer", "everything else as above"))
        with st.container(horizontal=True, gap="small"):
            draw_segments(view.fields["over"])
            draw_segments(view.fields["result"])
        over, result = view.link.over, view.link.result
        labels = {
            "batch": "Batch, sequences",
            "layers": "Layers",
            "devices": "Devices",
            "memory": "Memory limit of a device, GiB",
        }
        memory = float(found.frontier["memory"].min()) if best is None else best.memory
        here = {"batch": asked.batch, "layers": asked.layers, "devices": asked.mesh.devices, "memory": memory / GIB}
        curves = swept(asked, over, found)
        chart = along_curves(curves, labels[over], here[over], result, view.mode, steps=over == "memory")
        show(chart, "intra_operator_sweep")
        st.caption(literal(chart.alt))
    with right.container(border=True, gap="xsmall", height="stretch"):
        _draw_systems(asked, view.mode)


def _draw_comparison(view: IntraOperatorView, asked: IntraOperatorInputs, found: IntraOperatorPlan) -> None:
    """Draw the plan next to the cost model's figures and the best of all executions, once switched on."""
    if found.chosen is None or asked.system_id == OWN:
        return
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Next to the best of all executions", "the calibrated cost model on as many devices"))
        draw_switch(view.fields["beside"])
        if not view.link.beside:
            return
        rows = beside_table(asked, found)
        shown = rows.assign(memory=rows["memory"] / GIB).rename(
            columns={
                "what": "",
                "seconds": "step, s",
                "sample_rate": "samples/s",
                "memory": "memory, GiB",
            }
        )
        st.dataframe(
            shown.round(4),
            hide_index=True,
            height=height_of(len(shown)),
            placeholder="–",
            key="intra_operator_best",
            alt="The plan, its degrees as an execution, and the best of all executions.",
        )


def _draw_systems(asked: IntraOperatorInputs, mode: str) -> None:
    st.html(markup.head("On other systems", "as many devices, at most those of a node; products in 16 bit"))
    known = set(system_names())
    names = tuple(each for each in dict.fromkeys((asked.system_id, *COMPARED)) if each in known)
    rows = systems_table(asked, names)
    chart = rate_bars(rows.assign(solution=[short_solution(each) for each in rows["solution"]]), asked.system, mode)
    show(chart, "intra_operator_systems")
    st.caption(literal(chart.alt))
    with st.expander("As table"):
        shown = rows[["label", "devices", "datatype", "seconds", "rate", "solution", "memory", "reason"]].assign(
            memory=rows["memory"].astype(float) / GIB
        )
        shown = shown.rename(
            columns={
                "label": "system",
                "datatype": "products in",
                "seconds": "step, s",
                "rate": "TFLOP/s each",
                "memory": "memory, GiB",
                "reason": "why not",
            }
        )
        st.dataframe(
            shown,
            hide_index=True,
            height=height_of(len(shown), 400),
            placeholder="–",
            key="intra_operator_systems_table",
            alt="Every system with its devices, step and solution.",
        )
