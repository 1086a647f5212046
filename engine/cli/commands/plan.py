"""The commands `plan ...`: planners, each with a command of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.commands.plan_elastic import elastic_app
from engine.cli.commands.plan_operators import plan_operators
from engine.cli.options import JsonOption
from engine.cli.output import as_json, write_line
from engine.cli.progress import ProgressReport
from engine.cli.text_tables import TableStream
from engine.cli.text_tables import write_text_table as _text

if TYPE_CHECKING:
    from engine.planners.layerwise import LayerwisePlan, LayerwiseProblem
    from engine.planners.layerwise.cluster import MachineCluster
    from engine.planners.layerwise.library_models import ModelPlan

__all__ = ["plan_app"]

plan_app = typer.Typer(
    help="Plans: layers divided among devices, elastic training, operators in layers.", no_args_is_help=True
)
plan_app.add_typer(elastic_app, name="elastic")
plan_app.command("operators")(plan_operators)


@plan_app.callback()
def describe_plans() -> None:
    """Plans: layers divided among devices, elastic training, operators in layers."""


@plan_app.command("layers")
def plan_layers(
    profile: Annotated[
        str, typer.Argument(metavar="PROFILE|MODEL", help="Profile file, example, or library model with --system.")
    ],
    batch: Annotated[int, typer.Option("--batch", metavar="B", help="Global batch [samples].")],
    profile_batch: Annotated[
        float | None, typer.Option("--profile-batch", metavar="B", help="Batch at which the profile was taken.")
    ] = None,
    machines: Annotated[
        str | None,
        typer.Option("--machines", metavar="N,N", help="Where device numbers end: 8,16 are two machines of eight."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="A|B|C", help="A cluster of the DAPPLE paper; A by default.")
    ] = None,
    microbatch: Annotated[int, typer.Option("--microbatch", metavar="B", help="Microbatch [samples].")] = 1,
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode",
            metavar="released|paper",
            help="HPGO's searches, or the paper's latency. [paper; released, which is quick, for --sweep and --scale]",
        ),
    ] = None,
    memory: Annotated[float | None, typer.Option("--memory", metavar="GB", help="Memory of a device [GB].")] = None,
    transfer: Annotated[
        float | None, typer.Option("--transfer", metavar="GB/S", help="Transfers between machines [GB/s].")
    ] = None,
    all_reduce: Annotated[
        float | None, typer.Option("--all-reduce", metavar="GB/S", help="All-reduce between machines [GB/s].")
    ] = None,
    inside: Annotated[float | None, typer.Option("--inside", metavar="GB/S", help="Inside a machine [GB/s].")] = None,
    optimizer: Annotated[
        float, typer.Option("--optimizer", metavar="X", help="Parameters with gradients and optimizer, in parameters.")
    ] = 1.0,
    system: Annotated[
        list[str] | None,
        typer.Option("--system", metavar="NAME:N", help="System and its processors, for a library model; repeatable."),
    ] = None,
    tensor_par: Annotated[
        int, typer.Option("--tensor-par", metavar="T", help="Processors that are one device, for a library model.")
    ] = 1,
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

    if csv and json:
        raise PlanError("Give --csv or --json, not both.")
    if system:
        if sweep or scale or machines or preset:
            raise PlanError("With --system the cluster is the system's: leave --machines, --preset, --sweep, --scale.")
        made = _of_model(profile, system, batch, tensor_par)
        _print_plan(made.plan, json=json, csv=csv, top=top)
        _compare_with_optimum(made, profile, system)
        _write_strategy(made.plan, strategy)
        _write_execution(made, execution)
        return
    if execution is not None:
        raise PlanError("--execution is for a library model with --system: a profile alone is no execution.")
    cluster = _build_cluster(machines, preset, memory, transfer, all_reduce, inside)
    many = sweep or scale
    chosen = mode or ("released" if many else "paper")
    problem = _layerwise_problem(profile, profile_batch, batch, cluster, microbatch, chosen, optimizer)
    if many:
        if mode is None:
            note = "Searches of HPGO, the quick mode (released); --mode paper plans by the paper's latency, minutes."
            write_line(note, stream=sys.stderr)
        _print_many(problem, sweep=sweep, json=json, csv=csv)
        return
    from engine.planners.layerwise import solve

    with ProgressReport("planning") as report:
        plan = solve(problem, report)
    _print_plan(plan, json=json, csv=csv, top=top)
    _write_strategy(plan, strategy)


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


def _layerwise_problem(
    profile: str,
    profile_batch: float | None,
    batch: int,
    cluster: MachineCluster,
    microbatch: int,
    mode: str,
    optimizer: float,
) -> LayerwiseProblem:
    from engine.planners.contract import PlanError
    from engine.planners.layerwise import LayerwiseProblem
    from engine.planners.layerwise.problem import checked
    from engine.planners.layerwise.profiles.examples import example, examples
    from engine.planners.layerwise.profiles.reading import profile_from

    known = any(each.name == profile for each in examples()) and not Path(profile).exists()
    read = example(profile) if known else profile_from(profile)
    taken = read.batch if profile_batch is None else profile_batch
    if taken is None:
        raise PlanError("The profile does not say at which batch it was taken; give --profile-batch.")
    return checked(LayerwiseProblem(read, taken, batch, cluster, microbatch, mode, optimizer))


def _build_cluster(
    machines: str | None,
    preset: str | None,
    memory: float | None,
    transfer: float | None,
    all_reduce: float | None,
    inside: float | None,
) -> MachineCluster:
    from dataclasses import replace

    from engine.planners.contract import PlanError
    from engine.planners.layerwise.cluster import PRESETS, cluster_of

    if machines and preset:
        raise PlanError("Give --machines or --preset, not both.")
    if machines:
        try:
            found = cluster_of([int(end) for end in machines.split(",")])
        except ValueError as error:
            if isinstance(error, PlanError):
                raise
            raise PlanError(f"--machines {machines[:40]!r} is no list of whole numbers such as 8,16.") from None
    elif (preset or "A").upper() in PRESETS:
        found = PRESETS[(preset or "A").upper()]
    else:
        raise PlanError(f"There is no cluster {(preset or '')[:40]!r}; presets are {', '.join(PRESETS)}.")
    found = replace(
        found,
        transfer=found.transfer if transfer is None else transfer * 1e9,
        all_reduce=found.all_reduce if all_reduce is None else all_reduce * 1e9,
        inside=found.inside if inside is None else inside * 1e9,
    )
    if memory is not None:
        found = replace(found, machines=tuple(replace(each, memory=memory * 1e9) for each in found.machines))
    return cluster_of(found)


def _of_model(model: str, systems: list[str], batch: int, tensor_par: int) -> ModelPlan:
    from engine.planners.contract import PlanError
    from engine.planners.layerwise.library_models import plan_model

    parts = []
    for each in systems:
        name, _, number = each.rpartition(":")
        if not name or not number.isdigit():
            raise PlanError(f"--system {each[:60]!r} is no system with its processors, such as h100_80g_sxm:64.")
        parts.append((name, int(number)))
    with ProgressReport("planning") as report:
        return plan_model(model, parts, global_batch=batch, tensor_par=tensor_par, progress=report)


def _compare_with_optimum(made: ModelPlan, model: str, systems: list[str]) -> None:
    """Print the cost model's figures for the plan's execution, and the best of all executions."""
    from engine.planners.layerwise.library_models import compared

    name, _, number = systems[0].rpartition(":")
    if made.layout:
        write_line(f"Megatron: --pipeline-model-parallel-layout '{made.layout}'", stream=sys.stderr)
    if len(systems) == 1:
        with ProgressReport("comparing with all executions"):
            lines = compared(made, model, name, int(number))
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
