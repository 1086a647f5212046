"""The Pareto page: what can be had together, and what a little more of one costs in the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pandas as pd
import streamlit as st

from dashboard import accuracy, state
from dashboard.charts import markup
from dashboard.charts.pareto import Named, pareto
from dashboard.charts.template import in_sentence
from dashboard.controls import choose, segments, show, switch
from dashboard.derived import Metric
from dashboard.evaluated import evaluated
from dashboard.format import counted, format_value
from dashboard.nothing_runs import nothing_runs
from dashboard.pareto_data import axes_of, density, frontier, near, on_log_axis
from dashboard.pareto_others import chooser, frontiers, side_by_side
from dashboard.pareto_panel import panel, table_of
from dashboard.scenarios_data import name_of
from engine import Exploration

__all__ = ["render"]

_NO_AXIS: Final = "none"
_SCALES: Final = {"linear": "linear", "log": "log"}


def render(exploration: Exploration, mode: str) -> None:
    """Draw the page."""
    if exploration.feasible == 0:
        nothing_runs(exploration, "pareto")
        return
    axes, logarithmic, around = _pickers(exploration)
    if len({axis.statistic for axis in axes}) < len(axes):
        st.info(
            "Choose different figures for the axes: a frontier weighs one against another, and these all follow from "
            f"{in_sentence(axes[0].column.label)}."
            if len({axis.key for axis in axes}) == len(axes)
            else "Choose different figures for the axes: a frontier weighs one against another.",
            icon=":material/info:",
        )
        return
    keys = tuple(axis.key for axis in axes)
    found = frontier(exploration, exploration.key, keys)
    others = frontiers(exploration, keys)
    chosen = _chosen(found)
    _strip(exploration, found, axes)
    left, right = st.columns([1.86, 1], gap="medium")
    with left:
        _plot(exploration, found, axes, logarithmic, around, chosen, mode, others)
        side_by_side(found, axes, others, chosen)
    with right.container(border=True, gap="xsmall", key="pareto_panel"):
        panel(exploration, found, axes, chosen)
    table_of(exploration, found, axes)


def _pickers(exploration: Exploration) -> tuple[tuple[Metric, ...], tuple[bool, bool], bool]:
    """The row of axis pickers: figures, which axes are logarithmic, whether to look closely."""
    known = axes_of(exploration)
    words = {key: metric.column.label for key, metric in known.items()}
    about = "Every result that is stored for all executions, and what follows from one of them."
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        y = choose("Vertical axis", words, "pareto_y", default="sample_rate", help=about, width=190)
        y_scale = segments("Vertical scale", _SCALES, "pareto_yscale")
        x = choose("Horizontal axis", words, "pareto_x", default="proc_mem_tier1_cap_req", width=190)
        x_scale = segments("Horizontal scale", _SCALES, "pareto_xscale")
        z = choose("Third figure", {_NO_AXIS: "None", **words}, "pareto_z", help="Colours the marks.", width=150)
        around = switch("Close to the frontier", "pareto_close", help="Leave out executions far from the frontier.")
        chooser(exploration.scenario)
    axes = (known[y], known[x]) if z == _NO_AXIS else (known[y], known[x], known[z])
    return axes, (x_scale == "log", y_scale == "log"), around


def _chosen(found: pd.DataFrame) -> int | None:
    """The frontier execution in view: the selected one if it is on the frontier, else the best on the vertical axis."""
    selected = state.selected_id()
    if selected is not None and selected in set(found["id"]):
        return selected
    return int(found["id"].iloc[0]) if len(found) else None


def _strip(exploration: Exploration, found: pd.DataFrame, axes: Sequence[Metric]) -> None:
    tiles = [
        markup.Tile("On the frontier", f"{len(found):,}", f"of {counted(exploration.feasible, 'feasible execution')}")
    ]
    for axis in axes:
        column = axis.column
        values = found[axis.key]
        row = found.iloc[int(values.argmin() if column.better == "lower" else values.argmax())]
        others = " · ".join(format_value(other.column, row[other.key]) for other in axes if other is not axis)
        label = f"{'Lowest' if column.better == 'lower' else 'Highest'} {in_sentence(column.label)}"
        about = f"{column.description} {axis.formula}".strip()
        origin = accuracy.origin_of(exploration.scenario, axis.statistic)
        tiles.append(
            markup.Tile(label, format_value(column, row[axis.key]), f"with {others}", formula=about, origin=origin)
        )
    degrees = found[["tensor_par", "pipeline_par"]].drop_duplicates()
    tiles.append(markup.Tile("In cells", f"{len(degrees)}", "TP × PP pairs have a part of it"))
    st.html(markup.figure_strip(tiles))


def _plot(
    exploration: Exploration, found: pd.DataFrame, axes: Sequence[Metric], logarithmic: tuple[bool, bool], around: bool,
    chosen: int | None, mode: str, others: Sequence[Named],
) -> None:  # fmt: skip
    y, x = axes[0], axes[1]
    both = (x.key, y.key)
    behind = density(exploration, exploration.key, both, logarithmic, near(found, both) if around else None)
    positive = [name for name, log in zip(both, logarithmic, strict=True) if log]
    marks = on_log_axis(found, positive)
    chart = pareto(
        marks, x.column, y.column, mode, z=axes[2].column if len(axes) > 2 else None, density=behind, selected=chosen,
        logarithmic=logarithmic, name=name_of(exploration.scenario),
        others=[one._replace(frontier=on_log_axis(one.frontier, positive)) for one in others],
    )  # fmt: skip
    show(chart, "pareto_plot", on_select=_pick, selection_mode="points", config={"doubleClick": "reset"})
    better = " and ".join(f"{axis.column.better} {in_sentence(axis.column.label)}" for axis in axes)
    note = f"Marks: no execution has {better} at once. Shading: how many executions lie there. Click a mark."
    note += _tied(exploration, found, axes)
    if others:
        note = note.replace("executions lie", "executions of A lie").replace("a mark.", "a mark of A.")
    if len(marks) < len(found):
        gone = len(found) - len(marks)
        note += f" {gone} of the frontier {'is' if gone == 1 else 'are'} at 0 and so not on the logarithmic axis."
    st.caption(note)


def _tied(exploration: Exploration, found: pd.DataFrame, axes: Sequence[Metric]) -> str:
    """A sentence on how much of the frontier predictions cannot tell from its best in an axis of time."""
    for axis in axes:
        if axis.statistic not in ("sample_rate", "total_time") or len(found) < 2:
            continue
        values = found[axis.key]
        lower = axis.column.better == "lower"
        first = int(values.argmin() if lower else values.argmax())
        best = evaluated(exploration, exploration.key, int(found["id"].iloc[first]))
        share = accuracy.within(exploration.scenario, best)
        if share >= 1.0:
            return ""
        edge = float(values.iloc[first])
        near = int((values <= edge / share).sum() if lower else (values >= edge * share).sum())
        return (
            f" {near} of the {len(found)} marks are tied with the best {in_sentence(axis.column.label)}: they lie "
            "within the error of predictions."
        )
    return ""


def _pick() -> None:
    points = st.session_state["pareto_plot"].selection.points
    if points and points[0].get("customdata") and len(points[0]["customdata"]) == 1:
        state.select(int(points[0]["customdata"][0]))
