"""The command `plan operators`: how the contractions inside layers are split over devices."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks, build_question
from engine.cli.text_tables import write_table
from engine.questions.documents.operators import OperatorsQuestion, OuterAxis
from engine.questions.verb import QuestionError

if TYPE_CHECKING:
    import pandas as pd

    from engine.planners.intra_operator import IntraOperatorPlan, Vector

__all__ = ["plan_operators"]

SHOWN = ("vector", "solution", "seconds", "communication_seconds", "volume", "memory", "reason")


@asks(OperatorsQuestion, arguments=("model",), leave_out=("annotations", "top"))
def plan_operators(
    asked: OperatorsQuestion,
    outer: Annotated[
        str | None,
        typer.Option("--outer", metavar="NxGB/S", help="Outer axis of a mesh of two: groups and their bandwidth."),
    ] = None,
    annotations: Annotated[
        bool, typer.Option("--annotations", help="Print the sharding of every weight and activation.")
    ] = False,
    beside: Annotated[
        bool, typer.Option("--beside", help="Set the plan next to the best of all executions; with --system.")
    ] = False,
    form: Annotated[
        str | None,
        typer.Option("--form", metavar="FORM", help="Print as CFP does: analysis, profile, search or enumeration."),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option("--measured", metavar="FILE", help="Log, CSV or JSON of measured points to compare."),
    ] = None,
    fit: Annotated[bool, typer.Option("--fit", help="Fit rates to the measured points first.")] = False,
    segments: Annotated[bool, typer.Option("--segments", help="Print the sequence of segments.")] = False,
    top: Annotated[int, typer.Option("--top", metavar="K", min=1, help="Vectors to print.")] = 10,
    csv: Annotated[bool, typer.Option("--csv", help="Print all vectors as CSV.")] = False,
    json: JsonOption = False,
) -> None:
    """Split the contractions inside layers over the devices of a mesh axis, the best way under a limit of memory.

    Every vector of strategies, one per ParallelBlock, with its time, volume and memory; the best vectors of all layers
    by dynamic programming. 0 splits columns, 1 tokens, 2 rows of a weight, 3 experts. MODEL is one that Alpa
    and CFP ran; or of the library; default rates are four A100 in CFP's published runs.

    \b
    Examples:
      shardscape plan operators "gpt F" --devices 4 --batch 24 --layers 2
      shardscape plan operators "gpt F" --devices 4 --batch 24 --layers 2 --memory-limit 10 --csv
      shardscape plan operators llama-3-8B --devices 8 --batch 8 --system h100_80g_sxm --zero --beside
      shardscape plan operators llama-3-8B --devices 8 --batch 64 --system h100_80g_sxm --accumulation 8
      shardscape plan operators "gpt F" --devices 4 --batch 16 --layers 2 --measured runs.log --fit
      shardscape plan operators deepseek-v2-lite --devices 32 --tiers 2 --batch 32 --system h100_80g_sxm --annotations

    Exit code 1 when no plan fits the limit.
    """
    from engine.planners.contract import PlanError
    from engine.questions.plans import find_operator_plan, operators_document, question_model

    if csv and json:
        raise PlanError("Give --csv or --json, not both.")
    named = {
        "--annotations": annotations,
        "--beside": beside,
        "--form": form,
        "--measured": measured,
        "--segments": segments,
    }
    if len(given := [name for name, value in named.items() if value]) > 1:
        raise PlanError(f"Give {given[0]} or {given[1]}, not both.")
    if fit and measured is None:
        raise PlanError("--fit needs --measured.")
    if asked.system is None and (beside or asked.tiers != 1):
        raise PlanError(f"{'--beside' if beside else '--tiers'} needs --system.")
    if outer is not None:
        if asked.system is not None:
            raise PlanError("Give --system with --tiers, or --outer, not both.")
        asked = asked.model_copy(update={"outer": _parse_outer_axis(outer)})
    if measured is not None:
        write_table(_beside_measured(measured, asked, fit=fit), json=json, csv=csv)
        return
    if segments:
        from engine.planners.intra_operator import segment_map

        table = segment_map(question_model(asked), batch=asked.batch, layers=asked.layers)
        write_table(table, json=json, csv=csv)
        return
    with ProgressReport("searching strategies"):
        found = find_operator_plan(asked)
    if form is not None:
        from engine.reproductions.cfp.text_forms import log_text

        write_line(log_text(found, form).rstrip("\n"))
        return
    if annotations or beside:
        from engine.planners.intra_operator import beside_exploration, sharding_annotations
        from engine.questions.scenario_documents import found_system

        table = (
            sharding_annotations(found)
            if annotations or asked.system is None
            else beside_exploration(
                found,
                question_model(asked),
                found_system(asked.system),
                batch=asked.batch,
                datatype=asked.datatype,
            )
        )
        write_table(table, json=json, csv=csv)
        return
    if json:
        write_line(as_json(operators_document(found, found.vectors)))
    elif csv:
        table = found.vectors.assign(vector=[_format_vector(each) for each in found.vectors["vector"]])
        write_line(table.to_csv(index=False).rstrip())
    else:
        _print_vectors(found, top)
    if found.chosen is None:
        if csv:
            write_line(found.infeasible, stream=sys.stderr)
        raise typer.Exit(ExitCode.NOTHING)


def _parse_outer_axis(text: str) -> OuterAxis:
    """Return the outer axis that an option describes."""
    number, _, rate = text.partition("x")
    try:
        return build_question(OuterAxis, {"devices": int(number), "bandwidth_gb_per_s": float(rate)})
    except ValueError:
        raise QuestionError(f"--outer {text[:40]!r} must be groups of devices x GB/s, such as 2x40.") from None


def _beside_measured(path: Path, asked: OperatorsQuestion, *, fit: bool) -> pd.DataFrame:
    """Return measured points with predictions, by rates that are fitted to them on request."""
    from engine.planners.intra_operator import fit_rates, measured_points, overlay
    from engine.questions.plans import planned_sizes, question_mesh, question_model

    points, machine = measured_points(path), question_mesh(asked)
    sizes: dict[str, Any] = {"model": question_model(asked), **planned_sizes(asked)}
    if fit:
        rates = fit_rates(points, devices=machine.devices, **sizes)
        machine = rates.mesh(machine)
        shown = {
            "matrix rate [TFLOP/s]": rates.matrix_rate,
            "bandwidth [GB/s]": rates.bandwidth,
            "all-to-all [GB/s]": rates.all_to_all_bandwidth,
        }
        for name, value in shown.items():
            scale = 1e12 if "TFLOP" in name else 1e9
            write_line(f"Fitted {name}: {'not told' if value is None else f'{value / scale:.5g}'}", stream=sys.stderr)
        for note in rates.notes:
            write_line(note, stream=sys.stderr)
    return overlay(points, machine, **sizes)


def _print_vectors(found: IntraOperatorPlan, top: int) -> None:
    from engine.planners.intra_operator import described

    chosen = found.chosen
    if chosen is None:
        write_line(found.infeasible)
    else:
        write_line(
            f"{chosen.solution.capitalize()}: {chosen.seconds:.4g} s a step, of which collectives "
            f"{chosen.communication_seconds:.4g} s; {found.tflops:.4g} TFLOP/s of all devices; "
            f"{chosen.memory / 2**30:.4g} GiB per device."
        )
        for told in described(chosen.vectors, [each.name for each in found.layers], found.widths):
            write_line(told)
        for at, (vector, number) in enumerate(_group_equal_vectors(chosen.vectors)):
            write_line(f"{'Layers' if not at else '      '} {_format_vector(vector)} x {number}")
    write_line()
    _vector_table(found.vectors.sort_values(["fits", "seconds"], ascending=[False, True], kind="stable").head(top))
    for note in (found.exactness, *found.notes):
        write_line(note)


def _group_equal_vectors(vectors: Sequence[Vector]) -> list[tuple[Vector, int]]:
    """Equal vectors of layers that follow each other, with their number."""
    found: list[tuple[Vector, int]] = []
    for each in vectors:
        if found and found[-1][0] == each:
            found[-1] = (each, found[-1][1] + 1)
        else:
            found.append((each, 1))
    return found


def _format_vector(vector: Vector) -> str:
    """Strategies of the blocks; on two axes both, as 10."""
    return ",".join("".join(map(str, each)) if isinstance(each, tuple) else str(each) for each in vector)


def _vector_table(table: pd.DataFrame) -> None:
    headers = ("vector", "solution", "seconds", "collectives s", "volume GB", "memory GiB", "not possible as")
    records: list[dict[str, Any]] = [dict(zip(SHOWN, row, strict=True)) for row in table[list(SHOWN)].to_numpy()]
    rows = [
        [
            _format_vector(row["vector"]),
            row["solution"],
            f"{row['seconds']:.4g}",
            f"{row['communication_seconds']:.4g}",
            f"{row['volume'] / 1e9:.4g}",
            f"{row['memory'] / 2**30:.4g}",
            row["reason"],
        ]
        for row in records
    ]
    write_line(text_table(list(headers), rows, left=[0, 1, 6]))
