"""The command `plan elastic model`: a model of the library at every size, through phases, and when nodes are lost."""

from __future__ import annotations

from typing import Annotated

import typer

from engine.cli.commands.plan_elastic.options import CsvOption, JsonOption, parse_numbers
from engine.cli.commands.plan_elastic.tables import write_plans
from engine.cli.progress import ProgressReport

__all__ = ["plan_model"]


def plan_model(
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
        with ProgressReport("planning phases") as report:
            table = model_phases(
                name, system, phases, batch=batch, restart_s=restart, datatype=datatype, progress=report
            )
    else:
        sizes = None if gpus is None else [_parse_size(each) for each in parse_numbers(gpus)]
        with ProgressReport("planning sizes") as report:
            table = model_curve(
                name,
                system,
                batch=batch,
                gpus=sizes,
                placements=None if placement is None else [placement],
                datatype=datatype,
                progress=report,
            )
    write_plans(table, json=json, csv=csv)


def _parse_size(value: float) -> int:
    from engine.planners.contract import PlanError

    if value != int(value):
        raise PlanError(f"{value:g} is no number of GPUs.")
    return int(value)
