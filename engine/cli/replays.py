"""Output of commands about a replayed schedule, and the options of their files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.output import as_json, text_table, write_line

if TYPE_CHECKING:
    from engine.simulate import Replay

__all__ = ["CsvOption", "TorchOption", "TraceOption", "print_replay"]

CsvOption = Annotated[bool, typer.Option("--csv", help="Print every action as CSV instead.")]
TraceOption = Annotated[
    Path | None, typer.Option("--trace", metavar="FILE", help="Write events for Chrome's trace viewer and Perfetto.")
]
TorchOption = Annotated[
    Path | None, typer.Option("--torch-csv", metavar="FILE", help="Write the order for torch's schedule CSV.")
]


def print_replay(found: Replay, *, csv: bool, json: bool, trace: Path | None, torch: Path | None) -> None:
    """Print a replay, and write the requested files.

    Args:
        found: the replay.
        csv: True to print a table of actions.
        json: True to print a document.
        trace: file for events.
        torch: file for the order.

    Raises `engine.executions.files.TableWriteError` if a file cannot be written.
    """
    from engine.questions.schedules import replay_document
    from engine.simulate.exports import chrome_trace_json, torch_csv

    if csv:
        write_line(found.tasks.drop(columns="pair").to_csv(index=False, float_format="%.12g").rstrip())
    elif json:
        write_line(as_json(replay_document(found)))
    else:
        _print_summary(found)
    for path, made in ((trace, chrome_trace_json), (torch, torch_csv)):
        if path is not None:
            _write_file(path, made(found))
            write_line(f"{path} is written.", stream=sys.stderr)


def _write_file(path: Path, text: str) -> None:
    from engine.executions.files import TableWriteError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise TableWriteError(f"{path} cannot be written: {(problem.strerror or 'unknown').lower()}.") from None


def _print_summary(found: Replay) -> None:
    from engine.simulate.closed_forms import published

    title = found.rule.title if found.rule else "Own order"
    chunks = f", {found.order.chunks} chunks each" if found.order.chunks > 1 else ""
    write_line(f"{title}: {found.order.ranks} ranks{chunks}, {found.order.empty_from:,} microbatches")
    write_line(f"makespan {found.makespan:.6g} s, longest span {found.longest_span:.6g} s")
    write_line()
    rows = [
        (
            str(rank),
            f"{found.busy[rank]:.6g}",
            f"{found.makespan - found.busy[rank]:.6g}",
            f"{100 * found.bubble_fraction[rank]:.2f}",
            str(found.peak_activations[rank]),
            str(found.peak_if_freed_at_B[rank]),
            str(found.peak_pending_W[rank]),
            str(found.messages_sent[rank]),
        )
        for rank in range(found.order.ranks)
    ]
    headers = ("rank", "busy [s]", "idle [s]", "bubble [%]", "activations", "freed at B", "pending W", "messages")
    write_line(text_table(headers, rows, left=()))
    write_line()
    idle = found.idle
    for cause, seconds in (idle["end"] - idle["start"]).groupby(idle["cause"]).sum().items():
        write_line(f"idle, {cause:<9} {seconds:.6g} s over all ranks")
    counts = " + ".join(f"{count} {kind}" for kind, count in found.critical_path.counts.items() if count)
    write_line(f"critical path: {counts}")
    told = published(found)
    if told is not None:
        value = "does not hold here" if told[1] is None else f"{told[1]:.6g} s"
        write_line(f"published: {told[0]}: {value}")
    for remark in found.remarks:
        write_line(remark)
