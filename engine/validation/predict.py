"""Predictions for measured runs: `validate`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from engine.cost_models.calibrated import Parameters, StepTimes, memory_use, parameters, parameters_of, step_times
from engine.validation.mapping import Mapped, map_runs
from engine.validation.model_flops import explain_unread_rates, rates_by_flops
from engine.validation.notes import tensors_on_host
from engine.validation.reading import Runs, library_runs, read_runs, runs_of
from engine.validation.uncertainty import memory_fits
from engine.validation.words import DRIVER_MEMORY
from hardware import GIB, Calibration

__all__ = ["OUT_COLUMNS", "breakdown", "measured_seconds", "predict_runs", "validate", "validate_by"]

OUT_COLUMNS = (
    "id",
    "status",
    "reason",
    "predicted_step_time_s",
    "predicted_tokens_per_s_per_gpu",
    "predicted_mem_gib",
)
"""The columns every table of predictions begins with."""


def validate(
    runs: str | os.PathLike[str] | pd.DataFrame | Runs | None = None,
    p: Parameters | None = None,
    *,
    calculon: bool = False,
    progress: Callable[[int, int], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> pd.DataFrame:
    """Return the predictions for measured runs, one row per run in the order given.

    Args:
        runs: path of a CSV file, a table in the same schema, or runs already read; the package's own if None.
        p: parameters; the shipped calibration's if None.
        calculon: whether to add the column of `calculon` (about 2 s for the package's runs).
        progress: called with (done, all) runs while `calculon` predicts.
        cancel: returns True to stop.

    Returns:
        `OUT_COLUMNS`: `status` is `predicted` or `unsupported`, `reason` then a code of `REASONS`; step time [s],
        tokens per second and accelerator, memory on the fullest accelerator [GiB], which is left open where notes put
        tensors on the host. Then `reason_text`, `assumptions`,
        `software_rule`, `measured_step_time_s`, `error` (predicted over measured minus 1), `measured_mem_gib`,
        `memory_error`, `memory_fit` (a word of `engine.validation.uncertainty.Fit`, though all runs ran), and with
        `calculon` also `calculon_step_time_s` and `calculon_error`.

    Raises:
        engine.validation.RunsFileError: the file is no table of runs at all. Bad rows never raise.
        engine.ExplorationCancelled: `cancel` returned True.
    """
    mapped = map_runs(_load_runs(runs))
    table = predict_runs(mapped, p or parameters())
    if calculon:
        # Evaluating by `calculon` is imported only where it is asked for.
        from engine.validation.calculon import calculon_step_times

        table["calculon_step_time_s"] = calculon_step_times(mapped, progress=progress, cancel=cancel)
        table["calculon_error"] = table["calculon_step_time_s"] / table["measured_step_time_s"] - 1.0
    return table


def _load_runs(runs: str | os.PathLike[str] | pd.DataFrame | Runs | None) -> Runs:
    if runs is None:
        return library_runs()
    if isinstance(runs, Runs):
        return runs
    if isinstance(runs, pd.DataFrame):
        return runs_of(runs)
    return read_runs(runs)


def predict_runs(mapped: Mapped, p: Parameters) -> pd.DataFrame:
    """Returns the table that `validate` returns, for runs already mapped.

    Args:
        mapped: runs as the cost model reads them, with why others cannot be read [rows].
        p: parameters of the cost model.
    """
    supported = mapped.supported
    seconds = np.where(supported, step_times(mapped.case, p).step, np.nan)
    case = mapped.case
    tokens = case.layout.batch_size * case.model.seq_size / case.processors
    driver = mapped.table["mem_kind"].astype(str).str.contains(DRIVER_MEMORY, regex=True).to_numpy(bool)
    memory = memory_use(case).peak / GIB * np.where(driver, p.reserve_factor, 1.0)
    measured = measured_seconds(mapped)
    given_memory = mapped.table["mem_gib"].to_numpy(np.float64)
    known = supported & ~tensors_on_host(mapped.table)
    memory = np.where(known, memory, np.nan)
    columns: dict[str, Any] = {
        "id": mapped.table["id"].to_numpy(object),
        "status": np.where(supported, "predicted", "unsupported"),
        "reason": mapped.reason,
        "predicted_step_time_s": seconds,
        "predicted_tokens_per_s_per_gpu": tokens / seconds,
        "predicted_mem_gib": memory,
        "reason_text": mapped.reason_text,
        "assumptions": _with_unread(mapped),
        "software_rule": mapped.software_rule,
        "measured_step_time_s": measured,
        "error": seconds / measured - 1.0,
        "measured_mem_gib": given_memory,
        "memory_error": memory / given_memory - 1.0,
        "memory_fit": memory_fits(mapped, np.where(known, memory_use(case).peak / GIB, np.nan)),
    }
    return pd.DataFrame(columns)


def validate_by(runs: Runs, calibration: Calibration | None) -> pd.DataFrame:
    """Return the predictions for measured runs by a calibration, one row per run; see `validate`.

    Args:
        runs: as they were read.
        calibration: its values are used; the library's if None.
    """
    return validate(runs, None if calibration is None else parameters_of(calibration))


def _with_unread(mapped: Mapped) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """Return the assumptions of every run, and why its TFLOP/s is not read."""
    unread = explain_unread_rates(mapped.table)
    return np.array(
        ["; ".join(filter(None, (text, reason))) for text, reason in zip(mapped.assumptions, unread, strict=True)],
        object,
    )


def measured_seconds(mapped: Mapped) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Returns the measured seconds per step, from tokens per second where no step time is given, and from TFLOP/s with
    a stated convention where neither is; NaN without any [rows].

    Args:
        mapped: runs as the cost model reads them, with why others cannot be read [rows].
    """
    step = mapped.table["step_time_s"].to_numpy(np.float64)
    case = mapped.case
    tokens = case.layout.batch_size * case.model.seq_size / case.processors
    rate = mapped.table["tokens_per_s_per_gpu"].to_numpy(np.float64)
    rate = np.where(np.isnan(rate), rates_by_flops(mapped.table), rate)
    return np.where(mapped.supported & np.isnan(step), tokens / rate, step)


def breakdown(
    runs: str | os.PathLike[str] | pd.DataFrame | Runs | None = None, p: Parameters | None = None
) -> pd.DataFrame:
    """Returns what every predicted step consists of [s]: `id` and the fields of
    `engine.cost_models.calibrated.physics.step.StepTimes`.

    Args:
        runs: a file, a table or runs; the package's where None.
        p: parameters of the cost model; the shipped calibration's where None.
    """
    mapped = map_runs(_load_runs(runs))
    parts: StepTimes = step_times(mapped.case, p or parameters())
    table = {name: np.where(mapped.supported, getattr(parts, name), np.nan) for name in StepTimes.__dataclass_fields__}
    return pd.DataFrame({"id": mapped.table["id"].to_numpy(object), **table})
