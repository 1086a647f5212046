"""The command `inference`: every way to serve a model on a number of processors, modelled."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, format_quantity, text_table, unit_of, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import asks
from engine.cli.table_files import check_export, write_table_file
from engine.questions.documents.serving import DeploymentsQuestion, limits_in_words

if TYPE_CHECKING:
    import pandas as pd

    from engine.questions.serving import ConsideredDeployments
    from engine.serving import ServingExploration

__all__ = ["find_serving"]

SHOWN: Final = (
    "id",
    "tensor_par",
    "pipeline_par",
    "expert_par",
    "replicas",
    "batch",
    "weight_bits",
    "kv_bits",
    "launch",
    "engine",
    "tokens_per_s_per_processor",
    "tokens_per_s_per_user",
    "time_to_first_token",
    "time_per_output_token",
    "memory_total",
    "cost_per_million_tokens",
)
"""Columns of a table of deployments."""


@asks(DeploymentsQuestion, arguments=("model", "system"))
def find_serving(
    asked: DeploymentsQuestion,
    json: JsonOption = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write every deployment that runs (.csv or .parquet)."),
    ] = None,
) -> None:
    """Recommend how to serve a model: deployment, time to first token, time per token, throughput, memory, cost.

    The recommended deployment is the simplest whose output per GPU is within the error of the best, with room in the
    cache. Limits are 1 s to the first token and 50 ms per token; --ttft none and --tpot none lift them.

    Times come from constants fitted to measured kernels and servers; the range of comparable servers is stated. Every
    replica is full and requests do not wait in a queue.

    \b
    Limits:
      --limit tensor_par=1,2,4          one of these; also pipeline_par, expert_par, replicas
      --limit batch=1..64               a range of the batches that are tried; a list names the batches
      --limit weight_bits=16            16, 8 or 4; without a limit 16 and 8; kv_bits likewise
      --limit attention_bits=16         of the projections around attention; as the weights without a limit
      --limit compute_bits=16           of products; as the weights without a limit
      --limit launch=graphs             eager, compiled or graphs; without a limit eager and graphs
      --limit engine=vllm               vllm, sglang or trtllm; without a limit generic, their mean

    \b
    Examples:
      shardscape inference llama-3-70B h100_80g_sxm --num-procs 8 --prompt 1024 --output 256
      shardscape inference llama-3-70B h100_80g_sxm --num-procs 8 --prompt 4000 --output 500 --ttft 0.5 --tpot 0.03
      shardscape inference llama-3-70B h100_80g_sxm --num-procs 8 --prompt 1024 --output 256 --changes
      shardscape inference llama-3-70B h100_80g_sxm --procs 8 --prompt 1024 --output 256 --other-system h200_141g_sxm
      shardscape inference deepseek-v3 h200_141g_sxm --num-procs 64 --prompt 2000 --output 500 --frontier --json

    \b
    JSON is the answer to the question find_deployments: recommended (with all figures), reason, alternatives (each with
    its reason), changes (after --changes), comparison (after --beside or --other-system), total, feasible,
    rejected_by_reason (a number per reason), best (the most output per processor), ranges of it, top or frontier,
    nearest (per reason the deployment that misses least), units and more. Times are in seconds, sizes in bytes; null
    means unknown.

    Exit code 1 when nothing runs within the limits.
    """
    from engine.questions.serving import consider_deployments, deployments_document, explore_deployments

    if export is not None:
        check_export(export)
    with ProgressReport("exploring deployments") as report:
        found = explore_deployments(asked, progress=report)
        # Before any output: an unknown id is an error without half an answer above it.
        considered = consider_deployments(asked, found)
    if json:
        document = deployments_document(asked, found, considered)
        del document["top" if asked.frontier else "frontier"]
        write_line(as_json(document))
    else:
        _print_serving(found, asked, considered)
    if export is not None:
        table = found.table.astype({"launch": "str", "engine": "str"})
        if found.factors is not None:
            table = table.assign(factors=found.factors.name)
        write_table_file(table, export)
        write_line(f"{found.feasible:,} deployments are in {export}.", stream=sys.stderr)
    if not found.feasible:
        raise typer.Exit(ExitCode.NOTHING)


def _print_serving(found: ServingExploration, asked: DeploymentsQuestion, considered: ConsideredDeployments) -> None:
    from engine.questions.serving import list_ineffective
    from engine.serving import by_name, not_represented
    from engine.serving.reasons import by_code

    space = found.space
    write_line(
        f"{found.model.title or found.model.name} served by {space.num_procs:,} x "
        f"{found.system.title or found.system.name}, prompts of {space.prompt:,} and outputs of {space.output:,} tokens"
    )
    write_line(
        f"{found.total:,} deployments, {found.feasible:,} of them run within the limits ({found.seconds:.2f} s); "
        "figures are modelled"
    )
    write_line(f"Limits: {limits_in_words(asked)}")
    for sentence in (*not_represented(found.model), *list_ineffective(asked)):
        write_line(sentence)
    if found.factors is not None:
        write_line(f"Adjusted. {found.factors.describe()}")
    if found.rejected:
        reasons = sorted(found.rejected.items(), key=lambda item: -item[1])
        write_line()
        write_line(text_table(("rejected because", "deployments"), [(by_code(c).label, f"{n:,}") for c, n in reasons]))
    _print_considered(considered)
    rows = found.frontier if asked.frontier else found.top(asked.top, asked.by)
    if len(rows):
        write_line()
        label = by_name(asked.by).label
        what = f"Best by {label[0].lower()}{label[1:]}"
        what = "Frontier of output per GPU and per user" if asked.frontier else what
        write_line(what)
        write_line(_serving_table(rows))
        for sentence in _describe_ranges(found):
            write_line(sentence)
    if not found.feasible:
        write_line()
        if not found.nearest:
            write_line(found.obstacle)
        for code, number in found.nearest.items():
            row = found.evaluate_ids([number]).iloc[0]
            write_line(f"{by_code(code).label}, nearest: {row['reason_text']}")
            write_line(_serving_table(row.to_frame().T))


def _print_considered(considered: ConsideredDeployments) -> None:
    """Print the recommended deployment with its reason, what changes of the question do, and a second deployment."""
    from engine.serving import by_name, deployment_name

    recommended, chosen = considered.recommended, considered.chosen
    if recommended.row is not None:
        write_line()
        write_line(f"Recommended: {deployment_name(recommended.row)} (id {int(recommended.row['id'])})")
        write_line(recommended.reason)
        for name in recommended.at_risk:
            write_line(f"{by_name(name).label} may miss its limit: the upper end of measured servers is above it.")
        write_line(_serving_table(_table_of([recommended.row])))
    if chosen is not None:
        write_line()
        write_line(f"Chosen: {deployment_name(chosen)}")
        write_line(_serving_table(_table_of([chosen])))
    if considered.changes is not None:
        write_line()
        lines = [
            (each.words, "-" if (row := each.recommendation.row) is None else deployment_name(row), each.verdict)
            for each in considered.changes
        ]
        write_line(text_table(("change", "recommended", "effect"), lines, left=(0, 1, 2)))
    if considered.compared is not None:
        comparison, there = considered.compared
        write_line()
        write_line(f"Compared with {deployment_name(comparison.other)} on {there.system.title or there.system.name}")
        write_line(comparison.sentence)
        write_line(_serving_table(_table_of([comparison.one, comparison.other])))


def _table_of(rows: list[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a table."""
    import pandas

    return pandas.DataFrame([dict(row) for row in rows])


def _describe_ranges(found: ServingExploration) -> list[str]:
    """Return a sentence on the ranges of the best deployment; on their absence where no server was measured."""
    from engine.serving import by_name
    from engine.serving.uncertainty import SHARE

    if not found.ranges:
        return ["No server was measured on such GPUs, so that the error is unknown."]
    parts = []
    for name in ("time_to_first_token", "time_per_output_token", "tokens_per_s_per_processor"):
        assert found.best is not None
        value, each = found.best[name], found.ranges[name]
        low, high = (format_quantity(by_name(name), value * factor) for factor in (each.low, each.high))
        parts.append(f"{by_name(name).short} {low} to {high} {unit_of(by_name(name))}")
    each = found.ranges["time_per_output_token"]
    return [
        f"Best of all, range of {SHARE:.0%} of comparable measured servers ({each.described}: {each.rows:,} of "
        f"{each.models:,} models): {', '.join(parts)}"
    ]


def _serving_table(rows: pd.DataFrame) -> str:
    from engine.serving import by_name

    columns = [by_name(name) for name in SHOWN]
    headers = [
        f"{column.short} [{unit}]" if (unit := unit_of(column)) not in ("", column.short) else column.short
        for column in columns
    ]
    lines = [[format_quantity(column, row[column.name]) for column in columns] for row in rows.to_dict("records")]
    return text_table(headers, lines, left=())
