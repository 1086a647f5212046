"""Which execution stands for the best where several tie exactly: the plainest of them.

Many choices change nothing once something else hides their cost, so the highest throughput is often reached by several
executions to the last bit. Of those the one that asks for least machinery is shown: the fewest things offloaded, then
nothing that relies on overlap, then no recompute, no repeated gather, no sharding, the least interleaving, and the
innermost networks. The engine keeps its own rule, the first enumerated; both lie in the same cell of the map.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from dashboard.evaluated import evaluated
from dashboard.explore_data import Where, in_cell
from engine import Exploration
from engine.store import Condition

__all__ = ["Tie", "best_of", "plainest", "plainest_of", "plainest_of_cells", "ties_of_best"]

_OFFLOADS: Final = ("weight_offload", "activations_offload", "optimizer_offload")
_ORDER: Final[Mapping[str, tuple[str, ...]]] = {
    "tensor_par_overlap": ("none", "pipe", "ring"), "data_par_overlap": (),
    "activation_recompute": ("none", "attn_only", "full"), "seq_par_ag_redo": (), "optimizer_sharding": (),
    "pipeline_interleaving": (), "tensor_par_net": (), "pipeline_par_net": (), "data_par_net": (),
}  # fmt: skip
"""Further fields, the most telling first -> their options from plain to involved; numbers and switches speak for
themselves."""
_MOST: Final = 50_000
"""Executions among which those that stand for all cells are looked for at once. Where a time is zero for half of a
space that would take seconds; then the cells are looked at one by one."""
_CELL: Final = ("tensor_par", "pipeline_par")
_COLUMNS: Final = ("id", *_CELL, *_OFFLOADS, *_ORDER)


class Tie(NamedTuple):
    """The execution that stands for several."""

    id: int
    number: int
    """Executions with exactly the same value, itself among them, in every cell."""


def plainest(exploration: Exploration, key: str, execution: int, statistic: str, where: Where = ()) -> Tie:
    """The plainest execution of the same cell that ties exactly with one in a stored statistic.

    key: of the exploration. execution: id of one that runs. where: conditions that it meets and the others must.
    """
    if statistic in exploration.reductions.metrics:
        known = _of_cells(exploration, key, statistic).get(execution)
        if known is not None and where in ((), in_cell(known.cell)):
            return Tie(known.id, known.here if where else known.everywhere)
    return _searched(exploration, key, execution, statistic, where)


def plainest_of_cells(exploration: Exploration, key: str, statistic: str) -> list[int]:
    """The executions that `plainest` answers for the best of the cells, as far as they are looked for at once."""
    if statistic not in exploration.reductions.metrics:
        return []
    return [known.id for known in _of_cells(exploration, key, statistic).values()]


class _Known(NamedTuple):
    """What stands for the best of a cell."""

    id: int
    cell: tuple[int, int]
    here: int
    """Executions of the cell that tie."""
    everywhere: int
    """Executions that tie."""


@st.cache_data(show_spinner=False, max_entries=128)
def _of_cells(_exploration: Exploration, key: str, statistic: str) -> dict[int, _Known]:
    """What stands for the best executions of the cells, by their ids: those that are asked for at every click."""
    bests = _exploration.by_cell(statistic).dropna(subset="value")
    if not len(bests):
        return {}
    where = Condition(statistic, "in", sorted(set(bests["value"].tolist())))
    if not 0 < _exploration.rows.count([where]) <= _MOST:
        return {}
    equal = _exploration.rows.table([*_COLUMNS, statistic], where=[where])
    groups = np.stack([equal[name].to_numpy() for name in (*_CELL, statistic)])
    order = _from_plain(equal, groups)
    groups = groups[:, order]
    starts = np.flatnonzero(np.append(True, (groups[:, 1:] != groups[:, :-1]).any(axis=0)))
    numbers = np.diff(np.append(starts, len(order)))
    ids = equal["id"].to_numpy()[order[starts]]
    first = {tuple(group): (int(one), int(number))
             for group, one, number in zip(groups[:, starts].T.tolist(), ids, numbers, strict=True)}  # fmt: skip
    every = dict(zip(*(part.tolist() for part in np.unique(groups[-1], return_counts=True)), strict=True))
    found = {}
    for row in bests.to_dict("records"):
        cell = int(row["tensor_par"]), int(row["pipeline_par"])
        if (*cell, row["value"]) in first:
            one, number = first[(*cell, row["value"])]
            found[int(row["id"])] = _Known(one, cell, number, every[row["value"]])
    return found


@st.cache_data(show_spinner=False, max_entries=1_024)
def _searched(_exploration: Exploration, key: str, execution: int, statistic: str, where: Where) -> Tie:
    """See `plainest`."""
    rows = _exploration.rows
    row = rows.fetch([execution], [*_CELL, statistic]).to_pylist()[0]
    equal = rows.table(_COLUMNS, where=(*where, Condition(statistic, "=", row[statistic])))
    here = equal.filter(pc.and_(*(pc.equal(equal[name], row[name]) for name in _CELL)))
    if here.num_rows < 2:
        return Tie(execution, max(1, equal.num_rows))
    return Tie(int(here["id"][int(_from_plain(here)[0])].as_py()), equal.num_rows)


def _from_plain(table: pa.Table, groups: Iterable[npt.NDArray[Any]] = ()) -> npt.NDArray[np.intp]:
    """Positions that sort executions from plain to involved, within groups if there are any."""
    ranks = [np.sum([table[name].to_numpy() for name in _OFFLOADS], axis=0), *(_rank(table, name) for name in _ORDER)]
    return np.lexsort((table["id"].to_numpy(), *reversed(ranks), *reversed(list(groups))))


def _rank(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """The values of a field as numbers that grow from plain to involved."""
    options = _ORDER[name]
    if not options:
        return np.asarray(table[name].to_numpy())
    words = table[name].combine_chunks()
    ranks = np.array([options.index(word) for word in words.dictionary.to_pylist()], dtype=np.int64)
    return np.asarray(ranks[words.indices.to_numpy()])


def plainest_of(executions: pd.DataFrame) -> int:
    """The id of the plainest of executions that tie, among those in the cell of the first; see `engine.whatif.Choice`.

    executions: columns `id` and the fields, in order of id.
    """
    here = executions[(executions[list(_CELL)] == executions[list(_CELL)].iloc[0]).all(axis=1)]
    table = pa.table({
        name: pa.array(here[name]).dictionary_encode() if _ORDER.get(name) else pa.array(here[name])
        for name in _COLUMNS
    })  # fmt: skip
    return int(here["id"].iloc[int(_from_plain(table)[0])])


def best_of(exploration: Exploration) -> dict[str, Any] | None:
    """The plainest of the executions with the best throughput, with its fields and statistics; None without any."""
    found = exploration.reductions.best()
    if found is None:
        return None
    chosen = plainest(exploration, exploration.key, found[0], "sample_rate")
    return evaluated(exploration, exploration.key, chosen.id)


def ties_of_best(exploration: Exploration) -> int:
    """How many executions have exactly the best throughput; 0 where nothing runs."""
    found = exploration.reductions.best()
    return 0 if found is None else plainest(exploration, exploration.key, found[0], "sample_rate").number
