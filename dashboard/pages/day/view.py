"""The page A day of service: demand and replicas over the day, cost, energy, what to reserve, other deployments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.template import Chart
from dashboard.charts.service_day import demand_and_capacity, gpus_over_day
from dashboard.link import state
from dashboard.link.fields import LinkField
from dashboard.pages.day.inputs import draw_inputs, parse_inputs
from dashboard.widgets.chart import show
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.own_table import NO_TABLE, OwnTable
from dashboard.widgets.tables import height_of
from dashboard.words.amounts import format_large
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, counted, format_value, percent, plain
from engine.questions.days import ENERGY_BASIS, day_energy, find_asked_day
from engine.questions.documents.days import DayQuestion
from engine.serving import by_name
from engine.serving.days import ServedDay, ServingDays

__all__ = ["DayView", "parse", "render"]

_BASIS: Final = "Waiting, percentiles and start-up are modelled; no service over a day was measured."
_WHICH: Final = "Shown is the deployment with the {least}. Serving recommends the simplest within the error."
_FORMATS: Final = {
    "GPUs each": "%,d",
    "Requests/s each": "%,.2f",
    "Trough replicas": "%,d",
    "Peak replicas": "%,d",
    "Peak GPUs": "%,d",
    "GPU-hours": "%,.1f",
    "Not served, %": "%.1f",
    "Reserved": "%,d",
    "USD": "%,.2f",
    "USD/M tokens": "%,.3f",
    "kWh": "%,.1f",
}
"""Formats of the table's numbers."""
_HELP: Final = {
    "GPUs each": "GPUs of one replica. Larger ones may need fewer per request; smaller ones follow demand closely.",
    "Requests/s each": "Load that one replica holds within the limits.",
    "Reserved": "Replicas to reserve.",
    "kWh": ENERGY_BASIS,
}


@dataclass(frozen=True, slots=True)
class DayView:
    """All that the link says of the page."""

    mode: str
    """The theme: "light" or "dark"."""
    question: DayQuestion | None
    own: OwnTable
    fields: Mapping[str, LinkField]
    problem: str = ""
    """Reason if the link holds no question."""


def parse() -> DayView:
    """Parse the page's part of the link."""
    try:
        question, _, own, fields = parse_inputs()
    except ValueError as problem:
        return DayView(state.theme_mode(), None, NO_TABLE, {}, str(problem))
    return DayView(state.theme_mode(), question, own, fields)


@st.cache_resource(show_spinner=False, max_entries=24)
def _find_day(key: str, _question: DayQuestion) -> ServingDays:
    return find_asked_day(_question)


@st.cache_resource(show_spinner=False, max_entries=24)
def _day_charts(key: str, _found: ServingDays, _day: ServedDay, mode: str) -> tuple[Chart, Chart]:
    return demand_and_capacity(_found.hours, _day, mode), gpus_over_day(_found.hours, _day, mode)


def render(view: DayView) -> None:
    """Draw the page."""
    if view.problem:
        st.error(literal(view.problem), icon=":material/error:")
        return
    draw_inputs(view.own, view.fields)
    if view.question is None:
        return
    key = view.question.model_dump_json()
    try:
        found = _find_day(key, view.question)
    except ValueError as problem:
        st.error(literal(str(problem)), icon=":material/error:")
        return
    day = found.best
    if day is None:
        st.warning(f"**Nothing serves this day.** {literal(found.obstacle)}", icon=":material/block:")
        return
    _draw_day(found, day)
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("The day", "replicas start before the demand needs them"))
        left, right = st.columns(2, gap="medium")
        demand, gpus = _day_charts(key, found, day, view.mode)
        with left:
            show(demand, "day_demand")
        with right:
            show(gpus, "day_gpus")
        draw_download(
            "The day as CSV",
            lambda: found.hours.to_csv(index=False),
            "day.csv",
            "text/csv",
            key="day_hours",
            help="Demand, replicas, GPUs and latencies over the day; this page reads its demand again.",
        )
    _draw_others(found)


def _draw_day(found: ServingDays, day: ServedDay) -> None:
    row, figures = day.row, day.figures()
    degrees = f"TP {row['tensor_par']} × PP {row['pipeline_par']}"
    if row["expert_par"] > 1:
        degrees = f"{row['replicas']} × {degrees} × EP {row['expert_par']}"
    least, most = int(figures["replicas_at_trough"]), day.peak_replicas
    how = (
        f"weights in {row['weight_bits']} bits, KV cache in {row['kv_bits']}; up to {plain(day.capacity)} requests/s "
        "each within the limits; modelled"
    )
    replicas = f"{day.replica_range} {'replica' if most == 1 else 'replicas'}"
    st.html(markup.head(f"{replicas} of {degrees}", how))
    if day.is_short:
        share = day.unserved_requests / day.demand.requests
        st.warning(
            f"**{percent(share)} of the requests are not served.** The most replicas hold "
            f"{plain(day.most * day.capacity)} requests/s within the limits; the peak is {plain(day.demand.peak)}.",
            icon=":material/block:",
        )
    has_cost = math.isfinite(day.cost)
    least_of = "lowest cost" if has_cost else "fewest GPU-hours"
    if day.is_short:
        least_of = f"fewest requests not served, of these the one with the {least_of}"
    which = _WHICH.format(least=least_of)
    if not has_cost:
        which += " No price of this system is recorded: enter one to see costs."
    energy = day_energy(found, day)
    tokens = float(figures["output_tokens"])
    tiles = [
        markup.Tile("GPUs at the peak", f"{day.size * most:,}", f"{day.size * least:,} at the trough"),
        markup.Tile(
            "GPU-hours",
            f"{day.size * day.replica_hours:,.0f} h",
            f"{day.replica_hours:,.1f} replica-hours, start-up included",
        ),
        *_latency_tiles(found, day),
        markup.Tile("Output", f"{format_large(tokens)} tokens", f"{format_large(day.served_requests)} requests"),
    ]
    if has_cost:
        replicas_all_day = f"{counted(most, 'replica')} on demand all day"
        saved = 1.0 - day.cost / day.constant_cost if day.constant_cost else 0.0
        against = f"{percent(saved, 0)} less than" if day.cost < day.constant_cost else "as much as"
        tiles += [
            markup.Tile(
                "Cost of the day",
                f"{plain(day.cost, 4)} USD",
                f"{plain(found.rules.price)} USD/GPU-h on demand; {against} {replicas_all_day}",
            ),
            markup.Tile(
                "Cost per million tokens", f"{plain(float(figures['usd_per_million_tokens']))} USD", "output tokens"
            ),
        ]
    if found.rules.reserved_price is not None:
        tiles.append(
            markup.Tile(
                "Replicas to reserve",
                f"{day.reserved:,}",
                _describe_reserved(day),
                formula="Reserve a replica if its hours of use × price on demand > 24 h × reserved price.",
            )
        )
    if energy is not None:
        tiles.append(
            markup.Tile(
                "Energy",
                f"{plain(energy, 4)} kWh",
                "upper estimate at design power",
                formula="GPU-hours × design power × draw with server over design power × PUE.",
            )
        )
    st.html(markup.figure_strip(tiles, f"{_BASIS} {which}"))


def _describe_reserved(day: ServedDay) -> str:
    """Return when a reserved replica is worth it, and the cost without any."""
    if not day.reserved:
        return "on demand is cheaper"
    hours, cost = plain(day.break_even_hours), plain(day.cost_with(0), 4)
    return f"paid all day, each used more than {hours} h; with none reserved {cost} USD"


def _latency_tiles(found: ServingDays, day: ServedDay) -> list[markup.Tile]:
    """Return the highest latencies of the day with their limits."""
    limits, hours, tiles = found.sizing.limits, found.hours, []
    for label, name, limit in (
        ("First token", "first_token", limits.first_token),
        ("Per token", "per_token", limits.per_token),
    ):
        column, mean = by_name(f"{name}_{limits.level}"), by_name(f"{name}_mean")
        held = "no limit" if limit is None else f"limit {format_value(column, limit)}"
        tiles.append(
            markup.Tile(
                f"{label}, {limits.level}",
                format_value(column, float(hours[column.name].max())),
                f"highest of the day; {held}; mean at most {format_value(mean, float(hours[mean.name].max()))}",
            )
        )
    return tiles


def _draw_others(found: ServingDays) -> None:
    rows: list[dict[str, Any]] = []
    for day in found.days:
        figures, energy = day.figures(), day_energy(found, day)
        rows.append(
            {
                "Layout": f"TP {day.row['tensor_par']} × PP {day.row['pipeline_par']}"
                + (f" × EP {day.row['expert_par']}" if day.row["expert_par"] > 1 else ""),
                "GPUs each": day.size,
                "Requests/s each": day.capacity,
                "Trough replicas": figures["replicas_at_trough"],
                "Peak replicas": day.peak_replicas,
                "Peak GPUs": figures["gpus_at_peak"],
                "GPU-hours": figures["gpu_hours"],
                "Not served, %": 100.0 * day.unserved_requests / day.demand.requests,
                "Reserved": day.reserved,
                "USD": day.cost,
                "USD/M tokens": figures["usd_per_million_tokens"],
                "kWh": math.nan if energy is None else energy,
            }
        )
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Best deployment of each size", f"sorted by {found.order}"))
        st.dataframe(
            pd.DataFrame(rows),
            hide_index=True,
            height=height_of(len(rows), 400),
            column_config={
                name: st.column_config.NumberColumn(format=form, help=_HELP.get(name))
                for name, form in _FORMATS.items()
            },
            placeholder=ABSENT,
            key="day_sizes",
            alt="Best deployment of each number of GPUs with replicas, GPU-hours, cost and energy of the day.",
        )
