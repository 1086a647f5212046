"""The command `plan fine-tuning`: all weights, LoRA or QLoRA of a model on a data set."""

from __future__ import annotations

import csv as csv_module
import io
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import UnfinishedQuestion, asks, build_question, name_options
from engine.questions.documents.fine_tuning import TUNING_WORDS, DataSetLengths, FineTuningQuestion
from engine.questions.errors import QuestionError

__all__ = ["plan_tuning", "read_lengths"]


MOST_BYTES: Final = 2_000_000
"""Size of a file of lengths at most: 100,000 of up to 19 digits."""


def read_lengths(text: str) -> DataSetLengths:
    """Return the lengths of a text such as 600:4096 or 600:4096:0.8, or of a file with one length per line.

    Args:
        text: mean and cap [tokens], and spread; or the path of a file.

    Raises `QuestionError` with a sentence for another text.
    """
    if (file := Path(text)).is_file():
        return _read_file(file)
    parts = text.replace(",", "").split(":")
    try:
        numbers = [float(each) for each in parts]
        is_whole = len(numbers) > 1 and numbers[1] == int(numbers[1])
    except (ValueError, OverflowError):
        numbers, is_whole = [], False
    if not 2 <= len(numbers) <= 3 or not is_whole:
        raise QuestionError(
            f"--lengths is {text[:40]!r}; it must be mean and cap in tokens, such as 600:4096, or a "
            "file with a length per line."
        )
    said = {"mean": numbers[0], "cap": int(numbers[1]), **({"cv": numbers[2]} if len(numbers) == 3 else {})}
    return build_question(DataSetLengths, said, option="lengths")


def _read_file(file: Path) -> DataSetLengths:
    """Return the lengths of a file: numbers with spaces, commas or lines between."""
    if file.stat().st_size > MOST_BYTES:
        raise QuestionError(f"{file.name} has more than {MOST_BYTES:,} bytes; give at most 100,000 lengths.")
    words = file.read_text(encoding="utf-8", errors="replace").replace(",", " ").split()
    try:
        numbers = [float(each) for each in words]
    except ValueError:
        wrong = next(each for each in words if not _is_number(each))
        raise QuestionError(f"{file.name} has {wrong[:40]!r}, which is no length in tokens.") from None
    return build_question(DataSetLengths, {"lengths": numbers}, option="lengths")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@asks(
    FineTuningQuestion,
    arguments=("model", "system"),
    leave_out=("format",),
    readers={"lengths": read_lengths},
)
def plan_tuning(
    asked: UnfinishedQuestion[FineTuningQuestion],
    csv: Annotated[bool, typer.Option("--csv", help="Print the methods as CSV.")] = False,
    json: JsonOption = False,
) -> None:
    """Plan fine-tuning of a model on a data set: all weights, LoRA and QLoRA; GPUs, memory, hours and cost.

    The fastest execution of each method, proven, on --procs GPUs, or on the fewest that it fits on. Intervals come from
    measured runs of fine-tuning; the nearest are printed below. QLoRA has its memory only.

    \b
    Examples:
      shardscape plan fine-tuning llama-3.1-8B h100_80g_sxm --procs 8 --samples 100000 --lengths 600:4096
      shardscape plan fine-tuning llama-3-70B h100_80g_sxm --samples 100000 --lengths 600:4096:0.8 --epochs 3
        --rank 64 --targets attention
      shardscape plan fine-tuning qwen3-30B-A3B h200_141g_sxm --procs 8 --method lora --samples 50000
        --lengths 2000:8192 --loss-chunk 2048 --price 3 --json

    \b
    JSON is the answer to the question plan_fine_tuning: methods (fit, step_s, tokens_per_s, hours, usd, memory_parts,
    fewest_gpus, execution, reason, change), packs, packing, steps, sizes, nearest, units.

    Exit code 1 when nothing fits.
    """
    from engine.questions.bounds import Context
    from engine.questions.fine_tuning import find_asked_fine_tuning, fine_tuning_document

    if csv and json:
        raise QuestionError("Give --csv or --json, not both.")
    question = asked.finish()
    with ProgressReport("searching") as report, name_options(FineTuningQuestion):
        document = fine_tuning_document(find_asked_fine_tuning(question, Context(tell=report)))
    if json:
        write_line(as_json(document))
    elif csv:
        write_line(_methods_csv(document).rstrip("\n"))
    else:
        _print_answer(document)
    if not any(each["execution"] for each in document["methods"]):
        raise typer.Exit(ExitCode.NOTHING)


def _methods_csv(document: dict[str, Any]) -> str:
    text = io.StringIO()
    plain = (
        "method",
        "num_procs",
        "fit",
        "tokens_per_s",
        "memory_gib",
        "capacity_gib",
        "fewest_gpus",
        "safe_gpus",
        "layout",
    )
    figures = ("step_s", "hours", "usd")
    names = [*plain, *(f"{name}{end}" for name in figures for end in ("", "_low", "_high"))]
    writer = csv_module.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for each in document["methods"]:
        row = {name: each[name] for name in plain}
        for name in figures:
            figure = each[name] or {}
            row |= {name: figure.get("value"), **{f"{name}_{end}": figure.get(end) for end in ("low", "high")}}
        writer.writerow(row)
    return text.getvalue()


def _print_answer(document: dict[str, Any]) -> None:
    write_line(
        f"Fine-tuning {document['model']} on {document['system']}: {document['tokens']:,.0f} tokens in "
        f"{_counted(document['steps'], 'step')} of {_counted(document['batch'], 'pack')} of {document['pack_to']:,}; "
        f"packing {document['packing']:.1%}; modelled"
    )
    rows = [
        (
            TUNING_WORDS[each["method"]],
            f"{each['num_procs']:,}",
            each["fit"],
            "-" if each["memory_gib"] is None else f"{each['memory_gib']:,.1f} of {each['capacity_gib']:,.1f}",
            "-" if each["fewest_gpus"] is None else f"{each['fewest_gpus']:,}",
            "-" if each["safe_gpus"] is None else f"{each['safe_gpus']:,}",
            "-" if each["tokens_per_s"] is None else _format_number(each["tokens_per_s"]),
            _format_figure(each["step_s"]),
            _format_figure(each["hours"]),
            _format_figure(each["usd"]),
            each["layout"] or "-",
        )
        for each in document["methods"]
    ]
    header = ("method", "GPUs", "memory", "GiB", "fewest", "safe", "tokens/s", "step s", "hours", "USD", "layout")
    write_line(text_table(header, rows, left=(0, 2, 10)))
    for each in document["methods"]:
        change = f" Smallest change that fits: {each['change']}." if each["change"] else ""
        if each["reason"]:
            write_line(f"{TUNING_WORDS[each['method']]}: {each['reason']}{change}")
    if any(each["hours"] is not None and each["usd"] is None for each in document["methods"]):
        write_line("No price is recorded for this system; give --price for the cost.")
    if document["sizes"]:
        write_line()
        sizes = [
            (
                TUNING_WORDS[each["method"]],
                f"{each['num_procs']:,}",
                _format_number(each["tokens_per_s"]),
                _format_figure(each["hours"]),
                _format_figure(each["usd"]),
                each["layout"],
            )
            for each in document["sizes"]
        ]
        write_line(text_table(("method", "GPUs", "tokens/s", "hours", "USD", "layout"), sizes, left=(0, 5)))
    write_line()
    write_line("Nearest measured runs:")
    nearest = [
        (
            f"{row['framework']} {row['version']}",
            row["model_key"],
            row["system"],
            f"{row['gpus']:,.0f}",
            TUNING_WORDS[row["method"]],
            row["precision"],
            "-" if row["seq_len"] is None else f"{row['seq_len']:,.0f}",
            "-" if row["tokens_per_s_per_gpu"] is None else _format_number(row["tokens_per_s_per_gpu"]),
            "-" if row["peak_gib"] is None else f"{row['peak_gib']:,.1f}",
            row["outcome"],
        )
        for row in document["nearest"]
    ]
    names = (
        *("framework", "model", "system", "GPUs", "method", "datatype"),
        *("sequence", "tokens/s/GPU", "peak GiB", "outcome"),
    )
    write_line(text_table(names, nearest, left=(0, 1, 2, 4, 5, 9)))
    write_line(document["basis"])


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _format_figure(figure: dict[str, float | None] | None) -> str:
    if figure is None or figure["value"] is None:
        return "-"
    if figure["low"] is None or figure["high"] is None:
        return _format_number(figure["value"])
    value, low, high = (_format_number(figure[name] or 0.0) for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _format_number(value: float) -> str:
    """Return three significant digits, the rest of a large number as zeros."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:g}"
