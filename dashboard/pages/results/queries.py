"""Rows of the Results page, as the store and the cost model answer."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np
import pandas as pd

from dashboard.compat.caches import remembered
from dashboard.pages.results.columns import known_columns
from dashboard.words.numbers import counted
from engine import Exploration, economics
from engine.columns import DERIVED, by_name, fields_of
from engine.cost_models.words import told_not_measured
from engine.recommendation import FIT_NEEDS, with_fit
from engine.store import StoreCondition

__all__ = [
    "DERIVED_NAMES",
    "count_rows",
    "describe_unmeasured",
    "freeze_conditions",
    "has_row",
    "load_page",
    "place_of",
    "sorted_by",
    "value_spread",
]

DERIVED_NAMES: Final = frozenset(column.name for column in DERIVED)
"""Names of the figures that are derived from the throughput."""


def freeze_conditions(where: list[StoreCondition]) -> tuple[Any, ...]:
    """Return conditions as part of a key of caches."""
    return tuple((c.column, c.operator, tuple(c.value) if isinstance(c.value, list) else c.value) for c in where)


@remembered(256)
def count_rows(_exploration: Exploration, key: str, where: tuple[Any, ...]) -> int:
    """Return the number of rows that meet conditions."""
    return _exploration.rows.count(list(where))


@remembered(64)
def load_page(
    _exploration: Exploration,
    key: str,
    where: tuple[Any, ...],
    by: str,
    order: str,
    page: int,
    size: int,
    names: tuple[str, ...],
) -> pd.DataFrame:
    """Return one page of the table; statistics that are not stored are computed for its rows."""
    register = known_columns(_exploration)
    kept = {column.name for column in register.stored}
    derived = {column.name for column in register.derived}
    fit = {column.name for column in register.fit} & set(names)
    stored = list(dict.fromkeys(name if name in kept else "sample_rate" for name in names if name in kept | derived))
    stored += [name for name in FIT_NEEDS if fit and name not in stored]
    found = _exploration.rows.page(
        (page - 1) * size, size, order_by=(sorted_by(by, order),), where=list(where), names=["id", *stored]
    ).to_pandas()
    if not kept | derived | fit >= set(names):
        found = _exploration.evaluate_ids(found["id"].to_numpy())
    if derived & set(names):
        found = pd.concat([found, economics.derived_columns(_exploration.scenario, found)], axis=1)
    if fit:
        found = with_fit(_exploration.scenario, found)
    result: pd.DataFrame = found[[*dict.fromkeys(("id", *names))]]
    return result


@remembered(64)
def describe_unmeasured(_exploration: Exploration, key: str, ids: tuple[int, ...]) -> str:
    """Return a sentence on the parts of these executions that no measured run has, with the number of rows; empty
    without any.
    """
    scenario = _exploration.scenario
    names = [column.name for column in fields_of(scenario.cost_model)]
    found = scenario.not_measured_of_rows(_exploration.rows.fetch(list(ids), names).to_pandas())
    numbers = Counter(things for row in found for things in row)
    return told_not_measured(
        [f"{words} ({number:,} of these {counted(len(ids), 'row')})" for words, number in numbers.most_common()]
    )


@remembered(256)
def has_row(_exploration: Exploration, key: str, where: tuple[Any, ...], execution: int) -> bool:
    """Return whether an execution meets the conditions of the table."""
    return _exploration.rows.count([*where, StoreCondition("id", "=", execution)]) > 0


@remembered(64)
def place_of(
    _exploration: Exploration, key: str, where: tuple[Any, ...], by: str, order: str, execution: int
) -> int | None:
    """Return the number of rows before an execution that the table has; None in an order that is not of numbers.

    Equal rows come by id, as in `load_page`.
    """
    conditions = [StoreCondition(*each) for each in where]
    rows, own = _exploration.rows, StoreCondition("id", "=", execution)
    column, direction = sorted_by(by, order)
    if by_name(column).dtype not in ("int64", "float64"):
        return None
    value = rows.page(0, 1, where=[own], names=[column])[column][0].as_py()
    if value is None or (isinstance(value, float) and not np.isfinite(value)):
        return None  # last, after rows that no condition counts
    before = rows.count([*conditions, StoreCondition(column, "<" if direction == "ascending" else ">", value)])
    equal = [StoreCondition(column, "=", value), StoreCondition("id", "<", execution)]
    return before + (0 if column == "id" else rows.count([*conditions, *equal]))


def _sort_direction(by: str, order: str) -> Any:
    lower = by_name(by).better != "higher"
    return "ascending" if lower == (order == "best") else "descending"


def sorted_by(by: str, order: str) -> tuple[str, Any]:
    """Return the sorted column and its direction; figures derived from the throughput are in its order."""
    if by not in DERIVED_NAMES:
        return by, _sort_direction(by, order)
    return "sample_rate", _sort_direction("sample_rate", order)


@remembered(128)
def value_spread(
    _exploration: Exploration, key: str, where: tuple[Any, ...], by: str
) -> tuple[dict[str, float], list[int], list[float]] | None:
    """Return quantiles, mean and extremes, and counts per bin with their edges; None without finite values."""
    stored = "sample_rate" if by in DERIVED_NAMES else by
    values = _exploration.rows.table([stored], where=list(where))[stored].to_numpy().astype(np.float64)
    if by in DERIVED_NAMES:
        values = economics.derived_of(_exploration.scenario)[by].of(values)
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    counts, edges = np.histogram(values, bins=60)
    few, middle, most = np.quantile(values, (0.05, 0.5, 0.95))
    figures = {
        "lowest": values.min(),
        "5th percentile": few,
        "median": middle,
        "mean": values.mean(),
        "95th percentile": most,
        "highest": values.max(),
    }
    return {word: float(value) for word, value in figures.items()}, counts.tolist(), edges.tolist()
