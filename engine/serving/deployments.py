"""Deployments as arrays, the input of passes, memory and figures; and checks of a table of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.executions.arrays import Floats
from engine.executions.field_values import column_names, convert, to_whole, to_word
from engine.serving.columns import FIELDS

__all__ = ["LAUNCHES", "WORDS", "DeploymentTableError", "Deployments", "deployments_of", "expert_layout", "frame_of"]

LAUNCHES = ("eager", "compiled", "graphs")
LARGEST = 2**40
"""Largest number that a field may have. Source: stated by us."""
WORDS: Mapping[str, tuple[str, ...]] = {column.name: column.choices for column in FIELDS if column.dtype == "str"}
"""Fields with words, and the words; arrays have their positions."""
DEFAULTS: Mapping[str, Any] = {
    "expert_par": 1,
    "replicas": 1,
    "weight_bits": 16,
    "kv_bits": 16,
    "attention_bits": "weight_bits",
    "compute_bits": "weight_bits",
    "launch": "graphs",
    "engine": "generic",
}
"""Fields that a table may leave out; a default may be another field."""


class DeploymentTableError(ValueError):
    """Table of deployments with a missing column or an invalid value; the message names it."""


@dataclass(frozen=True, slots=True)
class Deployments:
    """Columns [rows] of float64; `launch` and `engine` are positions in `WORDS`, -1 for an unknown word."""

    tensor_par: Floats
    pipeline_par: Floats
    expert_par: Floats
    replicas: Floats
    batch: Floats
    weight_bits: Floats
    kv_bits: Floats
    attention_bits: Floats
    compute_bits: Floats
    launch: Floats
    engine: Floats
    prompt: Floats
    output: Floats

    def __len__(self) -> int:
        return len(self.tensor_par)

    def take(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice) -> Deployments:
        """Returns the rows at `index`."""
        return Deployments(*(getattr(self, field.name)[index] for field in fields(self)))

    @property
    def slices(self) -> Floats:
        """Processors that share one expert."""
        return np.maximum(self.tensor_par / self.expert_par, 1.0)

    @property
    def reach(self) -> Floats:
        """Number of processors that exchange data: a replica, and the other replicas that share its experts."""
        return np.maximum(self.tensor_par, self.expert_par) * self.pipeline_par

    @property
    def expert_replicas(self) -> Floats:
        """Replicas whose tokens meet at the same experts."""
        return np.maximum(self.expert_par / self.tensor_par, 1.0)


def expert_layout(tensor_par: Any, expert_par: Any, replicas: Any) -> Any:
    """Returns whether the ranks can share the experts.

    An expert-parallel degree either divides the tensor-parallel group, whose other ranks then slice each expert, or is
    a multiple of it that divides the ranks of all replicas. Unlike in training there is no expert-tensor-parallel
    degree of its own: an expert gets all remaining ranks of the group. Source: documentation of TensorRT-LLM 0.21,
    Expert Parallelism, whose `moe_tp_size` x `moe_ep_size` is the tensor-parallel group; across replicas as in vLLM,
    whose experts are spread over tensor x data parallel ranks.

    Args:
        tensor_par, expert_par, replicas: degrees, at least 1; plain numbers, or arrays that broadcast.
    """
    inside = tensor_par % expert_par == 0
    across = (expert_par % tensor_par == 0) & (tensor_par * replicas % expert_par == 0)
    return inside | across


def frame_of(table: pd.DataFrame | Mapping[str, Any]) -> pd.DataFrame:
    """Returns a table of deployments as a data frame: columns of one length, a single value fills a column.

    Args:
        table: a data frame, or columns by name: lists of one length, or single values; others than fields are left out.

    Raises `DeploymentTableError` for anything else.
    """
    if isinstance(table, pd.DataFrame):
        names = column_names(table)
        twice = [column.name for column in FIELDS if names.count(column.name) > 1]
        if twice:
            raise DeploymentTableError(f"The table of deployments has more than one column {twice[0]}.")
        return table.reset_index(drop=True)
    if not isinstance(table, Mapping):
        raise DeploymentTableError(
            f"Deployments are a pandas DataFrame, or a mapping of columns, not {type(table).__name__}."
        )
    known = {column.name for column in FIELDS}
    given = {name: values for name, values in table.items() if name in known}
    lists = {name: _as_series(values) for name, values in given.items() if _is_list(values)}
    lengths = {name: len(values) for name, values in lists.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length:,}" for name, length in lengths.items())
        raise DeploymentTableError(f"The columns of the deployments have different numbers of rows: {told}.")
    rows = next(iter(lengths.values()), 1)
    columns = {name: lists[name] if name in lists else _repeat_value(value, rows) for name, value in given.items()}
    return pd.DataFrame(columns, index=range(rows if given else 0))


def _is_list(values: Any) -> bool:
    """Returns whether a value is a column rather than a single value."""
    if isinstance(values, np.ndarray):
        return values.ndim > 0
    return isinstance(values, list | tuple | range | pd.Series | pd.Index | pd.api.extensions.ExtensionArray)


def _as_series(values: Any) -> pd.Series[Any]:
    if isinstance(values, pd.Series):
        return values.reset_index(drop=True)
    if isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.ndim > 1):
        return _object_series(list(values))  # unconverted: pandas would make floats of whole numbers next to a gap
    return pd.Series(values)


def _repeat_value(value: Any, rows: int) -> pd.Series[Any]:
    return _object_series([value] * rows)


def _object_series(values: list[Any]) -> pd.Series[Any]:
    array = np.empty(len(values), object)
    for place, value in enumerate(values):
        array[place] = value
    return pd.Series(array)


def deployments_of(frame: pd.DataFrame) -> Deployments:
    """Returns the arrays of a table with one deployment per row.

    Required are tensor_par, pipeline_par, batch, prompt and output.

    Args:
        frame: columns by name of field [rows]; those left out have their default.

    Raises `DeploymentTableError` for a column that is missing, and for a value that a field cannot have.
    """
    columns = {}
    for column in FIELDS:
        if column.name in frame:
            columns[column.name] = _convert_column(column.name, frame[column.name])
        elif column.name in DEFAULTS:
            value = DEFAULTS[column.name]
            if value in columns:
                columns[column.name] = columns[value]
                continue
            number = WORDS[column.name].index(value) if column.name in WORDS else value
            columns[column.name] = np.full(len(frame), float(number))
        else:
            needed = ", ".join(each.name for each in FIELDS if each.name not in DEFAULTS)
            raise DeploymentTableError(f"The table of deployments has no column {column.name!r}; it needs {needed}.")
    return Deployments(**columns)


def _convert_column(name: str, values: pd.Series[Any]) -> Floats:
    words = WORDS.get(name)
    array, faults = convert(values, to_whole(LARGEST) if words is None else to_word(words), np.float64)
    if faults:
        row, value = min((int(fault.rows[0]), fault.values[0]) for fault in faults)
        accepted = f"a whole number up to {LARGEST:,}" if words is None else f"one of {', '.join(words)}"
        raise DeploymentTableError(
            f"Row {row + 1:,} of the deployments has {f'{name} {value}' if value else f'no {name}'}; it must be "
            f"{accepted}."
        )
    return array
