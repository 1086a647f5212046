"""The command `plan elastic replay`: a workload of jobs on a cluster under one or several policies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from engine.cli.commands.plan_elastic.options import CsvOption, JsonOption, read_measured_card, read_workload
from engine.cli.commands.plan_elastic.tables import write_plans
from engine.cli.output import as_json, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks
from engine.questions.documents.elastic import WorkloadReplayQuestion

if TYPE_CHECKING:
    import pandas as pd

    from engine.planners.elastic.cluster import ReplayResult

__all__ = ["replay_workload"]

TABLES = ("summary", "jobs", "rounds", "changes")


@asks(
    WorkloadReplayQuestion,
    arguments=("workload",),
    leave_out=("jobs",),
    readers={"workload": read_workload, "cards": read_measured_card},
)
def replay_workload(
    asked: WorkloadReplayQuestion,
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
    from engine.planners.elastic.cluster import summaries
    from engine.questions.elastic_jobs import replay_policies

    if table not in TABLES:
        raise PlanError(f"There is no table {table[:40]!r}; choose {', '.join(TABLES)}.")
    with ProgressReport("replaying") as report:
        found = replay_policies(asked, report)
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
    """Return one table of all policies, their name in the first column."""
    import pandas as pd

    named = {"jobs": "jobs", "rounds": "utilisation", "changes": "placements"}[table]
    parts = []
    for name, result in found.items():
        rows: pd.DataFrame = getattr(result, named)
        rows = rows.copy()
        rows.insert(0, "policy", name)
        parts.append(rows)
    return pd.concat(parts, ignore_index=True)
