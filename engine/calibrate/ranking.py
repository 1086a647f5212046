"""How a new calibration changes which executions are best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from engine.calibrated import Parameters, case_of, step_times
from engine.calibrated.inputs import Floats
from engine.validation.ranking import kendall_tau
from hardware import System
from models import Model

__all__ = ["Reranked", "rerank"]

DEGREES = ("tensor_par", "pipeline_par", "data_par", "microbatch_size", "batch_size")
COMPARED = 500
"""Executions, from the best, whose order is compared."""


@dataclass(frozen=True, slots=True)
class Reranked:
    """Executions by throughput under a new calibration, best first.

    `table`: the executions as given with `step_before`, `step_after` [s], `rate_before`, `rate_after` [samples/s],
    `rank_before`, `rank_after` (from 1; equal rates share the order given). `tau`: Kendall's tau between the two orders
    of the best `COMPARED`. `gain`: how much faster the new best is than the old best by the new calibration.
    """

    table: pd.DataFrame
    tau: float
    gain: float

    @property
    def changed(self) -> bool:
        """Whether another execution is best."""
        return bool(self.table["rank_before"].iloc[0] != 1)

    @property
    def distinct(self) -> pd.DataFrame:
        """The table with one row for all that agree in degrees and both rates, and in `alike` how many those are.

        Such executions differ in choices that cost nothing here, as the interleaving of a pipeline of one stage.
        """
        same = [name for name in (*DEGREES, "rate_before", "rate_after") if name in self.table]
        rows = self.table.assign(**{name: self.table[name].astype(np.float64) for name in same})
        rates = [f"rate_{when}" for when in ("before", "after")]
        rows[rates] = rows[rates].map(lambda rate: float(f"{rate:.10g}"))
        alike = rows.groupby(same, sort=False, dropna=False)["rank_after"].transform("size")
        return self.table.assign(alike=alike)[~rows.duplicated(same)].reset_index(drop=True)


def rerank(model: Model, system: System, executions: pd.DataFrame, before: Parameters, after: Parameters) -> Reranked:
    """Rank executions of a model on a system by samples per second, before and after.

    Args:
        executions: one row per execution with at least tensor_par, pipeline_par, data_par, microbatch_size and
            batch_size (see `engine.calibrated.case_of`); memory is not checked, so give executions that fit.
        before, after: parameters of the two calibrations.

    Raises ValueError where there is no execution.
    """
    if not len(executions):
        raise ValueError("There is no execution to rank.")
    case = case_of(model, system, {str(name): values.to_numpy() for name, values in executions.items()})
    steps = {"before": step_times(case, before).step, "after": step_times(case, after).step}
    batch = executions["batch_size"].to_numpy(np.float64)
    table = executions.reset_index(drop=True).copy()
    for when, step in steps.items():
        table[f"step_{when}"] = np.broadcast_to(step, len(table))
        table[f"rate_{when}"] = batch / step
        table[f"rank_{when}"] = _ranks(batch / step)
    table = table.sort_values("rank_after", kind="stable", ignore_index=True)
    best = table[(table["rank_before"] <= COMPARED) | (table["rank_after"] <= COMPARED)]
    tau = kendall_tau(best["rate_before"].to_numpy(np.float64), best["rate_after"].to_numpy(np.float64))
    old = table.loc[table["rank_before"] == 1, "rate_after"].iloc[0]
    return Reranked(table, tau, float(table["rate_after"].iloc[0] / old - 1.0))


def _ranks(rates: Floats) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    ranks = np.empty(len(rates), np.int64)
    ranks[np.argsort(-rates, kind="stable")] = np.arange(1, len(rates) + 1)
    return ranks
