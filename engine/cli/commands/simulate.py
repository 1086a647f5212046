"""The commands `simulate ...`: pipeline schedules replayed event by event."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from engine.cli.commands.simulate_distir import simulate_distir
from engine.cli.commands.simulate_execution import simulate_execution
from engine.cli.options import JsonOption
from engine.cli.output import as_json, text_table, write_line
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

__all__ = ["simulate_app"]

simulate_app = typer.Typer(
    help="Simulations: pipeline schedules event by event, and DistIR's grid.", no_args_is_help=True
)


simulate_app.command("distir")(simulate_distir)
simulate_app.command("execution")(simulate_execution)


@simulate_app.callback()
def describe_simulations() -> None:
    """Simulations: pipeline schedules event by event, and DistIR's grid of D x H x P."""


@simulate_app.command("schedules")
def list_schedules(json: JsonOption = False) -> None:
    """List the schedules, with their splits of work and the frameworks that offer them.

    \b
    JSON: a list of name, title, placement, pairs, splits, frameworks, source.
    """
    from engine.simulate.schedules.registry import RULES

    if json:
        write_line(
            as_json(
                [
                    {
                        "name": each.name,
                        "title": each.title,
                        "placement": each.placement.value,
                        "pairs": each.pairs,
                        "splits": each.splits,
                        "frameworks": dict(each.frameworks),
                        "source": each.source,
                    }
                    for each in RULES
                ]
            )
        )
        return
    rows = [(each.name, each.title, ", ".join(each.frameworks) or "-") for each in RULES]
    write_line(text_table(("name", "schedule", "offered by"), rows, left=(0, 1, 2)))


@simulate_app.command("schedule")
def replay_schedule(
    name: Annotated[
        str, typer.Argument(metavar="SCHEDULE", help="A name of `simulate schedules`, or a CSV file that torch loads.")
    ],
    stages: Annotated[int, typer.Option("--stages", metavar="P", help="Ranks of the pipeline.")],
    microbatches: Annotated[int, typer.Option("--microbatches", metavar="M", help="Of one replica in a step.")],
    chunks: Annotated[int, typer.Option("--chunks", metavar="V", help="Pieces of the model per rank.")] = 1,
    forward: Annotated[
        str,
        typer.Option("--forward", metavar="S", help="A chunk's forward [s]; one number, or one per stage with commas."),
    ] = "1",
    input_gradient: Annotated[
        str, typer.Option("--input-gradient", metavar="S", help="The gradient of its input [s], likewise.")
    ] = "1",
    weight_gradient: Annotated[
        str, typer.Option("--weight-gradient", metavar="S", help="The gradient of its weights [s], likewise.")
    ] = "1",
    pair: Annotated[
        str | None, typer.Option("--pair", metavar="S", help="A forward and a backward that overlap [s]; their sum.")
    ] = None,
    send_mode: SendModeOption = "overlap",
    send_time: Annotated[float, typer.Option("--send-time", metavar="S", help="Time of a send [s].")] = 0.0,
    group: GroupOption = None,
    memory_limit: MemoryLimitOption = None,
    placement: Annotated[
        str | None, typer.Option("--placement", metavar="HOW", help="Of an order from a file: loop, v or bidir.")
    ] = None,
    json: JsonOption = False,
    csv: CsvOption = False,
    trace: TraceOption = None,
    torch: TorchOption = None,
) -> None:
    """Replay a pipeline schedule: makespan, idle time with its causes, activations, messages, critical path.

    \b
    Examples:
      shardscape simulate schedule 1f1b --stages 4 --microbatches 8
      shardscape simulate schedule interleaved --stages 4 --microbatches 8 --chunks 2 --send-time 0.1
      shardscape simulate schedule dualpipev --stages 8 --microbatches 20 --pair 2.5 --trace events.json
      shardscape simulate schedule own.csv --stages 2 --microbatches 4 --json

    \b JSON: schedule, title, stages, microbatches, chunks, makespan, longest_span, bubble_fraction, busy,
    peak_activations, peak_if_freed_at_B, peak_pending_W, messages_sent (all by rank), idle (seconds by cause),
    critical_path (counts of F, B, W, BW, FB, c), closed_form (words, makespan or null where it does not hold),
    remarks, ranks (action lists). Times are in seconds.
    """
    from engine.simulate import replay

    order: str | list[str] = name
    if name.lower().endswith(".csv"):
        order = _order_of(Path(name))
    times = {
        "F": _parse_times("--forward", forward),
        "B": _parse_times("--input-gradient", input_gradient),
        "W": _parse_times("--weight-gradient", weight_gradient),
    }
    if pair is not None:
        times["FB"] = _parse_times("--pair", pair)
    with ProgressReport("replaying"):
        found = replay(
            order,
            stages=stages,
            microbatches=microbatches,
            chunks=chunks,
            times=times,
            sends={"mode": send_mode, "c": send_time},
            group=group,
            memory_limit=memory_limit,
            placement=placement,
        )
    print_replay(found, csv=csv, json=json, trace=trace, torch=torch)


def _parse_times(option: str, text: str) -> float | list[float]:
    """Returns one duration, or one per stage."""
    from engine.simulate import ScheduleError

    try:
        numbers = [float(each) for each in text.split(",")]
    except ValueError:
        raise ScheduleError(f"{option} must be a number, or numbers with commas, and is {text[:40]!r}.") from None
    return numbers[0] if len(numbers) == 1 else numbers


def _order_of(path: Path) -> list[str]:
    """Returns the order of a file that torch loads."""
    from engine.simulate import ScheduleError
    from engine.simulate.imports import read_torch_csv

    try:
        if path.stat().st_size > 20_000_000:
            raise ScheduleError(f"{path} is larger than 20 MB.")
        return read_torch_csv(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise ScheduleError(f"{path} cannot be read: {(problem.strerror or 'unknown').lower()}.") from None
    except UnicodeDecodeError:
        raise ScheduleError(f"{path} is no text.") from None
