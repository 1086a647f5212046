"""Table 2: errors of the predictions that the artifact checks, 99 cases of seven models."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.planners.elastic.cards import PARAMETERS, Environment, PerformanceParameters
from engine.planners.elastic.performance.fitted import data_parallel, three_dimensional

__all__ = ["NOTES", "Table2Model", "table_2", "table_2_cases", "table_2_models"]

FOLDER: Final = Path(__file__).parent / "data"

NOTES: Final = (
    "LLaMA is predicted with parameters that were set by hand; fitted ones give errors of up to 222 %.",
    "Forward times are chosen plan by plan: ZeRO-Offload of LLaMA has next to none, RoBERTa half on one GPU.",
    "ZeRO-DP of ViT, RoBERTa and BERT is predicted as plain data parallelism.",
    "Several cases are runs from which the parameters were fitted.",
)
"""Caveats on the table."""


@dataclass(frozen=True)
class Table2Model:
    """A model of table 2: its size, its machine, and the parameters with which the artifact predicts it."""

    name: str
    title: str
    profile: str
    """Profile of its runs, empty where the runs belong to another model."""
    parameters_mi: float
    global_batch: int
    tokens_hidden: float
    layers: int
    environment: Environment
    performance: PerformanceParameters
    fitted: bool
    """True if the parameters are fitted, False if set by hand."""


@lru_cache(maxsize=1)
def table_2_models() -> Mapping[str, Table2Model]:
    """Returns the models by name."""
    with (FOLDER / "table_2_models.csv").open(newline="", encoding="utf-8") as file:
        return {
            row["name"]: Table2Model(
                row["name"],
                row["title"],
                row["profile"],
                int(row["parameters"]) / 2**20,
                int(row["batch"]),
                float(row["tokens_hidden"]),
                int(row["layers"]),
                Environment(pcie=float(row["pcie"]), nvlink=float(row["nvlink"])),
                PerformanceParameters(**{name: float(row[name]) for name in PARAMETERS}),
                row["fitted"] == "yes",
            )
            for row in csv.DictReader(file)
        }


@lru_cache(maxsize=1)
def _read_cases() -> pd.DataFrame:
    return pd.read_csv(FOLDER / "table_2_cases.csv")


def table_2_cases(parameters: Mapping[str, PerformanceParameters] | None = None) -> pd.DataFrame:
    """Returns the 99 cases with their prediction: `model`, `plan`, the formula's inputs, `measured_ms`, `predicted_ms`
    and `error_pct` without sign.

    Args:
        parameters: to predict with, by model; the artifact's where missing.
    """
    cases, given = _read_cases(), dict(parameters or {})
    parts = []
    for name, rows in cases.groupby("model", sort=False):
        model = table_2_models()[str(name)]
        used = given.get(model.name, model.performance)
        for family, group in rows.groupby("family", sort=False):
            predict = _three_dimensional if family == "3D" else _data_parallel
            parts.append(group.assign(predicted_ms=predict(model, used, group)))
    table = pd.concat(parts).sort_index()
    return table.assign(error_pct=100 * (table["predicted_ms"] / table["measured_ms"] - 1).abs())


def _data_parallel(model: Table2Model, used: PerformanceParameters, rows: pd.DataFrame) -> Any:
    return data_parallel(
        used,
        model.environment,
        parameters_mi=model.parameters_mi,
        forward_ms=rows["forward_ms"].to_numpy(np.float64),
        gpus=rows["gpus"].to_numpy(np.int64),
        cpu_threads=rows["cpu_threads"].to_numpy(np.int64),
        zero=rows["zero"].to_numpy(np.int64),
        slow_network=np.zeros(len(rows), np.bool_),
        forward_factor=rows["forward_factor"].to_numpy(np.float64),
        backward_factor=rows["backward_factor"].to_numpy(np.float64),
        exchange_factor=rows["exchange_factor"].to_numpy(np.float64),
    ).iteration


def _three_dimensional(model: Table2Model, used: PerformanceParameters, rows: pd.DataFrame) -> Any:
    return three_dimensional(
        used,
        model.environment,
        parameters_mi=model.parameters_mi,
        global_batch=model.global_batch,
        tokens_hidden=model.tokens_hidden,
        layers=model.layers,
        forward_ms=rows["forward_ms"].to_numpy(np.float64),
        pp=rows["pp"].to_numpy(np.int64),
        tp=rows["tp"].to_numpy(np.int64),
        nodes=rows["nodes"].to_numpy(np.int64),
        gpus_per_node=rows["gpus_per_node"].to_numpy(np.int64),
    ).iteration


def table_2(parameters: Mapping[str, PerformanceParameters] | None = None) -> pd.DataFrame:
    """Returns the table: `model`, `plan`, mean and largest error [%] and the number of `cases`.

    Args:
        parameters: to predict with, by model; the artifact's where missing.
    """
    groups = table_2_cases(parameters).groupby(["model", "plan"], sort=False)["error_pct"]
    return groups.agg(avg_pct="mean", max_pct="max", cases="count").reset_index()
