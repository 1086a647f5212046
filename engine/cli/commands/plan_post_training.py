"""The command `plan post-training`: how to run reinforcement learning of a model on a number of GPUs."""

from __future__ import annotations

import csv as csv_module
import io
from pathlib import Path
from typing import Annotated, Any

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import UnfinishedQuestion, asks, build_question, name_options
from engine.questions.documents.post_training import (
    MODE_WORDS,
    PHASE_WORDS,
    JudgeChoices,
    PostTrainingQuestion,
    ResponseLengths,
    RolloutChoices,
    SpeculationChoices,
    TrainingChoices,
)
from engine.questions.documents.post_training_launch import FRAMEWORKS
from engine.questions.errors import QuestionError

__all__ = ["plan_reinforcement", "print_answer", "read_response", "read_split"]


def read_response(text: str) -> ResponseLengths:
    """Return the lengths of a text such as 3200:3986 or 3200:3986:0.8.

    Args:
        text: mean and cap [tokens], and spread.

    Raises `QuestionError` with a sentence for another text.
    """
    parts = text.replace(",", "").split(":")
    try:
        numbers = [float(each) for each in parts]
        is_whole = len(numbers) > 1 and numbers[1] == int(numbers[1])
    except (ValueError, OverflowError):
        numbers, is_whole = [], False
    if not 2 <= len(numbers) <= 3 or not is_whole:
        raise QuestionError(f"--response is {text[:40]!r}; it must be mean and cap in tokens, such as 3200:3986.")
    said = {"mean": numbers[0], "cap": int(numbers[1]), **({"cv": numbers[2]} if len(numbers) == 3 else {})}
    return build_question(ResponseLengths, said, option="response")


def read_split(text: str) -> list[int]:
    """Return the GPUs that train and the GPUs that generate of a text such as 128:64.

    Args:
        text: both numbers.

    Raises `QuestionError` with a sentence for another text.
    """
    parts = text.split(":")
    # Seven digits: 2^20 GPUs at most. `isdigit` alone takes signs such as a raised 2, which are no numbers.
    if len(parts) != 2 or not all(each.isascii() and each.isdigit() and len(each) <= 7 for each in parts):
        raise QuestionError(f"--split is {text[:40]!r}; it must be GPUs that train and that generate, such as 128:64.")
    return [int(each) for each in parts]


@asks(
    PostTrainingQuestion,
    arguments=("model", "system"),
    leave_out=("format", "rollout", "training", "judge", "speculation"),
    readers={"response": read_response, "split": read_split},
)
@asks(RolloutChoices)
@asks(TrainingChoices)
@asks(JudgeChoices)
@asks(SpeculationChoices)
def plan_reinforcement(
    asked: UnfinishedQuestion[PostTrainingQuestion],
    rollout: RolloutChoices,
    training: TrainingChoices,
    judge: JudgeChoices,
    speculation: SpeculationChoices,
    csv: Annotated[bool, typer.Option("--csv", help="Print the step by mode and split as CSV.")] = False,
    launch: Annotated[
        str | None,
        typer.Option("--launch", metavar=FRAMEWORKS, help="Write the launch file of the fastest mode that it runs."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="REPOSITORY|PATH", help="Weights to train; the library's by default."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FOLDER", help="Write the launch file there instead of printing it.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Plan reinforcement learning: GPUs shared or split, layouts, step by phase, memory, days and cost.

    The fastest execution and deployment of each mode; splits of GPUs are searched with proof. Constants are fitted to
    measured steps of NeMo-RL; the nearest measured runs are printed below. --own-step with --mode sets the factor of
    your software.

    \b
    Examples:
      shardscape plan post-training qwen3-30B-A3B h100_80g_sxm --procs 192 --prompts 64 --group 32
        --response 3200:3986 --updates 4
      shardscape plan post-training qwen3-30B-A3B h100_80g_sxm --procs 192 --prompts 64 --group 32
        --response 3200:3986 --updates 4 --mode asynchronous --staleness 8 --split 128:64 --own-step 34.5 --json
      shardscape plan post-training llama-3.1-8B h100_80g_sxm --procs 16 --method dapo --pass-rate 0.5 --prompts 64
        --response 1060:3986:0.8 --sizes
      shardscape plan post-training qwen3-30B-A3B h100_80g_sxm --procs 32 --prompts 64 --group 32
        --response 1200:3968 --updates 4 --launch nemo-rl > grpo.yaml

    \b
    With --launch the plan is searched among executions that the framework runs. Sentences about the rest go where
    errors go, and into the file as comments; `import` reads the file back.

    \b
    JSON is the answer to the question plan_post_training: best (by mode: step_s, phases, memory, idle shares, days,
    usd, execution, deployment), curve, sizes, crossing, nearest, reasons, change, units.

    Exit code 1 when nothing fits.
    """
    from engine.questions.bounds import Context
    from engine.questions.post_training import find_asked_post_training, post_training_document

    if csv and json:
        raise QuestionError("Give --csv or --json, not both.")
    question = asked.finish(rollout=rollout, training=training, judge=judge, speculation=speculation)
    if launch is not None:
        _write_launch(question, launch, checkpoint, out, csv, json)
        return
    if checkpoint is not None or out is not None:
        raise QuestionError("--checkpoint and --out are about launch files; give --launch too.")
    with ProgressReport("searching") as report, name_options(PostTrainingQuestion):
        document = post_training_document(find_asked_post_training(question, Context(tell=report)))
    if json:
        write_line(as_json(document))
    elif csv:
        write_line(_curve_csv(document).rstrip("\n"))
    else:
        print_answer(question, document)
    if document["mode"] is None:
        raise typer.Exit(ExitCode.NOTHING)


def _write_launch(
    question: PostTrainingQuestion, launch: str, checkpoint: str | None, out: Path | None, csv: bool, json: bool
) -> None:
    """Print or write the launch file of a plan."""
    from engine.cli.commands.post_training_launch import print_written_run
    from engine.launch.post_training import run_framework_of
    from engine.questions.bounds import Context
    from engine.questions.post_training_launch import export_document, plan_with_framework, write_planned_run

    if csv:
        raise QuestionError("Give --csv or --launch, not both.")
    framework = run_framework_of(launch).name
    with ProgressReport("searching") as report, name_options(PostTrainingQuestion):
        planned, document = plan_with_framework(question, framework, Context(tell=report))
    row = document["best"][0]
    made = write_planned_run(planned, row, framework, checkpoint=checkpoint)
    export = export_document(question, planned, row, made)
    if json:
        write_line(as_json(export))
    else:
        print_written_run(export, made, out)


def _curve_csv(document: dict[str, Any]) -> str:
    text = io.StringIO()
    writer = csv_module.DictWriter(text, ["mode", "gpus_train", "gpus_rollout", "step_s"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(sorted(document["curve"], key=lambda row: (row["mode"], row["gpus_train"])))
    return text.getvalue()


def print_answer(asked: PostTrainingQuestion, document: dict[str, Any]) -> None:
    """Print a plan.

    Args:
        asked: the question.
        document: the answer.
    """
    write_line(
        f"{asked.method.upper()} of {document['model']} on {document['num_procs']:,} x {document['system']}: "
        f"{document['samples']:,} samples a step; modelled"
    )
    if document["best"]:
        _print_modes(document["best"])
    for mode, reason in document["reasons"].items():
        write_line(f"{MODE_WORDS[mode]}: {reason}")
    if document["change"]:
        write_line(f"Smallest change that fits: {document['change']}.")
    if document["crossing"]:
        write_line(document["crossing"])
    if document["changes"]:
        _print_changes(document["changes"])
    write_line()
    write_line("Nearest measured runs:")
    rows = [
        (
            f"{row['framework']} {row['version']}",
            row["model"],
            row["system"],
            _measured_mode(row),
            f"{row['gpus_train']:,.0f}:{row['gpus_rollout']:,.0f}",
            f"{row['samples_per_step']:,.0f}",
            f"{row['mean_response']:,.0f}",
            f"{row['step_s']:,.4g}",
        )
        for row in document["nearest"]
    ]
    header = ("framework", "model", "system", "mode", "GPUs", "samples", "response", "step s")
    write_line(text_table(header, rows, left=(0, 1, 2, 3)))
    write_line(document["basis"])


def _print_changes(changes: list[dict[str, Any]]) -> None:
    write_line()
    rows = [
        (row["change"], "does not run", "-")
        if row["step_s"] is None
        else (row["change"], f"{row['step_s']:,.4g}", f"{row['ratio'] - 1.0:+.0%}")
        for row in changes
    ]
    write_line(text_table(("change", "step s", "step"), rows, left=(0,)))


def _measured_mode(row: dict[str, Any]) -> str:
    if row["mode"] == "colocated":
        return MODE_WORDS["colocated"]
    return MODE_WORDS["one_step_off"] if row["staleness"] <= 1 else f"{row['staleness']:g} steps stale"


def _print_modes(best: list[dict[str, Any]]) -> None:
    lines = []
    for each in best:
        usd = each["usd"]
        lines.append(
            (
                MODE_WORDS[each["mode"]],
                f"{each['gpus_train']:,}:{each['gpus_rollout']:,}" if each["mode"] != "colocated" else "shared",
                _with_interval(each["step_s"]),
                f"{each['tokens_per_s_per_gpu']:,.0f}",
                f"{each['tail_ratio']:.2f}",
                f"{each['idle_training']:.0%}",
                f"{each['idle_rollout']:.0%}",
                _with_interval(each["days"]),
                "-" if usd is None else _with_interval(usd),
            )
        )
    header = (
        "mode",
        "train:rollout",
        "step s",
        "tokens/s/GPU",
        "tail",
        "training waits",
        "rollout waits",
        "days",
        "USD",
    )
    write_line(text_table(header, lines, left=(0,)))
    if best[0]["usd"] is None:
        write_line("No price is recorded for this system; give --price for the cost.")
    fastest = best[0]
    deployment = fastest["deployment"]
    write_line()
    write_line(
        f"{MODE_WORDS[fastest['mode']]}: training {fastest['layout']}; rollout TP {deployment['tensor_par']}"
        + (f", EP {deployment['expert_par']}" if deployment["expert_par"] > 1 else "")
        + f", {deployment['replicas']:,} replicas, {deployment['batch']:,} requests each at once"
    )
    if (judge := fastest["judge"]) is not None:
        write_line(f"Judge: {judge['replicas']:,} replicas of TP {judge['tensor_par']}")
    phases = [
        (PHASE_WORDS[row["name"]], f"{row['gpus']:,}", _with_interval(row["seconds"])) for row in fastest["phases"]
    ]
    write_line(text_table(("phase", "GPUs", "s"), phases, left=(0,)))
    memory = [
        (
            PHASE_WORDS[row["phase"]],
            f"{row['gib']:,.1f}",
            f"{row['has']:,.1f}",
            ", ".join(f"{name} {value:,.1f}" for name, value in row["parts"].items()),
        )
        for row in fastest["memory"]
    ]
    write_line(text_table(("memory", "needs GiB", "has GiB", "parts"), memory, left=(0, 3)))


def _with_interval(figure: dict[str, float]) -> str:
    value, low, high = (_format_number(figure[name]) for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def _format_number(value: float) -> str:
    """Return three significant digits, the rest of a large number as zeros."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 1000 else f"{rounded:g}"
