"""Section of the Serving page: how many GPUs a load needs, which deployment serves it, latencies against load, cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.template import Chart
from dashboard.charts.serving_load import load_curve
from dashboard.link.fields import LinkField
from dashboard.queries.serving import basis_of, origin_words
from dashboard.widgets.chart import show
from dashboard.widgets.link_fields import draw_choice, draw_decimal, draw_switch
from dashboard.widgets.tables import ROW, height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import format_value, percent, plain
from dashboard.words.serving import LAUNCHED, WORDS
from engine.questions.documents.serving import DeploymentsQuestion, ServedModel, ServiceQuestion
from engine.questions.plain import plain as plain_values
from engine.questions.services import compare_asked, reason_label, size_asked_pools, size_asked_service
from engine.serving import PoolSizing, ServiceLoad, ServiceSizing, by_name

__all__ = ["draw_service"]

_BASIS: Final = "Waiting, percentiles and open loads are modelled; no service under an open load was measured."
_LISTED: Final = 50
_FIXED: Final = (
    "tensor_par",
    "pipeline_par",
    "expert_par",
    "weight_bits",
    "kv_bits",
    "attention_bits",
    "compute_bits",
    "launch",
    "engine",
)
"""Fields of a deployment but its replicas, which a load counts, and its batch."""
_COLUMNS: Final = (
    "gpus",
    "deployments",
    "tensor_par",
    "pipeline_par",
    "expert_par",
    "batch",
    "weight_bits",
    "kv_bits",
    "launch",
    "engine",
    "headroom",
    "first_token_p50",
    "first_token_p99",
    "per_token_p50",
    "per_token_p99",
    "request_p99",
    "cost_per_h",
    "cost_per_million_served",
)


@st.cache_resource(show_spinner=False, max_entries=24)
def _size_service(key: str, _question: ServiceQuestion) -> ServiceSizing:
    return size_asked_service(_question)


@st.cache_resource(show_spinner=False, max_entries=24)
def _size_pools(key: str, _question: ServiceQuestion) -> PoolSizing | None:
    return size_asked_pools(_question)


@st.cache_resource(show_spinner=False, max_entries=24)
def _load_charts(key: str, _found: ServiceSizing, mode: str, load: float, mark: str) -> tuple[Chart, Chart]:
    unit, limits = _unit_of(_found.load), _found.limits
    return (
        load_curve(_found.curve, "first_token", limits.first_token, load, unit, mode, mark),
        load_curve(_found.curve, "per_token", limits.per_token, load, unit, mode, mark),
    )


def draw_service(
    question: ServiceQuestion | None,
    fields: Mapping[str, LinkField],
    mode: str,
    shown: tuple[DeploymentsQuestion, Mapping[str, Any]] | None = None,
) -> None:
    """Draw the inputs of a load and, where there is one, the fewest GPUs that hold it; else latencies of the page's
    deployment against the load.

    Args:
        question: of the link; None without a load.
        fields: of the page by name.
        mode: the theme.
        shown: question of the page, and its deployment; None where nothing runs.
    """
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Under load: how many GPUs?", "users or requests per second, with the limits above"))
        with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
            draw_decimal(fields["request_rate"], label="Requests per second", step=1.0, width=150)
            draw_decimal(fields["users"], label="or users", step=10.0, width=150)
            draw_decimal(fields["think_s"], step=5.0, width=130)
            draw_choice(fields["held_at"], width=130)
            draw_decimal(fields["request_latency_s"], step=1.0, width=150)
            draw_choice(fields["disaggregated"], width=170)
            draw_switch(fields["room_for_error"])
            with st.popover("More", icon=":material/tune:", help="Limits on means, variation, link between pools."):
                for name, step in (("mean_first_token_s", 50.0), ("mean_per_token_s", 5.0)):
                    draw_decimal(fields[name], step=step)
                for name in ("arrival_cv", "prompt_cv", "output_cv"):
                    draw_decimal(fields[name], step=0.1)
                draw_decimal(fields["transfer_gb_per_s"], step=5.0)
        if question is None:
            if shown is not None:
                _draw_shown(*shown, mode)
            st.caption("Give a load to see the fewest GPUs that hold it, the deployment, its latencies, and the cost.")
            return
        key = question.model_dump_json()
        try:
            pools = _size_pools(key, question)
            found = _size_service(key, question)
        except ValueError as problem:
            st.error(literal(str(problem)), icon=":material/error:")
            return
        if pools is not None:
            _draw_pools(pools, compare_asked(question, found, pools))
        if found.best is None:
            _draw_no_service(found)
            return
        _draw_best(found, found.best)
        _draw_curves(key, found, mode, found.load.amount, "your load")
        _draw_table(found)


def _draw_shown(question: DeploymentsQuestion, row: Mapping[str, Any], mode: str) -> None:
    """Draw latencies of the page's deployment against requests per second, with the most within the limits."""
    shared = {name: getattr(question, name) for name in ServedModel.model_fields}
    limits = plain_values({name: [row[name]] for name in (*_FIXED, "batch")})
    # Any load has the same curve.
    asked = ServiceQuestion(**{**shared, "limits": limits}, request_rate=1e-3, num_procs=question.num_procs)
    key = asked.model_dump_json()
    try:
        found = _size_service(key, asked)
    except ValueError:
        # A stated term that an open load does not have; a load that is given says which.
        return
    if found.best is None:
        st.caption(f"The deployment above holds no load within the limits at {found.limits.level}.")
        return
    most = float(found.best["most_load"])
    st.html(
        markup.head(
            f"The deployment above holds the limits at {found.limits.level} up to {plain(most)} requests/s",
            f"all {question.num_procs:,} GPUs, up to {int(row['batch']):,} requests at once per replica; "
            f"{origin_words(found.factors)}",
        )
    )
    _draw_curves(key, found, mode, most, "most within the limits")


def _draw_curves(key: str, found: ServiceSizing, mode: str, load: float, mark: str) -> None:
    """Draw the first token and the time per token of the best service against its load."""
    left, right = st.columns(2, gap="medium")
    first, each = _load_charts(key, found, mode, load, mark)
    with left:
        show(first, "serving_load_first")
    with right:
        show(each, "serving_load_token")


def _draw_best(found: ServiceSizing, best: Mapping[str, Any]) -> None:
    copies, level = int(best["deployments"]), found.limits.level
    degrees = f"{best['replicas']} replicas of " if best["replicas"] > 1 else ""
    degrees += f"TP {best['tensor_par']} × PP {best['pipeline_par']}"
    if best["expert_par"] > 1:
        degrees += f" × EP {best['expert_par']}"
    how = (
        f"weights in {best['weight_bits']} bits, KV cache in {best['kv_bits']}, {LAUNCHED[str(best['launch'])]}, "
        f"up to {int(best['batch']):,} requests at once; {origin_words(found.factors)}"
    )
    st.html(markup.head(f"{int(best['gpus']):,} GPUs: {copies:,} deployment{'s' * (copies != 1)} of {degrees}", how))

    def tile(label: str, name: str, context: str) -> markup.Tile:
        return markup.Tile(label, format_value(by_name(name), best[name]), context, formula=by_name(name).description)

    def latency(label: str, name: str, limit: float | None, mean_limit: float | None = None) -> markup.Tile:
        shown = f"{name}_{level}"
        held = "no limit" if limit is None else f"limit {format_value(by_name(shown), limit)}"
        mean = f"mean {format_value(by_name(shown), best[f'{name}_mean'])}"
        if mean_limit is not None:
            mean += f", limit {format_value(by_name(shown), mean_limit)}"
        found_tile = tile(f"{label}, {level}", shown, f"{held}; {mean}")
        return found_tile._replace(error=_describe_range(found, best, name))

    unit = _unit_of(found.load)
    load = f"load {plain(found.load.amount)} {unit}"
    room = f"{percent(best['headroom'] - 1.0, 0)} more than the {load}"
    tiles = [
        markup.Tile("GPUs", f"{int(best['gpus']):,}", load),
        tile("Requests per second", "served_rate", _describe_rate(found.load, best)),
        latency("First token", "first_token", found.limits.first_token, found.limits.mean_first_token),
        latency("Per token", "per_token", found.limits.per_token, found.limits.mean_per_token),
        latency("Whole request", "request", found.limits.request),
        markup.Tile(
            "Most load", f"{plain(float(best['most_load']))} {unit}", room, formula=by_name("most_load").description
        ),
        tile("Requests in flight", "in_flight", "per replica, on average"),
        tile("Output", "served_tokens", "of all deployments"),
        tile("Cost per hour", "cost_per_h", "all GPUs"),
        tile("Cost per million tokens", "cost_per_million_served", "at this load"),
    ]
    st.html(markup.figure_strip(tiles, basis_of(found.factors, _BASIS)))


def _unit_of(load: ServiceLoad) -> str:
    return "requests/s" if load.is_open else "users"


def _describe_rate(load: ServiceLoad, figures: Mapping[str, Any]) -> str:
    """Return the source of the requests per second of a service in words."""
    if load.is_open:
        return "as they arrive"
    answer = format_value(by_name("request_mean"), figures["request_mean"])
    if load.think_s:
        return f"users / ({answer} for the answer + {plain(load.think_s)} s think time)"
    return f"users / {answer} per answer"


def _draw_pools(pools: PoolSizing, comparison: tuple[str | None, str]) -> None:
    """Draw the best pair of pools, and why it or the aggregated service is better."""
    better, why = comparison
    icon = ":material/call_split:" if better == "disaggregated" else ":material/info:"
    st.info(f"**Prefill and decode in two pools.** {literal(why)}", icon=icon)
    best = pools.best
    if best is None:
        return
    unit, level = _unit_of(pools.load), pools.limits.level
    st.html(
        markup.head(
            f"{best.gpus:,} GPUs: {_describe_pool(best.prefill)} for prefill, {_describe_pool(best.decode)} for decode",
            f"{pools.pairs:,} pairs bounded, {pools.evaluated:,} evaluated; a GPU's link between pools has "
            f"{plain(pools.bandwidth / 1e9)} GB/s",
        )
    )
    figures = best.figures

    def latency(label: str, name: str) -> markup.Tile:
        column, mean = by_name(f"{name}_{level}"), by_name(f"{name}_mean")
        context = f"mean {format_value(mean, figures[mean.name])}"
        return markup.Tile(
            f"{label}, {level}", format_value(column, figures[column.name]), context, formula=column.description
        )

    room = f"{percent(figures['headroom'] - 1.0, 0)} more than the load"
    cost, sent = by_name("cost_per_million_served"), by_name("served_rate")
    tiles = [
        markup.Tile("Requests per second", format_value(sent, figures[sent.name]), _describe_rate(pools.load, figures)),
        latency("First token", "first_token"),
        latency("Per token", "per_token"),
        latency("Whole request", "request"),
        markup.Tile("Most load", f"{plain(figures['most_load'])} {unit}", room),
        markup.Tile("Prefill busy", percent(figures["prefill_busy"], 0), "share of its time"),
        markup.Tile("Decode busy", percent(figures["decode_busy"], 0), "share of its places"),
        markup.Tile(
            "KV transfer",
            f"{1e3 * figures['transfer_time']:,.3g} ms",
            f"{figures['transfer_bytes'] / 1e6:,.4g} MB per GPU, links {percent(figures['link_busy'], 0)} busy",
        ),
        markup.Tile("Cost per million tokens", format_value(cost, figures[cost.name]), "at this load"),
    ]
    st.html(markup.figure_strip(tiles, basis_of(pools.factors, _BASIS)))


def _describe_pool(row: Mapping[str, Any]) -> str:
    """Return a pool in words: "3 × TP 1 × PP 2"."""
    degrees = f"{row['replicas']} replicas of " if row["replicas"] > 1 else ""
    degrees += f"TP {row['tensor_par']} × PP {row['pipeline_par']}"
    degrees += f" × EP {row['expert_par']}" if row["expert_par"] > 1 else ""
    return f"{row['deployments']:,} × {degrees}"


def _describe_range(found: ServiceSizing, best: Mapping[str, Any], name: str) -> str:
    """Return the range of measured servers around a mean latency in words; empty where none was measured."""
    measured = {"first_token": "time_to_first_token", "per_token": "time_per_output_token"}.get(name, "")
    if measured not in found.ranges:
        return ""
    mean, each = by_name(f"{name}_mean"), found.ranges[measured]
    low, high = (format_value(mean, best[mean.name] * factor) for factor in (each.low, each.high))
    return f"mean of measured servers {low} to {high}"


def _draw_no_service(found: ServiceSizing) -> None:
    parts = [
        f"{reason_label(code)}: the nearest takes {1e3 * each.latency:,.4g} ms ({each.level}), the limit is "
        f"{1e3 * each.limit:,.4g} ms."
        for code, each in found.nearest.items()
    ]
    if not parts:
        reasons = sorted(found.rejected.items(), key=lambda item: -item[1])
        parts = [found.obstacle] if found.obstacle else []
        parts += [f"{reason_label(code)}: {number:,} deployments." for code, number in reasons[:3]]
    st.warning(f"**No service holds the limits.** {literal(' '.join(parts))}", icon=":material/block:")


def _draw_table(found: ServiceSizing) -> None:
    rows = found.top(_LISTED)
    shown: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    for name in _COLUMNS:
        column, values = by_name(name), rows[name]
        if column.dtype == "str":
            shown[name] = [WORDS.get(str(value), str(value)) for value in values]
        elif values.dtype.kind == "f":
            shown[name] = [format_value(column, value) for value in values]
        else:
            shown[name] = values.tolist()
        settings[name] = st.column_config.Column(column.short, help=f"{column.label}. {column.description}")
    st.dataframe(
        shown,
        hide_index=True,
        key="serving_services",
        column_config=settings,
        row_height=ROW,
        height=height_of(len(rows), 280),
    )
    st.caption(f"Services that hold the limits, fewest GPUs first: {len(rows):,} of {len(found.table):,}.")
