"""The command `validate`: predictions for measured training runs, and how far they are off."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks
from engine.cli.table_files import check_export, write_table_file
from engine.questions.documents.validations import ValidationQuestion

if TYPE_CHECKING:
    import pandas as pd

    from engine.questions.validations import RunPredictions

__all__ = ["validate_model"]

KINDS: Final = ("set", "source and hardware")
"""Parts of the error table that are printed; JSON has all."""

PARTS_OF_SETS: Final = ("published runs", "published runs with the defective rows", "all rows")
"""Sets of runs that are the union of others: errors by release leave them out."""
ERRORS: Final = (
    ("rows", "rows", 0),
    ("mean", "mean", 1),
    ("median", "median", 1),
    ("p90", "p90", 1),
    ("bias", "bias", 1),
    ("within_10", "in 10 %", 0),
    ("tau", "tau", 2),
    ("regret", "regret", 1),
    ("unsupported", "unsup.", 0),
)
CALCULON: Final = (
    ("calculon_rows", "Calc. rows", 0),
    ("calculon_mean", "Calc. mean", 1),
    ("calculon_bias", "Calc. bias", 1),
    ("same_rows_mean", "ours there", 1),
)


@asks(ValidationQuestion, leave_out=("runs", "predictions"))
def validate_model(
    asked: ValidationQuestion,
    runs: Annotated[
        Path | None, typer.Option("--runs", metavar="FILE", help="Measured runs (.csv); the package's where left out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the predictions (.csv or .parquet).")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON with all parts of the table.")] = False,
) -> None:
    """Predict measured training runs with the calibrated model and say how far off it is.

    FILE has one run per row: the columns of engine/validation/data/runs.csv, of which hardware, hidden, layers, ffn,
    heads, vocab, seq_len, tp, pp, mbs and gbs are needed for a prediction, or the columns of vTrain's published
    tables. A run that cannot be predicted is listed as unsupported with its reason; it never stops the others.

    \b
    Columns of --out: id, status (predicted or unsupported), reason (a code), predicted_step_time_s [s],
    predicted_tokens_per_s_per_gpu [tokens/s], predicted_mem_gib [GiB], reason_text; with --calculon also
    calculon_step_time_s [s].

    \b
    Then how many measured times lie within the intervals that figures are shown with: of runs of the package, by models
    fitted without the run's source and without anything else of that source; of FILE, by the shipped fit.

    \b
    Printed errors are |predicted / measured - 1| in percent: mean, median, 90th percentile, bias (median of
    the signed error, negative: predicted too fast), share within 10 %, Kendall's tau and regret of the layout predicted
    best (percent) within runs of one workload on one machine, and runs without a prediction.

    \b
    Examples:
      shardscape validate
      shardscape validate --runs my-runs.csv --out predictions.csv --calculon

    Exit code 1 when no run can be predicted, 2 for a file without a table of runs, 3 when --out cannot be written.
    """
    from engine.questions.validations import find_predictions
    from engine.validation import read_runs

    if out is not None:
        check_export(out)
    read = None if runs is None else read_runs(runs)
    with ProgressReport("predicting the runs") as report:
        found = find_predictions(asked, read, progress=lambda done, total: report.count(done, total, "runs"))
    if out is not None:
        _write_predictions(found.table, out)
    if json:
        write_line(as_json({"runs": None if runs is None else str(runs), **found.document()}))
    else:
        _print_errors(found, runs)
    if out is not None:
        write_line(f"{len(found.table):,} rows are in {out}.", stream=sys.stderr)
    if not found.predicted:
        raise typer.Exit(ExitCode.NOTHING)


def _write_predictions(table: pd.DataFrame, path: Path) -> None:
    """Write the predictions of all runs."""
    from engine.validation import OUT_COLUMNS

    names = [*OUT_COLUMNS, "reason_text", *(name for name in ("calculon_step_time_s",) if name in table)]
    texts = dict.fromkeys(("id", "status", "reason", "reason_text"), "str")
    write_table_file(table[names].astype(texts), path)


def _print_errors(found: RunPredictions, runs: Path | None) -> None:
    """Print errors by set, source and hardware, coverage of the intervals, memory, and runs without a prediction."""
    from engine.validation import REASONS

    table, errors, memory, coverage = found.table, found.errors, found.memory_errors, found.coverage
    where = "the package" if runs is None else str(runs)
    write_line(
        f"{len(table):,} runs of {where}: {found.predicted:,} predicted by the calibrated model, the rest unsupported."
    )
    measured = table["error"].notna()
    if not measured.any():
        write_line("None of them has both a prediction and a measured time, so there are no errors.")
    else:
        for kind in KINDS:
            part = errors[errors["kind"] == kind]
            if len(part):
                write_line()
                write_line(_error_lines(part, kind))
        write_line()
        write_line("Errors in percent of the measured step time; bias is signed, negative means predicted too fast.")
    if len(coverage):
        write_line()
        write_line(_coverage_lines(coverage))
        unseen = " by fits without their source" if runs is None else ""
        write_line(
            f"Percent of measured times in intervals said to hold as many{unseen}; then every source counted once."
        )
    if len(memory):
        write_line()
        lines = [
            [
                str(row["name"]),
                f"{row['rows']:,}",
                *(_format_decimal(row[name], 1) for name in ("mean", "median", "bias")),
            ]
            for row in memory.to_dict("records")
        ]
        write_line(text_table(("memory", "rows", "mean", "median", "bias"), lines))
    if len(found.releases):
        write_line()
        write_line(_release_lines(found.releases))
        write_line("Mean errors of the fit by release, and (in brackets) of fits without the source of the run.")
    if unsupported := found.unsupported_by_reason:
        write_line()
        rows = [(reason, f"{count:,}", REASONS.get(reason, "")) for reason, count in unsupported.items()]
        write_line(text_table(("unsupported because", "runs", "meaning"), rows, left=(0, 2)))


def _error_lines(part: pd.DataFrame, kind: str) -> str:
    columns = [column for column in (*ERRORS, *CALCULON) if column[0] in part]
    rows = [
        [str(row["name"]), *(_format_decimal(row[name], decimals) for name, _, decimals in columns)]
        for row in part.to_dict("records")
    ]
    return text_table([kind, *(title for _, title, _ in columns)], rows)


def _release_lines(releases: pd.DataFrame) -> str:
    names = [name for name in releases["name"].unique() if name not in PARTS_OF_SETS]
    rows = [
        [str(date), *(_format_release(part[part["name"] == name]) for name in names)]
        for date, part in releases.groupby("date", sort=False)
    ]
    return text_table(["fitted on", *names], rows)


def _format_release(rows: pd.DataFrame) -> str:
    if not len(rows):
        return "-"
    return f"{_format_decimal(rows['mean'].iloc[0], 1)} ({_format_decimal(rows['sources'].iloc[0], 1)})"


def _coverage_lines(coverage: pd.DataFrame) -> str:
    from engine.validation.uncertainty import SHARES

    names = [f"{kind}_{100 * share:.0f}" for kind in ("covered", "sources") for share in SHARES]
    headers = [f"{share:.0%}" for share in SHARES] + [f"{share:.0%} by source" for share in SHARES]
    rows = [
        [
            row["name"],
            *(f"{row[name]:,}" for name in ("runs", "sources", "none")),
            *(_format_decimal(row[name], 0) for name in names),
        ]
        for row in coverage.to_dict("records")
    ]
    return text_table(["in intervals", "runs", "sources", "no interval", *headers], rows)


def _format_decimal(value: Any, decimals: int) -> str:
    known = float(value)
    return f"{known:,.{decimals}f}" if math.isfinite(known) else "-"
