"""The panel of the Pareto page: the chosen execution, and what moving away from it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.execution.memory_bars import tier_pieces
from dashboard.charts.execution.time_bar import time_pieces
from dashboard.link import state
from dashboard.queries.economics import Metric
from dashboard.queries.pareto_fronts import prices, rate_words, steps
from dashboard.words.executions import choices, differences
from dashboard.words.markdown import literal
from dashboard.words.names import in_sentence
from dashboard.words.numbers import SPACE, format_delta, format_value, percent
from engine import Exploration
from engine.executions.execution_names import execution_name
from hardware import GIB, System

__all__ = ["panel"]

_APART = 1e-9
"""Share of the largest value above which two values differ by more than rounding."""


def panel(exploration: Exploration, found: pd.DataFrame, axes: Sequence[Metric], chosen: int | None) -> None:
    """Draws the chosen execution in words, and what moving away from it costs."""
    if chosen is None:
        st.caption("No execution has finite values of these figures.")
        return
    row: dict[str, Any] = {str(k): v for k, v in found[found["id"] == chosen].iloc[0].to_dict().items()}
    st.html(markup.head(execution_name(row), f"execution {chosen:,}"))
    st.html(markup.facts([(axis.column.label, format_value(axis.column, row[axis.key])) for axis in axes]))
    system = exploration.scenario.system
    first, second = tier_pieces(row)
    bars = markup.time_bar(time_pieces(row)) + markup.memory_bar(first, system.mem1.capacity_gib * GIB)
    if sum(second.values()) > 0:
        bars += markup.memory_bar(second, system.mem2.capacity_gib * GIB, "Host memory")
    st.html(bars)
    st.html(markup.chips(choices(row, system)))
    st.html(markup.head("Next trade-off", "the next executions along the frontier"))
    extents = {axis.key: float(np.nanmax(np.abs(found[axis.key].to_numpy(dtype=float)))) for axis in axes}
    moves = steps(found, chosen, [axis.column for axis in axes])
    for move in moves:
        words, button = st.columns([6, 1], vertical_alignment="center")
        words.markdown(_describe_move(row, move.improves, move.changes, axes, extents))
        button.button(
            "Go",
            key=f"pareto_go_{move.improves}",
            on_click=state.select,
            args=(int(move.row["id"]),),
            help=_describe_changes(row, move.row, system),
            width="stretch",
        )
    if not moves:
        st.caption("The frontier is this one execution: it is best in every figure at once.")
    elif len(axes) == 2:
        st.caption(literal(_describe_prices(found, axes, extents)))


def _describe_move(
    row: Mapping[str, Any],
    improves: str,
    changes: Mapping[str, float],
    axes: Sequence[Metric],
    extents: Mapping[str, float],
) -> str:
    """Return a step in words: "**2.1 % more throughput (…)** costs 5.4 % more HBM needed (+3.20 GiB), 27.5 samples/s
    per GiB".
    """
    known = {axis.key: axis for axis in axes}
    costs: list[str] = []
    gifts: list[str] = []
    for name, change in changes.items():
        if name != improves and change != 0:
            worse = change < 0 if known[name].column.better == "higher" else change > 0
            (costs if worse else gifts).append(_describe_change(row, known[name], change))
    sentence = (
        f"**{_describe_change(row, known[improves], changes[improves])}** costs {' and '.join(costs) or 'nothing'}"
    )
    if len(axes) == 2 and costs:
        y, x = axes[0], axes[1]
        price = abs(changes[y.key] / changes[x.key])
        sentence += f": {rate_words(price, y.column, x.column, (extents[y.key], extents[x.key]))}"
    return sentence + (f" and brings {' and '.join(gifts)}" if gifts else "")


def _describe_change(row: Mapping[str, Any], axis: Metric, change: float) -> str:
    """Return a change in words, relative and absolute: "0.9 % less HBM needed (−87.8 MiB)"."""
    label, now = in_sentence(axis.column.label), float(row[axis.key])
    absolute, way = format_delta(axis.column, change), "more" if change > 0 else "less"
    if now == 0 or axis.column.unit == "fraction":
        return f"{absolute} {label}"
    share = abs(change / now)
    size = percent(share) if share >= 0.0005 else f"under 0.1{SPACE}%"
    return f"{size} {way} {label} ({absolute})"


def _describe_changes(row: dict[str, Any], other: dict[str, Any], system: System) -> str:
    """Return the changes of the execution, for a tooltip."""
    found = [f"{label}: {first} to {second}" for label, first, second in differences(row, other, system)]
    return literal("Changes " + "; ".join(found) + ".") if found else "The same choices."


def _describe_prices(found: pd.DataFrame, axes: Sequence[Metric], extents: Mapping[str, float]) -> str:
    """Return a sentence on the lowest and the highest price along a frontier of two figures."""
    y, x = axes[0], axes[1]
    cost = prices(found, y.key, x.key)["price"].to_numpy()
    # The ratio of rounding differences means nothing.
    apart = [np.abs(np.diff(found[axis.key].to_numpy())) > _APART * extents[axis.key] for axis in axes]
    known = np.flatnonzero(np.isfinite(cost) & np.append(apart[0] & apart[1], False))
    if len(known) < 2:
        return ""

    def told(step: int) -> str:
        ends = [format_value(x.column, found[x.key].iloc[place]) for place in (step, step + 1)]
        words = rate_words(float(cost[step]), y.column, x.column, (extents[y.key], extents[x.key]))
        return f"{words} ({f'{ends[0]} to {ends[1]}' if ends[0] != ends[1] else f'near {ends[0]}'})"

    least, most = int(known[np.argmin(cost[known])]), int(known[np.argmax(cost[known])])
    return f"Along the frontier the trade-off ranges from {told(least)} to {told(most)}; the table has every step."
