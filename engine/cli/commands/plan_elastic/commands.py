"""The commands `plan elastic ...`: the best plan under each limit of resources, and more results of its planner."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from engine.cli.commands.plan_elastic.fit import fit_card
from engine.cli.commands.plan_elastic.model import plan_model
from engine.cli.commands.plan_elastic.options import (
    CsvOption,
    JsonOption,
    read_card,
    read_jobs,
    read_losses,
    read_phases,
    read_trace,
    with_default_trace,
)
from engine.cli.commands.plan_elastic.replay import replay_workload
from engine.cli.commands.plan_elastic.tables import write_plans
from engine.cli.output import write_line
from engine.cli.question_options import asks
from engine.questions.documents.elastic import (
    CardAccuracyQuestion,
    CardQuestion,
    CurveQuestion,
    LossesQuestion,
    PhasesQuestion,
    SplitQuestion,
)

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
@asks(
    CardQuestion,
    arguments=("card",),
    leave_out=("measurements",),
    readers={"card": read_card, "limits": lambda text: {"placement": text}},
)
def find_best_plan(asked: CardQuestion, csv: CsvOption = False, json: JsonOption = False) -> None:
    """The best plan on each placement, runners-up, and why every other plan is rejected.

    \b
    Examples:
      shardscape plan elastic best llama7_bsz16 --placement 8888 --placement 4444 --placement 1 --threads 2
      shardscape plan elastic best llama7_bsz16 --placement 8888 --variant physical --bandwidth 12.5 --json
    """
    from engine.planners.elastic.plan_names import plan_titles
    from engine.questions.elastic_cards import find_plan

    tables = []
    for limit in asked.limits:
        found, placement = find_plan(asked, limit), limit.placement
        table = found.table
        if not (csv or json):
            titles = plan_titles(table.assign(placement=placement), "plan")
            write_line(
                f"{placement}: {titles[0]}, {found.iteration_ms / 1e3:.4g} s an iteration, "
                f"{found.throughput:.4g} samples/s"
            )
            parts = ", ".join(f"{name} {found.figure(name).value:.3g}" for name in PARTS if found.figure(name).value)
            write_line(f"  of it [s]: {parts}")
            columns = ["plan", "throughput", "iteration_ms", "memory_gib", "chosen", "reason"]
            shown = table[columns].assign(plan=titles).head(asked.top)
            shown = shown.drop(
                columns=[name for name in columns[3:5] if not shown[name].any() or shown[name].isna().all()]
            )
            write_plans(shown, json=False, csv=False)
            continue
        table = table.assign(placement=placement)
        tables.append(table[["placement", *(name for name in table.columns if name != "placement")]])
    if tables:
        import pandas as pd

        write_plans(pd.concat(tables), json=json, csv=csv)


@elastic_app.command("curve")
@asks(CurveQuestion, arguments=("card",), readers={"card": read_card})
def draw_curve(asked: CurveQuestion, csv: CsvOption = False, json: JsonOption = False) -> None:
    """The best throughput against one resource, the plan that wins, and what one more of the resource brings.

    \b
    Examples:
      shardscape plan elastic curve roberta --values 1..16
      shardscape plan elastic curve llama7_bsz16 --variant physical --values 1,2,4,8,16,32,64
      shardscape plan elastic curve llama7_bsz16 --over cpu_threads --placement 1
    """
    from engine.questions.elastic_cards import plan_curve

    write_plans(plan_curve(asked), json=json, csv=csv)
    if asked.variant == "artifact" and asked.placement is None and asked.gpus_per_node is None:
        note = "Data-parallel plans only, as in the artifact's sweep; --gpus-per-node tries those with degrees too."
        write_line(note, stream=sys.stderr)


@elastic_app.command("timeline")
@asks(
    PhasesQuestion,
    arguments=("card",),
    readers={"card": read_card, "phases": read_phases, "measurements": read_trace},
)
def draw_timeline(asked: PhasesQuestion, csv: CsvOption = False, json: JsonOption = False) -> None:
    """Throughput over phases with changing resources: figure 7 for any phases, under the planner and static strategies.

    \b
    Examples:
      shardscape plan elastic timeline
      shardscape plan elastic timeline llama7_bsz16 --phases phases.csv --pause 260 --strategy "1, g, n/g"
    """
    from engine.questions.elastic_cards import plan_timeline

    found = plan_timeline(with_default_trace(asked))
    if csv or json:
        write_plans(found.table, json=json, csv=csv)
        return
    shown = ["strategy", "placement", "cpu_threads", "plan", "iteration_s", "throughput", "predicted_s"]
    write_plans(found.table[shown], json=False, csv=False)
    write_line()
    write_line(f"Mean over all time, by {found.basis} iterations [samples/s]; gain of the planner over each:")
    write_plans(found.summary(), json=False, csv=False)


@elastic_app.command("split")
@asks(SplitQuestion, arguments=("jobs",), leave_out=("system",), readers={"jobs": read_jobs})
def split_node(
    asked: SplitQuestion,
    guarantee: Annotated[
        list[str] | None, typer.Option("--guarantee", metavar="CARD=RATE", help="Samples/s that a job must reach.")
    ] = None,
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """Several jobs on one node: equal shares, the artifact's scheduler, and the best split that keeps guarantees.

    JOBS are model cards, or one CSV file of jobs.

    \b
    Examples:
      shardscape plan elastic split roberta t5_3B --gpus 4
      shardscape plan elastic split bert t5 vit --gpus 8 --guarantee t5=40
    """
    from engine.questions.elastic_jobs import split_jobs

    found = split_jobs(_with_guarantees(asked, guarantee or []))
    write_plans(found.table, json=json, csv=csv)
    if not (csv or json):
        totals = ", ".join(f"{way} {total:.4g}" for way, total in found.totals().items())
        write_line(f"Sum of throughputs over those alone on all GPUs, {found.basis}: {totals}.")
    for note in found.notes:
        write_line(note, stream=sys.stderr)


@elastic_app.command("accuracy")
@asks(CardAccuracyQuestion, arguments=("card",), readers={"card": read_card, "measurements": read_trace})
def check_accuracy(asked: CardAccuracyQuestion, csv: CsvOption = False, json: JsonOption = False) -> None:
    """Predictions against measurements, plan by plan, and how well they order the plans of each placement.

    \b
    Examples:
      shardscape plan elastic accuracy llama7_bsz16
      shardscape plan elastic accuracy llama7_bsz16 --variant physical
    """
    from engine.planners.elastic.accuracy import by_class, ranking
    from engine.questions.elastic_fits import compare_card

    table = compare_card(with_default_trace(asked))
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
@asks(LossesQuestion, arguments=("losses",), readers={"losses": read_losses})
def compare_losses(asked: LossesQuestion, csv: CsvOption = False, json: JsonOption = False) -> None:
    """Figure 9: by how much losses under other plans differ from those under one plan; the curves as CSV or JSON."""
    from engine.questions.elastic_fits import find_losses
    from engine.reproductions.rubick.losses import loss_differences, parity

    table = find_losses(asked)
    shown = loss_differences(table, asked.against) if csv or json else parity(table, asked.against)
    write_plans(shown, json=json, csv=csv)


@elastic_app.command("notebook")
def print_notebook() -> None:
    """Prints what the artifact's notebooks print: choices and series of figure 7, splits of figure 8, table 2."""
    from engine.reproductions.rubick.notebook import notebook_lines

    for line in notebook_lines():
        write_line(line)


def _with_guarantees(asked: SplitQuestion, guarantees: list[str]) -> SplitQuestion:
    """Return the question with the throughputs that jobs must reach, from texts such as t5=40."""
    from engine.planners.contract import PlanError

    promised: dict[str, float] = {}
    names = [str(each.name or (each.card if isinstance(each.card, str) else "")) for each in asked.jobs]
    for each in guarantees:
        name, _, rate = each.rpartition("=")
        try:
            promised[name] = float(rate)
        except ValueError:
            raise PlanError(f"--guarantee {each[:60]!r} is no job with its rate, such as t5=40.") from None
        if name not in names:
            raise PlanError(f"--guarantee {each[:60]!r} is of no job; jobs are {', '.join(names)[:200]}.")
    jobs = [
        each.model_copy(update={"guarantee": promised.get(name, each.guarantee)})
        for name, each in zip(names, asked.jobs, strict=True)
    ]
    return asked.model_copy(update={"jobs": jobs})
