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
from engine.cli.text_tables import write_table

if TYPE_CHECKING:
    import pandas as pd

    from engine.planners.intra_operator import IntraOperatorPlan, Vector

__all__ = ["plan_operators"]

SHOWN = ("vector", "solution", "seconds", "communication_seconds", "volume", "memory", "reason")


def plan_operators(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="gpt A to I, moe A to I, llama, or library model.")],
    devices: Annotated[int, typer.Option("--devices", metavar="N", help="Devices on the one axis of the mesh.")],
    batch: Annotated[int, typer.Option("--batch", metavar="B", help="Batch [sequences].")] = 16,
    layers: Annotated[int | None, typer.Option("--layers", metavar="N", help="Layers; the model's by default.")] = None,
    memory_limit: Annotated[
        float | None, typer.Option("--memory-limit", metavar="GIB", help="Memory of a device [GiB]; none by default.")
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", metavar="NAME", help="System whose first tier the mesh is, with rates.")
    ] = None,
    datatype: Annotated[
        str, typer.Option("--datatype", metavar="TYPE", help="Of a system's matrix rate.")
    ] = "bfloat16",
    matrix_rate: Annotated[
        float, typer.Option("--matrix-rate", metavar="TFLOP/S", help="Matrix rate of a device [TFLOP/s].")
    ] = 83.8,
    bandwidth: Annotated[
        float, typer.Option("--bandwidth", metavar="GB/S", help="What a device sends in a ring [GB/s].")
    ] = 20.65,
    all_to_all: Annotated[
        float | None, typer.Option("--all-to-all", metavar="GB/S", help="The same of an all-to-all [GB/s].")
    ] = None,
    alpha: Annotated[float, typer.Option("--alpha", metavar="S", help="Time of a collective besides [s].")] = 0.0,
    element_bytes: Annotated[
        float | None,
        typer.Option("--element-bytes", metavar="B", help="Width of an element; 4 or, of library models, 2."),
    ] = None,
    state_bytes: Annotated[
        float, typer.Option("--state-bytes", metavar="B", help="A parameter with gradient and optimizer state [bytes].")
    ] = 16.0,
    gradient_bytes: Annotated[
        float | None, typer.Option("--gradient-bytes", metavar="B", help="Width of gradients; an element's by default.")
    ] = None,
    zero: Annotated[bool, typer.Option("--zero", help="Split gradients and optimizer state (ZeRO).")] = False,
    fsdp: Annotated[bool, typer.Option("--fsdp", help="Split parameters, too (FSDP, ZeRO stage 3).")] = False,
    sequence_parallel: Annotated[
        bool | None,
        typer.Option("--sequence-parallel/--no-sequence-parallel", help="Split what rows give by tokens."),
    ] = None,
    recompute: Annotated[
        str, typer.Option("--recompute", metavar="none|selective|full", help="What the backward pass computes again.")
    ] = "none",
    accumulation: Annotated[
        int, typer.Option("--accumulation", metavar="N", help="Microbatches whose gradients are added up in a step.")
    ] = 1,
    tiers: Annotated[int, typer.Option("--tiers", metavar="1|2", help="Mesh axes of a system: networks.")] = 1,
    outer: Annotated[
        str | None,
        typer.Option("--outer", metavar="NxGB/S", help="Outer axis of a mesh of two: groups and their bandwidth."),
    ] = None,
    annotations: Annotated[
        bool, typer.Option("--annotations", help="Print the sharding of every weight and activation.")
    ] = False,
    beside: Annotated[
        bool, typer.Option("--beside", help="Set the plan beside the best of all executions; with --system.")
    ] = False,
    form: Annotated[
        str | None,
        typer.Option("--form", metavar="FORM", help="Print as CFP does: analysis, profile, search or enumeration."),
    ] = None,
    measured: Annotated[
        Path | None,
        typer.Option("--measured", metavar="FILE", help="Log, CSV or JSON of measured points, to set beside."),
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
    from engine.planners.intra_operator import search, system_mesh

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
    mesh: dict[str, Any] = {
        "devices": devices,
        "matrix_rate": matrix_rate * 1e12,
        "bandwidth": bandwidth * 1e9,
        "alpha": alpha,
    }
    if system is not None:
        mesh = system_mesh(system, devices, datatype=datatype, tiers=tiers).document()
    elif beside or tiers != 1:
        raise PlanError(f"{'--beside' if beside else '--tiers'} needs --system.")
    if outer is not None:
        if system is not None:
            raise PlanError("Give --system with --tiers, or --outer, not both.")
        mesh["outer"] = _parse_outer_axis(outer)
    if all_to_all is not None:
        mesh["all_to_all_bandwidth"] = all_to_all * 1e9
    counted: dict[str, Any] = {
        "element_bytes": element_bytes,
        "state_bytes": state_bytes,
        "zero": zero,
        "fsdp": fsdp,
        "sequence_parallel": sequence_parallel,
        "gradient_bytes": gradient_bytes,
        "recompute": recompute,
        "accumulation": accumulation,
    }
    if measured is not None:
        asked: dict[str, Any] = {"model": model, "batch": batch, "layers": layers, **counted}
        write_table(_beside_measured(measured, mesh, asked, fit=fit), json=json, csv=csv)
        return
    if segments:
        from engine.planners.intra_operator import segment_map

        write_table(segment_map(model, batch=batch, layers=layers), json=json, csv=csv)
        return
    with ProgressReport("searching strategies"):
        found = search(
            model,
            mesh,
            memory_limit=None if memory_limit is None else memory_limit * 2**30,
            batch=batch,
            layers=layers,
            **counted,
        )
    if form is not None:
        from engine.reproductions.cfp.text_forms import log_text

        write_line(log_text(found, form).rstrip("\n"))
        return
    if annotations or beside:
        from engine.planners.intra_operator import beside_exploration, sharding_annotations

        table = (
            sharding_annotations(found)
            if annotations or system is None
            else beside_exploration(found, model, system, batch=batch, datatype=datatype)
        )
        write_table(table, json=json, csv=csv)
        return
    if json:
        from engine.questions.plans import operators_document

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


def _parse_outer_axis(text: str) -> dict[str, Any]:
    """The outer axis that an option describes."""
    from engine.planners.contract import PlanError

    number, _, rate = text.partition("x")
    try:
        return {"devices": int(number), "bandwidth": float(rate) * 1e9}
    except ValueError:
        raise PlanError(f"--outer {text[:40]!r} must be groups of devices x GB/s, such as 2x40.") from None


def _beside_measured(path: Path, mesh: dict[str, Any], asked: dict[str, Any], *, fit: bool) -> pd.DataFrame:
    """Measured points with predictions, by rates that are fitted to them where asked."""
    from engine.planners.intra_operator import fit_rates, measured_points, mesh_of, overlay

    points = measured_points(path)
    machine = mesh_of(mesh)
    if fit:
        rates = fit_rates(points, devices=machine.devices, **asked)
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
    return overlay(points, machine, **asked)


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
