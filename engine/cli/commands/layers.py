"""The command `layers`: what a block of one execution consists of, by any cost model."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.cli.asked_scenario import write_unrepresented
from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, evaluated_by, text_table, write_line
from engine.cli.question_options import asks
from engine.questions.documents.executions import EvaluationSettingQuestion

__all__ = ["chosen_execution", "show_layers"]


@asks(EvaluationSettingQuestion, arguments=("model", "system"))
def show_layers(
    asked: EvaluationSettingQuestion,
    execution: Annotated[Path, typer.Argument(metavar="EXECUTION", help="File with the execution.")],
    row: Annotated[int, typer.Option("--row", metavar="N", min=0, help="Which one, counted from 0.")] = 0,
    json: JsonOption = False,
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
    from engine.columns import fields_of
    from engine.cost_models.registry import COST_MODELS
    from engine.questions.evaluation_settings import load_evaluation_setting
    from engine.questions.executions import find_operations

    setting = load_evaluation_setting(asked)
    by, chosen = setting.cost_model, chosen_execution(execution, row)
    try:
        found = find_operations(setting, chosen)
    except engine.LayerError as error:
        write_line(str(error), stream=sys.stderr)
        for other in COST_MODELS.values():
            if other is not by and not other.takes_calibration:
                with suppress(engine.LayerError):
                    other.operations(setting.model, setting.system, chosen, None)
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
    told = evaluated_by(by.name, setting.calibration_name)
    write_line(f"{len(found)} {by.words.operations} ({told}).", stream=sys.stderr)
    write_unrepresented(setting.model, sys.stderr)
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
