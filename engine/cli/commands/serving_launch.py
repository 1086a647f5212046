"""Exports and imports of deployments: the part of the commands `export` and `import` that is about serving engines."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.cli.output import as_json, format_quantity, text_table, unit_of, write_line
from engine.cli.question_options import UnfinishedQuestion
from engine.questions.documents.serving import DeploymentExportQuestion, DeploymentImportQuestion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.launch import EngineReading

__all__ = ["SHOWN_FIGURES", "deployment_question", "print_deployment", "read_serving_file"]

SHOWN_FIGURES: Final = (
    "tokens_per_s_per_processor",
    "tokens_per_s_per_user",
    "time_to_first_token",
    "time_per_output_token",
    "memory_total",
    "cost_per_million_tokens",
)
_LARGEST_FILE: Final = 2_000_000


def deployment_question(
    asked: UnfinishedQuestion[DeploymentExportQuestion],
    *,
    target: str,
    model: Any,
    row: Mapping[str, Any],
    stated: Mapping[str, Any],
    prefill: Mapping[str, Any] | None,
) -> DeploymentExportQuestion:
    """Return the question of an export.

    Args:
        asked: options of the command.
        target: what to write for.
        model: name or document of the model.
        row: deployment of a file; empty without one.
        stated: values of `--set`, which count more than the file.
        prefill: deployment of the pool that processes prompts.
    """
    from engine.questions.plain import plain

    own = None if prefill is None else plain(dict(prefill))
    return asked.finish(deployment=plain({**row, **stated}), model=model, target=target, prefill=own)


def read_serving_file(file: Path) -> str | None:
    """Return the text of a file of a serving engine; None for another file, which the reader of training files reports.

    Args:
        file: to read.
    """
    from engine.launch import is_serving_text

    try:
        if not file.is_file() or file.stat().st_size > _LARGEST_FILE:
            return None
        text = file.read_text("utf-8-sig")
    except (OSError, ValueError):
        return None
    return text if is_serving_text(text, file.name) else None


def print_deployment(found: EngineReading, asked: DeploymentImportQuestion, json: bool) -> None:
    """Print the deployment of a launch configuration, with figures where a system is named.

    Args:
        found: of the file.
        asked: the question.
        json: whether as JSON.

    Raises `engine.launch.LaunchError` where a figure needs a field that is open.
    """
    from engine.launch import LIST_TITLES
    from engine.questions.serving_launch import deployment_rows, open_remarks, reading_document

    if json:
        write_line(as_json(reading_document(found, asked)))
        return
    gpus = f"{found.gpus:,} GPUs" if found.gpus else "a number of GPUs that it does not say"
    network = found.model_name or found.model or "a model that it does not name"
    write_line(f"{found.title}, {found.form}: {network} on {gpus}")
    write_line()
    _print_fields(deployment_rows(found, asked.stated))
    joined = [", ".join(found.without_effect)] if found.without_effect else []
    lists = {
        "No deployment here describes it": [] if found.rejected_by_us is None else [found.rejected_by_us],
        "Left to other sources": [", ".join(name for name in found.left if name not in asked.stated)],
        LIST_TITLES["not_modelled"]: [*found.not_modelled, *joined],
        "Not read": found.unread,
        "Remarks": open_remarks(found, asked.stated),
    }
    write_line(f"{found.title}, as of {found.version}.", stream=sys.stderr)
    for heading, sentences in lists.items():
        if any(sentences):
            write_line(f"{heading}:", stream=sys.stderr)
            for each in sentences:
                write_line(f"- {each}", stream=sys.stderr)
    if asked.system is not None:
        _print_figures(reading_document(found, asked)["figures"])


def _print_fields(rows: Mapping[str, Mapping[str, Any]]) -> None:
    from engine.questions.serving_launch import SETTING_LABELS
    from engine.serving import FIELDS

    labels = {**SETTING_LABELS, **{column.name: column.label for column in FIELDS}}
    names = list(dict.fromkeys(name for row in rows.values() for name in row))
    heads = ("field", *(role or "value" for role in rows))
    table = [(labels.get(name, name), *(str(row.get(name, "")) for row in rows.values())) for name in names]
    write_line(text_table(heads, table, left=(0,)))


def _print_figures(figures: Mapping[str, Mapping[str, Any]]) -> None:
    from engine.serving import by_name

    write_line()
    names = [name for name in SHOWN_FIGURES if any(row.get(name) is not None for row in figures.values())]
    heads = ("figure", *figures, "unit")
    table = [
        (
            by_name(name).label,
            *("" if row.get(name) is None else format_quantity(by_name(name), row[name]) for row in figures.values()),
            unit_of(by_name(name)),
        )
        for name in names
    ]
    if table:
        write_line(text_table(heads, table, left=(0,)))
    if len(figures) > 1:
        write_line("Each pool is evaluated as if it processed prompts and generated tokens.")
    for role, row in figures.items():
        if row.get("reason_text"):
            write_line(f"{role} does not run: {row['reason_text']}")
