"""Commands of the validation.

python -m engine.validation report [--runs FILE] [--out FILE]   predict measured runs, print errors
python -m engine.validation fit [--save]    fit on all rows, errors of rows left out; --save writes the calibration
python -m engine.validation accept          store predictions, errors, intervals, the gate's surface and documents
python -m engine.validation refresh         fit --save and then accept: everything stored, from the present code
python -m engine.validation gate            compare predictions with another revision; fail where errors grew
"""

from __future__ import annotations

import argparse
import sys

import pandas as pd

from engine.validation.error_tables import error_table, memory_table
from engine.validation.predict import validate
from engine.validation.reading import RunsFileError, library_runs, read_runs
from engine.validation.refresh import accept_state, fit_calibration, refresh_state
from engine.validation.regression.report import add_options, run_gate


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
    commands.add_parser("accept", help="store predictions, errors, intervals, what was measured, the gate's surface")
    commands.add_parser("refresh", help="fit, save the calibration, and store what follows from it (two minutes)")
    gate = commands.add_parser("gate", help="compare predictions with another revision; fail where errors grew")
    add_options(gate)
    chosen = parser.parse_args(arguments)
    if chosen.command == "gate":
        return run_gate(chosen)
    if chosen.command == "report":
        return _print_report(chosen.runs, chosen.out)
    if chosen.command == "fit":
        return fit_calibration(save=chosen.save)
    return refresh_state() if chosen.command == "refresh" else accept_state()


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


if __name__ == "__main__":
    raise SystemExit(main())
