"""The commands `plan elastic ...`: the best plan under each limit of resources, and more results of its planner."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.commands.plan_elastic.fit import fit_card
from engine.cli.commands.plan_elastic.model import plan_model
from engine.cli.commands.plan_elastic.options import (
    BandwidthOption,
    BasisOption,
    CardArgument,
    CsvOption,
    JsonOption,
    MeasuredOption,
    RestrictedOption,
    ThreadsOption,
    VariantOption,
    parse_numbers,
)
from engine.cli.commands.plan_elastic.replay import replay_workload
from engine.cli.commands.plan_elastic.tables import write_plans
from engine.cli.output import write_line

if TYPE_CHECKING:
    from engine.planners.elastic.measured import Measurements

__all__ = ["elastic_app"]

elastic_app = typer.Typer(help="Elastic plans: the best way to train under each limit.", no_args_is_help=True)
elastic_app.command("replay")(replay_workload)
elastic_app.command("fit")(fit_card)
elastic_app.command("model")(plan_model)

PARTS = ("forward", "backward", "synchronisation", "tensor", "pipeline", "to_host", "optimizer", "to_gpu", "constant")


@elastic_app.callback()
def describe_elastic_plans() -> None:
    """Elastic plans, as Morphling/Rubick finds them: tensor, pipeline and data parallelism, ZeRO, ZeRO-Offload.

    \b
    Model cards of the library: bert, gpt2, llama7, llama7_bsz16, llama30, roberta, t5, t5_3B, vit.
    """


@elastic_app.command("best")
def find_best_plan(
    card: CardArgument,
    placement: Annotated[
        list[str], typer.Option("--placement", metavar="DIGITS", help="GPUs on each node, such as 8888; repeatable.")
    ],
    threads: ThreadsOption = 1,
    bandwidth: BandwidthOption = 0.0,
    variant: VariantOption = "artifact",
    restricted: RestrictedOption = None,
    top: Annotated[int, typer.Option("--top", metavar="K", min=1, help="Plans to print.")] = 8,
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """The best plan on each placement, runners-up, and why every other plan is rejected.

    \b
    Examples:
      shardscape plan elastic best llama7_bsz16 --placement 8888 --placement 4444 --placement 1 --threads 2
      shardscape plan elastic best llama7_bsz16 --placement 8888 --variant physical --bandwidth 12.5 --json
    """
    from engine.planners.elastic import best_plan
    from engine.planners.elastic.plan_names import plan_titles

    tables = []
    for each in placement:
        found = best_plan(
            card,
            placement=each,
            cpu_threads=threads,
            bandwidth=bandwidth,
            variant=variant,
            restricted=restricted,
        )
        table = found.table
        if not (csv or json):
            titles = plan_titles(table.assign(placement=each), "plan")
            write_line(
                f"{each}: {titles[0]}, {found.iteration_ms / 1e3:.4g} s an iteration, {found.throughput:.4g} samples/s"
            )
            parts = ", ".join(f"{name} {found.figure(name).value:.3g}" for name in PARTS if found.figure(name).value)
            write_line(f"  of it [s]: {parts}")
            columns = ["plan", "throughput", "iteration_ms", "memory_gib", "chosen", "reason"]
            shown = table[columns].assign(plan=titles).head(top)
            shown = shown.drop(
                columns=[name for name in columns[3:5] if not shown[name].any() or shown[name].isna().all()]
            )
            write_plans(shown, json=False, csv=False)
            continue
        table = table.assign(placement=each)
        tables.append(table[["placement", *(name for name in table.columns if name != "placement")]])
    if tables:
        import pandas as pd

        write_plans(pd.concat(tables), json=json, csv=csv)


@elastic_app.command("curve")
def draw_curve(
    card: CardArgument,
    over: Annotated[str, typer.Option("--over", metavar="gpus|cpu_threads|bandwidth", help="The resource.")] = "gpus",
    values: Annotated[
        str | None, typer.Option("--values", metavar="A..B|A,B", help="Values of it; the artifact's sweep by default.")
    ] = None,
    placement: Annotated[str | None, typer.Option("--placement", metavar="DIGITS", help="GPUs on each node.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", metavar="N", help="GPUs, where no placement is given.")] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option("--gpus-per-node", metavar="G", help="Fill nodes of so many GPUs.")
    ] = None,
    threads: ThreadsOption = 1,
    bandwidth: BandwidthOption = 0.0,
    variant: VariantOption = "artifact",
    restricted: RestrictedOption = None,
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """The best throughput against one resource, the plan that wins, and what one more of the resource brings.

    \b
    Examples:
      shardscape plan elastic curve roberta --values 1..16
      shardscape plan elastic curve llama7_bsz16 --variant physical --values 1,2,4,8,16,32,64
      shardscape plan elastic curve llama7_bsz16 --over cpu_threads --placement 1
    """
    from engine.planners import elastic as planner

    table = planner.curve(
        card,
        over=over,
        values=None if values is None else parse_numbers(values),
        placement=placement,
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        cpu_threads=threads,
        bandwidth=bandwidth,
        variant=variant,
        restricted=restricted,
    )
    write_plans(table, json=json, csv=csv)
    if variant == "artifact" and placement is None and gpus_per_node is None:
        note = "Data-parallel plans only, as in the artifact's sweep; --gpus-per-node tries those with degrees too."
        write_line(note, stream=sys.stderr)


@elastic_app.command("timeline")
def draw_timeline(
    card: Annotated[str, typer.Argument(metavar="CARD", help="Model card; that of figure 7.")] = "llama7_bsz16",
    phases: Annotated[
        str | None,
        typer.Option("--phases", metavar="FILE", help="CSV of duration_s, placement, cpu_threads, bandwidth."),
    ] = None,
    strategy: Annotated[
        list[str] | None,
        typer.Option("--strategy", metavar="NAME|RULE", help="Instead of the static ones; a rule is 'n/g, g, 1'."),
    ] = None,
    pause: Annotated[float, typer.Option("--pause", metavar="S", help="Standstill at each change [s].")] = 0.0,
    basis: BasisOption = None,
    measured: MeasuredOption = None,
    variant: VariantOption = "artifact",
    restricted: RestrictedOption = None,
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """Throughput over phases with changing resources: figure 7 for any phases, under the planner and static strategies.

    \b
    Examples:
      shardscape plan elastic timeline
      shardscape plan elastic timeline llama7_bsz16 --phases phases.csv --pause 260 --strategy "1, g, n/g"
    """
    from engine.planners.elastic import timeline as over_time
    from engine.planners.elastic.over_time import FIGURE_7
    from engine.planners.elastic.strategies import STATIC

    found = over_time(
        card,
        FIGURE_7 if phases is None else phases,
        strategies=tuple(strategy) if strategy else tuple(STATIC),
        measured=_load_measurements(measured),
        basis=basis,
        pause_s=pause,
        variant=variant,
        restricted=restricted,
    )
    if csv or json:
        write_plans(found.table, json=json, csv=csv)
        return
    shown = ["strategy", "placement", "cpu_threads", "plan", "iteration_s", "throughput", "predicted_s"]
    write_plans(found.table[shown], json=False, csv=False)
    write_line()
    write_line(f"Mean over all time, by {found.basis} iterations [samples/s]; gain of the planner over each:")
    write_plans(found.summary(), json=False, csv=False)


@elastic_app.command("split")
def split_node(
    jobs: Annotated[list[str], typer.Argument(metavar="CARD...|FILE", help="Model cards, or one CSV of jobs.")],
    gpus: Annotated[int, typer.Option("--gpus", metavar="N", help="GPUs of the node that they share.")],
    guarantee: Annotated[
        list[str] | None, typer.Option("--guarantee", metavar="CARD=RATE", help="Samples/s that a job must reach.")
    ] = None,
    basis: BasisOption = None,
    threads: ThreadsOption = 1,
    variant: VariantOption = "artifact",
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """Several jobs on one node: equal shares, the artifact's scheduler, and the best split that keeps guarantees.

    \b
    Examples:
      shardscape plan elastic split roberta t5_3B --gpus 4
      shardscape plan elastic split bert t5 vit --gpus 8 --guarantee t5=40
    """
    from engine.planners import elastic as planner

    asked = jobs[0] if len(jobs) == 1 and jobs[0].endswith(".csv") else _parse_jobs(jobs, guarantee or [])
    found = planner.split(asked, gpus, basis=basis, cpu_threads=threads, variant=variant)
    write_plans(found.table, json=json, csv=csv)
    if not (csv or json):
        totals = ", ".join(f"{way} {total:.4g}" for way, total in found.totals().items())
        write_line(f"Sum of throughputs over those alone on all GPUs, {found.basis}: {totals}.")
    for note in found.notes:
        write_line(note, stream=sys.stderr)


@elastic_app.command("accuracy")
def check_accuracy(
    card: CardArgument,
    measured: MeasuredOption = None,
    variant: VariantOption = "artifact",
    threads: Annotated[int, typer.Option("--threads", metavar="C", help="Where a measurement does not tell.")] = 4,
    bandwidth: BandwidthOption = 0.0,
    one_node: Annotated[bool, typer.Option("--one-node", help="Only placements on one node.")] = False,
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """Predictions against measurements, plan by plan, and how well they order the plans of each placement.

    \b
    Examples:
      shardscape plan elastic accuracy llama7_bsz16
      shardscape plan elastic accuracy llama7_bsz16 --variant physical
    """
    from engine.planners.elastic.accuracy import against_measured, by_class, ranking

    table = against_measured(
        card,
        _load_measurements(measured),
        variant=variant,
        cpu_threads=threads,
        bandwidth=bandwidth,
        most_nodes=1 if one_node else None,
    )
    write_plans(table, json=json, csv=csv)
    if not (csv or json) and len(table):
        error = table["error_pct"].abs()
        write_line(f"\nMean error {error.mean():.1f} %, largest {error.max():.1f} %, without sign.")
        write_plans(by_class(table), json=False, csv=False)
        write_line()
        write_plans(ranking(table), json=False, csv=False)


@elastic_app.command("table2")
def print_table2(csv: CsvOption = False, json: JsonOption = False) -> None:
    """Table 2: mean and largest error of the 99 cases that the artifact checks, with remarks."""
    from engine.reproductions.rubick.table_2 import NOTES, table_2, table_2_cases

    write_plans(table_2(), json=json, csv=csv)
    if not (csv or json):
        write_line(f"Mean over the 99 cases {table_2_cases()['error_pct'].mean():.2f} %.")
        for note in NOTES:
            write_line(note)


@elastic_app.command("losses")
def compare_losses(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="CSV of minibatch, loss_...; figure 9's.")] = None,
    against: Annotated[str, typer.Option("--against", metavar="RUN", help="The run to compare with.")] = "181",
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """Figure 9: by how much losses under other plans differ from those under one plan; the curves as CSV or JSON."""
    from engine.planners.elastic.losses import loss_differences, parity
    from engine.planners.elastic.losses import losses as read

    table = read(file)
    write_plans(loss_differences(table, against) if csv or json else parity(table, against), json=json, csv=csv)


@elastic_app.command("notebook")
def print_notebook() -> None:
    """Prints what the artifact's notebooks print: choices and series of figure 7, splits of figure 8, table 2."""
    from engine.reproductions.rubick.notebook import notebook_lines

    for line in notebook_lines():
        write_line(line)


def _load_measurements(name: str | None) -> Measurements | None:
    from engine.planners.elastic import measurement_names, measurements, read_measurements

    if name is None:
        return None
    return measurements(name) if name in measurement_names() else read_measurements(Path(name))


def _parse_jobs(names: list[str], guarantees: list[str]) -> list[dict[str, object]]:
    from engine.planners.contract import PlanError

    promised: dict[str, float] = {}
    for each in guarantees:
        name, _, rate = each.rpartition("=")
        try:
            promised[name] = float(rate)
        except ValueError:
            raise PlanError(f"--guarantee {each[:60]!r} is no job with its rate, such as t5=40.") from None
        if name not in names:
            raise PlanError(f"--guarantee {each[:60]!r} is of no job; jobs are {', '.join(names)[:200]}.")
    return [{"card": name, "guarantee": promised.get(name)} for name in names]
