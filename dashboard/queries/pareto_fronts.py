"""Queries of the Pareto page: the frontier with its executions, the density behind it, and the price of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from dashboard.charts.explored.pareto import Density, edges
from dashboard.compat.caches import remembered
from dashboard.queries.economics import Metric, metrics
from dashboard.queries.explorations import Where
from dashboard.words.numbers import plain, scale_for, with_unit
from engine import Exploration
from engine.columns import FIELDS, Column, by_name, defined_of, value_of
from engine.executions.arrays import Floats

__all__ = [
    "FrontierStep",
    "axes_of",
    "density",
    "frontier",
    "near",
    "on_log_axis",
    "prices",
    "rate_words",
    "steps",
    "undirected",
]


BINS: Final = 256
_AT_ONCE: Final = 1_000_000
_AIR: Final = 0.15
"""Share of the frontier's extent shown around it when zoomed in."""


def axes_of(exploration: Exploration, upward: tuple[str, ...] = ()) -> dict[str, Metric]:
    """Returns all possible axes: each result that is stored or derived, then all other statistics.

    upward: keys of statistics that are better when larger, if the register does not say; otherwise smaller is better.
    """
    scenario = exploration.scenario
    known = {key: metric for key, metric in metrics(scenario).items() if metric.column.better is not None}
    for column in defined_of(scenario.cost_model):
        if column.name not in known:
            way: Literal["higher", "lower"] = "higher" if column.name in upward else "lower"
            known[column.name] = Metric(column.name, replace(column, better=column.better or way), column.name)
    return known


def undirected(metric: Metric) -> bool:
    """Returns whether the register leaves open which direction is better."""
    return metric.key == metric.statistic and by_name(metric.statistic).better is None


@remembered(64)
def frontier(
    _exploration: Exploration,
    key: str,
    axes: tuple[str, ...],
    where: Where = (),
    upward: tuple[str, ...] = (),
) -> pd.DataFrame:
    """Returns the Pareto-optimal executions in two or three figures: id, the fields, all statistics, the figures.

    axes: keys of `axes_of`, which has `upward`. where: conditions on executions. Sorted along the first axis from best
    to worst. key: of the exploration. Raises `engine.store.NotEvaluatedError` for figures that are not yet evaluated.
    """
    known = axes_of(_exploration, upward)
    chosen = [known[name] for name in axes]
    found = _exploration.frontier(
        *(metric.statistic for metric in chosen),
        where=where,
        better={metric.statistic: str(metric.column.better) for metric in chosen if undirected(metric)},
    )
    if not len(found):
        return found.assign(**{name: [] for name in (*(column.name for column in FIELDS), *axes)})
    rows = _exploration.evaluate_ids(found["id"].to_numpy())
    derived = {one.key: one.of_column(value_of(one.statistic, rows)) for one in chosen if one.key not in rows}
    return rows.assign(**derived)


@remembered(64)
def density(
    _exploration: Exploration,
    key: str,
    axes: tuple[str, str],
    logarithmic: tuple[bool, bool],
    near: tuple[tuple[float, float], tuple[float, float]] | None,
    where: Where = (),
) -> Density | None:
    """Returns executions per bin over two figures; None if there is nothing to count.

    logarithmic: bins in equal ratios, over the positive values. near: bounds (low, high) of both axes, None for all.
    where: conditions on executions. Raises as `frontier` does.
    """
    rows, known = _exploration.rows, axes_of(_exploration)
    chosen = [known[name] for name in axes]
    found_spans = list(near) if near is not None else [_figure_range(_exploration, metric, where) for metric in chosen]
    spans = [span for span in found_spans if span is not None]
    if len(spans) < len(axes):
        return None
    if not any(logarithmic) and not any(metric.inverse for metric in chosen):
        scaled = [
            (span[0] / metric.factor, span[1] / metric.factor) for span, metric in zip(spans, chosen, strict=True)
        ]
        counted = rows.histogram(
            chosen[0].statistic,
            chosen[1].statistic,
            bins=(BINS, BINS),
            x_range=scaled[0],
            y_range=scaled[1],
            where=where,
        )
        bounds = [
            (found * metric.factor).tolist()
            for found, metric in zip((counted.x_edges, counted.y_edges), chosen, strict=True)
        ]
        return Density(counted.counts.T, *bounds)
    values = [_figure_values(_exploration, metric, where) for metric in chosen]
    bounds = []
    for value, span, log in zip(values, spans, logarithmic, strict=True):
        low, high = span
        if log and low <= 0:
            positive = value[(value > 0) & np.isfinite(value)]
            low = float(positive.min()) if len(positive) else 0.0
            log = bool(len(positive))
        bounds.append(edges(low, high, BINS, log))
    return Density(_count_pairs(values[0], values[1], bounds).T, bounds[0], bounds[1])


def _figure_values(exploration: Exploration, metric: Metric, where: Where) -> Floats:
    """Return a figure of every execution that meets conditions."""
    values = exploration.rows.table([metric.statistic], where=where)[metric.statistic].to_numpy()
    return values if metric.key == metric.statistic else np.asarray(metric.of_column(pd.Series(values)), np.float64)


def _count_pairs(x: Floats, y: Floats, bounds: Sequence[Sequence[float]]) -> npt.NDArray[np.int64]:
    """Return the pairs of finite values per bin, counted a million at a time: numpy copies its input several times."""
    counts = np.zeros([len(bound) - 1 for bound in bounds], np.int64)
    bins = [np.array(bound) for bound in bounds]
    for first in range(0, len(x), _AT_ONCE):
        pair = x[first : first + _AT_ONCE], y[first : first + _AT_ONCE]
        inside = np.isfinite(pair[0]) & np.isfinite(pair[1])
        counts += np.histogram2d(pair[0][inside], pair[1][inside], bins=bins)[0].astype(np.int64)
    return counts


def _figure_range(exploration: Exploration, metric: Metric, where: Where) -> tuple[float, float] | None:
    """Return lowest and highest finite value of a figure."""
    found = exploration.rows.value_range(metric.statistic, where=where)
    if found is None:
        return None
    low, high = sorted(metric.of(end) for end in found)
    return (low, high) if np.isfinite(high) else None


def near(found: pd.DataFrame, axes: tuple[str, str]) -> tuple[tuple[float, float], tuple[float, float]]:
    """Returns bounds of the plot just around a frontier."""
    spans = []
    for name in axes:
        values = found[name].to_numpy(dtype=np.float64)
        values = values[np.isfinite(values)]
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
        air = _AIR * (high - low) or 0.05 * abs(high) or 1.0
        spans.append((max(0.0, low - air), high + air))
    return spans[0], spans[1]


def on_log_axis(found: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Returns the rows that have a place on logarithmic axes of these columns."""
    keep = np.ones(len(found), bool)
    for name in names:
        keep &= found[name].to_numpy(dtype=np.float64) > 0
    return found[keep]


class FrontierStep(NamedTuple):
    """One step along the frontier: the improved figure, the execution there, and the changes of all figures."""

    improves: str
    row: dict[str, Any]
    changes: dict[str, float]
    """New value minus old, by figure."""


def steps(found: pd.DataFrame, here: int, axes: Sequence[Column]) -> list[FrontierStep]:
    """Returns the smallest step from one frontier execution that improves each figure in turn.

    axes: the frontier's columns of `found`. The size of a step is the sum of the changes relative to the extent of the
    frontier.
    """
    if here not in set(found["id"]):
        return []
    values = found[[column.name for column in axes]].to_numpy(dtype=np.float64)
    at = int(np.flatnonzero(found["id"].to_numpy() == here)[0])
    with np.errstate(invalid="ignore"):
        extent = np.ptp(np.where(np.isfinite(values), values, np.nan), axis=0)
        change = values - values[at]
        distance = (np.abs(change) / np.where(extent > 0, extent, 1.0)).sum(axis=1)
    result = []
    for position, column in enumerate(axes):
        sign = 1.0 if column.better == "higher" else -1.0
        better = (sign * change[:, position] > 0) & np.isfinite(distance)
        if better.any():
            nearest = int(np.argmin(np.where(better, distance, np.inf)))
            row = {str(key): value for key, value in found.iloc[nearest].to_dict().items()}
            changes = {axis.name: float(change[nearest, i]) for i, axis in enumerate(axes)}
            result.append(FrontierStep(column.name, row, changes))
    return result


def prices(found: pd.DataFrame, y: str, x: str) -> pd.DataFrame:
    """Returns the price of every step from an execution to the next, along a frontier of two figures.

    Columns, NaN in the last row: change_y, change_x [in the units of the figures], price [units of y per unit of x, not
    negative]: the loss of y per unit of x on this stretch.
    """
    values = found[[y, x]].to_numpy(dtype=np.float64)
    change = np.vstack([np.diff(values, axis=0), np.full((min(1, len(values)), 2), np.nan)])
    with np.errstate(divide="ignore", invalid="ignore"):
        price = np.abs(change[:, 0] / change[:, 1])
    return pd.DataFrame({"change_y": change[:, 0], "change_x": change[:, 1], "price": price}, index=found.index)


def rate_words(price: float, y: Column, x: Column, extent: tuple[float, float]) -> str:
    """Returns a price in words: "27.5 samples/s per GiB", "under 0.001 s per GiB".

    price: units of y per unit of x. extent: largest values of y and of x, which choose the units.
    """
    scales = scale_for(y, [extent[0]]), scale_for(x, [extent[1]])
    number = price * scales[1].factor / scales[0].factor
    units = [
        {"%": "points", "": column.short}.get(scale.unit, scale.unit)
        for scale, column in zip(scales, (y, x), strict=True)
    ]
    amount = plain(number) if number >= 1e-3 or number == 0 else "under 0.001"
    return f"{with_unit(amount, units[0])} per {'point' if units[1] == 'points' else units[1]}"
