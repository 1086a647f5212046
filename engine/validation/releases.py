"""Errors by release: one block of rows per state of the fitted cost model, appended by `refresh`."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

import pandas as pd

import engine
from engine.cost_models.calibrated import library_calibration
from engine.validation.accepted import stored_errors, stored_left_out_errors

__all__ = ["RELEASE_COLUMNS", "append_release", "current_release", "stored_releases"]

RELEASES_FILE = Path(str(files("engine.validation").joinpath("data", "releases.csv")))
RELEASE_COLUMNS = ("date", "version", "name", "rows", "mean", "median", "halves", "sources")
"""`date` of the fit, `version` of the package, `name` of a set of measured runs, its number of `rows`; `mean` and
`median` error of the fit to all rows, and mean errors of fits without the half (`halves`) or without the source
(`sources`) of a run [%]."""


def stored_releases() -> pd.DataFrame:
    """Return the errors by release, oldest first: `RELEASE_COLUMNS`."""
    return pd.read_csv(RELEASES_FILE)


def current_release() -> pd.DataFrame:
    """Return the errors of the accepted state in the form of the stored ones."""
    table = stored_errors()
    sets = table[table["kind"] == "set"]
    calibration = library_calibration()
    halves = {each.described.split(":")[0]: each.mean_absolute_percent for each in calibration.errors if each.held_out}
    sources = stored_left_out_errors().set_index("name")["mean"]
    found = sets[["name", "rows", "mean", "median"]].assign(
        date=calibration.date,
        version=_package_version(),
        halves=sets["name"].map(halves),
        sources=sets["name"].map(sources),
    )
    return found[list(RELEASE_COLUMNS)].reset_index(drop=True)


def append_release(path: Path = RELEASES_FILE) -> None:
    """Append the accepted state to the file; a state of the same date and version is replaced, an equal one kept.

    Args:
        path: of the file; it is created where it is missing.
    """
    now = current_release()
    if path.exists():
        before = pd.read_csv(path)
        figures = ["name", *RELEASE_COLUMNS[3:]]
        last = before[before["date"] == before["date"].iloc[-1]]
        if _to_text(last[figures]) == _to_text(now[figures]):
            return
        is_same = (before["date"] == now["date"].iloc[0]) & (before["version"].astype(str) == now["version"].iloc[0])
        now = pd.concat([before[~is_same], now], ignore_index=True)
    path.write_text(_to_text(now), encoding="utf-8")


def _to_text(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, float_format="%.4g", lineterminator="\n")


def _package_version() -> str:
    project = Path(engine.__file__).resolve().parent.parent / "pyproject.toml"
    return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"]) if project.exists() else ""
