"""Which execution stands for the best where several tie exactly: the plainest of them.

Many choices change nothing once something else hides their cost, so the highest throughput is often reached by several
executions to the last bit. Of those the one that asks for least machinery is shown: the fewest things offloaded, then
nothing that relies on overlap, then no recompute, no repeated gather, no sharding, the least interleaving. The engine
keeps its own rule, the first enumerated; both lie in the same cell of the map.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import streamlit as st

from dashboard.explore_data import Where
from engine import Exploration
from engine.exploration import first_row
from engine.store import Condition

__all__ = ["Tie", "best_of", "plainest", "tied"]

_OFFLOADS: Final = ("weight_offload", "activations_offload", "optimizer_offload")
_ORDER: Final[Mapping[str, tuple[str, ...]]] = {
    "tensor_par_overlap": ("none", "pipe", "ring"), "data_par_overlap": (),
    "activation_recompute": ("none", "attn_only", "full"), "seq_par_ag_redo": (), "optimizer_sharding": (),
    "pipeline_interleaving": (),
}  # fmt: skip
"""Further fields, the most telling first -> their options from plain to involved; numbers and switches speak for
themselves."""


class Tie(NamedTuple):
    """The execution that stands for several."""

    id: int
    number: int
    """Executions with exactly the same value, itself among them, in every cell."""


@st.cache_data(show_spinner=False, max_entries=1_024)
def plainest(_exploration: Exploration, key: str, execution: int, statistic: str, where: Where = ()) -> Tie:
    """The plainest execution of the same cell that ties exactly with one in a stored statistic.

    key: of the exploration. execution: id of one that runs. where: conditions that it meets and the others must.
    """
    rows = _exploration.rows
    cell = ("tensor_par", "pipeline_par")
    row = rows.fetch([execution], [*cell, statistic]).to_pylist()[0]
    equal = rows.table(["id", *cell, *_OFFLOADS, *_ORDER], where=(*where, Condition(statistic, "=", row[statistic])))
    here = equal.filter(pc.and_(*(pc.equal(equal[name], row[name]) for name in cell)))
    if here.num_rows < 2:
        return Tie(execution, max(1, equal.num_rows))
    ranks = [np.sum([here[name].to_numpy() for name in _OFFLOADS], axis=0), *(_rank(here, name) for name in _ORDER)]
    first = int(np.lexsort((here["id"].to_numpy(), *reversed(ranks)))[0])
    return Tie(int(here["id"][first].as_py()), equal.num_rows)


def _rank(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """The values of a field as numbers that grow from plain to involved."""
    options = _ORDER[name]
    if not options:
        return np.asarray(table[name].to_numpy())
    return np.array([options.index(word) for word in table[name].to_pylist()])


def best_of(exploration: Exploration) -> dict[str, Any] | None:
    """The plainest of the executions with the best throughput, with its fields and statistics; None without any."""
    found = exploration.reductions.best()
    if found is None:
        return None
    chosen = plainest(exploration, exploration.key, found[0], "sample_rate")
    return _row(exploration, exploration.key, chosen.id)


@st.cache_data(show_spinner=False, max_entries=512)
def _row(_exploration: Exploration, key: str, execution: int) -> dict[str, Any]:
    return first_row(_exploration.evaluate_ids([execution]))


def tied(exploration: Exploration, best: Mapping[str, Any], where: Where = ()) -> str:
    """What to add to the best throughput where several reach it exactly: " · 4 tie"; empty for one alone."""
    number = plainest(exploration, exploration.key, int(best["id"]), "sample_rate", where).number
    return f" · {number:,} tie" if number > 1 else ""
