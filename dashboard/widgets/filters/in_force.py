"""Active filters and changes to them: the filters of the link, and on some pages the selected cell too.

They are the same on every page, under one parameter of the link, so that they carry over from page to page.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dashboard.link import state
from dashboard.link.shared import parse_shared
from dashboard.queries.filters import FILTERABLE, PATTERN, Filter, derived_of, parse, text
from engine.recommendation import fit_bounds_of
from hardware import network_names

__all__ = ["OF_LINK", "PAGE", "WITH_CELL", "InForce", "ignore_cell", "parse_cell_filter"]

_NAME: Final = "results_where"
"""Parameter of the link that holds the filters."""
PAGE: Final = "results_page"
"""Parameter of the link that holds the page of a table, which begins again with other filters."""
_IGNORED: Final = "results_cell"
"""Parameter of the link that names a selected cell which does not filter a table."""
_CELL: Final = re.compile(r"(\d{1,9}x\d{1,9})?")
_DEGREES: Final = ("tensor_par", "pipeline_par")


def _parse_filters() -> list[Filter]:
    """Return the filters of the link; unreadable ones are reported above the page."""
    scenario = state.current_scenario()
    filters, problems = parse(
        state.url_value(_NAME, "", PATTERN),
        derived_of(scenario),
        network_names(scenario.system),
        fit_bounds_of(scenario),
    )
    if problems:
        state.complain(_NAME, " ".join(problems))
    return filters


def parse_cell_filter() -> tuple[int, int] | None:
    """Return the selected cell if it filters the table: it does until its filter is removed there."""
    cell = state.selected_cell()
    return None if cell is None or _cell_text(cell) == state.url_value(_IGNORED, "", _CELL) else cell


def ignore_cell() -> None:
    """Keeps the selected cell from filtering a table; another one will again."""
    cell = parse_shared().cell
    state.set_url_value(_IGNORED, None if cell is None else _cell_text(cell))


def _cell_text(cell: tuple[int, int]) -> str:
    return f"{cell[0]}x{cell[1]}"


def _cell_filters() -> list[Filter]:
    """The selected cell as filters; empty if it does not filter."""
    cell = parse_cell_filter()
    return (
        []
        if cell is None
        else [Filter(FILTERABLE[name], (degree,)) for name, degree in zip(_DEGREES, cell, strict=True)]
    )


@dataclass(frozen=True, slots=True)
class InForce:
    """Active filters of a page. Its methods other than `parse` are for callbacks."""

    with_cell: bool = False
    """True if the selected cell is a filter too."""

    def parse(self) -> list[Filter]:
        """Return the active filters; one of the link goes before that of the cell on the same field."""
        filters = _parse_filters()
        named = {one.column.name for one in filters}
        return [*filters, *(one for one in _cell_filters() if self.with_cell and one.column.name not in named)]

    def put(self, filters: Sequence[Filter]) -> None:
        """Set the active filters. A cell that still filters by both of its degrees stays the selected cell's
        doing and does not go into the link."""
        own = _cell_filters() if self.with_cell else []
        kept = bool(own) and all(one in filters for one in own)
        with state.one_step():
            if own and not kept:
                ignore_cell()
            told = [one for one in filters if not (kept and one in own)]
            state.set_url_values({_NAME: text(told) or None, PAGE: None})

    def put_one(self, name: str, new: Filter | None) -> None:
        """Puts a filter in the place of the one on the same column; None removes it."""
        now = self.parse()
        there = any(one.column.name == name for one in now)
        added = [] if new is None else [new]
        self.put(
            [each for one in now for each in (added if one.column.name == name else [one])] + ([] if there else added)
        )

    def add(self, new: Sequence[Filter]) -> None:
        """Adds filters to the active ones, in the place of any on the same columns; the selected cell is not among
        them."""
        names = {one.column.name for one in new}
        with state.one_step():
            self.put([*(one for one in self.parse() if one.column.name not in names), *new])
            ignore_cell()

    def drop(self, name: str) -> None:
        """Removes the filter on a column."""
        self.put_one(name, None)

    def clear(self) -> None:
        """Removes every filter."""
        self.put([])


OF_LINK: Final = InForce()
WITH_CELL: Final = InForce(with_cell=True)
