"""Filters on fields, results and figures that follow from one: as conditions of a query, as words, and as text in a
link.

In a link a filter is `name:value,value` (any of these), `name:low..high` (a range, either end may be left out), and
several are joined by `;`. Quantities are in the register's units. Nothing of the text reaches a query but names that
the register knows and values that were read as what the column holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from dashboard.queries.economics import Metric, metrics, unstored_metrics
from dashboard.words.numbers import format_value
from engine import Scenario
from engine.columns import FIT, SHARES, STORED_OF_ANY, Column, choice_label
from engine.executions.table import DATATYPES
from engine.recommendation import FIT_NEEDS, FitBounds
from engine.store import StoreCondition

__all__ = ["FILTERABLE", "PATTERN", "Filter", "asked_of", "conditions", "derived_of", "parse", "text"]

FILTERABLE: Final[dict[str, Column]] = {column.name: column for column in (*STORED_OF_ANY, *SHARES)}
"""Columns that a filter can use at once: every stored row has them, with any cost model."""
PATTERN: Final = re.compile(r"[\w.,:;+-]{0,2000}")
"""Everything that a filter in a link may consist of."""
_MOST: Final = 24
_RANGE: Final = re.compile(r"([\d.e+-]{0,30}?)\.\.([\d.e+-]{0,30})")
_SWITCH: Final = {"on": True, "off": False}
_NOTHING: Final[Mapping[str, Metric]] = MappingProxyType({})

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: any of `values`, or between `low` and `high` (both included, None is open)."""

    column: Column
    values: tuple[Value, ...] = ()
    low: float | None = None
    high: float | None = None
    metric: Metric | None = None
    """Derivation of the figure from a stored statistic; None for a stored figure."""
    bounds: FitBounds | None = None
    """Memory that the words of a filter on the fit stand for; None for all other filters."""
    networks: tuple[str, ...] = field(default=(), compare=False)
    """Names of the system's networks, innermost first, which words use instead of their numbers."""

    @property
    def stored(self) -> str:
        """Name of the stored column that is filtered."""
        if self.bounds is not None:
            return FIT_NEEDS[0]
        return self.column.name if self.metric is None else self.metric.statistic

    def figures(self, low: float, high: float) -> tuple[float, float]:
        """Returns a range of the stored column as a range of the figure."""
        if self.metric is None:
            return low, high
        first, last = sorted((self.metric.of(low), self.metric.of(high)))
        return first, last

    @property
    def conditions(self) -> list[StoreCondition]:
        """The filter as conditions of a query."""
        name = self.stored
        if self.bounds is not None:
            return self.bounds.conditions(str(value) for value in self.values)
        if self.values:
            if self.column.dtype == "bool":  # a switch is on, off, or does not matter
                return [StoreCondition(name, "=", self.values[0])] if len(set(self.values)) == 1 else []
            return [StoreCondition(name, "in", list(self.values))]
        low, high = self._stored_ends()
        found = [StoreCondition(name, ">=", low)] if low is not None else []
        return [*found, StoreCondition(name, "<=", high)] if high is not None else found

    def _stored_ends(self) -> tuple[float | None, float | None]:
        """The range in terms of the stored column."""
        if self.metric is None:
            return self.low, self.high
        factor, inverse = self.metric.factor, self.metric.inverse
        ends = (self.high, self.low) if inverse else (self.low, self.high)
        turned = [None if end is None else _safe_ratio(factor, end) if inverse else end / factor for end in ends]
        return turned[0], turned[1]

    @property
    def words(self) -> str:
        """Return the filter in the words of its chip: "HBM needed ≤ 40.0 GiB", "Recompute none or full"."""
        label = self.column.label
        if self.bounds is not None:
            return f"Memory {' or '.join(map(str, self.values))}"
        if self.values:
            return f"{label} {' or '.join(choice_label(self.column, value, self.networks) for value in self.values)}"
        low = None if self.low is None else format_value(self.column, self.low)
        high = None if self.high is None else format_value(self.column, self.high)
        if low is not None and high is not None:
            return f"{label} {low}" if self.low == self.high else f"{label} {low} to {high}"
        return f"{label} ≥ {low}" if low is not None else f"{label} ≤ {high}"

    @property
    def text(self) -> str:
        """The filter as a link carries it."""
        if self.values:
            listed = ("on" if v is True else "off" if v is False else str(v).replace(" ", "_") for v in self.values)
            return f"{self.column.name}:{','.join(listed)}"
        whole = self.column.dtype == "int64"
        ends = (
            "" if end is None else repr(int(end)) if whole and abs(end) < 1e15 and end == int(end) else repr(end)
            for end in (self.low, self.high)
        )
        return f"{self.column.name}:{'..'.join(ends)}"


def conditions(filters: Sequence[Filter]) -> list[StoreCondition]:
    """Returns the conditions of several filters, which hold together."""
    return [condition for one in filters for condition in one.conditions]


def text(filters: Sequence[Filter]) -> str:
    """Filters as a link carries them; `parse` reads them again."""
    return ";".join(one.text for one in filters)


def derived_of(scenario: Scenario) -> dict[str, Metric]:
    """Return the unstored figures of a scenario that filters can use: derived from a stored one, or evaluated on
    request."""
    every = metrics(scenario) | unstored_metrics(scenario)
    return {name: metric for name, metric in every.items() if name not in FILTERABLE}


def asked_of(filters: Sequence[Filter], *chosen: Metric) -> list[str]:
    """Return the stored columns and statistics that filters and figures read."""
    return [*(one.stored for one in filters), *(metric.statistic for metric in chosen)]


def parse(
    link: str,
    derived: Mapping[str, Metric] = _NOTHING,
    networks: tuple[str, ...] = (),
    bounds: FitBounds | None = None,
) -> tuple[list[Filter], list[str]]:
    """Returns the filters of a link, and a sentence for every part that could not be read. Never raises.

    derived: figures beside the stored columns, see `derived_of`. networks: what the system's networks are called.
    bounds: of the fit into memory; None where there is no filter on it.
    """
    filters: dict[str, Filter] = {}
    problems = []
    for piece in [piece for piece in link.split(";") if piece][:_MOST]:
        name, _, wanted = piece.partition(":")
        metric = derived.get(name)
        column = FILTERABLE.get(name) if metric is None else metric.column
        if name == FIT.name and bounds is not None:
            column = FIT
        found = _read_filter(column, wanted) if column is not None else None
        if column is None:
            problems.append(f"There is no field or result {name[:40]!r} to filter by; the filter is left out.")
        elif found is None:
            problems.append(f"The filter {piece[:60]!r} cannot be read; {_accepted_words(column)}. It is left out.")
        else:
            filters[name] = replace(found, metric=metric, networks=networks, bounds=bounds if column is FIT else None)
    return list(filters.values()), problems


def _accepted_words(column: Column) -> str:
    if column.dtype == "bool":
        return f"{column.name} is on or off"
    if column is FIT:
        return f"{column.name} is one or more of {', '.join(word.replace(' ', '_') for word in column.choices)}"
    if column.dtype == "str":
        return f"{column.name} is one or more of {', '.join(_column_words(column))}"
    return f"filters on {column.name} look like {column.name}:1..2" + (" or :1,2" if column.dtype == "int64" else "")


def _column_words(column: Column) -> tuple[str, ...]:
    return column.choices or tuple(DATATYPES)


def _read_filter(column: Column, wanted: str) -> Filter | None:
    span = _RANGE.fullmatch(wanted)
    if column.dtype in ("int64", "float64") and span is not None:
        low, high = (_read_number(end) for end in span.groups())
        if (low is None and high is None) or (span.group(1) and low is None) or (span.group(2) and high is None):
            return None
        return Filter(column, low=low, high=high)
    parts = wanted.split(",")
    values: list[Any] = []
    for part in parts:
        if column.dtype == "bool" and part in _SWITCH:
            values.append(_SWITCH[part])
        elif column is FIT and part.replace("_", " ") in column.choices:
            values.append(part.replace("_", " "))
        elif column.dtype == "str" and part in _column_words(column):
            values.append(part)
        elif column.open is not None and (position := column.position(part)) >= 0:
            values.append(column.words[position])
        elif column.dtype == "int64" and re.fullmatch(r"\d{1,18}", part):
            values.append(int(part))
        else:
            return None
    return Filter(column, tuple(dict.fromkeys(values)))


def _safe_ratio(factor: float, value: float) -> float:
    return factor / value if value else math.inf


def _read_number(text_of_it: str) -> float | None:
    """Return a finite number, or None for other text."""
    try:
        value = float(text_of_it)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
