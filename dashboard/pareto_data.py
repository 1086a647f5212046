"""Frontiers, the density behind them, and what moving along a frontier costs."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.pareto import Density, edges
from engine import Exploration
from engine.columns import FIELDS, by_name

__all__ = ["Step", "density", "frontier", "on_log_axis", "steps"]

BINS: Final = 256
_AIR: Final = 0.15
"""Share of the frontier's extent shown around it when zoomed in."""


@st.cache_data(show_spinner=False, max_entries=64)
def frontier(_exploration: Exploration, key: str, axes: tuple[str, ...]) -> pd.DataFrame:
    """The executions that no other beats in all of two or three metrics: id, the fields, and all statistics.

    Sorted along the first axis from best to worst. key: of the exploration.
    """
    found = _exploration.frontier(axes[0], axes[1], axes[2] if len(axes) > 2 else None)
    if not len(found):
        return found.assign(**{column.name: [] for column in FIELDS})
    return _exploration.evaluate_ids(found["id"].to_numpy())


@st.cache_data(show_spinner=False, max_entries=64)
def density(
    _exploration: Exploration,
    key: str,
    axes: tuple[str, str],
    logarithmic: tuple[bool, bool],
    near: tuple[tuple[float, float], tuple[float, float]] | None,
) -> Density | None:
    """Executions per bin over two metrics; None where there is nothing to count.

    logarithmic: bins in equal ratios, over the positive values. near: bounds (low, high) of both axes, None for all.
    """
    rows = _exploration.rows
    found_spans = list(near) if near is not None else [rows.value_range(name) for name in axes]
    spans = [span for span in found_spans if span is not None]
    if len(spans) < len(axes):
        return None
    if not any(logarithmic):
        found = rows.histogram(axes[0], axes[1], bins=(BINS, BINS), x_range=spans[0], y_range=spans[1])
        return Density(found.counts.T, found.x_edges.tolist(), found.y_edges.tolist())
    table = rows.table(list(dict.fromkeys(axes)))
    values = [table[name].to_numpy().astype(np.float64) for name in axes]
    bounds = []
    for value, span, log in zip(values, spans, logarithmic, strict=True):
        low, high = span
        if log and low <= 0:
            positive = value[(value > 0) & np.isfinite(value)]
            low = float(positive.min()) if len(positive) else 0.0
            log = bool(len(positive))
        bounds.append(edges(low, high, BINS, log))
    inside = np.isfinite(values[0]) & np.isfinite(values[1])
    counts, _, _ = np.histogram2d(values[0][inside], values[1][inside], bins=[np.array(edge) for edge in bounds])
    return Density(counts.T.astype(np.int64), bounds[0], bounds[1])


def near(found: pd.DataFrame, axes: tuple[str, str]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Bounds of the plot just around a frontier."""
    spans = []
    for name in axes:
        values = found[name].to_numpy(dtype=np.float64)
        values = values[np.isfinite(values)]
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        air = _AIR * (high - low) or 0.05 * abs(high) or 1.0
        spans.append((max(0.0, low - air), high + air))
    return spans[0], spans[1]


def on_log_axis(found: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """The rows that have a place on logarithmic axes of these columns."""
    keep = np.ones(len(found), bool)
    for name in names:
        keep &= found[name].to_numpy(dtype=np.float64) > 0
    return found[keep]


class Step(NamedTuple):
    """One step along the frontier: the metric it improves, where it leads, and the changes of all metrics."""

    improves: str
    row: dict[str, Any]
    changes: dict[str, float]
    """New value minus old, by metric."""


def steps(found: pd.DataFrame, here: int, axes: tuple[str, ...]) -> list[Step]:
    """The smallest step from one frontier execution that improves each metric in turn.

    Small is measured as the sum over the metrics of the changes relative to the extent of the frontier.
    """
    if here not in set(found["id"]):
        return []
    values = found[list(axes)].to_numpy(dtype=np.float64)
    at = int(np.flatnonzero(found["id"].to_numpy() == here)[0])
    with np.errstate(invalid="ignore"):
        extent = np.ptp(np.where(np.isfinite(values), values, np.nan), axis=0)
        change = values - values[at]
        distance = (np.abs(change) / np.where(extent > 0, extent, 1.0)).sum(axis=1)
    result = []
    for position, name in enumerate(axes):
        sign = 1.0 if by_name(name).better == "higher" else -1.0
        better = (sign * change[:, position] > 0) & np.isfinite(distance)
        if better.any():
            nearest = int(np.argmin(np.where(better, distance, np.inf)))
            row = {str(key): value for key, value in found.iloc[nearest].to_dict().items()}
            result.append(Step(name, row, {axis: float(change[nearest, i]) for i, axis in enumerate(axes)}))
    return result
