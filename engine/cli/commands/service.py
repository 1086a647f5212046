"""The command `service`: the fewest GPUs that serve a load within limits, modelled."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from engine.cli.options import JsonOption
from engine.cli.output import ExitCode, as_json, format_quantity, text_table, unit_of, write_line
from engine.cli.progress import ProgressReport
from engine.cli.question_options import UnfinishedQuestion, asks, name_options
from engine.cli.table_files import read_csv_text
from engine.questions.documents.serving import ServiceQuestion, limits_in_words

if TYPE_CHECKING:
    import pandas as pd

    from engine.serving import PoolSizing, ServiceLoad, ServiceSizing

__all__ = ["find_service"]

SHOWN: Final = (
    "gpus",
    "deployments",
    "tensor_par",
    "pipeline_par",
    "expert_par",
    "replicas",
    "batch",
    "weight_bits",
    "kv_bits",
    "launch",
    "engine",
    "in_flight",
    "headroom",
    "first_token_mean",
    "first_token_p99",
    "per_token_mean",
    "per_token_p99",
    "request_p99",
    "cost_per_h",
    "cost_per_million_served",
)
"""Columns of a table of services."""
PRECISIONS: Final = ("weight_bits", "kv_bits")
CURVE: Final = ("first_token_p50", "first_token_p99", "per_token_p50", "per_token_p99", "request_p99")
"""Latencies of a load curve."""


@asks(ServiceQuestion, arguments=("model", "system"), optional=("prompt", "output"))
def find_service(
    asked: UnfinishedQuestion[ServiceQuestion],
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="CSV of requests, with columns prompt and output, and arrival_s if known: lengths, their variation, "
            "rate and variation of arrivals. Options replace them.",
        ),
    ] = None,
    curve: Annotated[bool, typer.Option("--curve", help="Print latencies against the load, up to saturation.")] = False,
    json: JsonOption = False,
) -> None:
    """Find the fewest GPUs that serve so many users or requests per second within limits of latency.

    The load is open (--rate, requests that arrive per second) or closed (--users, each of whom waits for an answer,
    thinks for --think seconds, and sends the next request). A deployment is copied as often as the load needs. Limits
    hold for --held-at; --mean-ttft and --mean-tpot limit the means besides. Waiting and percentiles are modelled: no
    service under an open load was measured.

    \b
    Examples:
      shardscape service llama-3-70B h100_80g_sxm --rate 40 --prompt 1024 --output 256 --ttft 1 --tpot 0.05
      shardscape service llama-3-70B h100_80g_sxm --users 2000 --prompt 1024 --output 256 --tpot 0.05 --held-at mean
      shardscape service llama-3-70B h100_80g_sxm --users 2000 --think 20 --prompt 1024 --output 256 --mean-ttft 0.3
      shardscape service deepseek-v3 h200_141g_sxm --trace requests.csv --ttft 2 --tpot 0.05 --limit engine=sglang
      shardscape service llama-3-70B h100_80g_sxm --rate 40 --prompt 1024 --output 256 --ttft 1 --tpot 0.05 \\
        --disaggregated either
      shardscape service deepseek-v3 h200_141g_sxm --users 2000 --think 20 --prompt 1024 --output 256 \\
        --disaggregated either

    \b
    JSON is the answer to the question size_service: best (the fewest GPUs, of these the most headroom), top, curve,
    rejected_by_reason, nearest, disaggregated, recommended, comparison, units and more.
    Times are in seconds; null means unknown.

    Exit code 1 when no service holds the limits.
    """
    from engine.questions.services import compare_asked, service_document, size_asked_pools, size_asked_service

    question = asked.finish(**_trace_values(asked, trace))
    with ProgressReport("sizing services") as report, name_options(ServiceQuestion):
        pools = size_asked_pools(question, progress=report)
        found = size_asked_service(question, progress=report)
    recommended, comparison = compare_asked(question, found, pools)
    if json:
        write_line(as_json(service_document(question, found, pools)))
    else:
        _print_services(found, question, curve)
        if pools is not None:
            write_line()
            _print_pools(pools, question, comparison)
    if recommended is None:
        raise typer.Exit(ExitCode.NOTHING)


def _trace_values(asked: UnfinishedQuestion[ServiceQuestion], path: Path | None) -> dict[str, Any]:
    """Return the fields that a trace says and no option does."""
    from engine.serving import read_trace

    if path is None:
        return {}
    trace = read_trace(read_csv_text(path, "a trace"), str(path))
    is_closed = asked.said["users"] is not None
    values = {
        "prompt": trace.prompt,
        "output": trace.output,
        "prompt_cv": trace.prompt_cv,
        "output_cv": trace.output_cv,
        "request_rate": None if is_closed else trace.request_rate,
        "arrival_cv": trace.arrival_cv,
    }
    return {name: value for name, value in values.items() if value is not None and not _is_said(asked, name)}


def _is_said(asked: UnfinishedQuestion[ServiceQuestion], name: str) -> bool:
    """Return True if an option says another value than the default."""
    return asked.said[name] not in (None, ServiceQuestion.model_fields[name].default)


def _print_services(found: ServiceSizing, asked: ServiceQuestion, curve: bool) -> None:
    from engine.questions.services import reason_label
    from engine.questions.serving import list_ineffective
    from engine.serving import by_name, not_represented

    load = found.load
    words = f"{load.amount:,g} requests per second" if load.is_open else f"{load.amount:,g} users"
    if load.think_s:
        words += f" who think for {load.think_s:,g} s between requests"
    write_line(
        f"{found.model.title or found.model.name} on {found.system.title or found.system.name} for {words}, prompts of "
        f"{found.prompt:,} and outputs of {found.output:,} tokens"
    )
    write_line(
        f"{found.total:,} deployments, {len(found.table):,} of them hold the limits ({found.seconds:.2f} s); latencies "
        "under load are modelled"
    )
    write_line(f"Limits: {limits_in_words(asked)}")
    for sentence in (*not_represented(found.model), *list_ineffective(asked)):
        write_line(sentence)
    if found.factors is not None:
        write_line(f"Adjusted. {found.factors.describe()}")
    if found.rejected:
        reasons = sorted(found.rejected.items(), key=lambda item: -item[1])
        write_line()
        write_line(text_table(("rejected because", "deployments"), [(reason_label(c), f"{n:,}") for c, n in reasons]))
    write_line()
    if found.best is None:
        if found.obstacle:
            write_line(found.obstacle)
        for code, near in found.nearest.items():
            layout = f"TP {near.row['tensor_par']} x PP {near.row['pipeline_par']}"
            write_line(
                f"{reason_label(code)}, nearest: {layout} takes {1e3 * near.latency:,.4g} ms ({near.level}), "
                f"more than the limit of {1e3 * near.limit:,.4g} ms."
            )
        return
    room = ", with room for the error" if asked.room_for_error else ""
    write_line(f"Fewest GPUs within the limits, which hold for the {found.limits.level}{room}")
    write_line(_services_table(found.top(asked.top), SHOWN))
    if not load.is_open:
        write_line(f"On the best service, {_describe_users(load, found.best)}")
    write_line(_describe_ranges(found))
    if curve:
        write_line()
        write_line("Load of the best service and its latencies")
        rows = found.curve
        unit = "requests/s" if load.is_open else "users"
        lines = [
            [f"{row['load']:,.4g}", *(format_quantity(by_name(name), row[name]) for name in CURVE), _holds(row)]
            for row in rows.to_dict("records")
        ]
        write_line(text_table([f"load [{unit}]", *(_header(name) for name in CURVE), "limits"], lines, left=()))


def _print_pools(pools: PoolSizing, asked: ServiceQuestion, comparison: str) -> None:
    from engine.serving import by_name

    write_line(
        f"Prefill and decode in two pools: {pools.tried[0]:,} and {pools.tried[1]:,} deployments, {pools.pairs:,} "
        f"pairs ({pools.seconds:.2f} s); a GPU's link between pools has {pools.bandwidth / 1e9:,.4g} GB/s; modelled"
    )
    lines, names = [], ("tensor_par", "pipeline_par", "expert_par", "replicas", "batch", *PRECISIONS, "engine")
    for service in pools.services[: asked.top]:
        for row, busy in ((service.prefill, "prefill_busy"), (service.decode, "decode_busy")):
            lines.append(
                [
                    f"{service.gpus:,}",
                    busy.removesuffix("_busy"),
                    str(row["system"]),
                    f"{row['deployments']:,}",
                    *(f"{row[name]:,}" if isinstance(row[name], int) else str(row[name]) for name in names),
                    f"{100 * service.figures[busy]:.0f} %",
                ]
            )
    if lines:
        headers = ["GPUs", "pool", "system", "deployments", *(by_name(name).short for name in names), "busy"]
        write_line(text_table(headers, lines, left=(1, 2)))
    if pools.best is not None:
        rows = [{**each.figures, "gpus": each.gpus} for each in pools.services[: asked.top]]
        shown = [name for name in SHOWN if name in rows[0]]
        cells = [
            [
                f"{row[name]:,}" if isinstance(row[name], int) else format_quantity(by_name(name), row[name])
                for name in shown
            ]
            + [f"{1e3 * row['transfer_time']:,.3g} ms", f"{100 * row['link_busy']:.0f} %"]
            for row in rows
        ]
        write_line(text_table([*(_header(name) for name in shown), "KV transfer", "link busy"], cells, left=()))
        if not pools.load.is_open:
            write_line(f"On the best pools, {_describe_users(pools.load, pools.best.figures)}")
    write_line(comparison)


def _describe_users(load: ServiceLoad, figures: Mapping[str, Any]) -> str:
    """Return the requests of users, by Little's law, in words that end a sentence."""
    pause = f" + {load.think_s:,g} s to think" if load.think_s else ""
    return (
        f"users send {figures['served_rate']:,.4g} requests per second: {load.amount:,g} / "
        f"({figures['request_mean']:,.3g} s for the answer{pause})."
    )


def _describe_ranges(found: ServiceSizing) -> str:
    """Return a sentence on the ranges of measured servers around the mean latencies of the best service."""
    if not found.ranges:
        return "No server was measured on such GPUs, so that the error is unknown."
    first, each = found.ranges["time_to_first_token"], found.ranges["time_per_output_token"]
    return (
        f"Of {each.rows:,} comparable measured servers ({each.described}, {each.models:,} models, closed loads), 80 % "
        f"have {first.low:.2f} to {first.high:.2f} times the mean first token, {each.low:.2f} to {each.high:.2f} times "
        "the mean per token."
    )


def _holds(row: dict[Any, Any]) -> str:
    return "hold" if row["holds"] else "broken"


def _header(name: str) -> str:
    from engine.serving import by_name

    column = by_name(name)
    return f"{column.short} [{unit}]" if (unit := unit_of(column)) not in ("", column.short) else column.short


def _services_table(rows: pd.DataFrame, names: tuple[str, ...]) -> str:
    from engine.serving import by_name

    lines = [
        [
            f"{row[name]:,}" if isinstance(row[name], int) else format_quantity(by_name(name), row[name])
            for name in names
        ]
        for row in rows.to_dict("records")
    ]
    return text_table([_header(name) for name in names], lines, left=())
