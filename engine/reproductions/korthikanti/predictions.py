"""Predictions of Calculon's cost model for the published runs of Korthikanti et al."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import pandas as pd

import engine
from hardware import GIB

__all__ = ["evaluated_runs", "load_executions", "load_published", "predicted_values"]

FOLDER: Final = Path(__file__).parent / "data"
UNLIMITED: Final = "a100_80e"
"""A100 with in effect unlimited memory: the runs without recomputation are projections."""
REAL: Final = "a100_80g"
"""A100 of the timed runs."""


@cache
def load_executions() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the executions by (model, mode)."""
    found = json.loads((FOLDER / "executions.json").read_text(encoding="utf-8"))
    return {(entry["model"], entry["mode"]): entry["execution"] for entry in found}


@cache
def load_published() -> pd.DataFrame:
    """Return published and Calculon's printed values, one per row; `data/README.md` describes the columns."""
    return pd.read_csv(FOLDER / "published.csv")


@cache
def evaluated_runs(system: str) -> pd.DataFrame:
    """Return the statistics of the executions that run on a system, indexed by (model, mode)."""
    executions, frames = load_executions(), []
    for model in sorted({model for model, _ in executions}):
        modes = [mode for named, mode in executions if named == model]
        rows = pd.DataFrame([executions[model, mode] for mode in modes])
        found = engine.evaluate(model, system, rows).assign(model=model, mode=modes)
        frames.append(found[found["status"] == "ok"])
    return pd.concat(frames).set_index(["model", "mode"])


def predicted_values() -> pd.DataFrame:
    """Return the published table with a column `predicted`, in the table's own units."""
    table = load_published()
    return table.assign(predicted=[_predict_value(row) for row in table.to_dict("records")])


def _predict_value(row: dict[Any, Any]) -> float:
    key = (row["model"], row["mode"])
    if row["quantity"] == "batch time":
        return float(evaluated_runs(REAL).loc[key, "total_time"])
    runs = evaluated_runs(UNLIMITED)
    found = runs.loc[key]
    activations = found["act_space"] + found["act_checkpoint_size"]
    if row["quantity"] == "activations":
        return float(activations / GIB)
    if row["quantity"] == "parameters and optimizer":
        return float((found["weight_space"] + found["weight_grad_space"] + found["optimizer_space"]) / GIB)
    everything = runs.loc[(row["model"], "none")]
    return float(activations / (everything["act_space"] + everything["act_checkpoint_size"]))
