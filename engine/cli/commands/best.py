"""The command `best`: the proven best executions of a space, without evaluating all of it."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from engine.cli.asked_scenario import scenario_of, write_error, write_scenario, write_stages
from engine.cli.options import (
    CalibrationOption,
    CostModelOption,
    DatatypeOption,
    JsonOption,
    LimitOption,
    MaxBatchOption,
    ModelOrNone,
    ProcsOption,
    ScenarioOption,
    SystemOrNone,
)
from engine.cli.output import ExitCode, as_json, executions_table, write_line
from engine.cli.progress import ExplorationLine
from engine.cli.recommended import write_recommendation

__all__ = ["find_best"]


def find_best(
    model: ModelOrNone = None,
    system: SystemOrNone = None,
    procs: ProcsOption = None,
    max_batch: MaxBatchOption = None,
    datatype: DatatypeOption = None,
    limit: LimitOption = None,
    cost_model: CostModelOption = None,
    calibration: CalibrationOption = None,
    document: ScenarioOption = None,
    top: Annotated[int, typer.Option("--top", metavar="K", min=1, max=10_000, help="Best executions to find.")] = 1,
    recommended: Annotated[
        bool,
        typer.Option("--recommended", help="Also say which to run: the simplest that is too close to call."),
    ] = False,
    headroom: Annotated[
        float | None,
        typer.Option("--headroom", metavar="SHARE", help="Of predicted memory, kept free; its error by default."),
    ] = None,
    allow_offload: Annotated[
        bool, typer.Option("--allow-offload", help="What is recommended may keep things in host memory.")
    ] = False,
    allow_unmeasured: Annotated[
        bool, typer.Option("--allow-unmeasured", help="What is recommended may rest on something never measured.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Find the execution with the highest throughput, proven, without evaluating them all.

    The same executions as `shardscape explore` shows first; limits are written as there. Most executions are proven no
    better by a bound instead of being evaluated.

    \b
    Examples:
      shardscape best gpt3-175B h100_80g_nvl8 --procs 512 --max-batch 512 --datatype float16
      shardscape best llama-3-70B h100_80g_sxm --procs 64 --max-batch 128 --datatype bfloat16 --top 5
      shardscape best llama-3-70B h100_80g_sxm --procs 64 --max-batch 128 --datatype float8 --limit context_par=1,2
      shardscape best --scenario scenario.json --procs 128
      shardscape best llama-3.1-70B h100_80g_sxm --procs 512 --max-batch 512 --datatype bfloat16 --recommended

    \b
    JSON: model, system, num_procs, max_batch_size, datatype, limits, cost_model, calibration (its name),
    not_represented (of the model), model_document (null for a model of the library), total,
    feasible, evaluated, step_time_interval (low, high [s], share of comparable measured runs between them, rows,
    sources, runs, few_sources; null where no runs tell), not_measured (what no measured run had of what the best rests
    on), top (best first: id, fields and statistics), seconds.

    Progress is shown where errors go, if that is a terminal. Exit code 1 when nothing is feasible.
    """
    import engine
    from engine.economics import derived_columns
    from engine.questions.explorations import best_document, best_table

    if not recommended and (headroom is not None or allow_offload or allow_unmeasured):
        raise typer.BadParameter("--headroom, --allow-offload and --allow-unmeasured go with --recommended.")
    if headroom is not None and not 0.0 <= headroom < 10.0:
        raise typer.BadParameter(f"--headroom is {headroom:g}; it must be a share from 0 to below 10, such as 0.1.")
    scenario = scenario_of(model, system, procs, max_batch, datatype, limit, cost_model, calibration, document)
    start = time.perf_counter()
    line = ExplorationLine(sys.stderr)
    try:
        found = engine.best_of(scenario, k=top, progress=line)
    finally:
        line.clear()
    seconds = time.perf_counter() - start
    advice = None
    if recommended:
        from engine.recommendation import recommend

        advice = recommend(scenario, headroom=headroom, offload=allow_offload, unmeasured=allow_unmeasured)
    table = best_table(found)
    if json:
        from engine.questions.recommendations import recommendation_document

        further = {} if advice is None else {"recommended": recommendation_document(advice)}
        rows = {"top": table.to_dict("records"), "seconds": seconds}
        write_line(as_json({**best_document(found, table), **rows, **further}))
    else:
        write_scenario(scenario)
        write_line(
            f"{found.total:,} executions, {found.feasible:,} of them feasible, {found.evaluated:,} evaluated "
            f"({seconds:.2f} s)"
        )
        if len(table):
            write_line()
            write_line("Best by throughput, proven" if len(table) > 1 else "Best throughput, proven")
            write_line(executions_table(table, derived_columns(scenario, table), scenario.system))
            write_stages(scenario, table.iloc[0].to_dict())
            write_error(scenario, table.iloc[0].to_dict())
            if advice is not None:
                write_recommendation(advice)
        else:
            write_line("No execution is within the limits." if not found.total else "Nothing is feasible.")
    if not found.feasible:
        raise typer.Exit(ExitCode.NOTHING)
