"""The command `layers`: what a block of one execution consists of, by either cost model."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.output import (
    CalibrationOption,
    CostModelOption,
    ExitCode,
    ModelArgument,
    SystemArgument,
    as_json,
    calibration_of,
    evaluated_by,
    text_table,
    write,
)

if TYPE_CHECKING:
    import pandas as pd

    from engine.cost_models.calibrated.operation_columns import Shown

__all__ = ["layers"]

STAGES: Final = ("fw", "agrad", "wgrad")
LEFT_OUT: Final = (
    "Without what the backward pass computes again and without waiting for kernel launches; communication counts with "
    "what nothing hides of it."
)


def layers(
    model: ModelArgument,
    system: SystemArgument,
    execution: Annotated[Path, typer.Argument(metavar="EXECUTION", help="File with the execution.")],
    row: Annotated[int, typer.Option("--row", metavar="N", min=0, help="Which one, counted from 0.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON with all columns.")] = False,
    cost_model: CostModelOption = None,
    calibration: CalibrationOption = None,
) -> None:
    """Show what each layer of a block computes and keeps, for one microbatch on one processor.

    The cost model calibrated has operations instead of Calculon's layers, fewer, as kernels are fused: their times,
    work, memory traffic and rates, and what bounds them; JSON has them in s, FLOP, bytes and FLOP/s.

    \b
    Examples:
      shardscape layers megatron-1T a100_80g execution.json
      shardscape layers llama-3-70B h100_80g_sxm executions.csv --row 3 --calibration ours.json --json

    Exit code 1 when the execution cannot run.
    """
    import engine
    import hardware
    import models
    from engine.columns import fields_of
    from engine.cost_models.calibrated import library_calibration
    from engine.cost_models.names import chosen_cost_model

    machine, values = hardware.load(system), calibration_of(calibration)
    network, by = models.load(model), chosen_cost_model(cost_model, machine, values)
    chosen = _chosen(execution, row)
    try:
        if by == "calibrated":
            found = engine.operation_table(network, machine, chosen, values)
        else:
            found = engine.layer_table(network, machine, chosen)
    except engine.LayerError as error:
        write(str(error), stream=sys.stderr)
        if by == "calibrated":
            with suppress(engine.LayerError):
                engine.layer_table(network, machine, chosen)
                write("Calculon's model has layers of it: --cost-model calculon.", stream=sys.stderr)
        raise typer.Exit(ExitCode.NOTHING) from None
    if json:
        write(as_json(found.to_dict("records")))
    elif by == "calibrated":
        _print_operations(found)
    else:
        _print_layers(found)
    name = None if by == "calculon" else (values or library_calibration()).name
    what = "layers" if by == "calculon" else "operations"
    write(f"{len(found)} {what} ({evaluated_by(by, name)}).", stream=sys.stderr)
    read = {column.name for column in fields_of(by)}
    if unread := [name for name in chosen if name not in read]:
        write(f"The cost model {by} does not read {', '.join(unread)}.", stream=sys.stderr)


def _chosen(execution: Path, row: int) -> dict[str, Any]:
    """The execution in a row of a file."""
    from engine.executions.files import TableFileError, read_executions

    for table in read_executions(execution):
        if row < len(table):
            (found,) = table.iloc[[row]].to_dict("records")
            return {str(name): value for name, value in found.items()}
        row -= len(table)
    raise TableFileError(f"{execution} has no such row; --row counts its executions from 0.")


def _print_layers(found: pd.DataFrame) -> None:
    headers = ["layer", "engine"]
    for stage in STAGES:
        headers += [f"{stage} [GFLOP]", f"{stage} [us]"]
    headers += ["weights [MB]", "activations [MB]"]
    rows = []
    for layer in found.to_dict("records"):
        cells = [str(layer["name"]), str(layer["engine"])]
        for stage in STAGES:
            cells += [f"{layer[f'{stage}_flops'] / 1e9:,.3f}", f"{layer[f'{stage}_processing_time'] * 1e6:,.1f}"]
        rows.append([*cells, f"{layer['weight'] / 1e6:,.2f}", f"{layer['activation'] / 1e6:,.2f}"])
    write(text_table(headers, rows, left=(0, 1)))


def _print_operations(found: pd.DataFrame) -> None:
    from engine.cost_models.calibrated.operation_columns import OPERATION_COLUMNS
    from engine.cost_models.calibrated.physics.operations import BLOCKS

    kinds = found["block"].unique().tolist()
    texts = [position for position, each in enumerate(OPERATION_COLUMNS) if each.column.dtype == "str"]
    headers = [
        f"{each.column.short} [{each.unit}]" if each.unit else each.column.short for each in OPERATION_COLUMNS
    ]
    for kind in kinds:
        if len(kinds) > 1:
            write(f"{BLOCKS[kind]}:")
        operations = found[found["block"] == kind]
        rows = [[_cell(each, row) for each in OPERATION_COLUMNS] for row in operations.to_dict("records")]
        write(text_table(headers, rows, left=texts))
        forward, backward = (float(operations[name].sum()) * 1e6 for name in ("fw_time", "bw_time"))
        write(f"Together {forward:,.1f} µs forward, {backward:,.1f} µs backward.")
        write()
    write(LEFT_OUT)


def _cell(each: Shown, row: Mapping[Any, Any]) -> str:
    value = row[each.column.name]
    if each.column.dtype == "str":
        return str(value)
    return "-" if math.isnan(value) else f"{value / each.size:,.1f}"
