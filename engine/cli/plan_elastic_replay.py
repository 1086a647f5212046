"""The command `plan elastic replay`: a workload of jobs on a cluster under one or several policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.frames import write_table
from engine.cli.options import JsonOption
from engine.cli.output import as_json, write

if TYPE_CHECKING:
    import pandas as pd

    from engine.planners.elastic.cluster import ReplayResult
    from engine.planners.elastic.cluster.applications import Application

__all__ = ["replay"]

TABLES = ("summary", "jobs", "rounds", "changes")


def replay(
    workload: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="Published workload, or CSV of jobs; see the guide.")
    ] = "base",
    cluster: Annotated[str, typer.Option("--cluster", metavar="NxG", help="Nodes and GPUs of each.")] = "8x8",
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="artifact, published, first-come or equal-share; repeatable, all by default.",
        ),
    ] = None,
    pause: Annotated[float, typer.Option("--pause", metavar="S", help="Standstill at a start or change [s].")] = 260.0,
    interval: Annotated[float, typer.Option("--interval", metavar="S", help="Length of a round [s].")] = 60.0,
    card: Annotated[
        list[str] | None,
        typer.Option("--card", metavar="CARD=CSV", help="A model of your own: its card and measurements; repeatable."),
    ] = None,
    table: Annotated[
        str, typer.Option("--table", metavar="NAME", help="summary, jobs, rounds or changes.")
    ] = "summary",
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: JsonOption = False,
) -> None:
    """A workload of jobs on a cluster: completion times, makespan, GPUs in use and the queue under each policy.

    \b
    Workloads that come with it: base, bp, mt, naive.
    Examples:
      shardscape plan elastic replay base
      shardscape plan elastic replay mt --policy artifact --policy published --pause 60 --table jobs --csv
      shardscape plan elastic replay jobs.csv --cluster 4x8 --card mine.json=trace.csv --json
    """
    from engine.planners.contract import PlanError
    from engine.planners.elastic.cluster.comparison import compared, summaries
    from engine.planners.elastic.cluster.policies import POLICIES

    if csv and json:
        raise PlanError("Give --csv or --json, not both.")
    if table not in TABLES:
        raise PlanError(f"There is no table {table[:40]!r}; choose {', '.join(TABLES)}.")
    found = compared(
        workload, cluster, policy or tuple(POLICIES), pause=pause, interval=interval, models=_models(card or [])
    )
    if table != "summary":
        write_table(_rows(found, table), json=json, csv=csv)
        return
    if json:
        write(as_json({name: dict(result.summary) for name, result in found.items()}))
        return
    shown = summaries(found)
    write_table(shown if csv else shown.dropna(axis="columns", how="all"), json=False, csv=csv)
    if not csv:
        for result in found.values():
            for note in result.notes:
                write(note)


def _rows(found: Mapping[str, ReplayResult], table: str) -> pd.DataFrame:
    """One table of all policies, their name in the first column."""
    import pandas as pd

    named = {"jobs": "jobs", "rounds": "utilisation", "changes": "placements"}[table]
    parts = []
    for name, result in found.items():
        rows: pd.DataFrame = getattr(result, named)
        rows = rows.copy()
        rows.insert(0, "policy", name)
        parts.append(rows)
    return pd.concat(parts, ignore_index=True)


def _models(given: list[str]) -> dict[str, Application] | None:
    """The models of the library, and those that are given, each by its name."""
    from engine.planners.contract import PlanError
    from engine.planners.elastic import read_measurements
    from engine.planners.elastic.cluster.applications import application, applications

    own = []
    for each in given:
        card, separator, trace = each.partition("=")
        if not separator or not trace:
            raise PlanError(f"--card {each[:60]!r} is no card with its measurements, such as mine.json=trace.csv.")
        own.append(application(card, read_measurements(Path(trace))))
    return {**applications(), **{model.name: model for model in own}} if own else None
