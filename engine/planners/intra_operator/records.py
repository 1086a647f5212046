"""Strategy vectors in the result store: every vector of a plan once, with its origin, for queries in SQL.

The table is `keyed_intra_operator` of the store's DuckDB file, one row per vector: sort and filter it with any client.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

import pandas as pd
import pyarrow as pa

from engine.planners.intra_operator.search import IntraOperatorPlan
from engine.store import Store

__all__ = ["VectorRecords"]

VERSION: Final = 2
"""Increased whenever a formula changes, so that results of older code are not reused."""
FIGURES: Final = (
    "seconds",
    "compute_seconds",
    "communication_seconds",
    "all_reduce",
    "all_gather",
    "all_to_all",
    "reduce_scatter",
    "volume",
    "memory",
)
SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("plan", "model", "mesh", "counted")),
        *(pa.field(name, pa.int64()) for name in ("batch", "layers", "devices")),
        *(pa.field(name, pa.string()) for name in ("vector", "solution", "reason")),
        *(pa.field(name, pa.float64()) for name in FIGURES),
    ]
)


class VectorRecords:
    """The vectors of plans that a store keeps."""

    def __init__(self, store: Store) -> None:
        """store: is open as long as its records are used."""
        self._table = store.keyed("intra_operator", SCHEMA)

    def __len__(self) -> int:
        return len(self._table)

    def add(self, plan: IntraOperatorPlan) -> int:
        """Keeps all vectors of a plan; returns how many of them are new.

        Args:
            plan: what `search` returned.

        Raises:
            engine.store.StoreError: the store cannot be written.
        """
        before, vectors = len(self._table), plan.vectors
        name = plan_key(plan)
        words = [_vector_text(each) for each in vectors["vector"]]
        same: dict[str, Any] = {
            "plan": name,
            "model": plan.model,
            "mesh": json.dumps(plan.mesh.document(), default=str),
            "counted": json.dumps(asdict(plan.widths)),
            "batch": plan.batch,
            "layers": len(plan.layers),
            "devices": plan.mesh.devices,
        }
        columns: dict[str, Any] = {"key": [f"{name}-{each}" for each in words]}
        columns |= {each: [value] * len(vectors) for each, value in same.items()}
        columns |= {"vector": words, "solution": list(vectors["solution"]), "reason": list(vectors["reason"])}
        columns |= {each: vectors[each] if each in vectors else [0.0] * len(vectors) for each in FIGURES}
        schema = pa.schema([pa.field("key", pa.string()), *SCHEMA])
        self._table.put(pa.table({field.name: pa.array(columns[field.name], field.type) for field in schema}))
        return len(self._table) - before

    def find(self, plan: IntraOperatorPlan) -> pd.DataFrame:
        """Returns the vectors of a plan that are kept, in the plan's order, with the columns of `SCHEMA`.

        Args:
            plan: what `search` returned.
        """
        keys = [f"{plan_key(plan)}-{_vector_text(each)}" for each in plan.vectors["vector"]]
        found = self._table.find(keys).to_pandas().set_index("key")
        kept: pd.DataFrame = found.loc[[each for each in keys if each in found.index]].reset_index(drop=True)
        return kept


def plan_key(plan: IntraOperatorPlan) -> str:
    """Returns the key of a plan's vectors; plans of one question under different limits have the same.

    Args:
        plan: what `search` returned.
    """
    runs = groupby((each.name, tuple(sorted(each.sizes.items()))) for each in plan.layers)
    document = [
        VERSION,
        plan.model,
        plan.mesh.document(),
        asdict(plan.widths),
        [(kind, len(list(several))) for kind, several in runs],
    ]
    return hashlib.sha256(json.dumps(document, default=str).encode()).hexdigest()[:32]


def _vector_text(vector: Sequence[Any]) -> str:
    """Return the strategies of the blocks as text; on two axes both, as 10."""
    return ",".join("".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in vector)
