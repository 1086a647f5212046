"""The command `standing`: the rank of an execution in use, and the steps that lead to the recommended one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, format_quantity, text_table, unit_of, write_line
from engine.cli.question_options import UnfinishedQuestion, asks
from engine.questions.documents.executions import StandingQuestion

if TYPE_CHECKING:
    from engine.launch import Standing

__all__ = ["print_standing", "rank_execution"]


@asks(StandingQuestion, arguments=("system",), leave_out=("execution",), optional=("model",))
def rank_execution(
    asked: UnfinishedQuestion[StandingQuestion],
    execution: Annotated[
        Path, typer.Argument(metavar="EXECUTION", help="File with executions, or JSON of `best` or `explore`.")
    ],
    row: Annotated[
        int | None, typer.Option("--row", metavar="N", min=0, help="Which execution of the file, counted from 0.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Rank an execution among all of its model, system, GPUs, batch and datatype, with steps to the recommended.

    Steps of one or two flags come first, the largest gain first; each is an execution that runs. --figures-of fastest
    leads to the fastest instead. The file names its model if `best --json` or `explore --json` printed it;
    otherwise give --model. `import` ranks launch configurations with --system.

    \b
    Examples:
      shardscape standing h100_80g_sxm execution.json --model llama-3-70B
      shardscape standing h100_80g_sxm executions.csv --row 3 --model llama-3-70B --limit weight_offload=no --json

    \b
    JSON: the scenario by names, runs, reason_text, sample_rate, best_sample_rate, faster (number of executions),
    feasible, total, target (the recommended execution: figures_of, remark, execution, step_time_interval, not_measured,
    gain, objection), steps (changes, flags, sample_rate, gain, fit), execution and best (fields and statistics).

    Exit code 1 when the execution cannot run.
    """
    import models
    from engine.cli.commands.launch import execution_in
    from engine.launch import LaunchError
    from engine.questions.bounds import Context
    from engine.questions.plain import plain
    from engine.questions.standings import STANDING, find_standing

    chosen, named, _ = execution_in(execution, row)
    network = asked.said["model"] or (models.to_document(named) if isinstance(named, models.Model) else named)
    if network is None:
        raise LaunchError(f"{execution} does not name its model; give it with --model.")
    question = asked.finish(execution=plain(chosen), model=network)
    if json:
        answer = STANDING.run(question, Context())
        write_line(as_json(answer))
        runs = answer["runs"]
    else:
        stands = find_standing(question)
        print_standing(stands, question.framework)
        runs = stands.runs
    if not runs:
        raise typer.Exit(ExitCode.NOTHING)


def print_standing(stands: Standing, framework: str) -> None:
    """Print the rank of an execution, and the steps that lead to the target with the framework's flags.

    Args:
        stands: the rank.
        framework: whose flags name the changes.
    """
    import numpy as np

    from engine.columns import rates_beside
    from engine.economics import derived_of
    from engine.launch import flag_changes
    from engine.recommendation.own_run import describe_distance, describe_steps

    scenario, row = stands.scenario, stands.row
    machine = scenario.system.title or scenario.system.name
    write_line()
    write_line(
        f"On {scenario.num_procs:,} x {machine}, batch {scenario.max_batch_size:,}, {scenario.datatype}; cost model "
        f"{scenario.cost_model}"
    )
    if stands.runs:
        known, rate = derived_of(scenario), np.array(float(row["sample_rate"]))
        told = ", ".join(
            f"{format_quantity(one.column, one.of(rate))} {unit_of(one.column)} {one.column.short}"
            for one in (known[name] for name in rates_beside(scenario.flop_convention)[:3])
        )
        write_line(
            f"{float(rate):.4g} samples/s, {told}, {float(row['total_time']):.4g} s a step, "
            f"{float(row['proc_mem_tier1_cap_req']) / 2**30:.4g} GiB of HBM"
        )
        if stands.faster is not None and stands.feasible is not None:
            write_line(f"{stands.faster:,} of {stands.feasible:,} feasible executions are faster.")
    else:
        write_line(f"It does not run there. {row['reason_text']}")
    if stands.best is None:
        write_line("Nothing runs there.")
        return
    target = stands.target
    if target is None:
        return
    if target.remark:
        write_line(target.remark)
    write_line(describe_distance(stands))
    if not stands.steps:
        return
    changes = flag_changes(stands, framework=framework)
    write_line(describe_steps(stands, changes))
    write_line()
    rows = []
    for step, flags in zip(stands.steps, changes, strict=True):
        gain = "makes it run" if step.gain == float("inf") else f"{step.gain:+.1%}"
        rows.append((gain, f"{step.rate:.4g}", ", ".join(map(str, step.changes))))
        if flags:
            rows.append(("", "", f"  {', '.join(map(str, flags))}"))
    write_line(text_table(("gain", "samples/s", "change"), rows, left=(2,)))
