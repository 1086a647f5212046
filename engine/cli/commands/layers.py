"""The command `layers`: what a block of one execution consists of, by any cost model."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.cli.asked_scenario import write_unrepresented
from engine.cli.options import CalibrationOption, CostModelOption, ModelArgument, SystemArgument
from engine.cli.output import ExitCode, as_json, calibration_of, evaluated_by, text_table, write_line

__all__ = ["chosen_execution", "show_layers"]


def show_layers(
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
    from engine.cost_models.registry import COST_MODELS, chosen_cost_model

    machine, values = hardware.load(system), calibration_of(calibration)
    network, by = models.load(model), chosen_cost_model(cost_model, machine, values)
    chosen = chosen_execution(execution, row)
    try:
        found = by.operations(network, machine, chosen, values)
    except engine.LayerError as error:
        write_line(str(error), stream=sys.stderr)
        for other in COST_MODELS.values():
            if other is not by and not other.takes_calibration:
                with suppress(engine.LayerError):
                    other.operations(network, machine, chosen, None)
                    told = f"The cost model {other.name} has {other.words.operations} of it"
                    write_line(f"{told}: --cost-model {other.name}.", stream=sys.stderr)
        raise typer.Exit(ExitCode.NOTHING) from None
    if json:
        write_line(as_json(found.to_dict("records")))
    else:
        for sheet in by.words.sheets(found):
            if sheet.heading:
                write_line(sheet.heading)
            write_line(text_table(sheet.headers, sheet.rows, left=sheet.texts))
            for line in sheet.below:
                write_line(line)
    used = by.calibration(values)
    told = evaluated_by(by.name, None if used is None else used.name)
    write_line(f"{len(found)} {by.words.operations} ({told}).", stream=sys.stderr)
    write_unrepresented(network, sys.stderr)
    read = {column.name for column in fields_of(by.name)}
    if unread := [name for name in chosen if name not in read]:
        write_line(f"The cost model {by.name} does not read {', '.join(unread)}.", stream=sys.stderr)


def chosen_execution(execution: Path, row: int) -> dict[str, Any]:
    """Return the execution in a row of a file. Raises `TableFileError` if there is no such row."""
    from engine.executions.files import TableFileError, read_executions

    for table in read_executions(execution):
        if row < len(table):
            (found,) = table.iloc[[row]].to_dict("records")
            return {str(name): value for name, value in found.items()}
        row -= len(table)
    raise TableFileError(f"{execution} has no such row; --row counts its executions from 0.")
