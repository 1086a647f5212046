"""Options that the commands `plan elastic ...` share, and readers of their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from engine.questions.documents.elastic import CardAccuracyQuestion, PhasesQuestion

__all__ = [
    "CsvOption",
    "JsonOption",
    "read_card",
    "read_jobs",
    "read_losses",
    "read_measured_card",
    "read_phases",
    "read_profile",
    "read_trace",
    "read_workload",
    "with_default_trace",
]


Measured = TypeVar("Measured", CardAccuracyQuestion, PhasesQuestion)


def _one_form(context: typer.Context, value: bool) -> bool:
    """Refuse two forms of output at once: the option that is read second finds the first one."""
    from engine.planners.contract import PlanError

    if value and (context.params.get("csv") or context.params.get("json")):
        raise PlanError("Give --csv or --json, not both.")
    return value


CsvOption = Annotated[bool, typer.Option("--csv", callback=_one_form, help="Print CSV.")]
JsonOption = Annotated[bool, typer.Option("--json", callback=_one_form, help="Print JSON.")]


def read_card(text: str) -> str | dict[str, Any]:
    """Return a model card as questions have it: a name of the library, or the document of a file.

    Args:
        text: name or path.

    Raises `engine.planners.contract.PlanError` for an unknown name or an invalid file.
    """
    from engine.planners.elastic import card_names, load_card
    from engine.planners.elastic.cards import to_document

    return text if text in card_names() else to_document(load_card(text))


def with_default_trace(asked: Measured) -> Measured:
    """Return a question in which a card of a file that is named like a trace of the library is measured by it.

    Args:
        asked: question about a card.
    """
    from engine.planners.elastic import measurement_names

    name = None if isinstance(asked.card, str) else asked.card.get("name")
    is_known = asked.measurements is None and name in measurement_names()
    return asked.model_copy(update={"measurements": name}) if is_known else asked


def _read_table(text: str, check: Callable[[Path], object]) -> str:
    """Return a table as questions have it: the text of a CSV file, or the name of a table of the library.

    text: path or name. check: reads the file and raises a `PlanError` that names it.
    """
    from engine.planners.elastic.measured.csv_rows import csv_text

    path = Path(text)
    if not (path.suffix or "/" in text or path.is_file()):
        return text
    check(path)
    return f"{csv_text(path)[0].rstrip()}\n"


def read_trace(text: str) -> str:
    """Return measurements as questions have them.

    Args:
        text: path of a CSV file, or name of a trace of the library.

    Raises `engine.planners.contract.PlanError` naming file, row and field.
    """
    from engine.planners.elastic import measurement_names, measurements, read_measurements

    if text in measurement_names():
        return measurements(text).name
    return _read_table(text, read_measurements)


def read_workload(text: str) -> str:
    """Return a workload as questions have it. See `read_trace`."""
    from engine.planners.elastic.cluster import workload_from

    return _read_table(text, workload_from)


def read_profile(text: str) -> str:
    """Return profiled runs as questions have them. See `read_trace`."""
    from engine.planners.elastic.measured.csv_rows import csv_text

    return _read_table(text, csv_text)


def read_losses(text: str) -> str:
    """Return losses as questions have them. See `read_trace`."""
    from engine.reproductions.rubick.losses import losses

    return _read_table(text, losses)


def read_measured_card(text: str) -> dict[str, Any]:
    """Return a card with its measurements from a text such as mine.json=trace.csv.

    Args:
        text: card and file of measurements.

    Raises `engine.planners.contract.PlanError` for another text, or an invalid file.
    """
    from engine.planners.contract import PlanError

    card, separator, trace = text.partition("=")
    if not separator or not trace:
        raise PlanError(f"--card {text[:60]!r} is no card with its measurements, such as mine.json=trace.csv.")
    return {"card": read_card(card), "measurements": read_trace(trace)}


def read_jobs(text: str) -> list[dict[str, Any]]:
    """Return the jobs of a text: one model card, or the rows of a CSV file with card, name, measured and guarantee.

    Args:
        text: name or path of a card, or path of a CSV file.

    Raises `engine.planners.contract.PlanError` naming row and field.
    """
    from engine.planners.elastic.measured.csv_rows import csv_rows, csv_text, number

    if not text.endswith(".csv"):
        return [{"card": read_card(text), "name": text}]
    table, where = csv_text(text)
    return [
        {
            "card": read_card(row["card"]),
            "name": row.get("name") or None,
            "measurements": read_trace(row["measured"]) if row.get("measured") else None,
            "guarantee": number(row, "guarantee", f"{where}, line {line}", absent=0.0) or None,
        }
        for line, row in csv_rows(table, where, ("card",))
    ]


def read_phases(text: str) -> list[dict[str, Any]]:
    """Return the phases in a CSV of duration_s, placement, cpu_threads, bandwidth.

    Args:
        text: path of the file.

    Raises `engine.planners.contract.PlanError` naming the phase at fault.
    """
    from engine.planners.elastic.over_time import phases_of
    from engine.planners.elastic.placements import placement_text

    return [
        {
            "placement": placement_text(each.nodes) if each.nodes else "0",
            "cpu_threads": each.cpu_threads,
            "bandwidth": each.bandwidth,
            "duration_s": each.duration_s,
        }
        for each in phases_of(text)
    ]
