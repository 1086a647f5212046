"""Effect of a new calibration on the ranking of a scenario's executions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.calibrate.choice import CalibrateError
from engine.cost_models.calibrated import CALIBRATED
from engine.executions.arrays import Floats
from engine.exploration.proven_optimum import best_of
from engine.exploration.run import Cancel, Progress
from engine.scenarios.scenario import Scenario
from engine.validation.ranking import kendall_tau
from hardware import Calibration

__all__ = ["Reranked", "recalibrated", "rerank"]

COMPARED = 500
"""Best executions by either calibration that are ranked by both."""
DEGREES = (
    "tensor_par",
    "pipeline_par",
    "data_par",
    "context_par",
    "expert_par",
    "microbatch_size",
    "batch_size",
)


@dataclass(frozen=True, slots=True)
class Reranked:
    """The best executions by two calibrations and the best of every cell, best by the second first.

    `table`: `id` and fields with `step_before`, `step_after` [s], `rate_before`, `rate_after` [samples/s],
    `rank_before`, `rank_after` (from 1, among these rows; of equal ones the first enumerated comes first). `tau`:
    Kendall's tau between the two orders. `gain`: how much faster the new best is than the old best, by the new
    calibration.
    """

    table: pd.DataFrame
    tau: float
    gain: float

    @property
    def changed(self) -> bool:
        """True if another execution is best."""
        return bool(self.table["rank_before"].iloc[0] != 1)

    @property
    def distinct(self) -> pd.DataFrame:
        """The table with one row for all that agree in degrees and both rates, and in `alike` how many those are.

        Such executions differ in choices that cost nothing here, as the interleaving of a pipeline of one stage.
        """
        rates = ["rate_before", "rate_after"]
        rows = self.table[[*DEGREES, *rates]].astype(np.float64)
        rows[rates] = rows[rates].map(lambda rate: float(f"{rate:.10g}"))
        same = [*DEGREES, *rates]
        alike = rows.assign(one=1).groupby(same, sort=False)["one"].transform("size")
        return self.table.assign(alike=alike)[~rows.duplicated(same)].reset_index(drop=True)


def recalibrated(scenario: Scenario, calibration: Calibration | None) -> Scenario:
    """Returns the scenario under the calibrated cost model with a calibration; the library's where None.

    Args:
        scenario: of any cost model.
        calibration: that it gets; the library's where None.

    Raises what `engine.Scenario.of` raises: its limits may be on fields that this cost model does not have.
    """
    return Scenario.of(
        scenario.model,
        scenario.system,
        num_procs=scenario.num_procs,
        max_batch_size=scenario.max_batch_size,
        datatype=scenario.datatype,
        limits=scenario.limits,
        cost_model=CALIBRATED.name,
        calibration=calibration,
    )


def rerank(
    scenario: Scenario,
    before: Calibration,
    after: Calibration,
    k: int = COMPARED,
    *,
    progress: Callable[[int, int], None] | None = None,
    cancel: Cancel | None = None,
) -> Reranked:
    """Find the best `k` executions of a scenario by each of two calibrations, and rank them by both.

    Args:
        scenario: of any cost model.
        before: the calibration that is compared with.
        after: the calibration that is asked about.
        k: executions of each calibration that are ranked.
        progress: called with (done, all) executions of both searches.
        cancel: returns True to stop.

    Raises what `recalibrated` raises, `CalibrateError` if no execution runs, and `engine.ExplorationCancelled`.
    """
    versions = [recalibrated(scenario, calibration) for calibration in (before, after)]
    ids: set[int] = set()
    for number, version in enumerate(versions):

        def report(found: Progress, before: int = number) -> None:
            if progress is not None:
                progress(before * found.total + found.done, len(versions) * found.total)

        found = best_of(version, k=k, by_cell=True, progress=report, cancel=cancel)
        ids |= {int(ident) for ident in found.top["id"]}
        if found.by_cell is not None:
            ids |= {int(ident) for ident in found.by_cell["id"].dropna() if ident >= 0}
    if not ids:
        raise CalibrateError("No execution of the scenario runs, so there is none to rank.")
    chosen = np.array(sorted(ids), np.int64)
    table = versions[0].space.table(chosen)
    rates: list[Floats] = []
    for when, version in zip(("before", "after"), versions, strict=True):
        values = version.evaluate(table)
        rates.append(values["sample_rate"].to_numpy(np.float64))
        table[f"step_{when}"] = values["total_time"].to_numpy(np.float64)
    for when, rate in zip(("before", "after"), rates, strict=True):
        table[f"rate_{when}"] = rate
        table[f"rank_{when}"] = _rank_rates(rate)
    table.insert(0, "id", chosen)
    table = table.sort_values("rank_after", kind="stable", ignore_index=True)
    first = table.loc[table["rank_before"] == 1, "rate_after"].iloc[0]
    return Reranked(table, kendall_tau(*rates), float(table["rate_after"].iloc[0] / first - 1.0))


def _rank_rates(rates: Floats) -> npt.NDArray[np.int64]:
    ranks = np.empty(len(rates), np.int64)
    ranks[np.argsort(-rates, kind="stable")] = np.arange(1, len(rates) + 1)
    return ranks
