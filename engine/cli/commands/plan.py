"""The commands `plan ...`: planners, each with a command of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.commands.plan_day import plan_service_day
from engine.cli.commands.plan_elastic import elastic_app
from engine.cli.commands.plan_fine_tuning import plan_tuning
from engine.cli.commands.plan_fleet import plan_fleet_hours
from engine.cli.commands.plan_operators import plan_operators
from engine.cli.commands.plan_post_training import plan_reinforcement
from engine.cli.commands.plan_run import plan_training
from engine.cli.options import JsonOption
from engine.cli.output import as_json, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks, build_question, read_named
from engine.cli.text_tables import TableStream
from engine.cli.text_tables import write_text_table as _text
from engine.questions.documents.layers import LayersQuestion, SystemShare

if TYPE_CHECKING:
    from engine.planners.layerwise import LayerwisePlan, LayerwiseProblem
    from engine.planners.layerwise.library_models import ModelPlan

__all__ = ["plan_app"]

plan_app = typer.Typer(
    help="Plans: a training run, post-training, a day of a service, a fleet, layers, elastic training, operators.",
    no_args_is_help=True,
)
plan_app.add_typer(elastic_app, name="elastic")
plan_app.command("operators")(plan_operators)
plan_app.command("run")(plan_training)
plan_app.command("post-training")(plan_reinforcement)
plan_app.command("fine-tuning")(plan_tuning)
plan_app.command("day")(plan_service_day)
plan_app.command("fleet")(plan_fleet_hours)


@plan_app.callback()
def describe_plans() -> None:
    """Plans: a training run, post-training, a day of a service, a fleet, layers, elastic training, operators."""


def _parse_system(text: str) -> SystemShare:
    """Return the share of a system such as h100_80g_sxm:64."""
    from engine.planners.contract import PlanError

    name, _, number = text.rpartition(":")
    if not name or not number.isdigit():
        raise PlanError(f"--system {text[:60]!r} is no system with its processors, such as h100_80g_sxm:64.")
    return build_question(SystemShare, {"system": read_named(name, "system"), "num_procs": int(number)})


@plan_app.command("layers")
@asks(
    LayersQuestion,
    leave_out=("model", "profile", "profile_name"),
    readers={"systems": _parse_system},
)
def plan_layers(
    asked: LayersQuestion,
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE|MODEL", help="Profile file, example, or library model with --system.")
    ],
    sweep: Annotated[bool, typer.Option("--sweep", help="Plan 32, 64, 128, ... 4096 samples, with baselines.")] = False,
    scale: Annotated[bool, typer.Option("--scale", help="Plan 2, 3, ... all devices.")] = False,
    top: Annotated[int, typer.Option("--top", metavar="K", min=1, help="Candidates to print.")] = 5,
    strategy: Annotated[
        Path | None, typer.Option("--strategy", metavar="FILE", help="Write the strategy as JSON, or .dot as a graph.")
    ] = None,
    execution: Annotated[
        Path | None,
        typer.Option("--execution", metavar="FILE", help="Write a library model's plan as JSON for `evaluate`."),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV: the candidates, or the rows of a sweep.")] = False,
    json: JsonOption = False,
) -> None:
    """Divide layers into pipeline stages with replicas, as DAPPLE's planner does, and say what else it looked at.

    A profile is TorchGraph text of PipeDream's profiler, or our CSV or JSON. Examples that come with it: vgg19,
    bert_48, gnmt_32_simplified, resnet50 and more. A library model is profiled by the calibrated cost model.

    \b
    Examples:
      shardscape plan layers vgg19 --batch 1024
      shardscape plan layers graph.txt --profile-batch 32 --batch 1024 --machines 8,16 --mode released --csv
      shardscape plan layers bert_48 --batch 64 --preset B --sweep
      shardscape plan layers llama-3-70B --system h100_80g_sxm:64 --tensor-par 8 --batch 128 --execution plan.json
      shardscape plan layers llama-3-8B --system h100_80g_sxm:8 --system a100_80g_sxm:8 --batch 64
    """
    from engine.planners.contract import PlanError
    from engine.questions.layer_plans import find_layer_plan, layers_problem, plan_layers_of_model

    if csv and json:
        raise PlanError("Give --csv or --json, not both.")
    if asked.systems:
        if sweep or scale or asked.machines or asked.cluster:
            raise PlanError("With --system the cluster is the system's: leave --machines, --preset, --sweep, --scale.")
        asked = asked.model_copy(update={"model": read_named(profile, "model")})
        with ProgressReport("planning") as report:
            made = plan_layers_of_model(asked, report)
        _print_plan(made.plan, json=json, csv=csv, top=top)
        _compare_with_optimum(made, asked)
        _write_strategy(made.plan, strategy)
        _write_execution(made, execution)
        return
    if execution is not None:
        raise PlanError("--execution is for a library model with --system: a profile alone is no execution.")
    many, is_default_mode = sweep or scale, asked.mode is None
    asked = asked.model_copy(update={**_read_profile(profile), "mode": asked.mode or ("released" if many else "paper")})
    if many:
        if is_default_mode:
            note = "Searches of HPGO, the quick mode (released); --mode paper plans by the paper's latency, minutes."
            write_line(note, stream=sys.stderr)
        _print_many(layers_problem(asked), sweep=sweep, json=json, csv=csv)
        return
    with ProgressReport("planning") as report:
        plan = find_layer_plan(asked, report)
    _print_plan(plan, json=json, csv=csv, top=top)
    _write_strategy(plan, strategy)


def _read_profile(source: str) -> dict[str, str]:
    """Return the fields of a question about a profile: an example, or the text of a file."""
    from engine.planners.layerwise.profiles.examples import examples
    from engine.planners.layerwise.profiles.reading import read_profile_file

    if any(each.name == source for each in examples()) and not Path(source).exists():
        return {"profile": source}
    text, name = read_profile_file(source)
    return {"profile": text, "profile_name": name}


def _print_many(problem: LayerwiseProblem, *, sweep: bool, json: bool, csv: bool) -> None:
    """A plan per batch or number of devices, printed as they are found; as JSON all at once."""
    from engine.planners.layerwise.sweep import BATCH_COLUMNS, BATCHES, DEVICE_COLUMNS, batch_rows, device_rows

    count = len(BATCHES) if sweep else problem.cluster.size - 1
    columns = BATCH_COLUMNS if sweep else DEVICE_COLUMNS
    stream = TableStream({name: max(len(name), 11 if name != "stages" else 24) for name in columns}, csv=csv)
    with ProgressReport("planning", steps=count, unit="batches" if sweep else "sizes") as report:
        rows = batch_rows(problem, progress=report) if sweep else device_rows(problem, progress=report)
        if json:
            write_line(as_json([{name: row.get(name) for name in columns} for row in rows]))
            return
        for row in rows:
            report.clear()
            stream.add(row)


def _compare_with_optimum(made: ModelPlan, asked: LayersQuestion) -> None:
    """Print the cost model's figures for the plan's execution, and the best of all executions."""
    from engine.planners.layerwise.library_models import compared
    from engine.questions.scenario_documents import found_model, found_system

    if made.layout:
        write_line(f"Megatron: --pipeline-model-parallel-layout '{made.layout}'", stream=sys.stderr)
    assert asked.model is not None
    assert asked.systems is not None
    if len(asked.systems) == 1:
        (share,) = asked.systems
        with ProgressReport("comparing with all executions"):
            lines = compared(made, found_model(asked.model), found_system(share.system), share.num_procs)
        for line in lines:
            write_line(line, stream=sys.stderr)


def _print_plan(plan: LayerwisePlan, *, json: bool, csv: bool, top: int) -> None:
    from engine.planners.layerwise.strategy import strategy
    from engine.planners.layerwise.tabulated import candidates_table, stages_table

    if json:
        candidates = candidates_table(plan).to_dict("records")
        write_line(as_json({**strategy(plan), "candidates": candidates}))
        return
    if csv:
        write_line(candidates_table(plan).to_csv(index=False).rstrip())
        return
    step = plan.figure("step_time").value
    write_line(
        f"Speedup {plan.speedup:.4f} over one device, {step:.4g} s a step, {plan.figure('sample_rate').value:.4g} "
        f"samples/s; {plan.microbatches} microbatches, found as {plan.candidates[0].name}."
    )
    _text(stages_table(plan))
    write_line()
    _text(candidates_table(plan).head(top))
    for note in plan.notes:
        write_line(note)


def _write_execution(made: ModelPlan, path: Path | None) -> None:
    if path is None:
        return
    from engine.planners.layerwise.library_models import execution_of

    _write_text(path, as_json(dict(execution_of(made))))


def _write_strategy(plan: LayerwisePlan, path: Path | None) -> None:
    if path is None:
        return
    from engine.planners.layerwise.strategy import graph_text, strategy_text

    _write_text(path, graph_text(plan) if path.suffix == ".dot" else strategy_text(plan))


def _write_text(path: Path, text: str) -> None:
    from engine.executions.files import TableWriteError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise TableWriteError(f"{path} cannot be written: {(error.strerror or 'no reason').lower()}.") from None
