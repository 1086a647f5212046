"""Panels of all cells, read in one go for users who look at one cell after another.

Reading one cell's rows reads all rows, so that all cells take little longer than one. Users who have clicked a
cell click another: the panels are then read in the background, and cached for all sessions on the exploration.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dashboard.queries import executions as evaluated
from dashboard.queries import explorations
from dashboard.queries.tie_breaking import plainest_of_cells
from engine import Exploration
from engine.columns import by_name
from engine.store import StoreError

__all__ = ["execution", "read", "spread", "top"]

MOST: Final = 3_000_000
"""Feasible executions above which cells are read one by one: reading all takes proportionally longer."""
KEPT: Final = 8
"""Most cached explorations, or metrics of them, the latest read; a megabyte or two each."""
_COLUMNS: Final = ("id", "tensor_par", "pipeline_par", "total_time")

Cell = tuple[int, int]
Key = tuple[str, str, tuple[str, ...]]
"""Key of an exploration, ranking statistic, columns."""


class _Panels(NamedTuple):
    spreads: Mapping[Cell, explorations.Spread]
    tops: Mapping[Cell, pa.Table]
    executions: Mapping[int, Mapping[str, Any]]
    """The best executions of the cells by their ids."""


_kept: OrderedDict[Key, Future[_Panels]] = OrderedDict()
_lock = threading.Lock()
_reader = ThreadPoolExecutor(1, "explore-ahead")


def read(exploration: Exploration, rank: str, names: tuple[str, ...]) -> Future[_Panels] | None:
    """Begins to read the answers of `spread`, `top` and `execution` for every cell. See `top`."""
    if not 0 < exploration.feasible <= MOST:
        return None
    key = exploration.key, rank, names
    with _lock:
        known = _kept.get(key)
        if known is None or (known.done() and known.exception() is not None):
            _kept[key] = _reader.submit(_read_or_log, exploration, rank, names)
        _kept.move_to_end(key)
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
        return _kept[key]


def spread(exploration: Exploration, group: explorations.Group) -> explorations.Spread:
    """Returns the same as `explore_data.spread_of`."""
    cell = _cell_of(group)
    for found in _finished_panels(exploration):
        if cell in found.spreads:
            return found.spreads[cell]
    return explorations.spread_of(exploration, exploration.key, group.where)


def top(exploration: Exploration, group: explorations.Group, rank: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Returns the same as `explore_data.top_of`. rank: a statistic, names: columns, the same as for `read`."""
    cell = _cell_of(group)
    for found in _finished_panels(exploration, (rank, names)):
        if cell in found.tops:
            return found.tops[cell].to_pylist()  # type: ignore[no-any-return]
    return explorations.top_of(exploration, exploration.key, group.where, rank, names)


def execution(exploration: Exploration, number: int) -> Mapping[str, Any]:
    """Returns one execution with all its statistics."""
    for found in _finished_panels(exploration):
        if number in found.executions:
            return found.executions[number]
    return evaluated.evaluated(exploration, exploration.key, number)


def _cell_of(group: explorations.Group) -> Cell:
    """Return the cell of a group without further conditions; (0, 0), which no map has, for other groups."""
    return group.cell if group.cell is not None and group.where == explorations.in_cell(group.cell) else (0, 0)


def _finished_panels(exploration: Exploration, of: tuple[str, tuple[str, ...]] | None = None) -> list[_Panels]:
    """Return the finished reads of an exploration. of: statistic and columns; None: any."""
    with _lock:
        mine = [each for key, each in _kept.items() if key[0] == exploration.key and of in (None, key[1:])]
    return [each.result() for each in mine if each.done() and each.exception() is None]


def _read_or_log(exploration: Exploration, rank: str, names: tuple[str, ...]) -> _Panels:
    try:
        return _read_panels(exploration, rank, names)
    except StoreError:  # deleted meanwhile: the page says so at its next run
        raise
    except Exception:
        logging.getLogger(__name__).exception("Panels of %s were not read ahead.", exploration.key)
        raise


def _read_panels(exploration: Exploration, rank: str, names: tuple[str, ...]) -> _Panels:
    wanted = explorations.columns_of(exploration, names)
    table = exploration.rows.table(list(dict.fromkeys((*_COLUMNS, rank))))
    ids, tensor, pipeline, times, values = (table[name].to_numpy() for name in (*_COLUMNS, rank))
    values = np.asarray(values, np.float64) * (1.0 if by_name(rank).better == "lower" else -1.0)
    values[np.isnan(values)] = np.inf
    pairs = tensor.astype(np.int64) * (int(pipeline.max(initial=0)) + 1) + pipeline
    every, numbers = np.unique(pairs, return_inverse=True)
    order = np.argsort(numbers.astype(np.min_scalar_type(len(every))), kind="stable")  # by radix, as numbers are small
    spreads, best = {}, {}
    for part in np.split(order, np.cumsum(np.bincount(numbers, minlength=len(every)))[:-1]):
        cell = int(tensor[part[0]]), int(pipeline[part[0]])
        spreads[cell] = explorations.spread_over(times[part])
        best[cell] = ids[part][_lowest_positions(values[part], ids[part])]
    shown = exploration.rows.fetch(np.concatenate(list(best.values())), wanted)
    ends = np.cumsum([len(each) for each in best.values()])
    tops = {cell: shown.slice(end - len(each), len(each)) for (cell, each), end in zip(best.items(), ends, strict=True)}
    of_cells = plainest_of_cells(exploration, exploration.key, rank)
    return _Panels(spreads, tops, evaluated.several(exploration, of_cells))


def _lowest_positions(values: npt.NDArray[np.float64], ids: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Return positions of the lowest values, as many as a table shows, in order; the lowest id first among equals."""
    near = np.arange(len(values))
    if len(values) > explorations.TABLE_ROWS:
        near = np.flatnonzero(values <= np.partition(values, explorations.TABLE_ROWS - 1)[explorations.TABLE_ROWS - 1])
    return near[np.lexsort((ids[near], values[near]))[: explorations.TABLE_ROWS]]
