"""Queries of the Explore page, remembered per exploration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from dashboard.compat.caches import remembered
from dashboard.queries.economics import Metric
from dashboard.queries.filters import Filter
from dashboard.queries.memory_requirements import needs_of
from engine import Exploration
from engine.columns import ALL_FIELDS, SHARES, by_name, fields_of, in_order, statistics_of
from engine.cost_models.registry import cost_model_of
from engine.executions import reasons
from engine.executions.codes import NETWORKS
from engine.store import StoreCondition

__all__ = [
    "CHOICES",
    "OF_THE_MAP",
    "TABLE_ROWS",
    "Group",
    "Spread",
    "Where",
    "bests_of_choices",
    "cells_of",
    "choice_costs",
    "columns_of",
    "frozen",
    "in_cell",
    "least_demanding",
    "near_best",
    "options_of",
    "reasons_in_cell",
    "span_of",
    "spread_of",
    "spread_over",
    "top_of",
    "values_of",
    "varying",
]

TABLE_ROWS: Final = 60
BINS: Final = 48
_NEAR: Final = 32
"""Executions closest to the best that are checked first."""

_OF_CELLS: Final = {
    "tensor_par": "tensor_par",
    "pipeline_par": "pipeline_par",
    "data_par": "data_par",
    "batch_size": "batch_size",
    "microbatch_size": "microbatches",
    "pipeline_interleaving": "interleavings",
    "context_par": "context_par",
    "expert_par": "expert_par",
    "expert_tensor_par": "expert_tensor_par",
    "schedule": "schedules",
    "stage_layout": "layouts",
}
"""Fields that the cells of a space tell -> the attribute that holds them."""
OF_THE_MAP: Final = ("tensor_par", "pipeline_par", "data_par", "batch_size")
"""The fields that the map shows, or that differ from cell to cell of it."""
CHOICES: Final = tuple(
    column.name
    for column in in_order(ALL_FIELDS)
    if not column.of_scenario and column.name not in (*OF_THE_MAP, "training")
)
"""The fields that the map hides, in the order in which their cost is shown."""


class Spread(NamedTuple):
    """Distribution of a cell's executions over step times."""

    counts: list[int]
    edges: list[float]
    """[s]"""


Where = tuple[StoreCondition, ...]
"""Conditions as a key of a cache."""


class Group(NamedTuple):
    """The executions that the panel is about."""

    title: str
    where: Where
    """Conditions that the executions share."""
    id: int
    """The best of them."""
    feasible: int
    best: float
    """Best value of the metric in the whole map."""
    cell: tuple[int, int] | None
    """The (tensor, pipeline) pair that they make up, if they do without further conditions."""
    members: tuple[Filter, ...] = ()
    """The same as filters, where they make up no such pair."""


def frozen(where: Sequence[StoreCondition]) -> Where:
    """Conditions with values that can be hashed."""
    return tuple(
        StoreCondition(one.column, one.operator, tuple(one.value) if isinstance(one.value, list) else one.value)
        for one in where
    )


def in_cell(cell: tuple[int, int]) -> Where:
    """Returns the conditions that make up a cell."""
    return StoreCondition("tensor_par", "=", cell[0]), StoreCondition("pipeline_par", "=", cell[1])


def columns_of(exploration: Exploration, names: Sequence[str]) -> list[str]:
    """Returns the id and the given columns that executions of a scenario have."""
    model = exploration.scenario.cost_model
    known = {column.name for column in (*SHARES, *fields_of(model), *statistics_of(model))}
    return ["id", *dict.fromkeys(name for name in names if name in known)]


@remembered(entries=256)
def top_of(
    _exploration: Exploration, key: str, where: Where, rank: str, names: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Returns the best executions by one statistic that meet conditions: their ids and the columns that exist."""
    wanted = columns_of(_exploration, names)
    return _exploration.rows.top(TABLE_ROWS, rank, where=where, names=wanted).to_pylist()  # type: ignore[no-any-return]


@remembered(entries=256)
def spread_of(_exploration: Exploration, key: str, where: Where) -> Spread:
    """Returns step times of the feasible executions that meet conditions. See `spread_over`."""
    return spread_over(_exploration.rows.table(["total_time"], where=where)["total_time"].to_numpy())


def spread_over(times: npt.NDArray[np.float64]) -> Spread:
    """Returns how step times [s] spread, up to 8 times the shortest."""
    if not len(times):
        return Spread([], [])
    # A long tail of very slow executions would squeeze everything worth seeing into one bin.
    high = min(float(times.max()), float(np.quantile(times, 0.98)) * 1.02, 8 * float(times.min()))
    low = float(times.min())
    counts, edges = np.histogram(times[times <= high], bins=BINS, range=(low, high if high > low else low * 1.01))
    return Spread(counts.tolist(), edges.tolist())


@remembered(entries=256)
def span_of(_exploration: Exploration, key: str, name: str, where: Where = ()) -> tuple[float, float] | None:
    """Returns lowest and highest finite value of a column among executions that meet conditions."""
    return _exploration.rows.value_range(name, where=where)


@remembered(entries=256)
def near_best(
    _exploration: Exploration, key: str, rate: float, share: float = 0.95, where: Where = ()
) -> tuple[int, int]:
    """Returns (executions, cells) that reach a share of the best throughput [samples/s]."""
    near = [*where, StoreCondition("sample_rate", ">=", share * rate)]
    groups = _exploration.rows.best_by(["tensor_par", "pipeline_par"], "sample_rate", where=near)
    return int(np.sum(groups["rows"].to_numpy())), groups.num_rows


def choice_costs(exploration: Exploration, metric: Metric, where: Where = ()) -> pd.DataFrame:
    """Returns the best value of a metric per option of every hidden field that has more than one option.

    Columns: field, choice, value (NaN where executions with that option exist and none runs), as `charts.choices` reads
    them. With conditions only the options that executions which meet them have.
    """
    found = bests_of_choices(exploration, exploration.key, metric.statistic, where)
    return found.assign(value=metric.of_column(found["value"]))


@remembered(entries=64)
def bests_of_choices(_exploration: Exploration, key: str, statistic: str, where: Where) -> pd.DataFrame:
    """Returns what `choice_costs` is made of; the value is of a statistic, which several metrics share."""
    implied = cost_model_of(_exploration.scenario).columns.implied
    options = {field: options_of(_exploration, field) for field in CHOICES if field not in implied}
    fields = [field for field, known in options.items() if len(known) > 1]
    # One reading of the columns and a pass over each is twice as fast as grouping in the database.
    table = _exploration.rows.table([*fields, statistic], where=where)
    lower = by_name(statistic).better == "lower"
    values = table[statistic].to_numpy() * (1.0 if lower else -1.0)
    # Most options are among the best executions; only the others are looked for in all.
    near = np.argpartition(values, len(values) // _NEAR)[: len(values) // _NEAR + 1] if len(values) else values[:0]
    near = near.astype(np.intp)
    rows = []
    for field in fields:
        column = table[field].combine_chunks()
        if pa.types.is_string(column.type):  # of a field with more words than its choices
            column = column.dictionary_encode()
        words = column.dictionary.to_pylist() if hasattr(column, "dictionary") else None
        codes = (column if words is None else column.indices).to_numpy(zero_copy_only=False)
        best = {}
        for option in options[field]:
            if words is not None and option not in words:
                continue
            code = option if words is None else words.index(option)
            found = np.fmin.reduce(values[near[codes[near] == code]], initial=np.inf)
            if not np.isfinite(found):
                found = np.fmin.reduce(values[codes == code], initial=np.inf)
            if np.isfinite(found):
                best[option] = float(found if lower else -found)
        shown = [option for option in options[field] if option in best or not where]
        if len(shown) > 1:
            rows += [{"field": field, "choice": one, "value": best.get(one, float("nan"))} for one in shown]
    return pd.DataFrame(rows, columns=["field", "choice", "value"])


@remembered(entries=64)
def varying(_exploration: Exploration, key: str) -> dict[str, list[Any]]:
    """Returns the values of every field that has more than one; fields that the map hides first."""
    found = {name: options_of(_exploration, name) for name in (*CHOICES, *OF_THE_MAP)}
    return {name: options for name, options in found.items() if len(options) > 1}


def options_of(exploration: Exploration, field: str) -> list[Any]:
    """Returns the values that a field has in executions of the space, whether they run or not."""
    space = exploration.scenario.space
    if field in NETWORKS:
        placed = space.further(np.arange(len(space.cells)))
        if field in placed:
            return sorted(set(placed[field].tolist()))
        place = NETWORKS.index(field)
        return sorted({int(tier) for cell in space.cells for tier in space.assignments[cell.kind][:, place]})
    if field in _OF_CELLS:
        found = [getattr(cell, _OF_CELLS[field]) for cell in space.cells]
        told = sorted({value for one in found for value in (one if np.iterable(one) else [one])})
        column = by_name(field)
        return sorted((column.words[value] for value in told), key=column.rank) if column.choices else told
    present: set[Any] = set()
    for kind in {space.mode_kind(cell) for cell in space.cells}:
        modes = space.modes[kind]
        if field in modes.fields:  # an extension is absent where the cost model does not have it
            present |= set(modes.fields[field].tolist())
    column = by_name(field)
    if column.dtype == "bool":
        return [bool(value) for value in sorted(present, reverse=True)]
    if column.choices:
        return sorted((column.words[int(value)] for value in present), key=column.rank)
    return [int(value) for value in sorted(present)]


def reasons_in_cell(exploration: Exploration, cell: tuple[int, int]) -> dict[str, int]:
    """Returns executions of a cell that cannot run, by reason code, most frequent first."""
    total = np.zeros(len(reasons.REASONS) + 1, np.int64)
    for number, other in enumerate(exploration.scenario.space.cells):
        if (other.tensor_par, other.pipeline_par) == cell:
            total += exploration.reductions.rejected[number]
    found = {reasons.code_of(number): int(total[number]) for number in np.flatnonzero(total).tolist()}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


@remembered(entries=64)
def _statistic_of_ids(_exploration: Exploration, key: str, statistic: str, ids: tuple[int, ...]) -> list[float]:
    """Return a statistic of executions; NaN for a negative id."""
    known = [number for number in ids if number >= 0]
    found = _exploration.rows.fetch(known, [statistic])[statistic].to_pylist()
    values = dict(zip(known, found, strict=True))
    return [values.get(number, np.nan) for number in ids]


def values_of(exploration: Exploration, metric: Metric, cells: pd.DataFrame) -> pd.Series[float]:
    """Return the figure of the execution that represents each cell: `id`, which reaches `value` in
    `metric.ranked_by`."""
    statistic = cells["value"].astype(float)
    if metric.of_fastest:
        ids = tuple(cells["id"].fillna(-1).astype(int).tolist())
        figures = _statistic_of_ids(exploration, exploration.key, metric.statistic, ids)
        statistic = pd.Series(figures, index=cells.index, dtype=float)
    return metric.of_column(statistic)


def cells_of(exploration: Exploration, metric: Metric) -> pd.DataFrame:
    """Returns one row per (tensor, pipeline) pair with the best value of a metric, as `charts.degree_map` reads it."""
    cells = exploration.by_pair(metric.ranked_by)
    cells = cells.assign(value=values_of(exploration, metric, cells), may_fit=False)
    runs = (cells["feasible"] > 0).to_numpy()
    cells.loc[runs, "may_fit"] = exploration.exceed_capacity(cells["id"][runs])
    return cells


@remembered(entries=32)
def _memory_needs(_exploration: Exploration, key: str) -> pd.DataFrame:
    return needs_of(_exploration.scenario)


def least_demanding(exploration: Exploration, cell: tuple[int, int]) -> tuple[int, str] | None:
    """Returns (id, what would make it fit) of the execution of a cell that needs the least HBM; None where memory is
    not asked.
    """
    needs = _memory_needs(exploration, exploration.key)
    here = needs[(needs["tensor_par"] == cell[0]) & (needs["pipeline_par"] == cell[1])]
    if not len(here):
        return None
    return int(here["id"].iloc[0]), str(here["remedy"].iloc[0])
