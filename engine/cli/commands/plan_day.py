"""The command `plan day`: replicas of a service that follow a demand over a day, and their cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, text_table, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import UnfinishedQuestion, asks, name_options
from engine.cli.table_files import read_csv_text
from engine.questions.documents.days import LONGEST_DEMAND, DayQuestion
from engine.questions.errors import QuestionError

if TYPE_CHECKING:
    from engine.serving.days import ServingDays

__all__ = ["plan_service_day"]

LISTED: Final = 6
"""Deployments that are printed."""


@asks(DayQuestion, arguments=("model", "system"), leave_out=("demand",))
def plan_service_day(
    asked: UnfinishedQuestion[DayQuestion],
    demand: Annotated[
        Path | None,
        typer.Option(
            "--demand",
            metavar="FILE",
            help="CSV with columns time (hours, or 13:30) and requests_per_second, instead of --peak.",
        ),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print the day over time as CSV; --demand reads it again.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Plan a day of a service: the deployment and the replicas that follow the demand within limits of latency.

    Replicas start before they are needed and are paid from then on. With --reserved, as many are reserved as make the
    day cheapest; the others are on demand at --price. Figures are modelled: no service over a day was measured.

    \b
    Examples:
      shardscape plan day llama-3-70B h100_80g_sxm --peak 40 --prompt 1024 --output 256 --ttft 1 --tpot 0.05
      shardscape plan day llama-3-70B h100_80g_sxm --demand day.csv --prompt 1024 --output 256 --ttft 1 --tpot 0.05
        --mean-ttft 0.3 --reserved 1.5 --price 3 --start-up 600 --least-replicas 2 --json

    \b
    JSON is the answer to the question plan_day: best (deployment, replicas, hours, usd, energy_kwh, unserved_requests,
    reserved_replicas), top (other sizes), hours (the day over time), obstacle, units. null means unknown.

    Exit code 1 when no deployment holds the limits.
    """
    from engine.questions.days import day_document, find_asked_day
    from engine.questions.serving import list_ineffective

    if csv and json:
        raise QuestionError("Give --csv or --json, not both.")
    question = asked.finish(**({} if demand is None else {"demand": read_csv_text(demand, "a demand", LONGEST_DEMAND)}))
    with ProgressReport("planning") as report, name_options(DayQuestion):
        found = find_asked_day(question, progress=report)
    if json:
        write_line(as_json(day_document(question, found)))
    elif csv:
        write_line(found.hours.to_csv(index=False).rstrip("\n"))
    else:
        _print_day(found, list_ineffective(question))
    if found.best is None:
        raise typer.Exit(ExitCode.NOTHING)


def _print_day(found: ServingDays, ineffective: Sequence[str]) -> None:
    from engine.questions.days import ENERGY_BASIS, day_energy

    sizing = found.sizing
    write_line(
        f"{sizing.model.title or sizing.model.name} on {sizing.system.title or sizing.system.name}: a day with "
        f"{found.demand.requests:,.0f} requests, at most {found.demand.peak:,.4g} per second; modelled"
    )
    if sizing.factors is not None:
        write_line(f"Adjusted. {sizing.factors.describe()}")
    for sentence in ineffective:
        write_line(sentence)
    day = found.best
    if day is None:
        write_line(found.obstacle)
        return
    lines = []
    for each in found.days[:LISTED]:
        row, energy = each.row, day_energy(found, each)
        figures = each.figures()
        lines.append(
            [
                f"{each.size:,}",
                f"TP {row['tensor_par']} x PP {row['pipeline_par']}",
                f"{each.capacity:,.4g}",
                each.replica_range,
                f"{each.size * each.peak_replicas:,}",
                f"{figures['gpu_hours']:,.1f}",
                f"{each.unserved_requests:,.0f}",
                f"{each.reserved:,}",
                "-" if math.isnan(each.cost) else f"{each.cost:,.2f}",
                "-" if math.isnan(each.cost) else f"{figures['usd_per_million_tokens']:,.3f}",
                "-" if energy is None else f"{energy:,.1f}",
            ]
        )
    headers = ["GPUs each", "layout", "requests/s each", "replicas", "peak GPUs", "GPU-hours", "unserved", "reserved"]
    write_line(text_table([*headers, "USD", "USD/M tokens", "kWh"], lines, left=(1,)))
    write_line(f"The best deployment of each size, sorted by {found.order}.")
    if day_energy(found, day) is not None:
        write_line(ENERGY_BASIS)
    if math.isnan(day.cost):
        write_line("The system has no recorded price; give --price to see costs.")
        return
    write_line(
        f"Replicas that follow the demand, all on demand, cost {day.cost_with(0):,.2f} USD. {day.peak_replicas:,} "
        f"{'replica' if day.peak_replicas == 1 else 'replicas'} on demand all day would cost "
        f"{day.constant_cost:,.2f} USD."
    )
    if found.rules.reserved_price is None:
        return
    if not day.reserved:
        write_line("Reserve no replica: on demand is cheaper.")
        return
    write_line(
        f"Reserve {day.reserved:,}: each is used for more than {day.break_even_hours:,.1f} h a day, above which "
        f"reserved is cheaper. If all {day.peak_replicas:,} are reserved, the day costs "
        f"{day.cost_with(day.peak_replicas):,.2f} USD."
    )
