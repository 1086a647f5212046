"""Deployments as arrays: what a pass, the memory and the figures read; and a table of them, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.calibrated.inputs import Floats
from engine.inference.columns import FIELDS
from models.documents import shown

__all__ = ["LAUNCHES", "DeploymentTableError", "Deployments", "deployments_of"]

LAUNCHES = ("eager", "compiled", "graphs")
LARGEST = 2**40
DEFAULTS: Mapping[str, Any] = {"expert_par": 1, "replicas": 1, "weight_bits": 16, "kv_bits": 16, "launch": "graphs"}
"""Fields that a table may leave out."""


class DeploymentTableError(ValueError):
    """A table of deployments lacks a column, or has something that is no number; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Deployments:
    """Columns [rows] of float64; `launch` is a position in `LAUNCHES`, -1 for a word that is none."""

    tensor_par: Floats
    pipeline_par: Floats
    expert_par: Floats
    replicas: Floats
    batch: Floats
    weight_bits: Floats
    kv_bits: Floats
    launch: Floats
    prompt: Floats
    output: Floats

    def __len__(self) -> int:
        return len(self.tensor_par)

    def take(self, index: npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice) -> Deployments:
        """The rows at `index`."""
        return Deployments(*(getattr(self, field.name)[index] for field in fields(self)))

    @property
    def slices(self) -> Floats:
        """Processors that share one expert."""
        return np.maximum(self.tensor_par / self.expert_par, 1.0)

    @property
    def reach(self) -> Floats:
        """Processors that exchange anything: those of a replica, and of the others that share its experts."""
        return np.maximum(self.tensor_par, self.expert_par) * self.pipeline_par

    @property
    def expert_replicas(self) -> Floats:
        """Replicas whose tokens meet at the same experts."""
        return np.maximum(self.expert_par / self.tensor_par, 1.0)


def deployments_of(table: pd.DataFrame | Mapping[str, Any]) -> Deployments:
    """The arrays of a table with one deployment per row.

    Required are tensor_par, pipeline_par, batch, prompt and output. Raises `DeploymentTableError`.
    """
    frame = table if isinstance(table, pd.DataFrame) else pd.DataFrame(dict(table))
    columns = {}
    for column in FIELDS:
        if column.name in frame:
            columns[column.name] = _column(column.name, frame[column.name])
        elif column.name in DEFAULTS:
            value = DEFAULTS[column.name]
            number = LAUNCHES.index(value) if column.name == "launch" else value
            columns[column.name] = np.full(len(frame), float(number))
        else:
            needed = ", ".join(each.name for each in FIELDS if each.name not in DEFAULTS)
            raise DeploymentTableError(f"The table of deployments has no column {column.name!r}; it needs {needed}.")
    return Deployments(**columns)


def _column(name: str, values: pd.Series[Any]) -> Floats:
    if name == "launch":
        words = values.astype(str).to_numpy()
        return np.select([words == word for word in LAUNCHES], list(range(len(LAUNCHES))), -1).astype(np.float64)
    numbers = pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan)
    wrong = ~(np.isfinite(numbers) & (numbers == np.floor(numbers)) & (np.abs(numbers) <= LARGEST))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        value = values.iloc[row]
        told = shown(value.item() if hasattr(value, "item") else value)
        raise DeploymentTableError(
            f"Row {row + 1:,} of the deployments has {name} {told}; it must be a whole number up to "
            f"{LARGEST:,}."
        )
    return numbers
