"""The command `inference`: every way to serve a model on a number of processors, modelled."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.options import JsonOption, ModelArgument, SystemArgument
from engine.cli.output import ExitCode, as_json, format_quantity, text_table, unit_of, write_line
from engine.cli.progress import ProgressReport
from engine.cli.table_files import check_export, write_table_file
from models.documents import shown

if TYPE_CHECKING:
    import pandas as pd

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
    "tokens_per_s_per_processor",
    "tokens_per_s_per_user",
    "time_to_first_token",
    "time_per_output_token",
    "memory_total",
    "cost_per_million_tokens",
)
"""Columns of a table of deployments."""


def find_serving(
    model: ModelArgument,
    system: SystemArgument,
    procs: Annotated[
        int, typer.Option("--num-procs", "--procs", metavar="N", help="Processors; every deployment uses all of them.")
    ],
    prompt: Annotated[int, typer.Option("--prompt", metavar="P", help="Tokens of a prompt.")],
    output: Annotated[int, typer.Option("--output", metavar="O", help="Tokens that a request generates.")],
    ttft: Annotated[
        float | None, typer.Option("--ttft", metavar="S", help="Latest first token [s]; no limit where left out.")
    ] = None,
    tpot: Annotated[
        float | None, typer.Option("--tpot", metavar="S", help="Most time per output token [s]; likewise.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option("--limit", metavar="FIELD=VALUES", help="What a field may be; see above. May be repeated."),
    ] = None,
    price: Annotated[
        float | None, typer.Option("--price", metavar="USD", help="Price of a GPU and hour; the system's.")
    ] = None,
    top: Annotated[int, typer.Option("--top", metavar="K", min=0, max=10_000, help="Best deployments to show.")] = 10,
    by: Annotated[
        str, typer.Option("--by", metavar="FIGURE", help="Figure they are best by.")
    ] = "tokens_per_s_per_processor",
    frontier: Annotated[
        bool, typer.Option("--frontier", help="Show the frontier of output per processor and per user instead.")
    ] = False,
    json: JsonOption = False,
    export: Annotated[
        Path | None,
        typer.Option("--export", metavar="FILE", help="Write every deployment that runs (.csv or .parquet)."),
    ] = None,
) -> None:
    """Find the best way to serve a model: time to first token, time per output token, throughput, memory, cost.

    Everything is modelled, with the rates of the calibrated cost model; no measured serving run was used to fit it.
    Every replica is full and requests do not wait in a queue.

    \b
    Limits:
      --limit tensor_par=1,2,4          one of these; also pipeline_par, expert_par, replicas
      --limit batch=1..64               a range of the batches that are tried; a list names the batches
      --limit weight_bits=16            16, 8 or 4; without a limit 16 and 8; kv_bits likewise
      --limit launch=graphs             eager, compiled or graphs; without a limit eager and graphs

    \b
    Examples:
      shardscape inference llama-3-70B h100_80g_sxm --num-procs 8 --prompt 1024 --output 256
      shardscape inference llama-3-70B h100_80g_sxm --num-procs 8 --prompt 4000 --output 500 --ttft 0.5 --tpot 0.03
      shardscape inference deepseek-v3 h200_141g_sxm --num-procs 64 --prompt 2000 --output 500 --frontier --json

    \b
    JSON: model, system, num_procs, prompt, output, limits, total, feasible, rejected_by_reason (a number per reason),
    best (the most output per processor, with all figures), top or frontier, nearest (per reason the deployment that
    misses least), seconds. Times are in seconds, sizes in bytes; null means unknown.

    Exit code 1 when nothing runs within the limits.
    """
    from engine.cli.limits import parse_limits
    from engine.serving import HEADLINE, WorkloadError, explore
    from engine.serving.space import LIMITED

    if by not in [column.name for column in HEADLINE if column.better]:
        names = ", ".join(column.name for column in HEADLINE if column.better)
        raise WorkloadError(f"--by cannot be {shown(by)}; it is one of {names}.")
    if export is not None:
        check_export(export)
    limits = parse_limits(limit or [], whole=set(LIMITED) - {"launch"})
    with ProgressReport("exploring deployments"):
        found = explore(
            model,
            system,
            num_procs=procs,
            prompt=prompt,
            output=output,
            limits=limits,
            time_to_first_token=ttft,
            time_per_output_token=tpot,
            price=price,
        )
    rows = found.frontier if frontier else found.top(top, by)
    if json:
        write_line(as_json(_serving_document(found, rows, frontier)))
    else:
        _print_serving(found, rows, by, frontier)
    if export is not None:
        write_table_file(found.table.astype({"launch": "str"}), export)
        write_line(f"{found.feasible:,} deployments are in {export}.", stream=sys.stderr)
    if not found.feasible:
        raise typer.Exit(ExitCode.NOTHING)


def _serving_document(found: ServingExploration, rows: pd.DataFrame, frontier: bool) -> dict[str, Any]:
    nearest = {code: found.evaluate_ids([number]).iloc[0].to_dict() for code, number in found.nearest.items()}
    return {
        "model": found.model.name,
        "system": found.system.name,
        "num_procs": found.space.num_procs,
        "prompt": found.space.prompt,
        "output": found.space.output,
        "time_to_first_token_limit": found.time_to_first_token,
        "time_per_output_token_limit": found.time_per_output_token,
        "limits": dict(found.space.limits),
        "kind": "modelled",
        "total": found.total,
        "feasible": found.feasible,
        "rejected_by_reason": dict(found.rejected),
        "best": found.best,
        "frontier" if frontier else "top": rows.to_dict("records"),
        "nearest": nearest,
        "seconds": found.seconds,
    }


def _print_serving(found: ServingExploration, rows: pd.DataFrame, by: str, frontier: bool) -> None:
    from engine.serving import by_name, not_represented
    from engine.serving.reasons import by_code

    space = found.space
    write_line(
        f"{found.model.title or found.model.name} served by {space.num_procs:,} x "
        f"{found.system.title or found.system.name}, prompts of {space.prompt:,} and outputs of {space.output:,} tokens"
    )
    write_line(
        f"{found.total:,} deployments, {found.feasible:,} of them run within the limits ({found.seconds:.2f} s); "
        "all figures are modelled"
    )
    for sentence in not_represented(found.model):
        write_line(sentence)
    if found.rejected:
        reasons = sorted(found.rejected.items(), key=lambda item: -item[1])
        write_line()
        write_line(text_table(("rejected because", "deployments"), [(by_code(c).label, f"{n:,}") for c, n in reasons]))
    if len(rows):
        write_line()
        label = by_name(by).label
        what = f"Best by {label[0].lower()}{label[1:]}"
        what = "Frontier of output per GPU and per user" if frontier else what
        write_line(what)
        write_line(_serving_table(rows))
    if not found.feasible:
        write_line()
        if not found.nearest:
            write_line(found.obstacle)
        for code, number in found.nearest.items():
            row = found.evaluate_ids([number]).iloc[0]
            write_line(f"{by_code(code).label}, nearest: {row['reason_text']}")
            write_line(_serving_table(row.to_frame().T))


def _serving_table(rows: pd.DataFrame) -> str:
    from engine.serving import by_name

    columns = [by_name(name) for name in SHOWN]
    headers = [
        f"{column.short} [{unit}]" if (unit := unit_of(column)) not in ("", column.short) else column.short
        for column in columns
    ]
    lines = [[format_quantity(column, row[column.name]) for column in columns] for row in rows.to_dict("records")]
    return text_table(headers, lines, left=())
