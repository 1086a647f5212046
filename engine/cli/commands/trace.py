"""The command `trace`: where the time of a profiled step went."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.options import JsonOption
from engine.cli.output import as_json, text_table, write_line
from engine.cli.question_options import UnfinishedQuestion, asks
from engine.questions.documents.executions import TraceQuestion

if TYPE_CHECKING:
    from engine.traces import RankTrace, StepBesideModel, Trace

__all__ = ["show_trace"]

MOST_KERNELS = 12
"""Kernels that are listed."""
NAME_WIDTH = 80
"""Characters of a kernel's name that are shown."""


@asks(TraceQuestion, leave_out=("execution", "text", "name"), optional=("model", "system"))
def show_trace(
    asked: UnfinishedQuestion[TraceQuestion],
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Traces: one file, or one per rank.")],
    execution: Annotated[
        Path | None,
        typer.Option(
            "--execution", metavar="FILE", help="Compare with the prediction for this execution: a file with it."
        ),
    ] = None,
    row: Annotated[
        int | None, typer.Option("--row", metavar="N", min=0, help="Which execution of the file, counted from 0.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show where the time of a profiled step went.

    Read are JSON of PyTorch's profiler (also packed), SQLite and CSV of Nsight Systems, and logs with Megatron-LM's
    timers. Several files, or a zip file, are the ranks of one job. A profiled step takes longer than others.

    With --execution, the parts of the step stand beside the predicted ones, with what explains the difference; --model
    and --system name its model and system, unless the file was printed by `best --json` or `explore --json`.

    \b
    Examples:
      shardscape trace rank0.pt.trace.json.gz
      shardscape trace rank0.json rank1.json --json
      shardscape trace report.sqlite
      shardscape trace rank0.json.gz --execution run.json --model llama-3-70B --system h100_80g_sxm

    \b
    JSON: figures by window and step [µs], groups, terms (parts of the median step of each rank [s]), prediction
    (measured_s, predicted_s, rows, sentences; null without --execution), remarks.
    """
    from engine import traces

    found = traces.read(files)
    compared = _compare_with(asked, found, execution, row)
    if json:
        trace = found if isinstance(found, traces.Trace) else None
        document = {
            **found.figures(),
            "groups": [] if trace is None else trace.exposed_by_group(),
            "terms": [] if trace is None else [asdict(each) for each in trace.terms()],
            "prediction": None if compared is None else compared.document(),
            "remarks": list(found.remarks),
        }
        write_line(as_json(document))
    elif isinstance(found, traces.Trace):
        _write_trace(found)
    elif isinstance(found, traces.KernelSums):
        rows = [[kind, f"{value / 1e6:,.3f}"] for kind, value in sorted(found.sums_ns.items())]
        write_line(text_table(["kind of work", "sum [ms]"], rows))
    else:
        figures = found.figures()
        rows = [
            [
                name,
                f"{value['min']:,.2f}" if "min" in value else "-",
                f"{value['max']:,.2f}",
                figures["nested"].get(name, ""),
            ]
            for name, value in found.timers_ms.items()
        ]
        write_line(text_table(["timer", "least [ms]", "most [ms]", "within"], rows, left=(0, 3)))
        if figures["remark"]:
            write_line(f"{figures['remark'][:1].upper()}{figures['remark'][1:]}.")
    if compared is not None and not json:
        _write_comparison(compared)
    for remark in found.remarks:
        write_line(remark, stream=sys.stderr)


def _compare_with(
    asked: UnfinishedQuestion[TraceQuestion], found: Any, execution: Path | None, row: int | None
) -> StepBesideModel | None:
    """Return the step of the first rank beside the prediction; None if no execution is given.

    Raises `QuestionError` where something is missing for it.
    """
    import models
    from engine import traces
    from engine.cli.commands.launch import execution_in
    from engine.questions.errors import QuestionError
    from engine.questions.evaluation_settings import load_evaluation_setting
    from engine.questions.plain import plain
    from engine.questions.traced_steps import compare_with_prediction

    if execution is None:
        if asked.said["model"] or asked.said["system"] or row is not None:
            raise QuestionError("A prediction needs the execution; give a file with it as --execution.")
        return None
    if not isinstance(found, traces.Trace):
        raise QuestionError("Summaries and logs of timers have no overlap to compare; give a trace of a rank.")
    chosen, named, _ = execution_in(execution, row)
    model = asked.said["model"] or (models.to_document(named) if isinstance(named, models.Model) else named)
    if model is None or asked.said["system"] is None:
        missing = "--model" if model is None else "--system"
        raise QuestionError(f"A prediction needs the {missing.strip('-')}; give it with {missing}.")
    question = asked.finish(execution=plain(chosen), model=model, text="-")
    return compare_with_prediction(found.terms()[0], load_evaluation_setting(question), question.execution)


def _write_comparison(compared: StepBesideModel) -> None:
    write_line()
    rows = [
        [name, *(f"{value * 1e3:,.2f}" for value in (measured, predicted, measured - predicted))]
        for name, measured, predicted in (
            *compared.rows,
            ("Step", compared.measured_s, compared.predicted_s),
        )
    ]
    write_line(text_table(["part of the step [ms]", "measured", "predicted", "difference"], rows))
    for sentence in compared.sentences:
        write_line(sentence)


def _write_trace(found: Trace) -> None:
    from engine.traces.figures import figures_of, step_seconds

    first = True
    for name, trace in zip(found.rank_names, found.ranks, strict=True):
        if not first:
            write_line()
        first = False
        if len(found.ranks) > 1:
            write_line(f"Rank {name}:")
        seconds = step_seconds(trace.steps)
        if seconds is None:
            write_line("No steps were found; figures are of the whole trace.")
        else:
            write_line(f"Step {seconds * 1e3:,.2f} ms (median of {len(trace.steps)}, profiled).")
        figures = figures_of(trace, found.limits.steps)
        columns = _columns_of(figures)
        write_line(text_table(["[ms]", *columns], _rows_of(list(columns.values()))))
        write_line(_describe_operations(figures))
        _write_groups(trace)
        _write_kernels(trace)
    if len(found.ranks) > 1:
        compared = found.compare_ranks()
        write_line()
        rows = [
            [str(rank), *(f"{value * 1e3:,.2f}" if value is not None else "-" for value in values)]
            for rank, *values in zip(
                compared.names, compared.step_s, compared.compute_s, compared.waiting_s, strict=True
            )
        ]
        write_line(text_table(["rank", "step [ms]", "computing [ms]", "waiting [ms]"], rows))
        if compared.straggler is not None:
            write_line(f"The others wait for rank {compared.names[compared.straggler]}, which computes longer.")


def _columns_of(figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the windows that are shown: the whole trace and its first steps."""
    steps = [step for step in figures["steps"] if step["launched"] is not None][:4]
    return {"whole trace": figures["whole"], **{step["name"]: step["launched"] for step in steps}}


def _rows_of(windows: list[dict[str, Any]]) -> list[list[str]]:
    named = {
        "window": "window_us",
        "busy": "busy_us",
        "idle": "idle_us",
        "computation": "compute_union_us",
        "communication": "comm_union_us",
        "  of it hidden": "comm_hidden_by_compute_us",
        "  of it exposed": "comm_exposed_us",
        "copies, exposed": "memory_exposed_us",
    }
    rows = [[label, *(f"{window[key] / 1e3:,.3f}" for window in windows)] for label, key in named.items()]
    kinds = sorted({kind for window in windows for kind in window["sum_us"]})
    rows += [
        [f"kernels: {kind}", *(f"{window['sum_us'].get(kind, 0) / 1e3:,.3f}" for window in windows)] for kind in kinds
    ]
    return rows


def _describe_operations(figures: dict[str, Any]) -> str:
    idle = figures["whole"]["idle_parts"]
    said = f"Idle: {idle['host_us'] / 1e3:,.3f} ms while the host had not launched the next kernel."
    operations = figures["comm_ops"].items()
    if operations:
        listed = ", ".join(
            f"{name} {value['sum_us'] / 1e3:,.3f} ms ({value['events']:,})" for name, value in operations
        )
        said += f" Collectives: {listed}."
    return said


def _write_groups(trace: RankTrace) -> None:
    from engine.traces.groups import exposed_by_group

    found = exposed_by_group(trace)
    if not found:
        return
    rows = [
        [name, *(f"{value[key] / 1e3:,.3f}" for key in ("exposed_us", "hidden_us")), f"{value['events']:,}"]
        for name, value in found.items()
    ]
    write_line(text_table(["group", "exposed [ms]", "hidden [ms]", "collectives"], rows))


def _write_kernels(trace: RankTrace) -> None:
    from engine.traces.figures import list_longest

    rows = [
        [name[:NAME_WIDTH], kind, f"{total / 1e6:,.3f}", f"{count:,}"]
        for name, kind, total, count in list_longest(trace, MOST_KERNELS)
    ]
    write_line(text_table(["longest kernels", "kind", "sum [ms]", "number"], rows, left=(0, 1)))
