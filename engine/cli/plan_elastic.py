"""The commands `plan elastic ...`: the best plan under each limit of resources, and what else its planner tells."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.frames import write_table
from engine.cli.options import JsonOption
from engine.cli.output import write
from engine.cli.plan_elastic_replay import replay

if TYPE_CHECKING:
    from engine.planners.elastic.cards import Environment, PerformanceParameters
    from engine.planners.elastic.measured import Measurements
    from engine.planners.elastic.measured.profiles import Profile

__all__ = ["elastic_app"]

elastic_app = typer.Typer(help="Elastic plans: the best way to train under each limit.", no_args_is_help=True)
elastic_app.command("replay")(replay)

CardArgument = Annotated[str, typer.Argument(metavar="CARD", help="Model card: library name or JSON file.")]
ThreadsOption = Annotated[int, typer.Option("--threads", metavar="C", help="CPU threads per GPU.")]
BandwidthOption = Annotated[
    float, typer.Option("--bandwidth", metavar="B", help="Limit between nodes, 0 for none; GB/s of a GPU in physical.")
]
VariantOption = Annotated[
    str, typer.Option("--variant", metavar="artifact|physical", help="Performance model: the artifact's or our own.")
]
EveryOption = Annotated[bool, typer.Option("--every-plan", help="Ignore the card's table of allowed plans.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
BasisOption = Annotated[
    str | None,
    typer.Option("--basis", metavar="measured|predicted", help="Times that count; measured by default."),
]
MeasuredOption = Annotated[
    str | None, typer.Option("--measured", metavar="NAME|FILE", help="Measurements; those of the card by default.")
]

PARTS = ("forward", "backward", "synchronisation", "tensor", "pipeline", "to_host", "optimizer", "to_gpu", "constant")


@elastic_app.callback()
def elastic() -> None:
    """Elastic plans, as Morphling/Rubick finds them: tensor, pipeline and data parallelism, ZeRO, ZeRO-Offload.

    \b
    Model cards of the library: bert, gpt2, llama7, llama7_bsz16, llama30, roberta, t5, t5_3B, vit.
    """


@elastic_app.command("best")
def best(
    card: CardArgument,
    placement: Annotated[
        list[str], typer.Option("--placement", metavar="DIGITS", help="GPUs on each node, such as 8888; repeatable.")
    ],
    threads: ThreadsOption = 1,
    bandwidth: BandwidthOption = 0.0,
    variant: VariantOption = "artifact",
    every_plan: EveryOption = False,
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

    _one_form(csv, json)
    tables = []
    for each in placement:
        found = best_plan(
            card,
            placement=each,
            cpu_threads=threads,
            bandwidth=bandwidth,
            variant=variant,
            restricted=False if every_plan else None,
        )
        table = found.table
        if not (csv or json):
            write(
                f"{each}: {found.plan}, {found.iteration_ms / 1e3:.4g} s an iteration, {found.throughput:.4g} samples/s"
            )
            parts = ", ".join(f"{name} {found.figure(name).value:.3g}" for name in PARTS if found.figure(name).value)
            write(f"  of it [s]: {parts}")
            columns = ["plan", "throughput", "iteration_ms", "memory_gib", "chosen", "reason"]
            shown = table[columns].head(top)
            shown = shown.drop(
                columns=[name for name in columns[3:5] if not shown[name].any() or shown[name].isna().all()]
            )
            write_table(shown, json=False, csv=False)
            continue
        table = table.assign(placement=each)
        tables.append(table[["placement", *(name for name in table.columns if name != "placement")]])
    if tables:
        import pandas as pd

        write_table(pd.concat(tables), json=json, csv=csv)


@elastic_app.command("curve")
def curve(
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
    every_plan: EveryOption = False,
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

    _one_form(csv, json)
    table = planner.curve(
        card,
        over=over,
        values=None if values is None else _numbers(values),
        placement=placement,
        gpus=gpus,
        gpus_per_node=gpus_per_node,
        cpu_threads=threads,
        bandwidth=bandwidth,
        variant=variant,
        restricted=False if every_plan else None,
    )
    write_table(table, json=json, csv=csv)


@elastic_app.command("timeline")
def timeline(
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
    every_plan: EveryOption = False,
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

    _one_form(csv, json)
    found = over_time(
        card,
        FIGURE_7 if phases is None else phases,
        strategies=tuple(strategy) if strategy else tuple(STATIC),
        measured=_measured(measured),
        basis=basis,
        pause_s=pause,
        variant=variant,
        restricted=False if every_plan else None,
    )
    if csv or json:
        write_table(found.table, json=json, csv=csv)
        return
    shown = ["strategy", "placement", "cpu_threads", "plan", "iteration_s", "throughput", "predicted_s"]
    write_table(found.table[shown], json=False, csv=False)
    write()
    write(f"Mean over all time, by {found.basis} iterations [samples/s]; gain of the planner over each:")
    write_table(found.summary(), json=False, csv=False)


@elastic_app.command("split")
def split(
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

    _one_form(csv, json)
    asked = jobs[0] if len(jobs) == 1 and jobs[0].endswith(".csv") else _jobs(jobs, guarantee or [])
    found = planner.split(asked, gpus, basis=basis, cpu_threads=threads, variant=variant)
    write_table(found.table, json=json, csv=csv)
    if not (csv or json):
        totals = ", ".join(f"{way} {total:.4g}" for way, total in found.totals().items())
        write(f"Sum of throughputs over those alone on all GPUs, {found.basis}: {totals}.")
    for note in found.notes:
        write(note, stream=sys.stderr)


@elastic_app.command("fit")
def fit(
    profile: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="Profile of the library, or CSV; see the guide for its columns.")
    ],
    data: Annotated[
        str | None, typer.Option("--data", metavar="FILE", help="Second file of the artifact's two; PROFILE is config.")
    ] = None,
    pcie: Annotated[float | None, typer.Option("--pcie", metavar="B", help="GPU to host [MiB/ms].")] = None,
    nvlink: Annotated[float | None, typer.Option("--nvlink", metavar="B", help="Inside the node [MiB/ms].")] = None,
    starts: Annotated[int, typer.Option("--starts", metavar="K", help="Starts of the search.")] = 12,
    card: Annotated[
        str | None, typer.Option("--card", metavar="CARD", help="Write this card with what was fitted, to --out.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Where to write it.")] = None,
    hold_out: Annotated[bool, typer.Option("--hold-out", help="Also leave out each run in turn.")] = False,
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """Fits the seven parameters to profiled runs of one node, with bounds, from many starts.

    \b
    Examples:
      shardscape plan elastic fit gpt2
      shardscape plan elastic fit config.csv --data data.csv --pcie 8 --nvlink 50 --hold-out
    """
    from engine.cli.output import as_json
    from engine.planners.elastic.fitting import fit_parameters, held_out

    _one_form(csv, json)
    runs, environment = _profile(profile, data, pcie, nvlink)
    found = fit_parameters(runs, environment, starts=starts)
    _write_card(card, out, found.parameters, environment)
    left_out = held_out(runs, environment, starts=min(starts, 4)) if hold_out else None
    if json:
        document = {
            "performance": found.parameters.model_dump(),
            "objective": found.objective,
            "at_bound": found.at_bound,
            "unused": found.unused,
            "warnings": [*runs.notes, *found.warnings],
            "runs": found.table.to_dict("records"),
            **({} if left_out is None else {"held_out": left_out.to_dict("records")}),
        }
        write(as_json(document))
        return
    if csv:
        write_table(found.table if left_out is None else left_out, json=False, csv=True)
        return
    write(f"Objective {found.objective:.6f}; starts reached {', '.join(f'{each:.4f}' for each in found.starts)}.")
    write(", ".join(f"{name} {value:.6g}" for name, value in found.parameters.model_dump().items()))
    write_table(found.table, json=False, csv=False)
    if left_out is not None:
        write("\nErrors of the iteration with the run in the fit and with it left out:")
        write_table(left_out, json=False, csv=False)
    for note in (*runs.notes, *found.warnings):
        write(note)


@elastic_app.command("accuracy")
def accuracy(
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

    _one_form(csv, json)
    table = against_measured(
        card,
        _measured(measured),
        variant=variant,
        cpu_threads=threads,
        bandwidth=bandwidth,
        most_nodes=1 if one_node else None,
    )
    write_table(table, json=json, csv=csv)
    if not (csv or json) and len(table):
        error = table["error_pct"].abs()
        write(f"\nMean error {error.mean():.1f} %, largest {error.max():.1f} %, without sign.")
        write_table(by_class(table), json=False, csv=False)
        write()
        write_table(ranking(table), json=False, csv=False)


@elastic_app.command("model")
def model(
    name: Annotated[str, typer.Argument(metavar="MODEL", help="Library name or JSON file of a model.")],
    system: Annotated[str, typer.Option("--system", metavar="NAME", help="System; its innermost network is a node.")],
    batch: Annotated[int, typer.Option("--batch", metavar="B", help="Samples of an iteration, whatever the size.")],
    gpus: Annotated[
        str | None, typer.Option("--gpus", metavar="A..B|A,B", help="Sizes; 1, 2, 4, ... 64 by default.")
    ] = None,
    phases: Annotated[
        str | None, typer.Option("--phases", metavar="FILE", help="CSV of duration_s, placement, bandwidth, instead.")
    ] = None,
    lose: Annotated[int | None, typer.Option("--lose", metavar="K", help="Nodes that are lost of --placement.")] = None,
    placement: Annotated[str | None, typer.Option("--placement", metavar="DIGITS", help="GPUs on each node.")] = None,
    spares: Annotated[int, typer.Option("--spares", metavar="K", help="Nodes that stand by.")] = 0,
    repair: Annotated[float, typer.Option("--repair", metavar="S", help="Until lost nodes are back [s].")] = 3600.0,
    restart: Annotated[float, typer.Option("--restart", metavar="S", help="Standstill of a restart [s].")] = 260.0,
    datatype: Annotated[str, typer.Option("--datatype", metavar="D", help="Datatype.")] = "bfloat16",
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """Any model of the library: its best plan at every size, proven, what moves between sizes, and what to do when
    nodes are lost. Nothing is fitted for it.

    \b
    Examples:
      shardscape plan elastic model llama-3-8B --system h100_80g_sxm --batch 64 --gpus 1..32
      shardscape plan elastic model llama-3-8B --system h100_80g_sxm --batch 64 --placement 88888888 --lose 1 --spares 1
    """
    from engine.planners.contract import PlanError
    from engine.planners.elastic.library_models import after_failure, model_curve, model_phases

    _one_form(csv, json)
    if lose is not None:
        if placement is None:
            raise PlanError("With --lose give --placement, the GPUs on each node before.")
        table = after_failure(
            name,
            system,
            placement=placement,
            batch=batch,
            lost=lose,
            spares=spares,
            repair_s=repair,
            restart_s=restart,
            datatype=datatype,
        )
    elif phases is not None:
        table = model_phases(name, system, phases, batch=batch, restart_s=restart, datatype=datatype)
    else:
        sizes = None if gpus is None else [_size(each) for each in _numbers(gpus)]
        table = model_curve(
            name,
            system,
            batch=batch,
            gpus=sizes,
            placements=None if placement is None else [placement],
            datatype=datatype,
        )
    write_table(table, json=json, csv=csv)


def _size(value: float) -> int:
    from engine.planners.contract import PlanError

    if value != int(value):
        raise PlanError(f"{value:g} is no number of GPUs.")
    return int(value)


@elastic_app.command("table2")
def table2(csv: CsvOption = False, json: JsonOption = False) -> None:
    """Table 2: mean and largest error of the 99 cases that the artifact checks, and what is to know about them."""
    from engine.planners.elastic.fitting.table_2 import NOTES, table_2, table_2_cases

    _one_form(csv, json)
    write_table(table_2(), json=json, csv=csv)
    if not (csv or json):
        write(f"Mean over the 99 cases {table_2_cases()['error_pct'].mean():.2f} %.")
        for note in NOTES:
            write(note)


@elastic_app.command("losses")
def losses(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="CSV of minibatch, loss_...; figure 9's.")] = None,
    against: Annotated[str, typer.Option("--against", metavar="RUN", help="The run to compare with.")] = "181",
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """Figure 9: by how much losses under other plans differ from those under one plan; the curves as CSV or JSON."""
    from engine.planners.elastic.losses import loss_differences, parity
    from engine.planners.elastic.losses import losses as read

    _one_form(csv, json)
    table = read(file)
    write_table(loss_differences(table, against) if csv or json else parity(table, against), json=json, csv=csv)


@elastic_app.command("notebook")
def notebook() -> None:
    """Prints what the artifact's notebooks print: choices and series of figure 7, splits of figure 8, table 2."""
    from engine.planners.elastic.notebook import notebook_lines

    for line in notebook_lines():
        write(line)


def _one_form(csv: bool, json: bool) -> None:
    from engine.planners.contract import PlanError

    if csv and json:
        raise PlanError("Give --csv or --json, not both.")


def _numbers(text: str) -> Sequence[float]:
    from engine.planners.contract import PlanError

    try:
        if ".." in text:
            low, high = (int(part) for part in text.split("..", 1))
            return range(low, high + 1)
        parts = [float(part) for part in text.split(",")]
    except ValueError:
        raise PlanError(f"{text[:40]!r} are no values; write 1..16 or 1,2,4.") from None
    return [int(part) if part == int(part) else part for part in parts if part == part and abs(part) < 1e15]


def _write_card(
    card: str | None, out: Path | None, parameters: PerformanceParameters, environment: Environment
) -> None:
    """Writes a card with fitted parameters and the bandwidths that they were fitted with."""
    from engine.planners.contract import PlanError
    from engine.planners.elastic.cards import changed_card, load_card, save_card

    if (card is None) != (out is None):
        raise PlanError("Give --card and --out together: a card, and where to write it with what was fitted.")
    if card is not None and out is not None:
        changes = {"performance": parameters.model_dump(), "environment": environment.model_dump()}
        save_card(changed_card(load_card(card), changes, name=out.stem), out)


def _measured(name: str | None) -> Measurements | None:
    from engine.planners.elastic import measurement_names, measurements, read_measurements

    if name is None:
        return None
    return measurements(name) if name in measurement_names() else read_measurements(Path(name))


def _jobs(names: list[str], guarantees: list[str]) -> list[dict[str, object]]:
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


def _profile(name: str, data: str | None, pcie: float | None, nvlink: float | None) -> tuple[Profile, Environment]:
    from engine.planners.contract import PlanError
    from engine.planners.elastic.cards import Environment
    from engine.planners.elastic.fitting import table_2_models
    from engine.planners.elastic.measured.profiles import joined_profile, profile_names, profile_of, profile_table

    if data is None and name in profile_names():
        runs, known = profile_of(name), table_2_models()[name].environment
    else:
        runs = profile_table(Path(name)) if data is None else joined_profile(Path(name), Path(data))
        if pcie is None or nvlink is None:
            raise PlanError("Give --pcie and --nvlink, the bandwidths of the node in MiB/ms.")
        known = None
    from engine.planners.elastic.limits import checked_bandwidth

    for given in (pcie, nvlink):
        if given is not None and not checked_bandwidth(given):
            raise PlanError("Bandwidths of a fit are above 0.")
    own = {"pcie": pcie, "nvlink": nvlink}
    base = {} if known is None else known.model_dump()
    return runs, Environment(**{**base, **{name: value for name, value in own.items() if value is not None}})
