"""The Pareto page: what can be had together, and what a little more of one costs in the other."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard import export, state
from dashboard.charts import markup
from dashboard.charts.memory_bars import tier_pieces
from dashboard.charts.pareto import pareto
from dashboard.charts.template import in_sentence
from dashboard.charts.time_bar import time_pieces
from dashboard.controls import choose, segments, show, switch
from dashboard.format import count, format_delta, format_value, percent
from dashboard.pareto_data import density, frontier, near, on_log_axis, steps
from dashboard.tables import table
from dashboard.text import literal
from dashboard.wording import choices, differences, title
from engine import Exploration
from engine.columns import FIELDS, HEADLINE, by_name

_METRICS: Final = {column.name: column.label for column in HEADLINE if column.better is not None}
_NO_AXIS: Final = "none"
_SCALES: Final = {"linear": "linear", "log": "log"}
_GIB: Final = 2.0**30


def render(exploration: Exploration, mode: str) -> None:
    """Draw the page."""
    if exploration.feasible == 0:
        st.info(
            f"None of the {exploration.total:,} executions runs, so there is no frontier. Memory shows how far off "
            "they are, Explore why.",
            icon=":material/show_chart:",
        )
        return
    axes, logarithmic, around = _pickers()
    if len(set(axes)) < len(axes):
        st.info("Choose different figures for the axes: a frontier weighs one against another.", icon=":material/info:")
        return
    found = frontier(exploration, exploration.key, axes)
    chosen = _chosen(found)
    _strip(exploration, found, axes)
    left, right = st.columns([1.86, 1], gap="medium")
    with left:
        _plot(exploration, found, axes, logarithmic, around, chosen, mode)
    with right.container(border=True, gap="xsmall"):
        _panel(exploration, found, axes, chosen)
    _table(exploration, found, axes)


def _pickers() -> tuple[tuple[str, ...], tuple[bool, bool], bool]:
    """The row of axis pickers: metrics, which axes are logarithmic, whether to look closely."""
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        y = choose("Vertical axis", _METRICS, "pareto_y", default="sample_rate", help=_help("sample_rate"))
        y_scale = segments("Vertical scale", _SCALES, "pareto_yscale")
        x = choose("Horizontal axis", _METRICS, "pareto_x", default="proc_mem_tier1_cap_req")
        x_scale = segments("Horizontal scale", _SCALES, "pareto_xscale")
        z = choose("Third figure", {_NO_AXIS: "None", **_METRICS}, "pareto_z", help="Colours the marks.")
        around = switch("Close to the frontier", "pareto_close", help="Leave out executions far from the frontier.")
    axes = (y, x) if z == _NO_AXIS else (y, x, z)
    return axes, (x_scale == "log", y_scale == "log"), around


def _help(name: str) -> str:
    return f"Any headline figure; {in_sentence(by_name(name).label)}: {by_name(name).description}"


def _chosen(found: pd.DataFrame) -> int | None:
    """The frontier execution in view: the selected one if it is on the frontier, else the best on the vertical axis."""
    selected = state.selected_id()
    if selected is not None and selected in set(found["id"]):
        return selected
    return int(found["id"].iloc[0]) if len(found) else None


def _strip(exploration: Exploration, found: pd.DataFrame, axes: tuple[str, ...]) -> None:
    tiles = [
        markup.Tile("On the frontier", f"{len(found):,}", f"of {count(exploration.feasible)} feasible executions")
    ]
    for name in axes:
        column = by_name(name)
        values = found[name]
        row = found.iloc[int(values.argmin() if column.better == "lower" else values.argmax())]
        others = " · ".join(format_value(other, row[other]) for other in axes if other != name)
        label = f"{'Lowest' if column.better == 'lower' else 'Highest'} {in_sentence(column.label)}"
        tiles.append(markup.Tile(label, format_value(column, row[name]), f"with {others}", formula=column.description))
    degrees = found[["tensor_par", "pipeline_par"]].drop_duplicates()
    tiles.append(markup.Tile("In cells", f"{len(degrees)}", "TP × PP pairs have a part of it"))
    st.html(markup.figure_strip(tiles))


def _plot(
    exploration: Exploration, found: pd.DataFrame, axes: tuple[str, ...], logarithmic: tuple[bool, bool], around: bool,
    chosen: int | None, mode: str,
) -> None:  # fmt: skip
    y, x = axes[:2]
    behind = density(exploration, exploration.key, (x, y), logarithmic, near(found, (x, y)) if around else None)
    marks = on_log_axis(found, [name for name, log in zip((x, y), logarithmic, strict=True) if log])
    chart = pareto(
        marks, x, y, mode, z=axes[2] if len(axes) > 2 else None, density=behind, selected=chosen,
        logarithmic=logarithmic,
    )  # fmt: skip
    show(chart, "pareto_plot", on_select=_pick, selection_mode="points", config={"doubleClick": "reset"})
    better = " and ".join(f"{by_name(name).better} {in_sentence(by_name(name).label)}" for name in axes)
    note = f"Marks: no execution has {better} at once. Shading: how many executions lie there. Click a mark."
    if len(marks) < len(found):
        gone = len(found) - len(marks)
        note += f" {gone} of the frontier {'is' if gone == 1 else 'are'} at 0 and so not on the logarithmic axis."
    st.caption(note)


def _pick() -> None:
    points = st.session_state["pareto_plot"].selection.points
    if points and points[0].get("customdata") and len(points[0]["customdata"]) == 1:
        state.select(int(points[0]["customdata"][0]))


def _panel(exploration: Exploration, found: pd.DataFrame, axes: tuple[str, ...], chosen: int | None) -> None:
    """The chosen execution in words, and what moving away from it costs."""
    if chosen is None:
        st.caption("No execution has finite values of these figures.")
        return
    row: dict[str, Any] = {str(k): v for k, v in found[found["id"] == chosen].iloc[0].to_dict().items()}
    st.html(markup.head(title(row), f"execution {chosen:,}"))
    st.html(markup.facts([(by_name(name).short, format_value(name, row[name])) for name in axes]))
    capacity = exploration.scenario.system.mem1.capacity_gib * _GIB
    st.html(markup.time_bar(time_pieces(row)) + markup.memory_bar(tier_pieces(row)[0], capacity))
    st.html(markup.chips(choices(row)))
    st.html(markup.head("Moving along the frontier", "the next that is better in one"))
    moves = steps(found, chosen, axes)
    for move in moves:
        words, button = st.columns([6, 1], vertical_alignment="center")
        words.markdown(_move(row, move.improves, move.changes))
        button.button(
            "Go", key=f"pareto_go_{move.improves}", on_click=state.select, args=(int(move.row["id"]),),
            help=_changed(row, move.row), width="stretch",
        )  # fmt: skip
    if not moves:
        st.caption("The frontier is this one execution: it is best in every figure at once.")


def _move(row: dict[str, Any], improves: str, changes: dict[str, float]) -> str:
    """A step in words: "**2.1 % more throughput** costs 5.4 % more HBM needed (+3.20 GiB)"."""
    costs: list[str] = []
    gifts: list[str] = []
    for name, change in changes.items():
        if name != improves and change != 0:
            worse = change < 0 if by_name(name).better == "higher" else change > 0
            (costs if worse else gifts).append(_change(row, name, change))
    sentence = f"**{_change(row, improves, changes[improves])}** costs {' and '.join(costs) or 'nothing'}"
    return sentence + (f" and brings {' and '.join(gifts)}" if gifts else "")


def _change(row: dict[str, Any], name: str, change: float) -> str:
    """A change in words, relative and absolute: "0.9 % less HBM needed (−87.8 MiB)"."""
    label, now = in_sentence(by_name(name).label), float(row[name])
    absolute, way = format_delta(name, change), "more" if change > 0 else "less"
    if now == 0 or by_name(name).unit == "fraction":
        return f"{absolute} {label}"
    share = abs(change / now)
    size = percent(share) if share >= 0.0005 else "under 0.1 %"
    return f"{size} {way} {label} ({absolute})"


def _changed(row: dict[str, Any], other: dict[str, Any]) -> str:
    """What changes in the execution, for a tooltip."""
    found = [f"{label}: {first} to {second}" for label, first, second in differences(row, other)]
    return literal("Changes " + "; ".join(found) + ".") if found else "The same choices."


def _table(exploration: Exploration, found: pd.DataFrame, axes: tuple[str, ...]) -> None:
    """The frontier as a table, and its download."""
    names = [*axes, *(column.name for column in HEADLINE if column.name not in axes)]
    shown = found[["id", *names[: len(axes)], *(column.name for column in FIELDS), *names[len(axes) :]]]
    scope = f"{len(found):,} executions, best {in_sentence(by_name(axes[0]).label)} first"
    selection = f"the frontier of {', '.join(axes)}"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.html(markup.head("The frontier as a table", scope))
        for kind in ("csv", "parquet", "json"):
            st.download_button(
                export.FORMATS[kind].label, data=export.of_frame(exploration, shown, kind, selection),
                file_name=export.file_name(exploration, "frontier", kind), mime=export.FORMATS[kind].mime,
                key=f"pareto_download_{kind}", on_click="ignore", icon=":material/download:", type="tertiary",
            )  # fmt: skip
    table(shown.head(1000), "pareto_table", f"Executions on the frontier of {', '.join(axes)}.", height=320)
    if len(found) > 1000:
        st.caption(f"The first 1,000 of {len(found):,}; a download has all.")
