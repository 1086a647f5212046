"""The command `simulate execution`: the pipeline of an execution, replayed with the stages of its model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.cli.options import JsonOption
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks
from engine.cli.replays import CsvOption, TorchOption, TraceOption, print_replay
from engine.questions.documents.schedules import ExecutionReplayQuestion
from engine.questions.verb import QuestionError

__all__ = ["simulate_execution"]


@asks(ExecutionReplayQuestion, arguments=("model", "system"), leave_out=("execution", "actions"), flatten="scenario")
def simulate_execution(
    asked: ExecutionReplayQuestion,
    file: Annotated[
        Path | None,
        typer.Option("--execution", metavar="FILE", help="File with executions, or JSON of `best` or `explore`."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option("--row", metavar="N", min=0, help="Which of the file, counted from 0; the recommended one first."),
    ] = None,
    json: JsonOption = False,
    csv: CsvOption = False,
    trace: TraceOption = None,
    torch: TorchOption = None,
) -> None:
    """Replay the pipeline of an execution with the stages of its model, under its own schedule or another one.

    The scenario is given as for `best`; without --execution and --id it is its best execution with a pipeline. Stages
    take what the cost model has for blocks, embedding and head; messages between them likewise.

    \b
    Examples:
      shardscape simulate execution deepseek-v3 h200_141g_sxm --procs 512 --max-batch 2048 --datatype float8
      shardscape simulate execution --scenario scenario.json --id 4711 --schedule dualpipev
      shardscape best --scenario scenario.json --limit pipeline_par=4..16 --json > best.json
      shardscape simulate execution --scenario scenario.json --execution best.json --layout balanced --json

    \b
    JSON: as of `simulate schedule`.
    """
    from engine.cli.commands.launch import execution_in
    from engine.questions.schedules import find_execution_replay

    if file is not None and asked.id is not None:
        raise QuestionError("Give --execution or --id, not both.")
    if file is not None:
        asked = asked.model_copy(update={"execution": execution_in(file, row)[0]})
    with ProgressReport("replaying"):
        found = find_execution_replay(asked)
    print_replay(found, csv=csv, json=json, trace=trace, torch=torch)
