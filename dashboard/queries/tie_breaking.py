"""Choice among exact ties for the best execution: the plainest of them.

Many choices change nothing once something else hides their cost, so the highest throughput is often reached by several
executions to the last bit. Among them the one with the least machinery is shown: the fewest offloads, then nothing that
relies on overlap, then no recompute, no repeated gather, no sharding, the least interleaving, and the innermost
networks. The engine keeps its own rule, the first enumerated; both lie in the same cell of the map.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow.compute as pc

from dashboard.compat.caches import remembered
from dashboard.queries.executions import evaluated
from dashboard.queries.explorations import Where, in_cell
from engine import Exploration
from engine.executions.tie_order import CELL, COLUMNS, from_plain
from engine.store import StoreCondition

__all__ = ["Tie", "best_of", "plainest", "plainest_of_cells", "ties_of_best"]

_MOST: Final = 50_000
"""Most tied executions that are searched at once for all cells. If a time is zero for half of a space, that would take
seconds; then the cells are searched one by one."""


class Tie(NamedTuple):
    """Execution that represents several tied ones."""

    id: int
    number: int
    """Executions with exactly the same value, itself among them, in every cell."""


def plainest(exploration: Exploration, key: str, execution: int, statistic: str, where: Where = ()) -> Tie:
    """Returns the plainest execution of the same cell that ties exactly with one in a stored statistic.

    key: of the exploration. execution: id of one that runs. where: conditions that it meets and the others must.
    """
    if statistic in exploration.reductions.metrics:
        known = _of_cells(exploration, key, statistic).get(execution)
        if known is not None and where in ((), in_cell(known.cell)):
            return Tie(known.id, known.here if where else known.everywhere)
    return _search_tie(exploration, key, execution, statistic, where)


def plainest_of_cells(exploration: Exploration, key: str, statistic: str) -> list[int]:
    """Returns the executions that `plainest` answers for the best of the cells, as far as they are looked for at
    once."""
    if statistic not in exploration.reductions.metrics:
        return []
    return [known.id for known in _of_cells(exploration, key, statistic).values()]


class _Known(NamedTuple):
    """The plainest best execution of a cell."""

    id: int
    cell: tuple[int, int]
    here: int
    """Executions of the cell that tie."""
    everywhere: int
    """Executions that tie."""


@remembered(entries=128)
def _of_cells(_exploration: Exploration, key: str, statistic: str) -> dict[int, _Known]:
    """Return the plainest best execution of each cell, by the id of the first one: every click asks for them."""
    bests = _exploration.by_cell(statistic).dropna(subset="value")
    if not len(bests):
        return {}
    where = StoreCondition(statistic, "in", sorted(set(bests["value"].tolist())))
    if not 0 < _exploration.rows.count([where]) <= _MOST:
        return {}
    equal = _exploration.rows.table([*COLUMNS, statistic], where=[where])
    groups = np.stack([equal[name].to_numpy() for name in (*CELL, statistic)])
    order = from_plain(equal, groups)
    groups = groups[:, order]
    starts = np.flatnonzero(np.append(True, (groups[:, 1:] != groups[:, :-1]).any(axis=0)))
    numbers = np.diff(np.append(starts, len(order)))
    ids = equal["id"].to_numpy()[order[starts]]
    first = {
        tuple(group): (int(one), int(number))
        for group, one, number in zip(groups[:, starts].T.tolist(), ids, numbers, strict=True)
    }
    every = dict(zip(*(part.tolist() for part in np.unique(groups[-1], return_counts=True)), strict=True))
    found = {}
    for row in bests.to_dict("records"):
        cell = int(row["tensor_par"]), int(row["pipeline_par"])
        if (*cell, row["value"]) in first:
            one, number = first[(*cell, row["value"])]
            found[int(row["id"])] = _Known(one, cell, number, every[row["value"]])
    return found


@remembered(entries=1_024)
def _search_tie(_exploration: Exploration, key: str, execution: int, statistic: str, where: Where) -> Tie:
    """See `plainest`."""
    rows = _exploration.rows
    row = rows.fetch([execution], [*CELL, statistic]).to_pylist()[0]
    equal = rows.table(COLUMNS, where=(*where, StoreCondition(statistic, "=", row[statistic])))
    here = equal.filter(pc.and_(*(pc.equal(equal[name], row[name]) for name in CELL)))
    if here.num_rows < 2:
        return Tie(execution, max(1, equal.num_rows))
    return Tie(int(here["id"][int(from_plain(here)[0])].as_py()), equal.num_rows)


def best_of(exploration: Exploration) -> dict[str, Any] | None:
    """Returns the plainest of the executions with the best throughput, with its fields and statistics; None without
    any."""
    found = exploration.reductions.best()
    if found is None:
        return None
    chosen = plainest(exploration, exploration.key, found[0], "sample_rate")
    return evaluated(exploration, exploration.key, chosen.id)


def ties_of_best(exploration: Exploration) -> int:
    """Returns how many executions have exactly the best throughput; 0 where nothing runs."""
    found = exploration.reductions.best()
    return 0 if found is None else plainest(exploration, exploration.key, found[0], "sample_rate").number
