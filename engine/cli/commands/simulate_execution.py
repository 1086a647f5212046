"""The command `simulate execution`: the pipeline of an execution, replayed with the stages of its model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.options import (
    CalibrationOption,
    CostModelOption,
    DatatypeOption,
    JsonOption,
    LimitOption,
    MaxBatchOption,
    ModelOrNone,
    ProcsOption,
    ScenarioOption,
    SystemOrNone,
)
from engine.cli.progress import ProgressReport
from engine.cli.replays import (
    CsvOption,
    GroupOption,
    MemoryLimitOption,
    SendModeOption,
    TorchOption,
    TraceOption,
    print_replay,
)

if TYPE_CHECKING:
    from engine import Scenario

__all__ = ["simulate_execution"]


def simulate_execution(
    model: ModelOrNone = None,
    system: SystemOrNone = None,
    procs: ProcsOption = None,
    max_batch: MaxBatchOption = None,
    datatype: DatatypeOption = None,
    limit: LimitOption = None,
    cost_model: CostModelOption = None,
    calibration: CalibrationOption = None,
    document: ScenarioOption = None,
    file: Annotated[
        Path | None,
        typer.Option("--execution", metavar="FILE", help="File with executions, or JSON of `best` or `explore`."),
    ] = None,
    row: Annotated[
        int | None,
        typer.Option("--row", metavar="N", min=0, help="Which of the file, counted from 0; the recommended one first."),
    ] = None,
    id: Annotated[
        int | None, typer.Option("--id", metavar="ID", min=0, help="Of the scenario's executions, in place of a file.")
    ] = None,
    schedule: Annotated[
        str | None, typer.Option("--schedule", metavar="NAME", help="Of `simulate schedules`; the execution's own.")
    ] = None,
    microbatches: Annotated[
        int | None, typer.Option("--microbatches", metavar="M", help="Of one replica in a step; the execution's own.")
    ] = None,
    chunks: Annotated[
        int | None, typer.Option("--chunks", metavar="V", help="Pieces of the model per rank; the execution's own.")
    ] = None,
    layout: Annotated[
        str | None, typer.Option("--layout", metavar="LAYOUT", help="How blocks are cut; the execution's stage_layout.")
    ] = None,
    send_mode: SendModeOption = "overlap",
    group: GroupOption = None,
    memory_limit: MemoryLimitOption = None,
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
    from engine.cli.asked_scenario import scenario_of
    from engine.simulate.execution_stages import replay_execution

    asked = scenario_of(model, system, procs, max_batch, datatype, limit, cost_model, calibration, document)
    with ProgressReport("replaying"):
        found = replay_execution(
            asked,
            _chosen_execution(asked, file, row, id),
            schedule,
            microbatches=microbatches,
            chunks=chunks,
            layout=_parse_layout(layout),
            send_mode=send_mode,
            group=group,
            memory_limit=memory_limit,
        )
    print_replay(found, csv=csv, json=json, trace=trace, torch=torch)


def _chosen_execution(
    scenario: Scenario, file: Path | None, row: int | None, number: int | None
) -> dict[str, Any] | None:
    """Fields of the execution that is asked for; None for the best with a pipeline."""
    from engine import ScenarioError
    from engine.cli.commands.launch import execution_in
    from engine.columns import by_name, fields_of

    if file is not None and number is not None:
        raise ScenarioError("Give --execution or --id, not both.")
    if file is not None:
        given, _, _ = execution_in(file, row)
        known = {column.name for column in fields_of(scenario.cost_model)}
        missing = {name: by_name(name).default for name in known if name not in given}
        return {name: value for name, value in given.items() if name in known} | missing
    if number is None:
        return None
    if number >= scenario.space.total:
        raise ScenarioError(f"There is no execution {number:,}; ids run from 0 to {scenario.space.total - 1:,}.")
    return dict(scenario.space.table([number]).iloc[0])


def _parse_layout(text: str | None) -> str | None:
    """A layout as the field has it. Raises `engine.columns.stage_layouts.StageLayoutError`."""
    from engine.columns.stage_layouts import canonical

    return None if text is None else canonical(text)
