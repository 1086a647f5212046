"""Commands of the validation: report, fit, accept, refresh.

python -m engine.validation report [--runs FILE] [--out FILE]
python -m engine.validation fit [--save]      fit on all rows, two-fold errors; --save writes the calibration
python -m engine.validation accept            store predictions, errors, intervals and measured kinds (one minute)
python -m engine.validation refresh           fit --save and then accept: everything stored, from the present code
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pandas as pd

import hardware
from engine.cost_models.calibrated import FITTED
from engine.validation.error_tables import error_table, memory_table
from engine.validation.gate import store_predictions
from engine.validation.predict import validate
from engine.validation.reading import RunsFileError, library_runs, read_runs
from engine.validation.refit import fit_all, leave_one_source_out, two_fold, updated_calibration


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit status.

    Args:
        arguments: arguments of the command line; the program's own if None.
    """
    parser = argparse.ArgumentParser(prog="python -m engine.validation")
    commands = parser.add_subparsers(dest="command", required=True)
    report = commands.add_parser("report", help="predict measured runs and print tables of errors")
    report.add_argument("--runs", help="a CSV file in the schema of runs.csv; the package's runs where left out")
    report.add_argument("--out", help="where to write the predictions as CSV")
    fitting = commands.add_parser("fit", help="fit the few free parameters and test them on unseen halves")
    fitting.add_argument("--save", action="store_true", help="write the fitted calibration into the package")
    commands.add_parser("store_predictions", help="store predictions, errors, intervals and what was measured")
    commands.add_parser("refresh", help="fit, save the calibration, and store what follows from it (two minutes)")
    chosen = parser.parse_args(arguments)
    if chosen.command == "report":
        return _print_report(chosen.runs, chosen.out)
    if chosen.command in ("fit", "refresh"):
        _print_fit(chosen.command == "refresh" or chosen.save)
        # What was read of the calibration before stays in this process.
        again = [sys.executable, "-m", "engine.validation", "store_predictions"]
        return subprocess.run(again, check=False).returncode if chosen.command == "refresh" else 0
    changed = store_predictions()
    print("\n".join(changed) or "Nothing changed.")
    return 0


def _print_report(path: str | None, out: str | None) -> int:
    try:
        runs = read_runs(path) if path else library_runs()
    except RunsFileError as problem:
        print(problem, file=sys.stderr)
        return 2
    table = validate(runs, calculon=True)
    if out:
        table.to_csv(out, index=False)
    with pd.option_context("display.width", 220, "display.max_columns", 40, "display.max_rows", 200):
        print(error_table(runs.table, table).round(2).to_string(index=False))
        print(memory_table(runs.table, table).round(2).to_string(index=False))
        unsupported = table[table["status"] != "predicted"]
        print(unsupported["reason"].value_counts().to_string())
    return 0


def _print_fit(save: bool) -> None:
    fit, tested, left_out = fit_all(), two_fold(), leave_one_source_out()
    for name in FITTED:
        print(f"{name:24s} {getattr(fit.parameters, name):.4g}")
    print(f"loss {fit.loss_before:.4f} -> {fit.loss_after:.4f} in {fit.steps} steps")
    print("two-fold by group, test errors [%]:")
    for name, value in tested.means().items():
        print(f"  {name:44s} {value:.2f}   leave one source out {left_out.means()[name]:.2f}")
    if save:
        document = hardware.calibration_document(updated_calibration(fit, tested, datetime.date.today()))
        path = Path(str(files("hardware").joinpath("calibrations", "global.json")))
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main())
