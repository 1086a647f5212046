"""The panel and the table of the Pareto page: the chosen execution, and what moving away from it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from dashboard import export, state
from dashboard.charts import markup
from dashboard.charts.memory_bars import tier_pieces
from dashboard.charts.template import in_sentence
from dashboard.charts.time_bar import time_pieces
from dashboard.derived import Metric
from dashboard.filters import Filter
from dashboard.format import counted, decimals_for, format_delta, format_value, percent, scale_for
from dashboard.pareto_data import prices, rate_words, steps, undirected
from dashboard.tables import ROW, arranged, height_of
from dashboard.text import literal
from dashboard.wording import choices, differences, title
from engine import Exploration
from engine.columns import FIELDS, HEADLINE

__all__ = ["panel", "table_of"]

_GIB = 2.0**30
_MOST_ROWS = 1_000
_APART = 1e-9
"""Share of the largest value above which two values differ by more than rounding."""


def panel(exploration: Exploration, found: pd.DataFrame, axes: Sequence[Metric], chosen: int | None) -> None:
    """Draws the chosen execution in words, and what moving away from it costs."""
    if chosen is None:
        st.caption("No execution has finite values of these figures.")
        return
    row: dict[str, Any] = {str(k): v for k, v in found[found["id"] == chosen].iloc[0].to_dict().items()}
    st.html(markup.head(title(row), f"execution {chosen:,}"))
    st.html(markup.facts([(axis.column.label, format_value(axis.column, row[axis.key])) for axis in axes]))
    memory = exploration.scenario.system
    first, second = tier_pieces(row)
    bars = markup.time_bar(time_pieces(row)) + markup.memory_bar(first, memory.mem1.capacity_gib * _GIB)
    if sum(second.values()) > 0:
        bars += markup.memory_bar(second, memory.mem2.capacity_gib * _GIB, "Host memory")
    st.html(bars)
    st.html(markup.chips(choices(row)))
    st.html(markup.head("Moving along the frontier", "the next that is better in one"))
    extents = {axis.key: float(np.nanmax(np.abs(found[axis.key].to_numpy(dtype=float)))) for axis in axes}
    moves = steps(found, chosen, [axis.column for axis in axes])
    for move in moves:
        words, button = st.columns([6, 1], vertical_alignment="center")
        words.markdown(_move(row, move.improves, move.changes, axes, extents))
        button.button(
            "Go", key=f"pareto_go_{move.improves}", on_click=state.select, args=(int(move.row["id"]),),
            help=_changed(row, move.row), width="stretch",
        )  # fmt: skip
    if not moves:
        st.caption("The frontier is this one execution: it is best in every figure at once.")
    elif len(axes) == 2:
        st.caption(literal(_stretches(found, axes, extents)))


def _move(
    row: Mapping[str, Any], improves: str, changes: Mapping[str, float], axes: Sequence[Metric],
    extents: Mapping[str, float],
) -> str:  # fmt: skip
    """A step in words: "**2.1 % more throughput (…)** costs 5.4 % more HBM needed (+3.20 GiB), 27.5 samples/s per GiB".
    """
    known = {axis.key: axis for axis in axes}
    costs: list[str] = []
    gifts: list[str] = []
    for name, change in changes.items():
        if name != improves and change != 0:
            worse = change < 0 if known[name].column.better == "higher" else change > 0
            (costs if worse else gifts).append(_change(row, known[name], change))
    sentence = f"**{_change(row, known[improves], changes[improves])}** costs {' and '.join(costs) or 'nothing'}"
    if len(axes) == 2 and costs:
        y, x = axes[0], axes[1]
        price = abs(changes[y.key] / changes[x.key])
        sentence += f": {rate_words(price, y.column, x.column, (extents[y.key], extents[x.key]))}"
    return sentence + (f" and brings {' and '.join(gifts)}" if gifts else "")


def _change(row: Mapping[str, Any], axis: Metric, change: float) -> str:
    """A change in words, relative and absolute: "0.9 % less HBM needed (−87.8 MiB)"."""
    label, now = in_sentence(axis.column.label), float(row[axis.key])
    absolute, way = format_delta(axis.column, change), "more" if change > 0 else "less"
    if now == 0 or axis.column.unit == "fraction":
        return f"{absolute} {label}"
    share = abs(change / now)
    size = percent(share) if share >= 0.0005 else "under 0.1 %"
    return f"{size} {way} {label} ({absolute})"


def _changed(row: dict[str, Any], other: dict[str, Any]) -> str:
    """What changes in the execution, for a tooltip."""
    found = [f"{label}: {first} to {second}" for label, first, second in differences(row, other)]
    return literal("Changes " + "; ".join(found) + ".") if found else "The same choices."


def _stretches(found: pd.DataFrame, axes: Sequence[Metric], extents: Mapping[str, float]) -> str:
    """Where moving along a frontier of two figures costs least and most."""
    y, x = axes[0], axes[1]
    cost = prices(found, y.key, x.key)["price"].to_numpy()
    # Where two figures differ by rounding alone, their ratio means nothing.
    apart = [np.abs(np.diff(found[axis.key].to_numpy())) > _APART * extents[axis.key] for axis in axes]
    known = np.flatnonzero(np.isfinite(cost) & np.append(apart[0] & apart[1], False))
    if len(known) < 2:
        return ""

    def told(step: int) -> str:
        ends = [format_value(x.column, found[x.key].iloc[place]) for place in (step, step + 1)]
        words = rate_words(float(cost[step]), y.column, x.column, (extents[y.key], extents[x.key]))
        return f"{words} ({ends[0]} to {ends[1]})"

    least, most = int(known[np.argmin(cost[known])]), int(known[np.argmax(cost[known])])
    return (
        f"Along the whole frontier {in_sentence(x.column.label)} is worth from {told(least)} to {told(most)}; the "
        "table has every stretch."
    )


def table_of(
    exploration: Exploration, found: pd.DataFrame, axes: Sequence[Metric], filters: Sequence[Filter] = ()
) -> None:
    """The frontier as a table, with what the way to the next execution costs, and its download."""
    stored = [axis.key for axis in axes if axis.key == axis.statistic]
    names = [*stored, *(column.name for column in HEADLINE if column.name not in stored)]
    names = [name for name in names if name in found.columns]
    fields = [column.name for column in FIELDS if column.name in found.columns]
    whole = found[["id", *stored, *fields, *names[len(stored) :]]]
    number = counted(len(found), "execution")
    scope = f"{number}, best {in_sentence(axes[0].column.label)} first; pick one to see it above"
    selection = "; ".join([f"the frontier of {', '.join(_directed(axis) for axis in axes)}",
                           *(one.words for one in filters)])  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.html(markup.head("The frontier as a table", scope))
        for kind in ("csv", "parquet", "json"):
            st.download_button(
                export.FORMATS[kind].label, data=export.of_frame(exploration, whole, kind, selection),
                file_name=export.file_name(exploration, "frontier", kind), mime=export.FORMATS[kind].mime,
                key=f"pareto_download_{kind}", on_click="ignore", icon=":material/download:", type="tertiary",
            )  # fmt: skip
    top = found.head(_MOST_ROWS)
    shown, settings = arranged(whole.head(_MOST_ROWS).drop(columns=stored))
    for place, (name, values, setting) in enumerate(_leading(top, axes)):
        shown.insert(1 + place, name, values)
        settings[name] = setting

    def picked() -> None:
        rows = st.session_state["pareto_table"].selection.rows
        if rows:
            state.select(int(top["id"].iloc[rows[0]]))

    st.dataframe(
        shown, hide_index=True, height=height_of(len(shown), 320), row_height=ROW, column_config=settings,
        key="pareto_table", on_select=picked, selection_mode="single-row",
        alt=f"Executions on the frontier of {', '.join(axis.key for axis in axes)}, with the cost of each step.",
    )  # fmt: skip


def _directed(axis: Metric) -> str:
    """An axis by name, and what is better where the register does not say: "useful_flops (more is better)"."""
    way = "more" if axis.column.better == "higher" else "less"
    return f"{axis.key} ({way} is better)" if undirected(axis) else axis.key


def _leading(found: pd.DataFrame, axes: Sequence[Metric]) -> list[tuple[str, Any, Any]]:
    """The columns that the table begins with, each with its values and setting: the figures, and what a step costs."""
    columns = []
    scales = [scale_for(axis.column, found[axis.key]) for axis in axes]
    for axis, scale in zip(axes, scales, strict=True):
        digits = decimals_for(found[axis.key], scale, digits=4)
        about = literal(f"{axis.column.label}. {axis.column.description} {axis.formula}".strip())
        header = scale.title(axis.column.short)
        setting = st.column_config.NumberColumn(header, help=about, format=f"%.{digits}f", width=8 * len(header) + 34)
        columns.append((axis.key, found[axis.key].to_numpy() / scale.factor, setting))
    if len(axes) != 2 or len(found) < 2:
        return columns
    cost = prices(found, axes[0].key, axes[1].key)
    for key, axis, scale in zip(("change_y", "change_x"), axes, scales, strict=True):
        values = cost[key].to_numpy() / scale.factor
        header = f"Δ {scale.title(axis.column.short)}"
        columns.append((key, values, st.column_config.NumberColumn(
            header, help=f"Change of {in_sentence(axis.column.label)} to the next execution of the frontier.",
            format=f"%+.{decimals_for(values * scale.factor, scale, digits=4)}f", width=8 * len(header) + 34,
        )))  # fmt: skip
    values = cost["price"].to_numpy() * scales[1].factor / scales[0].factor
    units = [{"": axis.column.short, "%": "point"}.get(scale.unit, scale.unit)
             for axis, scale in zip(axes, scales, strict=True)]  # fmt: skip
    header = f"{units[0]} per {units[1]}"
    columns.append(("price", values, st.column_config.NumberColumn(
        header, format="%.4g", width=8 * len(header) + 34,
        help=f"Marginal rate: {in_sentence(axes[0].column.label)} that a unit of {in_sentence(axes[1].column.label)} "
        "is worth between this execution and the next.",
    )))  # fmt: skip
    return columns
