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
from engine.cli.question_options import asks
from engine.cli.replays import CsvOption, TorchOption, TraceOption, print_replay
from engine.questions.documents.schedules import ScheduleReplayQuestion

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
    from engine.questions.schedules import list_schedules as known_schedules

    known = known_schedules()
    if json:
        write_line(as_json(known))
        return
    rows = [(each["name"], each["title"], ", ".join(each["frameworks"]) or "-") for each in known]
    write_line(text_table(("name", "schedule", "offered by"), rows, left=(0, 1, 2)))


@simulate_app.command("schedule")
@asks(ScheduleReplayQuestion, leave_out=("schedule", "order", "actions"))
def replay_schedule(
    asked: ScheduleReplayQuestion,
    name: Annotated[
        str, typer.Argument(metavar="SCHEDULE", help="A name of `simulate schedules`, or a CSV file that torch loads.")
    ],
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
    from engine.questions.schedules import find_schedule_replay

    is_file = name.lower().endswith(".csv")
    asked = asked.model_copy(update={"order": _read_order(Path(name))} if is_file else {"schedule": name})
    with ProgressReport("replaying"):
        found = find_schedule_replay(asked)
    print_replay(found, csv=csv, json=json, trace=trace, torch=torch)


def _read_order(path: Path) -> list[str]:
    """Return the order of a file that torch loads."""
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
