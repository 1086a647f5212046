"""Does a model order layouts rightly? Kendall's tau and the regret of its first choice, within groups of layouts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["Ranking", "kendall_tau", "layout_groups", "ranking"]

WORKLOAD = (
    "source",
    "framework",
    "hardware",
    "model",
    "hidden",
    "layers",
    "heads",
    "ffn",
    "moe_experts",
    "seq_len",
    "dtype",
    "num_gpus",
    "gbs",
)
"""Rows that agree on these run the same workload on the same machine; they differ in layout only."""
LEAST_TIMES = 3
"""Distinct step times that a group of layouts needs to be ranked. Source: the calibration study."""


class Ranking(NamedTuple):
    """Means over groups: Kendall's tau, relative regret of the predicted best layout; and how many groups."""

    tau: float
    regret: float
    groups: int


def layout_groups(table: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Returns the group of every row: same workload, same machine [rows].

    Args:
        table: typed runs [rows].
    """
    keys = [column for column in WORKLOAD if column in table]
    frame = table[keys].astype(str)
    # vTrain's single-node runs vary the batch from row to row; their layouts are compared by time per sample.
    frame.loc[table["source"].astype(str).str.startswith("vTrain single"), "gbs"] = "any"
    return frame.groupby(keys, sort=False, dropna=False).ngroup().to_numpy().astype(np.int64)


def kendall_tau(predicted: npt.NDArray[np.float64], measured: npt.NDArray[np.float64]) -> float:
    """Returns Kendall's tau-b of two series [dimensionless]; NaN where either is constant.

    Args:
        predicted, measured: times, of steps or of samples [s] [rows].
    """
    a = np.sign(predicted[:, None] - predicted[None, :])[np.triu_indices(len(predicted), 1)]
    b = np.sign(measured[:, None] - measured[None, :])[np.triu_indices(len(measured), 1)]
    norm = float(np.sqrt(np.sum(a != 0) * np.sum(b != 0)))
    return float(np.sum(a * b)) / norm if norm > 0 else float("nan")


def ranking(
    predicted: npt.NDArray[np.float64], measured: npt.NDArray[np.float64], group: npt.NDArray[np.int64]
) -> Ranking:
    """Returns Tau and regret of times (per sample where batches differ) over groups with three or more distinct
    ones.

    Args:
        predicted, measured: times, of steps or of samples [s] [rows].
        group: of every row, equal where layouts compete [rows].
    """
    taus, regrets = [], []
    for rows in pd.Series(np.arange(len(group))).groupby(group).indices.values():
        x, y = predicted[rows], measured[rows]
        keep = np.isfinite(x) & np.isfinite(y)
        x, y = x[keep], y[keep]
        if len(np.unique(y)) < LEAST_TIMES:
            continue
        taus.append(kendall_tau(x, y))
        regrets.append(y[np.argmin(x)] / y.min() - 1.0)
    if not taus:
        return Ranking(float("nan"), float("nan"), 0)
    return Ranking(
        float(np.nanmean(taus)) if np.isfinite(taus).any() else float("nan"), float(np.mean(regrets)), len(taus)
    )
