"""What the panels of all cells show, read in one go for those who look at one cell after another.

A question about one cell reads the rows of all of them, so that asking about every cell takes little longer than asking
about one. Who has clicked a cell clicks another: what the panels show is then read once the first is drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import streamlit as st

from dashboard import evaluated
from dashboard import explore_data as data
from dashboard.plainest import plainest_of_cells
from engine import Exploration
from engine.columns import by_name

__all__ = ["execution", "read", "spread", "top"]

MOST: Final = 3_000_000
"""Executions that run, above which cells are asked about one by one: reading all takes as many times longer."""
_READ: Final = "_explore_ahead"
_COLUMNS: Final = ("id", "tensor_par", "pipeline_par", "total_time")

Cell = tuple[int, int]


class _Panels(NamedTuple):
    spreads: Mapping[Cell, data.Spread]
    tops: Mapping[Cell, pa.Table]
    executions: Mapping[int, Mapping[str, Any]]
    """The best executions of the cells by their ids."""


def read(exploration: Exploration, rank: str, names: tuple[str, ...]) -> None:
    """Reads what `spread`, `top` and `execution` of every cell answer from now on for this visitor. See `top`."""
    if 0 < exploration.feasible <= MOST:
        st.session_state[_READ] = (exploration.key, rank, names)
        _panels(exploration, exploration.key, rank, names)


def spread(exploration: Exploration, group: data.Group) -> data.Spread:
    """See `explore_data.spread_of`."""
    found, cell = _found(exploration), _cell_of(group)
    if found is None or cell not in found.spreads:
        return data.spread_of(exploration, exploration.key, group.where)
    return found.spreads[cell]


def top(exploration: Exploration, group: data.Group, rank: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """See `explore_data.top_of`. rank: a statistic, names: columns, the same as for `read`."""
    same = st.session_state.get(_READ) == (exploration.key, rank, names)
    found, cell = _found(exploration) if same else None, _cell_of(group)
    if found is None or cell not in found.tops:
        return data.top_of(exploration, exploration.key, group.where, rank, names)
    return found.tops[cell].to_pylist()  # type: ignore[no-any-return]


def execution(exploration: Exploration, number: int) -> Mapping[str, Any]:
    """One execution with all its statistics."""
    found = _found(exploration)
    if found is None or number not in found.executions:
        return evaluated.evaluated(exploration, exploration.key, number)
    return found.executions[number]


def _cell_of(group: data.Group) -> Cell:
    """The cell that a group is, without further conditions; none of any map where it is not one."""
    return group.cell if group.cell is not None and group.where == data.in_cell(group.cell) else (0, 0)


def _found(exploration: Exploration) -> _Panels | None:
    """What was read, None where nothing was."""
    key, rank, names = st.session_state.get(_READ, ("", "", ()))
    return _panels(exploration, key, rank, names) if key == exploration.key else None


@st.cache_resource(show_spinner=False, max_entries=16)
def _panels(_exploration: Exploration, key: str, rank: str, names: tuple[str, ...]) -> _Panels:
    wanted = data.columns_of(_exploration, names)
    table = _exploration.rows.table(list(dict.fromkeys((*_COLUMNS, rank))))
    ids, tensor, pipeline, times, values = (table[name].to_numpy() for name in (*_COLUMNS, rank))
    values = np.asarray(values, np.float64) * (1.0 if by_name(rank).better == "lower" else -1.0)
    values[np.isnan(values)] = np.inf
    pairs = tensor.astype(np.int64) * (int(pipeline.max(initial=0)) + 1) + pipeline
    every, numbers = np.unique(pairs, return_inverse=True)
    order = np.argsort(numbers.astype(np.min_scalar_type(len(every))), kind="stable")  # by radix, as numbers are small
    spreads, best = {}, {}
    for part in np.split(order, np.cumsum(np.bincount(numbers, minlength=len(every)))[:-1]):
        cell = int(tensor[part[0]]), int(pipeline[part[0]])
        spreads[cell] = data.spread_over(times[part])
        best[cell] = ids[part][_first(values[part], ids[part])]
    shown = _exploration.rows.fetch(np.concatenate(list(best.values())), wanted)
    ends = np.cumsum([len(each) for each in best.values()])
    tops = {cell: shown.slice(end - len(each), len(each)) for (cell, each), end in zip(best.items(), ends, strict=True)}
    of_cells = plainest_of_cells(_exploration, key, rank)
    return _Panels(spreads, tops, evaluated.several(_exploration, of_cells))


def _first(values: npt.NDArray[np.float64], ids: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Positions of the lowest values, as many as a table shows, in order; of equal ones that of the lowest id first."""
    near = np.arange(len(values))
    if len(values) > data.TABLE_ROWS:
        near = np.flatnonzero(values <= np.partition(values, data.TABLE_ROWS - 1)[data.TABLE_ROWS - 1])
    return near[np.lexsort((ids[near], values[near]))[: data.TABLE_ROWS]]
