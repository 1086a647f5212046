"""The command `plan elastic model`: a model of the library at every size, through phases, and when nodes are lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cli.commands.plan_elastic.options import CsvOption, JsonOption, read_phases
from engine.cli.commands.plan_elastic.tables import write_plans
from engine.cli.output import write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks
from engine.questions.documents.elastic import ElasticQuestion

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["plan_model"]


@asks(ElasticQuestion, arguments=("model",), readers={"phases": read_phases})
def plan_model(asked: ElasticQuestion, csv: CsvOption = False, json: JsonOption = False) -> None:
    """Any model of the library: its best plan at every size, proven, what moves between sizes, and what to do when
    nodes are lost. Nothing is fitted for it.

    \b
    Examples:
      shardscape plan elastic model llama-3-8B --system h100_80g_sxm --batch 64 --gpus 1..32
      shardscape plan elastic model llama-3-8B --system h100_80g_sxm --batch 64 --placement 88888888 --lose 1 --spares 1
    """
    from engine.planners.contract import PlanError
    from engine.questions.elastic_models import plan_phases, plan_recovery, plan_sizes

    if asked.lost_nodes is not None:
        if asked.placement is None:
            raise PlanError("With --lose give --placement, the GPUs on each node before.")
        table = plan_recovery(asked)
    elif asked.phases is not None:
        with ProgressReport("planning phases") as report:
            table = plan_phases(asked, report)
    else:
        with ProgressReport("planning sizes") as report:
            table = plan_sizes(asked, report)
    write_plans(table, json=json, csv=csv)
    if not json and not csv and "raw_best" in table:
        _print_shown(asked, table)


def _print_shown(asked: ElasticQuestion, curve: pd.DataFrame) -> None:
    """Print the execution at the largest size whose figures are asked for."""
    from engine.executions.execution_names import execution_name
    from engine.questions.elastic_models import show_largest

    scenario, shown = show_largest(asked, curve)
    if scenario is None or shown is None:
        return
    row = shown.execution
    told = f"{execution_name(row)}, {row['sample_rate']:,.4g} samples/s, step {row['total_time']:,.4g} s."
    role = f"{shown.figures_of.capitalize()} on {scenario.num_procs:,}"
    write_line(f"\nPlans of every size are the fastest. {role}: {told} {shown.remark}".rstrip())
