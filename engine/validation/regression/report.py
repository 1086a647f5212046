"""The command `gate`: compare predictions of two revisions and print the changes by group."""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd

from engine.validation.mapping import map_runs
from engine.validation.reading import library_runs
from engine.validation.regression.comparison import (
    FEWEST_RUNS,
    LOST_PREDICTIONS,
    WorseGroup,
    compare_errors,
    compare_executions,
    count_gone,
    find_worse_groups,
    summarize_changes,
)
from engine.validation.regression.predictions import (
    GateError,
    accepted_predictions,
    predict_now,
    read_predictions,
    write_predictions,
)
from engine.validation.regression.revisions import ROOT, RevisionPredictor
from engine.validation.regression.surface import SurfacePart, build_surface
from engine.validation.steps import StepReport

__all__ = ["add_options", "run_gate"]

WORSE = 0.3
"""Growth of a group's mean error that passes without being stated [percentage points]."""
ALLOWED_FILE = Path(str(files("engine.validation").joinpath("data", "allowed_changes.csv")))
"""Mean errors that groups may reach, with the reason: `ALLOWED_COLUMNS`."""
ALLOWED_COLUMNS = ("group", "up_to", "why")
PERCENT_SHOWN = 0.01
"""Change that is not shown if no change is larger [%]."""
MOST_NAMED = 3
"""Runs of a group that a message names."""
SECONDS = {"choosing executions": 2.0, "predicting": 12.0, "comparing": 2.0}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command.

    Args:
        parser: of the command.
    """
    parser.add_argument(
        "--against",
        metavar="REVISION|FILE",
        help="compare with a git revision, or a file that --store wrote; with the accepted state where left out",
    )
    parser.add_argument("--store", metavar="FILE", type=Path, help="write the present predictions to FILE (.csv.gz)")
    parser.add_argument("--all", action="store_true", help="print groups that did not change, too")
    parser.add_argument(
        "--worse", metavar="POINTS", type=float, default=WORSE, help="growth of a mean error that passes (%(default)s)"
    )
    parser.add_argument(
        "--allowed",
        metavar="FILE",
        type=Path,
        default=ALLOWED_FILE,
        help="errors that groups may reach, each with the reason (.csv)",
    )


def run_gate(options: argparse.Namespace) -> int:
    """Compare, print, and return the exit status: 0, 1 where a group got worse, 2 for input that cannot be read.

    Args:
        options: parsed options of `add_options`.
    """
    try:
        allowed = _read_allowed(options.allowed)
        return _compare(options, allowed)
    except GateError as problem:
        print(problem, file=sys.stderr)
        return 2


def _compare(options: argparse.Namespace, allowed: dict[str, float]) -> int:
    runs = library_runs()
    mapped = map_runs(runs)
    with StepReport(SECONDS) as steps:
        steps.begin("choosing executions")
        parts = build_surface()
        steps.begin("predicting")
        if options.against is None or Path(options.against).is_file():
            before = accepted_predictions() if options.against is None else read_predictions(Path(options.against))
            now = predict_now(parts, mapped, steps.progress)
        else:
            with RevisionPredictor(options.against, parts, runs) as predictor:
                now = predict_now(parts, mapped, steps.progress)
                before = predictor.wait()
        steps.begin("comparing")
        changes = compare_executions(before.surface, now.surface)
        surface, errors = summarize_changes(parts, changes), compare_errors(mapped, before, now)
    if options.store is not None:
        try:
            write_predictions(now, options.store)
        except OSError as problem:
            raise GateError(f"{options.store} cannot be written: {problem.strerror}.") from None
    _print_tables(parts, changes, surface, errors, with_all=options.all)
    if gone := count_gone(before.surface, now.surface):
        print(f"{gone:,} executions of the earlier revision are missing, such as those of removed models.")
    if unknown := set(allowed) - {*errors["group"], LOST_PREDICTIONS}:
        raise GateError(f"{options.allowed} states {min(unknown)!r}, no group of runs; --all prints the groups.")
    worse = find_worse_groups(errors, options.worse, allowed)
    print("\n" + (_describe_worse(worse, options.allowed) if worse else "No group is worse than stated."))
    return 1 if worse else 0


def _describe_worse(worse: Sequence[WorseGroup], path: Path) -> str:
    """Return the groups that got worse and the rows that would state them."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((each.group, f"{each.up_to:g}", "REASON") for each in worse)
    where = path.resolve()
    shown = where.relative_to(ROOT) if where.is_relative_to(ROOT) else where
    lines = ["Worse than stated:", *(each.sentence for each in worse), ""]
    lines += [f"Mend it, or add these rows to {shown}, each with its reason:", text.getvalue().rstrip()]
    return "\n".join(lines)


def _read_allowed(path: Path) -> dict[str, float]:
    """Return the mean errors that groups may reach [%], and the number of predictions that may be lost, by group.

    Raises:
        GateError: the file cannot be read, or a row has no group, no reason or no positive number.
    """
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as problem:
        raise GateError(f"{path} cannot be read as a table of allowed changes: {problem}.") from None
    if tuple(table.columns) != ALLOWED_COLUMNS:
        raise GateError(f"{path} must have the columns group, up_to and why.")
    found: dict[str, float] = {}
    for row in table.to_dict("records"):
        try:
            up_to = float(row["up_to"])
        except ValueError:
            up_to = float("nan")
        if not 0 < up_to < math.inf or not row["group"] or row["why"].strip() in ("", "REASON"):
            raise GateError(f"{path}: each row needs a group, up_to above 0, and why; {row} does not have them.")
        if row["group"] in found:
            raise GateError(f"{path} states {row['group']} twice; one row per group.")
        found[row["group"]] = up_to
    return found


def _print_tables(
    parts: Sequence[SurfacePart],
    changes: pd.DataFrame,
    surface: pd.DataFrame,
    errors: pd.DataFrame,
    *,
    with_all: bool,
) -> None:
    models, systems = len({part.model for part in parts}), len({part.system for part in parts})
    print(f"Predictions of {len(changes):,} executions of {models} models on {systems} systems")
    has_changed = (surface[["outcomes", "changed"]] > 0).any(axis=1)
    shown = surface if with_all else surface[has_changed]
    if len(shown):
        names = {"outcomes": "runs or not", "median": "median %", "largest": "largest %", "memory": "memory %"}
        print(_format_table(shown.rename(columns=names), signed=("median %", "largest %", "memory %")))
        print(_describe_largest(changes))
    if not with_all:
        print(f"{int((~has_changed).sum())} groups of executions did not change.")
    print("\nMean errors of step time and memory of measured runs, in percent")
    has_moved = (errors[["gained", "lost"]] > 0).any(axis=1) | (errors["largest"].abs() > PERCENT_SHOWN)
    has_moved |= (errors["before"] - errors["after"]).abs() > PERCENT_SHOWN
    chosen = errors if with_all else errors[has_moved]
    if len(chosen):
        print(_format_table(chosen, signed=("median", "largest")))
    if not with_all:
        print(f"{int((~has_moved).sum())} groups of runs did not change.")
    print(f"Groups of fewer than {FEWEST_RUNS} runs are not judged.")


def _describe_largest(changes: pd.DataFrame) -> str:
    """Return the executions whose step times changed most, one per line."""
    order = changes["time"].abs().sort_values(ascending=False, kind="stable").index[:MOST_NAMED]
    lines = [
        f"  {row['time']:+.2f} %: {row['seconds_before']:.4g} -> {row['seconds']:.4g} s  {row['model']} on "
        f"{row['system']}, {row['seq_size']:,} tokens, {row['execution']}"
        for row in changes.loc[order].to_dict("records")
        if abs(row["time"]) > PERCENT_SHOWN
    ]
    return "\n".join(["Largest changes:", *lines]) if lines else "No step time changed."


def _format_table(table: pd.DataFrame, signed: Sequence[str]) -> str:
    """Return a table as text: words to the left, numbers with two decimals, changes with signs."""
    texts = {}
    for name in table.columns:
        if table[name].dtype == np.float64:
            form = "{:+.2f}" if name in signed else "{:.2f}"
            cells = ["" if value != value else form.format(value) for value in table[name]]
        else:
            cells = [f"{value:,}" if isinstance(value, int | np.integer) else str(value) for value in table[name]]
        width = max(map(len, [*cells, name]))
        is_text = not pd.api.types.is_numeric_dtype(table[name])
        texts[name] = [each.ljust(width) if is_text else each.rjust(width) for each in [name, *cells]]
    return "\n".join("  ".join(line).rstrip() for line in zip(*texts.values(), strict=True))
