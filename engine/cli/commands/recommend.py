"""The command `recommend`: the execution to run, the simplest that is as good as the best."""

from __future__ import annotations

import typer

from engine.cli.asked_scenario import write_framework_cost, write_scenario
from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks
from engine.cli.recommended import write_recommendation
from engine.questions.documents.explorations import RecommendQuestion

__all__ = ["recommend_execution"]


@asks(RecommendQuestion, arguments=("model", "system"), flatten="scenario")
def recommend_execution(asked: RecommendQuestion, json: JsonOption = False) -> None:
    """Recommend the execution to run: the simplest that is as fast as the best within the error.

    The scenario is given as for `best`; `best --recommended` also shows the fastest executions.

    \b
    Examples:
      shardscape recommend llama-3.1-70B h100_80g_sxm --procs 512 --max-batch 512 --datatype bfloat16
      shardscape recommend --scenario scenario.json --headroom 0.1 --allow-offload --json

    \b
    JSON: the scenario by names, recommended and fastest (fields and statistics), mechanisms, fastest_takes,
    fastest_faster_by, fastest_loses_because, stake_usd, rival_id,
    error, headroom, memory, close, contenders, units, seconds.

    Exit code 1 when no execution is recommended.
    """
    from engine.questions.bounds import Context
    from engine.questions.framework_costs import searchable_scenario
    from engine.questions.recommendations import RECOMMEND, find_recommendation

    with ProgressReport("searching"):
        if json:
            answer = RECOMMEND.run(asked, Context())
            found = None
        else:
            scenario = searchable_scenario(asked.scenario)
            found = find_recommendation(scenario, asked)
    if found is None:
        write_line(as_json(answer))
        is_recommended = answer["recommended"] is not None
    else:
        write_scenario(found.scenario)
        write_recommendation(found)
        write_framework_cost(found.scenario)
        is_recommended = found.execution is not None
    if not is_recommended:
        raise typer.Exit(ExitCode.NOTHING)
