"""Grids in the result store: every configuration once, found by its inputs, including infeasible ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from engine.reproductions.distir.simulator.configurations import DEGREES
from engine.reproductions.distir.simulator.cost_models import revision_of
from engine.reproductions.distir.simulator.evaluation import RESULTS
from engine.store import Store

__all__ = ["Records"]

VERSION: Final = 1
"""Raised whenever a formula changes, so that what older code evaluated is not found."""

SIZES: Final = ("layers", "width", "batch")
FIGURES: Final = ("latency", "throughput", "peak_memory")
SCHEMA: Final = pa.schema(
    [
        pa.field("revision", pa.string()),
        pa.field("constants", pa.string()),
        *(pa.field(name, pa.int64()) for name in (*SIZES, *DEGREES)),
        *(pa.field(name, pa.float64()) for name in FIGURES),
        *(pa.field(name, pa.string()) for name in RESULTS if name not in FIGURES),
    ]
)


class Records:
    """The configurations of a store that were evaluated before."""

    def __init__(self, store: Store) -> None:
        """store: is open as long as its records are used."""
        self._table = store.keyed("distir", SCHEMA)

    def __len__(self) -> int:
        return len(self._table)

    def find(self, table: pd.DataFrame, about: Mapping[str, Any]) -> pd.DataFrame:
        """Returns the rows of `table` that are known, with the columns of `grid`, under the index that they have there.

        Args:
            table: configurations with D, H, P, m.
            about: revision, sizes, bandwidth and constants that they have in common.
        """
        keys = _build_keys(table, about)
        found = self._table.find(keys).to_pandas().set_index("key")
        # The store keeps no NaN apart from an absent value.
        known = pd.Series(keys, index=table.index)
        known = known[known.isin(found.index)]
        figures = found.loc[known.to_numpy(), list(RESULTS)].set_index(known.index)
        return table.loc[known.index].assign(**{name: figures[name] for name in RESULTS})

    def add(self, table: pd.DataFrame, about: Mapping[str, Any]) -> None:
        """Store a grid: its rows and their common inputs. Arguments are as for `find`."""
        if not len(table):
            return
        columns: dict[str, Any] = {"key": _build_keys(table, about)}
        columns["revision"] = [about["revision"]] * len(table)
        columns["constants"] = [_dump_constants(about)] * len(table)
        for name in SIZES:
            columns[name] = np.full(len(table), about[name], np.int64)
        for name in (*DEGREES, *RESULTS):
            columns[name] = table[name].to_numpy()
        self._table.put(
            pa.table(
                {
                    name: pa.array(columns[name], field.type, from_pandas=True)
                    for name, field in zip(columns, pa.schema([pa.field("key", pa.string()), *SCHEMA]), strict=True)
                }
            )
        )


def _to_plain_value(value: Any) -> Any:
    """A constant as JSON writes it; mappings by sorted keys."""
    if isinstance(value, Mapping):
        return {str(key): _to_plain_value(each) for key, each in sorted(value.items(), key=lambda item: str(item[0]))}
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _dump_constants(about: Mapping[str, Any]) -> str:
    """Return the common inputs of the rows other than revision and sizes, as JSON."""
    rest = {name: _to_plain_value(value) for name, value in about.items() if name not in ("revision", *SIZES)}
    return json.dumps({name: rest[name] for name in sorted(rest) if rest[name] is not None}, default=float)


def _build_keys(table: pd.DataFrame, about: Mapping[str, Any]) -> list[str]:
    """Return the key of each row."""
    model = revision_of(about["revision"])
    common = json.dumps(
        [VERSION, model.name, model.commit, *(int(about[name]) for name in SIZES), _dump_constants(about)]
    )
    prefix = hashlib.sha256(common.encode()).hexdigest()[:32]
    degrees = zip(*(table[name].tolist() for name in DEGREES), strict=True)
    return [f"{prefix}-{'-'.join(str(degree) for degree in each)}" for each in degrees]
