"""The command `calibrate`: fit the cost model to measured runs of one's own cluster."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks
from engine.cli.table_files import check_place, write_document
from engine.columns.percentages import format_percent
from engine.questions.documents.calibrations import CalibrationChoices

if TYPE_CHECKING:
    from engine import Scenario
    from engine.calibrate import Reranked
    from engine.questions.calibrations import FittedCalibration

__all__ = ["calibrate_model"]

LISTED: Final = 20
"""Refused rows that are printed; JSON has all."""
SHOWN: Final = 8


def _print_template(is_wanted: bool) -> None:
    """Print the table to fill in, and end the command."""
    if is_wanted:
        from engine.calibrate import template

        write_line(template().rstrip("\n"))
        raise typer.Exit


@asks(CalibrationChoices)
def calibrate_model(
    asked: CalibrationChoices,
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUNS", help="A CSV file of measured runs, or logs of one run each.")
    ] = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A field of all runs that do not give it.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the calibration (.json).")
    ] = None,
    scenario: Annotated[
        Path | None, typer.Option("--scenario", metavar="FILE", help="Show how this scenario's best executions change.")
    ] = None,
    template: Annotated[
        bool,
        typer.Option(
            "--template",
            is_eager=True,
            callback=_print_template,
            help="Print the table to fill in, and nothing else.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Fit a few parameters of the calibrated model to measured runs of one system.

    RUNS is a table, or logs of Megatron-LM, NeMo, Megatron-Bridge or torchtitan with the
    arguments that they print, one run per log. A table has the columns of --template, or usual ones: model (a name of
    the library, whose sizes then count), gpus, tp, pp, dp, micro batch, batch, precision, and step time, tokens/s or
    TFLOP/s in usual spellings. A run that cannot be used is listed with the reason and not fitted. The
    values start from the library's calibration and move as far as the runs justify; errors after the fit come from
    runs that were left out of it, if there are enough.

    \b
    Examples:
      shardscape calibrate --template > runs.csv
      shardscape calibrate runs.csv --system h100_80g_sxm --out ours.json
      shardscape calibrate ours.csv --system h100_80g_sxm --set batch=512 --set precision=bf16
      shardscape calibrate run1.log run2.log --system b200 --set vocab=128256

    Exit code 1 when no run can be used, 2 for files or parameters that are not understood, 3 when --out cannot be
    written.
    """
    import hardware
    from engine import calibrate as calibration
    from engine.questions.calibrations import find_calibration

    if not runs:
        raise calibration.CalibrateError("RUNS is missing; name a CSV file or logs, or use --template for a table.")
    if out is not None:
        check_place(out)
    measured = calibration.read_paths(runs, calibration.parse_given(given or []))
    ranked = None if scenario is None else _read_scenario(scenario)
    with ProgressReport("fitting") as report:
        found = find_calibration(asked, measured, ranked, progress=report.count)
    if json:
        write_line(as_json(found.document()))
    else:
        _print_fit(found)
    if found.calibration is None:
        raise typer.Exit(ExitCode.NOTHING)
    if out is not None:
        write_document(hardware.calibration_document(found.calibration), out)
        if not json:
            write_line(f"The calibration is in {out}.")


def _print_refused(refused: list[dict[str, Any]]) -> None:
    write_line()
    rows = [(row["row"], row["id"], row["reason_text"]) for row in refused[:LISTED]]
    write_line(text_table(("refused", "id", "because"), rows, left=(0, 1, 2)))
    if len(refused) > LISTED:
        write_line(f"and {len(refused) - LISTED:,} more; --json lists all.")


def _print_remarks(fitted: FittedCalibration) -> None:
    """Print what was converted or taken from the library in the used runs, with the number of runs."""
    checked = fitted.checked
    used = [text for text, accepted in zip(checked.remarks, checked.accepted, strict=True) if accepted]
    counts = Counter(part for text in used for part in text.split("; ") if part)
    if counts:
        write_line()
    for told, number in counts.most_common(LISTED):
        write_line(f"{number:,} {'run' if number == 1 else 'runs'}: {told}")


def _print_fit(fitted: FittedCalibration) -> None:
    """Print the fitted parameters, the errors before and after, and the refused runs."""
    checked, outcome, found = fitted.checked, fitted.outcome, fitted.calibration
    if outcome is None or found is None:
        write_line(f"None of the {len(checked.labels):,} runs can be used.")
        _print_refused(fitted.refused)
        return
    write_line(f"{outcome.rows:,} of {len(checked.labels):,} runs used; configurations: {outcome.configurations:,}.")
    if fitted.refused:
        _print_refused(fitted.refused)
    _print_remarks(fitted)
    write_line()
    lines = [
        (
            item.about.label,
            item.about.name,
            f"{item.prior:.4g}",
            f"{item.value:.4g}",
            f"{item.value / item.prior:.2f}",
            f"{item.value_range[0]:.3g} to {item.value_range[1]:.3g}",
            f"{100 * item.learned:.0f} %",
        )
        for item in outcome.estimates
    ]
    head = ("parameter", "name", "before", "after", "ratio", "90 % range", "from the runs")
    write_line(text_table(head, lines, left=(0, 1)))
    write_line()
    errors = [("before the fit", outcome.errors_before), ("the fitted runs", outcome.errors_after)]
    if outcome.errors_unseen is not None:
        errors.insert(1, ("left out of the fit", outcome.errors_unseen))
    rows = [
        [title, f"{values['rows']:,.0f}", *(_format_decimal(values[key]) for key in ("mean", "median", "p90", "bias"))]
        for title, values in errors
    ]
    write_line(text_table(("error [%]", "runs", "mean", "median", "p90", "bias"), rows))
    write_line()
    write_line(outcome.verdict)
    if fitted.ranking is not None:
        write_line()
        _print_ranked(fitted.ranking)
    write_line()
    if outcome.helps is False:
        write_line("Do not use this calibration for other runs.")
    write_line(f"Calibration {found.name} of {found.system}.")


def _print_ranked(ranked: Reranked) -> None:
    rows = [
        [
            f"{row['rank_after']:.0f}",
            f"{row['rank_before']:.0f}",
            f"{row['rate_before']:.4g}",
            f"{row['rate_after']:.4g}",
            *(f"{row[name]:.0f}" for name in ("tensor_par", "pipeline_par", "data_par", "microbatch_size", "alike")),
        ]
        for row in ranked.distinct.head(SHOWN).to_dict("records")
    ]
    head = ("rank", "before", "samples/s before", "after", "TP", "PP", "DP", "microbatch", "alike")
    write_line(text_table(head, rows, left=()))
    told = "The best stays the best."
    if ranked.changed:
        told = f"Another execution is best now, {format_percent(ranked.gain)} faster than the old best."
    tau = _format_decimal(ranked.tau, 2)
    write_line(f"{told} Kendall's tau between the orders of {len(ranked.table):,} executions: {tau}.")


def _read_scenario(path: Path) -> Scenario:
    """Return the scenario of a file."""
    from engine import Scenario
    from engine.scenarios.scenario import ScenarioError
    from models.documents import read_json

    return Scenario.from_document(read_json(path, "scenario", ScenarioError), str(path))


def _format_decimal(value: float, decimals: int = 1) -> str:
    return f"{value:,.{decimals}f}" if math.isfinite(value) else "-"
