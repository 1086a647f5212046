"""The regression gate: predictions of all rows are stored, and a change of any must be accepted.

`python -m engine.validation accept` rewrites the stored files; the difference then shows in the commit.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from engine.calibrated.inputs import GENERATIONS
from engine.validation.errors import error_table, memory_table
from engine.validation.mapping import map_runs
from engine.validation.predict import measured_seconds, validate
from engine.validation.reading import Runs, library_runs
from engine.validation.refit import two_fold
from engine.validation.selection import defective, headline

__all__ = ["TOLERANCE", "accept", "current_predictions", "differences", "stored_errors", "stored_predictions"]

TOLERANCE = 1e-4
"""Relative change of a prediction that must be accepted: 0.01 %."""
STORED = ("id", "status", "reason", "predicted_step_time_s", "predicted_mem_gib")
DIGITS = "%.7g"


def _file(name: str) -> Path:
    return Path(str(files("engine.validation").joinpath("data", name)))


def stored_predictions() -> pd.DataFrame:
    """The accepted predictions: `STORED` columns, one row per run of the package."""
    return pd.read_csv(
        _file("predictions.csv"),
        keep_default_na=False,
        na_values={"predicted_step_time_s": [""], "predicted_mem_gib": [""]},
    )


def stored_errors() -> pd.DataFrame:
    """The accepted table of errors, for reports that should not wait for Calculon."""
    return pd.read_csv(_file("errors.csv"))


def current_predictions() -> pd.DataFrame:
    """What the code predicts now, in the form of the stored ones."""
    return validate()[list(STORED)]


def differences(now: pd.DataFrame, before: pd.DataFrame) -> list[str]:
    """What moved: one sentence per row that changed by more than the tolerance, changed status, came or went."""
    found: list[str] = []
    old, new = before.set_index("id"), now.set_index("id")
    found += [f"{name}: is gone" for name in old.index.difference(new.index)]
    found += [f"{name}: is new" for name in new.index.difference(old.index)]
    for name in old.index.intersection(new.index):
        was, is_now = old.loc[name], new.loc[name]
        if was["status"] != is_now["status"] or was["reason"] != is_now["reason"]:
            found.append(
                f"{name}: was {was['status']} {was['reason']}, is {is_now['status']} {is_now['reason']}".replace(
                    "  ", " "
                )
            )
            continue
        for column in ("predicted_step_time_s", "predicted_mem_gib"):
            a, b = float(was[column]), float(is_now[column])
            if np.isnan(a) and np.isnan(b):
                continue
            if not abs(b - a) <= TOLERANCE * abs(a):
                found.append(f"{name}: {column} was {a:.6g}, is {b:.6g} ({100 * (b / a - 1):+.3f} %)")
    return found


def _residuals(runs: Runs) -> pd.DataFrame:
    """Errors of headline rows when they had no part in the fit, for `engine.validation.uncertainty`."""
    mapped = map_runs(runs)
    ratio = measured_seconds(mapped) / two_fold(runs, seeds=(0,)).predicted
    keep = headline(runs.table) & ~defective(runs.table) & np.isfinite(ratio)
    generation = np.array(GENERATIONS, object)[mapped.case.accelerator.generation.astype(int)]
    # Seven hundred runs of one machine would drown all other Ampere runs.
    keep &= ~runs.table["source"].astype(str).str.startswith("vTrain single").to_numpy(bool)
    return pd.DataFrame(
        {
            "id": runs.table["id"],
            "generation": generation,
            "experts": mapped.case.model.experts > 0,
            "fully_sharded": mapped.case.layout.fully_sharded > 0,
            "ratio": ratio,
        }
    )[keep]


def accept() -> list[str]:
    """Store the current predictions and errors; the differences to what was stored before."""
    runs = library_runs()
    table = validate(runs, calculon=True)
    now = table[list(STORED)]
    path = _file("predictions.csv")
    changed = differences(now, stored_predictions()) if path.exists() else [f"{name}: is new" for name in now["id"]]
    now.to_csv(path, index=False, float_format=DIGITS)
    error_table(runs.table, table).to_csv(_file("errors.csv"), index=False, float_format="%.4g")
    _residuals(runs).to_csv(_file("residuals.csv"), index=False, float_format="%.5g")
    memory_table(runs.table, table).to_csv(_file("memory_errors.csv"), index=False, float_format="%.4g")
    return changed
