"""The accepted state: predictions of all measured runs and the tables that follow, stored in the package.

A change of any must be accepted: `python -m engine.validation accept` rewrites the stored files, and the difference
then shows in the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.cost_models.calibrated import MEASURED_FILE, OFFLOADS, aspects
from engine.validation.error_tables import error_table, memory_table
from engine.validation.fine_tuning import current_residuals
from engine.validation.mapping import Mapped, map_runs
from engine.validation.predict import validate
from engine.validation.reading import Runs, library_runs
from engine.validation.refit import ratios_without_source
from engine.validation.selection import defective, headline, one_machine, reported, sets_of, sources_of
from engine.validation.uncertainty import UNSEEN, coverage_table, describe_kind, kinds_of

__all__ = [
    "TOLERANCE",
    "current_memory_residuals",
    "current_predictions",
    "list_differences",
    "store_predictions",
    "stored_coverage",
    "stored_errors",
    "stored_left_out_errors",
    "stored_memory_errors",
    "stored_predictions",
]

TOLERANCE = 1e-4
"""Relative change of a prediction that must be accepted: 0.01 %."""
STORED = ("id", "status", "reason", "predicted_step_time_s", "predicted_mem_gib")
DIGITS = "%.7g"


def _data_path(name: str) -> Path:
    return Path(str(files("engine.validation").joinpath("data", name)))


def stored_predictions() -> pd.DataFrame:
    """Returns the accepted predictions: `STORED` columns, one row per run of the package."""
    return pd.read_csv(
        _data_path("predictions.csv"),
        keep_default_na=False,
        na_values={"predicted_step_time_s": [""], "predicted_mem_gib": [""]},
    )


def stored_errors() -> pd.DataFrame:
    """Returns the accepted table of errors, for reports that should not wait for Calculon."""
    return pd.read_csv(_data_path("errors.csv"))


def stored_memory_errors() -> pd.DataFrame:
    """Returns the accepted table of errors of memory."""
    return pd.read_csv(_data_path("memory_errors.csv"))


def stored_left_out_errors() -> pd.DataFrame:
    """Returns the accepted mean errors of sets of runs by fits without the source of each run: `name`, `rows`, `mean`
    [%]."""
    return pd.read_csv(_data_path("left_out_errors.csv"))


def current_predictions() -> pd.DataFrame:
    """Returns what the code predicts now, in the form of the stored ones."""
    return validate()[list(STORED)]


def list_differences(now: pd.DataFrame, before: pd.DataFrame) -> list[str]:
    """Return the changes: one sentence per row that changed by more than the tolerance, changed status, is new or is
    gone.

    Args:
        now: predictions, by `id` [rows].
        before: stored predictions, by `id` [rows].
    """
    found: list[str] = []
    old, new = before.set_index("id"), now.set_index("id")
    found += [f"{name}: is gone" for name in old.index.difference(new.index)]
    found += [f"{name}: is new" for name in new.index.difference(old.index)]
    old_rows, new_rows = old.to_dict("index"), new.to_dict("index")
    for name in old.index.intersection(new.index):
        was, is_now = old_rows[name], new_rows[name]
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


def store_predictions(progress: Callable[[int, int], None] | None = None) -> list[str]:
    """Stores the current predictions and errors; returns the differences to what was stored before.

    Args:
        progress: called with (done, all) fits of the intervals, at first with none done.
    """
    runs = library_runs()
    table = validate(runs, calculon=True)
    now = table[list(STORED)]
    path = _data_path("predictions.csv")
    changed = (
        list_differences(now, stored_predictions()) if path.exists() else [f"{name}: is new" for name in now["id"]]
    )
    now.to_csv(path, index=False, float_format=DIGITS)
    error_table(runs.table, table).to_csv(_data_path("errors.csv"), index=False, float_format="%.4g")
    memory_table(runs.table, table).to_csv(_data_path("memory_errors.csv"), index=False, float_format="%.4g")
    mapped = map_runs(runs)
    _accept_measured(mapped)
    current_memory_residuals(mapped, table).to_csv(_data_path("memory_residuals.csv"), index=False, float_format="%.5g")
    current_residuals().to_csv(_data_path("fine_tuning_residuals.csv"), index=False, float_format="%.5g")
    _accept_intervals(mapped, runs, progress)
    return changed


def current_memory_residuals(mapped: Mapped, predictions: pd.DataFrame) -> pd.DataFrame:
    """Returns the errors of predicted memory as `engine.validation.uncertainty.memory_residuals` has them stored.

    Args:
        mapped: runs as the cost model reads them [rows].
        predictions: what `validate` returned for them.
    """
    found = kinds_of(mapped).assign(ratio=1.0 / (1.0 + predictions["memory_error"].to_numpy(np.float64)))
    found.insert(0, "id", mapped.table["id"])
    rows = reported(mapped.table) & np.isfinite(found["ratio"].to_numpy(np.float64))
    return found.iloc[np.flatnonzero(rows)]


def _is_scored(mapped: Mapped) -> npt.NDArray[np.bool_]:
    """Sound headline rows with a prediction [rows]."""
    return headline(mapped.table) & ~defective(mapped.table) & mapped.supported


def _accept_measured(mapped: Mapped) -> None:
    """Store what occurs among the runs, for `engine.cost_models.calibrated.measured`."""
    rows = np.flatnonzero(_is_scored(mapped))
    # Runs with an offload that a field names are not predicted.
    words = aspects(mapped.case.take(rows), dict.fromkeys(OFFLOADS, False), len(rows))
    source = sources_of(mapped.table)[rows]
    listed = pd.concat(pd.DataFrame({"aspect": name, "thing": each, "source": source}) for name, each in words.items())
    counted = listed[listed["thing"] != ""].groupby(["aspect", "thing"], sort=False)["source"].agg(["size", "nunique"])
    counted.columns = pd.Index(["runs", "sources"])
    counted.reset_index().to_csv(MEASURED_FILE, index=False)


def _accept_intervals(mapped: Mapped, runs: Runs, progress: Callable[[int, int], None] | None) -> None:
    """Store errors of sources left out and how many of them lie in the intervals that the others give."""
    scored, pooled = _is_scored(mapped), ~one_machine(mapped.table)
    kinds, own = kinds_of(mapped), ratios_without_source(runs, progress=progress)
    kinds["ratio"] = own
    kinds.insert(0, "id", mapped.table["id"])
    kinds[scored & pooled].to_csv(_data_path("residuals.csv"), index=False, float_format="%.5g")

    records = []
    for name, rows in sets_of(mapped.table, ~defective(mapped.table)).items():
        error = 100.0 * np.abs(1.0 / own[rows & headline(mapped.table) & np.isfinite(own)] - 1.0)
        records.append({"name": name, "rows": len(error), "mean": error.mean(), "median": np.median(error)})
    pd.DataFrame(records).to_csv(_data_path("left_out_errors.csv"), index=False, float_format="%.4g")

    everything = (scored & pooled)[scored]
    groups = {UNSEEN: everything}
    for names in (("experts", "generation"), ("experts", "generation", "bits")):
        described = [
            describe_kind(dict(zip(names, row, strict=True))) for row in kinds.loc[scored, list(names)].to_numpy()
        ]
        named = np.array(described, object)
        groups |= {name: everything & (named == name) for name in sorted(set(named[everything]))}
    groups["vTrain's single node, apart"] = ~everything
    table = kinds[scored & pooled]
    found = coverage_table(kinds[scored].reset_index(drop=True), groups, lambda _: table)
    found.to_csv(_data_path("coverage.csv"), index=False, float_format="%.4g")


def stored_coverage() -> pd.DataFrame:
    """Returns the accepted table of `coverage_table` for the package's runs, each by models fitted without its
    source."""
    return pd.read_csv(_data_path("coverage.csv"))
