"""The order from simple to involved, by which the simplest of several executions that tie is chosen.

Many choices change nothing once something else hides their cost, so the best value is often reached by several
executions to the last bit. The simplest has the fewest offloads, then nothing that relies on overlap, then no
recomputation, no repeated gather, no sharding, the least interleaving, and the innermost networks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from engine.executions.codes import OFFLOADS

__all__ = ["CELL", "COLUMNS", "from_plain", "plainest_of"]

_ORDER: Final[Mapping[str, tuple[str, ...]]] = {
    "tensor_par_overlap": ("none", "pipe", "ring"),
    "data_par_overlap": (),
    "activation_recompute": ("none", "attn_only", "full"),
    "seq_par_ag_redo": (),
    "optimizer_sharding": (),
    "pipeline_interleaving": (),
    "tensor_par_net": (),
    "pipeline_par_net": (),
    "data_par_net": (),
}
"""Further fields, the most telling first -> their options from plain to involved; numbers and switches speak for
themselves."""
CELL: Final = ("tensor_par", "pipeline_par")
COLUMNS: Final = ("id", *CELL, *OFFLOADS, *_ORDER)


def plainest_of(executions: pd.DataFrame) -> int:
    """Return the id of the plainest of executions that tie, among those in the cell of the first.

    Args:
        executions: columns `id` and the fields, in order of id.
    """
    here = executions[(executions[list(CELL)] == executions[list(CELL)].iloc[0]).all(axis=1)]
    table = pa.table(
        {
            name: pa.array(here[name]).dictionary_encode() if _ORDER.get(name) else pa.array(here[name])
            for name in COLUMNS
        }
    )
    return int(here["id"].iloc[int(from_plain(table)[0])])


def from_plain(table: pa.Table, groups: Iterable[npt.NDArray[Any]] = ()) -> npt.NDArray[np.intp]:
    """Return the positions that sort executions from plain to involved, within groups if there are any.

    Args:
        table: columns `id` and the fields, one row per execution.
        groups: keys that sort before the fields, the first one first, each with one value per row.
    """
    ranks = [
        np.sum([table[name].to_numpy() for name in OFFLOADS], axis=0),
        *(_rank_values(table, name) for name in _ORDER),
    ]
    return np.lexsort((table["id"].to_numpy(), *reversed(ranks), *reversed(list(groups))))


def _rank_values(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """The values of a field as numbers that grow from plain to involved."""
    options = _ORDER[name]
    if not options:
        return np.asarray(table[name].to_numpy())
    words = table[name].combine_chunks()
    ranks = np.array([options.index(word) for word in words.dictionary.to_pylist()], dtype=np.int64)
    return np.asarray(ranks[words.indices.to_numpy()])
