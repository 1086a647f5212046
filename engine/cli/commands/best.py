"""The command `best`: the proven best executions of a space, without evaluating all of it."""

from __future__ import annotations

import sys
import time
from typing import Annotated, Any

import typer

from engine.cli.asked_scenario import write_error, write_framework_cost, write_scenario, write_stages
from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, executions_table, write_line
from engine.cli.progress import ExplorationLine
from engine.cli.question_options import asks
from engine.cli.recommended import write_recommendation, write_shown
from engine.questions.documents.explorations import BestQuestion, RecommendationTermsQuestion

__all__ = ["find_best"]


@asks(BestQuestion, arguments=("model", "system"), leave_out=("statistics",), flatten="scenario")
def find_best(
    asked: BestQuestion,
    recommended: Annotated[
        bool,
        typer.Option("--recommended", help="Also say why the others are not recommended."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Find the execution with the highest throughput, proven, without evaluating them all.

    Figures of the recommended execution come first, as on pages: the simplest that is too close to call; --figures-of
    fastest leaves it out. The list has the same executions as `shardscape explore` shows first; limits are written as
    there. Most executions are proven no better by a bound instead of being evaluated.

    \b
    Examples:
      shardscape best gpt3-175B h100_80g_nvl8 --procs 512 --max-batch 512 --datatype float16
      shardscape best llama-3-70B h100_80g_sxm --procs 64 --max-batch 128 --datatype bfloat16 --top 5
      shardscape best llama-3-70B h100_80g_sxm --procs 64 --max-batch 128 --datatype float8 --limit context_par=1,2
      shardscape best llama-3-70B h100_80g_sxm --procs 64 --max-batch 128 --datatype bfloat16 --framework torchtitan
      shardscape best --scenario scenario.json --procs 128
      shardscape best llama-3.1-70B h100_80g_sxm --procs 512 --max-batch 512 --datatype bfloat16 --recommended

    \b
    JSON with a framework: framework_cost (sentence, sample_rate, sample_rate_of_any, slowdown, obstacles: what the
    fastest of any framework has that this one does not run).

    \b
    JSON: model, system, num_procs, max_batch_size, datatype, limits, cost_model, calibration (its name),
    not_represented (of the model), model_document (null for a model of the library), total,
    feasible, evaluated, shown (the execution of --figures-of: figures_of, remark, execution, step_time_interval,
    not_measured), step_time_interval (low, high [s], share of comparable measured runs between them, rows,
    sources, runs, held_of_sources_left_out, few_sources; null where no runs tell), not_measured (what no measured run
    had of what the best rests on), top (best first: id, fields and statistics, with fit: fits, may not fit or may fit,
    where the error of predicted memory is known), seconds.

    Progress is shown where errors go, if that is a terminal. Exit code 1 when nothing is feasible.
    """
    import engine
    from engine.economics import derived_columns
    from engine.questions.explorations import best_document, best_table
    from engine.questions.framework_costs import searchable_scenario
    from engine.questions.shown_executions import find_shown, shown_document

    terms = {name: getattr(asked, name) for name in RecommendationTermsQuestion.model_fields}
    has_advice = recommended or asked.figures_of == "recommended"
    if not has_advice and RecommendationTermsQuestion(**terms) != RecommendationTermsQuestion():
        raise typer.BadParameter(
            "--headroom, --allow-offload and --allow-unmeasured go with --figures-of recommended or --recommended."
        )
    scenario = searchable_scenario(asked.scenario)
    start = time.perf_counter()
    line = ExplorationLine(sys.stderr)
    try:
        found = engine.best_of(scenario, k=asked.top, progress=line)
    finally:
        line.clear()
    seconds = time.perf_counter() - start
    advice = None
    if has_advice and len(found.top):
        from engine.questions.recommendations import find_recommendation
        from engine.recommendation import ProvenBest

        advice = find_recommendation(scenario, asked, contenders=10 if recommended else 0, best=ProvenBest.of(found))
    shown = find_shown(scenario, asked, advice=advice, optimum=found) if len(found.top) else None
    table = best_table(found)
    if json:
        from engine.questions.recommendations import recommendation_document

        further: dict[str, Any] = {"shown": shown_document(scenario, shown)}
        if advice is not None and recommended:
            further["recommended"] = recommendation_document(advice)
        rows = {"top": table.to_dict("records"), "seconds": seconds}
        write_line(as_json({**best_document(found, table), **rows, **further}))
    else:
        write_scenario(scenario)
        write_line(
            f"{found.total:,} executions, {found.feasible:,} of them feasible, {found.evaluated:,} evaluated "
            f"({seconds:.2f} s)"
        )
        if len(table):
            if shown is not None and not recommended:
                write_shown(scenario, shown)
            write_line()
            write_line("Best by throughput, proven" if len(table) > 1 else "Best throughput, proven")
            write_line(
                executions_table(table, derived_columns(scenario, table), scenario.system, scenario.flop_convention)
            )
            write_stages(scenario, table.iloc[0].to_dict())
            write_error(scenario, table.iloc[0].to_dict())
            if advice is not None and recommended:
                write_recommendation(advice)
        else:
            write_line("No execution is within the limits." if not found.total else "Nothing is feasible.")
        write_framework_cost(scenario)
    if not found.feasible:
        raise typer.Exit(ExitCode.NOTHING)
