"""The command `normal`: whether a throughput is as expected, next to the nearest measured runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.question_options import UnfinishedQuestion, asks, name_options
from engine.questions.documents.nearest_runs import NormalQuestion

if TYPE_CHECKING:
    from engine.questions.nearest_runs import NormalThroughput

__all__ = ["judge_throughput"]


@asks(NormalQuestion, arguments=("system",), leave_out=("execution",), optional=("model",))
def judge_throughput(
    asked: UnfinishedQuestion[NormalQuestion],
    execution: Annotated[
        Path, typer.Argument(metavar="EXECUTION", help="File with executions, or JSON of `best` or `explore`.")
    ],
    row: Annotated[
        int | None, typer.Option("--row", metavar="N", min=0, help="Which execution of the file, counted from 0.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say whether a throughput is normal: the prediction, your measurement, and the nearest measured runs.

    The package has about 1,600 measured runs, each with its source. The distance weighs kind of model, hardware,
    datatype, model size, sequence length, GPUs and layout, in this order. Give your figure by one of --step-time,
    --tokens-per-s, and --tflops with --attention; memory by --peak-memory-gib. Settings that would explain a difference
    are listed.

    \b
    Examples:
      shardscape normal h100_80g_sxm execution.json --model llama-3-70B
      shardscape normal h100_80g_sxm execution.json --model llama-3-70B --step-time 15.2
      shardscape normal h100_80g_sxm execution.json --model llama-3-70B --tflops 390 --attention causal --json

    JSON is the answer to the question normal: predicted, measured, memory, measured_memory, nearest, weights of the
    distance.

    Exit code 1 when the execution cannot run.
    """
    import models
    from engine.cli.commands.launch import execution_in
    from engine.launch import LaunchError
    from engine.questions.nearest_runs import find_normal
    from engine.questions.plain import plain

    chosen, named, _ = execution_in(execution, row)
    network = asked.said["model"] or (models.to_document(named) if isinstance(named, models.Model) else named)
    if network is None:
        raise LaunchError(f"{execution} does not name its model; give it with --model.")
    question = asked.finish(execution=plain(chosen), model=network)
    with name_options(NormalQuestion):
        found = find_normal(question)
    if json:
        write_line(as_json(found.document()))
    else:
        _print_normal(found)
    if found.predicted is None:
        raise typer.Exit(ExitCode.NOTHING)


def _print_normal(found: NormalThroughput) -> None:
    from engine.cli.asked_scenario import write_scenario
    from engine.executions.execution_names import execution_name
    from engine.questions.nearest_runs import NOTE

    scenario, told = found.scenario, found.predicted
    write_scenario(scenario)
    write_line(execution_name(found.row))
    write_line()
    if told is None:
        write_line(f"It does not run there. {found.row['reason_text']}")
    else:
        rows = [("predicted", *_figure_cells(told, scenario.flop_convention), _interval_words(told))]
        if (own := found.measured) is not None:
            difference = f"{own['difference']:+.1%} step time, {own['verdict']}"
            rows.append(("measured", *_figure_cells(own, scenario.flop_convention), difference))
        counted = scenario.flop_convention
        headers = ("", "step [s]", "per GPU [tokens/s]", f"per GPU, {counted} [TFLOP/s]", f"MFU, {counted} [%]", "")
        write_line(text_table(headers, rows, left=(0, 5)))
    for measured, unit in ((found.measured, "s"), (found.measured_memory, "GiB")):
        if measured is not None and measured["words"]:
            write_line()
            write_line(measured["words"])
            for one in measured["explanations"]:
                write_line(f"  It would be {one['predicted']:.4g} {unit} with: {one['words']}")
    write_line()
    write_line("Nearest measured runs")
    columns = (
        "distance",
        "model",
        "GPUs",
        "batch",
        "layout",
        "type",
        "tokens",
        "step [s]",
        "predicted [s]",
        "difference",
        "source",
    )
    write_line(text_table(columns, [_run_cells(run) for run in found.nearest], left=(1, 4, 5, 10)))
    write_line()
    write_line(NOTE)


def _figure_cells(told: dict[str, Any], convention: str) -> tuple[str, ...]:
    return (
        f"{told['step_time_s']:.4g}",
        f"{told['tokens_per_s_per_gpu']:,.4g}",
        f"{told[f'tflops_per_gpu_{convention}']:.4g}",
        f"{100.0 * told[f'mfu_{convention}']:.3g}",
    )


def _interval_words(told: dict[str, Any]) -> str:
    if told["low_s"] is None:
        return "no comparable runs for an interval"
    return f"{told['low_s']:.4g} to {told['high_s']:.4g} s for {told['share']:.0%} of {told['rests_on']}"


def _run_cells(run: dict[str, Any]) -> tuple[str, ...]:
    has_prediction = run["predicted_step_time_s"] is not None
    return (
        f"{run['distance']:.2f}",
        run["model"],
        f"{run['num_procs'] or 0:,.0f} x {run['hardware']}",
        f"{run['batch_size']:,.0f}" if run["batch_size"] else "-",
        f"{run['layout']}, mb {run['microbatch_size'] or 0:g}",
        run["datatype"],
        f"{run['seq_size'] or 0:,.0f}",
        f"{run['measured_step_time_s'] or 0:.4g}" if run["measured_step_time_s"] else "-",
        f"{run['predicted_step_time_s']:.4g}" if has_prediction else "-",
        f"{run['difference']:+.1%}" if has_prediction else "-",
        run["link"] or run["place"],
    )
