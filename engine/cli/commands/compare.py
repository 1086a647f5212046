"""The command `compare`: scenarios side by side, with their best executions and their differences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, format_quantity, text_table, unit_of, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks
from engine.cli.recommended import write_shown_doubts
from engine.questions.documents.comparison import CompareQuestion
from models.documents import DocumentError, read_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.questions.comparison import ComparedBest

__all__ = ["compare_files"]

LONGEST_VALUE = 40
"""Characters of a value that the table of differences shows."""


def _read_scenario(path: str) -> Any:
    """Return the document of a saved scenario. Raises `models.documents.DocumentError` for an unreadable file."""
    return read_json(Path(path), "scenario", DocumentError)


@asks(CompareQuestion, arguments=("scenarios",), leave_out=("statistics",), readers={"scenarios": _read_scenario})
def compare_files(asked: CompareQuestion, json: JsonOption = False) -> None:
    """Compare two to four saved scenarios: what differs, the best execution of each, gains against the first.

    Files are scenarios as the dashboard saves them and `explore --scenario` reads them.

    \b
    Examples:
      shardscape compare today.json more_memory.json
      shardscape compare a.json b.json c.json --recommend --json

    JSON is the answer to the question compare: scenarios with best, shown (the execution of --figures-of), figures and
    gain, differences, choices, units.

    Exit code 1 when nothing runs in any of them.
    """
    from engine.questions.bounds import Context
    from engine.questions.comparison import compare_scenarios, comparison_document

    with ProgressReport("searching the best executions") as report:
        found = compare_scenarios(asked, Context(tell=report))
    document = comparison_document(asked, found)
    if json:
        write_line(as_json(document))
    else:
        _print_comparison(found, document)
    if all(each.rate is None for each in found):
        raise typer.Exit(ExitCode.NOTHING)


def _print_comparison(found: Sequence[ComparedBest], document: dict[str, Any]) -> None:
    from engine.columns import MFU_OF, by_name
    from engine.executions.execution_names import execution_name

    letters = [each.letter for each in found]
    rate, memory = by_name("sample_rate"), by_name("proc_mem_tier1_cap_req")
    # All in one convention, so that they can be compared: that of A.
    convention = found[0].scenario.flop_convention
    fits = [
        "-" if told["shown"] is None else told["shown"]["execution"].get("fit", "-") for told in document["scenarios"]
    ]
    with_fits = any(fit not in ("fits", "-") for fit in fits)
    rows = []
    for each, told in zip(found, document["scenarios"], strict=True):
        scenario, shown = each.scenario, each.shown
        name = f"{scenario.model.name} on {scenario.num_procs:,} x {scenario.system.name}"
        if shown is None:
            rows.append([each.letter, name, "-", "-", "-", "-", *(["-"] if with_fits else []), "nothing runs"])
            continue
        best = shown.execution
        gain = "-" if told["gain"] is None else f"{told['gain']:+.1%}"
        mfu = f"{told['figures'][MFU_OF[convention]]:.1%}"
        figures = [format_quantity(rate, best["sample_rate"]), gain, mfu, format_quantity(memory, best[memory.name])]
        figures += [fits[len(rows)]] if with_fits else []
        rows.append([each.letter, name, *figures, f"{execution_name(best)} ({shown.figures_of})"])
    headers = [
        "",
        "scenario",
        f"{rate.short} [{rate.unit}]",
        "against A",
        by_name(MFU_OF[convention]).short,
        f"HBM [{unit_of(memory)}]",
        *(["fit"] if with_fits else []),
        "figures of",
    ]
    write_line(text_table(headers, rows, left=(0, 1, len(headers) - 1)))
    for title, differences in (("differs", document["differences"]), ("choice", document["choices"])):
        if differences:
            write_line()
            lines = [[each["field"], *(_short(value) for value in each["values"])] for each in differences]
            write_line(text_table([title, *letters], lines))
    for each in found:
        if each.shown is not None:
            write_shown_doubts(each.scenario, each.shown, f"{each.letter}: ")


def _short(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"
