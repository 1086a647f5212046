"""The command `calibrate`: fit the cost model to measured runs of one's own cluster."""

from __future__ import annotations

import math
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.progress import ProgressReport

if TYPE_CHECKING:
    from engine.calibrate import CalibrationOutcome, CheckedRuns, Reranked
    from hardware import Calibration

__all__ = ["calibrate_model"]

LISTED: Final = 20
"""Refused rows that are printed; JSON has all."""
SHOWN: Final = 8


def calibrate_model(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="RUNS", help="A CSV file of measured runs, or logs of one run each.")
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="NAME", help="Library name or JSON file of the system.")
    ] = None,
    parameters: Annotated[
        str | None, typer.Option("--parameters", metavar="A,B", help="Parameters to fit; chosen by the runs if absent.")
    ] = None,
    given: Annotated[
        list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A field of all runs that do not give it.")
    ] = None,
    base: Annotated[
        str, typer.Option("--from", metavar="NAME", help="Calibration to start from: library name or JSON file.")
    ] = "global",
    name: Annotated[str, typer.Option("--name", help="Name of the calibration; made from the system if absent.")] = "",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write the calibration (.json).")
    ] = None,
    scenario: Annotated[
        Path | None, typer.Option("--scenario", metavar="FILE", help="Show how this scenario's best executions change.")
    ] = None,
    template: Annotated[bool, typer.Option("--template", help="Print the table to fill in, and nothing else.")] = False,
    json: JsonOption = False,
) -> None:
    """Fit a few parameters of the calibrated model to measured runs of one system.

    RUNS is a table with the columns of --template, or logs of Megatron-LM, NeMo, Megatron-Bridge or torchtitan with the
    arguments that they print, one run per log. A run that cannot be used is listed with the reason and not fitted. The
    values start from the library's calibration and move as far as the runs justify; errors after the fit come from
    runs that were left out of it, if there are enough.

    \b
    Examples:
      shardscape calibrate --template > runs.csv
      shardscape calibrate runs.csv --system h100_80g_sxm --out ours.json
      shardscape calibrate run1.log run2.log --system b200 --set vocab=128256

    Exit code 1 when no run can be used, 2 for files or parameters that are not understood, 3 when --out cannot be
    written.
    """
    from engine import calibrate as calibration

    if template:
        write_line(calibration.template().rstrip("\n"))
        return
    if not runs:
        raise calibration.CalibrateError("RUNS is missing; name a CSV file or logs, or use --template for a table.")
    if system is None:
        raise calibration.CalibrateError("--system is missing; name one of `shardscape systems list`, or a file.")
    import hardware

    if out is not None:
        _check_out(out)
    start = hardware.load_calibration(base)
    name = calibration.checked_name(name, start)
    measured = calibration.read_paths(runs, calibration.parse_given(given or []))
    checked = calibration.check(measured, hardware.load(system), calibration.parameters_of(start))
    if not checked.accepted.any():
        _report_refused_runs(checked, json)
        raise typer.Exit(ExitCode.NOTHING)
    chosen = None if parameters is None else [word.strip() for word in parameters.split(",") if word.strip()]
    with ProgressReport("fitting"):
        outcome = calibration.calibrate(checked, chosen, start)
        found = calibration.document(outcome, name)
        ranked = None if scenario is None else _rank_executions(scenario, outcome, found)
    if json:
        write_line(as_json(_fit_document(outcome, found, ranked)))
    else:
        _print_fit(outcome, found, ranked)
    if out is not None:
        _write_out(found, out)
        if not json:
            write_line(f"The calibration is in {out}.")


def _check_out(path: Path) -> None:
    """Says so before fitting where writing could only fail after it."""
    from engine.executions.files import TableWriteError

    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK | os.X_OK):
        raise TableWriteError(f"{path} cannot be written; name a file in a folder that exists and may be written to.")


def _write_out(found: Calibration, path: Path) -> None:
    """Writes the calibration; the file appears when it is whole."""
    import hardware
    from engine.executions.files import TableWriteError

    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_text(as_json(hardware.calibration_document(found)) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or str(error).split("\n", 1)[0]
        raise TableWriteError(f"{path} cannot be written: {told}.") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _refused_rows(checked: CheckedRuns) -> list[dict[str, Any]]:
    """Every refused row."""
    return [
        {
            "row": checked.labels[row],
            "id": str(checked.table["id"].iloc[row]),
            "reason": str(checked.reason[row]),
            "reason_text": str(checked.reason_text[row]),
            "missing": list(checked.missing[row]),
        }
        for row, accepted in enumerate(checked.accepted)
        if not accepted
    ]


def _report_refused_runs(checked: CheckedRuns, json: bool) -> None:
    refused = _refused_rows(checked)
    if json:
        write_line(as_json({"rows": len(checked.labels), "accepted": 0, "refused": refused}))
        return
    write_line(f"None of the {len(checked.labels):,} runs can be used.")
    _print_refused(refused)


def _print_refused(refused: list[dict[str, Any]]) -> None:
    write_line()
    rows = [(row["row"], row["reason_text"]) for row in refused[:LISTED]]
    write_line(text_table(("refused", "because"), rows, left=(0, 1)))
    if len(refused) > LISTED:
        write_line(f"and {len(refused) - LISTED:,} more; --json lists all.")


def _print_fit(outcome: CalibrationOutcome, found: Calibration, ranked: Reranked | None) -> None:
    checked = outcome.checked
    refused = _refused_rows(checked)
    write_line(f"{outcome.rows:,} of {len(checked.labels):,} runs used; configurations: {outcome.configurations:,}.")
    if refused:
        _print_refused(refused)
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
    if ranked is not None:
        write_line()
        _print_ranked(ranked)
    write_line()
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
        told = f"Another execution is best now, {100 * ranked.gain:.1f} % faster than the old best."
    tau = _format_decimal(ranked.tau, 2)
    write_line(f"{told} Kendall's tau between the orders of {len(ranked.table):,} executions: {tau}.")


def _rank_executions(path: Path, outcome: CalibrationOutcome, found: Calibration) -> Reranked:
    """The scenario's best executions, ranked by both calibrations."""
    from engine import Scenario
    from engine.calibrate import rerank
    from engine.scenarios.scenario import ScenarioError
    from models.documents import read_json

    scenario = Scenario.from_document(read_json(path, "scenario", ScenarioError), str(path))
    return rerank(scenario, outcome.base, found)


def _fit_document(outcome: CalibrationOutcome, found: Calibration, ranked: Reranked | None) -> dict[str, Any]:
    import hardware

    checked = outcome.checked
    return {
        "rows": len(checked.labels),
        "accepted": outcome.rows,
        "refused": _refused_rows(checked),
        "configurations": outcome.configurations,
        "held_out": outcome.held_out.described,
        "helps": outcome.helps,
        "verdict": outcome.verdict,
        "errors_before": dict(outcome.errors_before),
        "errors_unseen": None if outcome.errors_unseen is None else dict(outcome.errors_unseen),
        "errors_fitted": dict(outcome.errors_after),
        "influence": dict(outcome.influence),
        "calibration": hardware.calibration_document(found),
        "ranking": None
        if ranked is None
        else {
            "changed": ranked.changed,
            "gain": ranked.gain,
            "tau": ranked.tau,
            "best": ranked.table.to_dict("records"),
        },
    }


def _format_decimal(value: float, decimals: int = 1) -> str:
    return f"{value:,.{decimals}f}" if math.isfinite(value) else "-"
