"""Runs whose times come from known parameters: what a fit finds can be compared with what they were made by."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import hardware
from engine import calibrate
from engine.cost_models.calibrated import Parameters, parameters, step_times
from engine.validation.mapping import map_runs
from engine.validation.reading import Runs, runs_of
from tests.engine.validation.runs import GOOD

SYSTEM = "h100_80g_sxm"
LLAMA = {"hidden": 4096, "ffn": 14336, "layers": 32, "heads": 32, "kv_heads": 8, "model": "8B"}
LARGE = {"hidden": 8192, "ffn": 28672, "layers": 80, "heads": 64, "kv_heads": 8, "model": "70B"}
SMALL = {"hidden": 1024, "ffn": 4096, "layers": 24, "heads": 16, "kv_heads": 16, "model": "small"}
MIDDLE = {"hidden": 5120, "ffn": 13824, "layers": 40, "heads": 40, "kv_heads": 40, "model": "13B"}
MODELS = (LLAMA, LARGE, SMALL, MIDDLE)
DEGREES = ((1, 1, 64, 1), (2, 2, 16, 2), (4, 1, 16, 1), (8, 4, 2, 1), (8, 1, 8, 4), (1, 4, 16, 1))
LAYOUTS = tuple(dict(zip(("tp", "pp", "dp", "mbs"), degrees, strict=True)) for degrees in DEGREES)


def plans(models: tuple[dict[str, Any], ...] = MODELS, layouts: tuple[dict[str, Any], ...] = LAYOUTS) -> pd.DataFrame:
    """Runs of every model in every layout, long and short sequences by turns; no times yet."""
    rows = [
        {**GOOD, **model, **layout, "seq_len": (2048, 16384)[place % 2], "gbs": 256, "step_time_s": None}
        for model in models
        for place, layout in enumerate(layouts)
    ]
    return pd.DataFrame([{**row, "id": f"run{place}"} for place, row in enumerate(rows)])


def timed(table: pd.DataFrame, truth: Parameters, noise: float = 0.0, seed: int = 0) -> pd.DataFrame:
    """The runs with times that `truth` predicts, off by `noise` (standard deviation of the logarithm)."""
    mapped = map_runs(runs_of(table))
    assert mapped.supported.all(), mapped.reason_text
    error = np.random.default_rng(seed).normal(0.0, noise, len(table)) if noise else 0.0
    return table.assign(step_time_s=step_times(mapped.case, truth).step * np.exp(error))


def measured(table: pd.DataFrame) -> calibrate.MeasuredRuns:
    """A table as the reader of files gives it."""
    runs = runs_of(table)
    return calibrate.MeasuredRuns(runs, tuple(f"row {row + 1}" for row in range(len(table))), ("",) * len(table))


def checked(table: pd.DataFrame, system: str = SYSTEM) -> calibrate.CheckedRuns:
    """A table checked against a system of the library."""
    return calibrate.check(measured(table), hardware.load(system), parameters())


def part_of(runs: Runs, rows: np.ndarray) -> calibrate.MeasuredRuns:
    """Some rows of runs."""
    index = np.flatnonzero(rows)
    taken = Runs(runs.table.iloc[index].reset_index(drop=True), runs.faults[index])
    return calibrate.MeasuredRuns(taken, tuple(f"row {row + 1}" for row in range(len(index))), ("",) * len(index))
