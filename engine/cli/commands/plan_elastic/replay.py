"""The command `plan elastic replay`: a workload of jobs on a cluster under one or several policies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.commands.plan_elastic.options import CsvOption, JsonOption
from engine.cli.commands.plan_elastic.tables import write_plans
from engine.cli.output import as_json, write_line
from engine.cli.progress import ProgressReport

if TYPE_CHECKING:
    import pandas as pd

    from engine.planners.elastic.cluster import ReplayResult, Workload
    from engine.planners.elastic.cluster.applications import Application

__all__ = ["replay_workload"]

TABLES = ("summary", "jobs", "rounds", "changes")


def replay_workload(
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
    system: Annotated[
        str | None,
        typer.Option("--system", metavar="NAME", help="Whose GPUs run library models, such as llama-3-8B*64 in FILE."),
    ] = None,
    table: Annotated[
        str, typer.Option("--table", metavar="NAME", help="summary, jobs, rounds or changes.")
    ] = "summary",
    csv: CsvOption = False,
    json: JsonOption = False,
) -> None:
    """A workload of jobs on a cluster: completion times, makespan, GPUs in use and the queue under each policy.

    \b
    Workloads that come with it: base, bp, mt, naive; today, of library models.
    Examples:
      shardscape plan elastic replay base
      shardscape plan elastic replay today --system h100_80g_sxm
      shardscape plan elastic replay mt --policy artifact --policy published --pause 60 --table jobs --csv
      shardscape plan elastic replay jobs.csv --cluster 4x8 --card mine.json=trace.csv --json
    """
    from engine.planners.contract import PlanError
    from engine.planners.elastic.cluster import compared, summaries, workload_from
    from engine.planners.elastic.cluster.applications import applications
    from engine.planners.elastic.cluster.policies import POLICIES

    if table not in TABLES:
        raise PlanError(f"There is no table {table[:40]!r}; choose {', '.join(TABLES)}.")
    made = workload_from(workload)
    with ProgressReport("planning the models"):
        known = {**applications(), **_load_applications(card or []), **_of_library(made, system, cluster)}
    with ProgressReport("replaying") as report:
        found = compared(
            made, cluster, policy or tuple(POLICIES), pause=pause, interval=interval, models=known, progress=report
        )
    if table != "summary":
        write_plans(_policy_rows(found, table), json=json, csv=csv)
        return
    if json:
        write_line(as_json({name: dict(result.summary) for name, result in found.items()}))
        return
    shown = summaries(found)
    write_plans(shown if csv else shown.dropna(axis="columns", how="all"), json=False, csv=csv)
    if not csv:
        for name, result in found.items():
            for note in result.notes:
                write_line(f"{name}: {note}")


def _policy_rows(found: Mapping[str, ReplayResult], table: str) -> pd.DataFrame:
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


def _of_library(workload: Workload, system: str | None, cluster: str) -> dict[str, Application]:
    """The models of the library that the workload names."""
    import models
    from engine.planners.contract import PlanError
    from engine.planners.elastic.cluster.cluster import cluster_of
    from engine.planners.elastic.cluster.library_applications import asked_models, library_applications

    asked = asked_models(workload, models.load)
    if asked and system is None:
        raise PlanError(f"{next(iter(asked))} is a model of the library; give --system, whose GPUs it runs on.")
    return library_applications(asked, system, cluster_of(cluster)) if asked and system is not None else {}


def _load_applications(given: list[str]) -> dict[str, Application]:
    """Models that are given by their cards and measurements, by name."""
    from engine.planners.contract import PlanError
    from engine.planners.elastic import read_measurements
    from engine.planners.elastic.cluster.applications import application

    own = []
    for each in given:
        card, separator, trace = each.partition("=")
        if not separator or not trace:
            raise PlanError(f"--card {each[:60]!r} is no card with its measurements, such as mine.json=trace.csv.")
        own.append(application(card, read_measurements(Path(trace))))
    return {model.name: model for model in own}
