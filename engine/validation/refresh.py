"""The commands `fit`, `accept` and `refresh`: everything stored that follows from the measured runs."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import engine
import hardware
from engine.cost_models.calibrated import FITTED
from engine.validation.accepted import store_predictions
from engine.validation.mapping import map_runs
from engine.validation.reading import library_runs
from engine.validation.refit import TwoFold, fit_all, leave_one_source_out, two_fold, updated_calibration
from engine.validation.regression.predictions import predict_now, write_surface
from engine.validation.regression.surface import build_surface
from engine.validation.releases import append_release
from engine.validation.steps import StepReport

__all__ = ["accept_state", "fit_calibration", "refresh_state"]

FIT, HALVES, PREDICTIONS, INTERVALS, SURFACE, RELEASES, DOCUMENTS = (
    "fitting",
    "fits without halves and sources",
    "predictions and errors",
    "intervals",
    "surface of the gate",
    "errors by release",
    "figures of README and guide",
)
SECONDS = {FIT: 2.0, HALVES: 14.0, PREDICTIONS: 8.0, INTERVALS: 60.0, SURFACE: 16.0, RELEASES: 1.0, DOCUMENTS: 14.0}
"""Usual seconds of each step."""
ROOT = Path(engine.__file__).resolve().parent.parent
FIGURES = "tests.documented_figures"
"""Module that writes the figures of README and guide; only a checkout has it."""


def refresh_state() -> int:
    """Fit, write the calibration, and store everything that follows from it; return the exit status."""
    with StepReport(SECONDS, last=HALVES) as steps:
        _fit(steps, save=True)
    # What was read of the calibration before stays in this process.
    again = [sys.executable, "-m", "engine.validation", "accept"]
    return subprocess.run(again, check=False).returncode


def fit_calibration(*, save: bool) -> int:
    """Fit, and print the parameters and errors on runs left out; return the exit status.

    Args:
        save: whether to write the calibration into the package.
    """
    with StepReport({name: SECONDS[name] for name in (FIT, HALVES)}) as steps:
        _fit(steps, save=save)
    return 0


def accept_state() -> int:
    """Store what the shipped calibration predicts and the tables that follow; print the changes of predictions."""
    with StepReport(SECONDS, first=PREDICTIONS) as steps:
        steps.begin(PREDICTIONS)

        def fitted(done: int, total: int) -> None:
            if done == 0:
                steps.begin(INTERVALS)
            steps.progress(done / total)

        changed = store_predictions(fitted)
        steps.begin(SURFACE)
        write_surface(predict_now(build_surface(), map_runs(library_runs()), steps.progress).surface)
        steps.begin(RELEASES)
        append_release()
        steps.begin(DOCUMENTS)
        status, said = _write_documents()
    print("\n".join(changed) or "No prediction of a measured run changed.")
    print(said)
    return status


def _write_documents() -> tuple[int, str]:
    """Write the figures of README and guide; return the exit status and what changed."""
    if not (ROOT / "tests" / "documented_figures.py").exists():
        return 0, "README and guide are not here: only a checkout of the project has them."
    done = subprocess.run([sys.executable, "-m", FIGURES], cwd=ROOT, check=False, capture_output=True, text=True)
    changed = f"Figures of README and guide:\n{done.stdout.strip() or 'none changed.'}"
    if done.returncode:
        return 1, f"{changed}\nNot all figures of README and guide could be written:\n{done.stderr.strip()}"
    return 0, changed


def _fit(steps: StepReport, *, save: bool) -> None:
    steps.begin(FIT)
    fit = fit_all()
    steps.begin(HALVES)
    tested = two_fold()
    left_out = leave_one_source_out()
    if save:
        document = hardware.calibration_document(updated_calibration(fit, tested, datetime.date.today()))
        path = Path(str(files("hardware").joinpath("calibrations", "global.json")))
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for name in FITTED:
        print(f"{name:24s} {getattr(fit.parameters, name):.4g}")
    print(f"loss {fit.loss_before:.4f} -> {fit.loss_after:.4f} in {fit.steps} steps")
    _print_errors(tested, left_out)


def _print_errors(tested: TwoFold, left_out: TwoFold) -> None:
    print("Mean errors of runs that the fit did not see [%]: halves by group, sources")
    sources = left_out.means()
    for name, value in tested.means().items():
        print(f"  {name:44s} {value:6.2f} {sources[name]:6.2f}")
