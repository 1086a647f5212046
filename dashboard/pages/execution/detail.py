"""The lower half of the Execution page: schedule, networks, bandwidths, formulas."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.palette import TIME_KINDS, Kind
from dashboard.charts.execution.networks import MOST_DOMAINS, partners, traffic
from dashboard.charts.schedules.gantt import MOST_BARS, WEIGHTS, gantt, shown_stages, summary
from dashboard.compat.caches import remembered
from dashboard.compat.types import Place
from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.execution.accounts import ROW_AS_TEXT, account_of
from dashboard.pages.execution.link import ExecutionLink
from dashboard.queries.economics import Metric
from dashboard.queries.economics_formulas import derived_formula, derived_metrics
from dashboard.widgets.chart import show
from dashboard.widgets.fragment_views import FragmentView
from dashboard.widgets.link_fields import draw_choice
from dashboard.widgets.window import is_narrow
from dashboard.words.executions import blocks_of, network_name, networks_of
from dashboard.words.formulas import Formula, formula
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, counted, format_value, percent
from engine import Exploration, Scenario
from engine.columns import Column, by_name, statistics_of, value_of
from engine.cost_models.account import ExecutionAccount, ModelStage
from engine.cost_models.formulas import Untold
from engine.launch import stage_options
from engine.simulate.schedule import Schedule, schedule
from engine.simulate.stage_replay import StageReplay, stage_replay
from hardware import System, network_words

__all__ = ["bandwidths", "formula_panel", "networks", "parse_figure", "pipeline"]

_KINDS: Final = {kind.key: kind for kind in TIME_KINDS}
ALIKE: Final = 0.002
"""Smallest difference between a closed form and a replay that is worth reporting."""
_NEEDS: Final = (
    ("act_offload_bw_req", "activations_offload"),
    ("weight_offload_bw_req", "weight_offload"),
    ("optim_offload_bw_req", "optimizer_offload"),
)
_EXPOSED_PARTS: Final = {
    "communication": ("tp_comm_exposed_time", "pp_comm_exposed_time", "cp_comm_exposed_time", "ep_comm_exposed_time"),
    "offload": ("fw_offload_exposed_time", "bw_offload_exposed_time"),
    "recompute": ("recompute_time", "recomm_exposed_time"),
}
"""Exposed parts of a chunk's bar -> the times that are positive if it has that part."""


@remembered(64, hash_funcs=ROW_AS_TEXT)
def _build_schedule(num_blocks: int, row: dict[str, Any], stages: tuple[ModelStage, ...]) -> Schedule:
    few = int(row["pipeline_par"]) / len(shown_stages(int(row["pipeline_par"])))
    return schedule(row, num_blocks, most_tasks=int(2 * MOST_BARS * few), model_stages=stages)


@remembered(64, hash_funcs=ROW_AS_TEXT)
def _replay_stages(_account: ExecutionAccount, key: str, row: dict[str, Any]) -> StageReplay | None:
    return stage_replay(row, _account)


def pipeline(exploration: Exploration, row: dict[str, Any], mode: str) -> None:
    """Draws the schedule, full width.

    Args:
        exploration: the exploration of the execution.
        row: fields and statistics of the execution by name, in the register's base units.
        mode: "light" or "dark".
    """
    account = account_of(exploration.scenario, row)
    # Calculon's own order has its own durations.
    uneven = account.stage_shares() is not None
    stages = tuple(account.model_stages(int(row["pipeline_par"]), int(row["pipeline_interleaving"]))) if uneven else ()
    found = _build_schedule(blocks_of(exploration.scenario), row, stages)
    facts = summary(found)
    parts = [found.title, f"{facts['stages']} stages"] if facts["stages"] > 1 else ["no pipeline: one stage"]
    if facts["chunks"] > 1:
        parts.append(f"{facts['chunks']} chunks")
    parts += [counted(facts["microbatches"], "microbatch"), _describe_idle(row, facts["idle"])]
    st.html(markup.head("Pipeline schedule", " · ".join(parts)))
    show(gantt(found, mode, narrow=is_narrow()), "execution_gantt")
    kinds = [replace(_KINDS[key], name=word) for key, word in _bar_names(found, row).items()]
    st.html(markup.legend([*kinds, *_of_weights(found)]))
    notes = [_inside_bars(row)]
    if facts["chunks"] > 1:
        notes.append("Fainter is a later chunk.")
    if row.get("overhead_time") is not None:
        alike = "Stage times include embedding and head" if uneven else "Stages are alike"
        notes.append(f"{alike}; the end of the step waits for stragglers and the host.")
    if (found.tasks["pair"] >= 0).any():
        notes.append("A split box is an overlapped forward and backward.")
    hidden = facts["stages"] - len(shown_stages(facts["stages"]))
    if hidden:
        notes.append(f"{hidden} stages between are not drawn.")
    told = _replay_stages(account, exploration.scenario.key, row)
    if told is not None:
        notes.append(told.sentence())
    st.caption(" ".join(notes))
    if options := stage_options(exploration.scenario.model, row):
        st.caption("Megatron’s options for these stages")
        st.code(options, language=None, wrap_lines=True)


def _describe_idle(row: Mapping[Any, Any], share: float) -> str:
    """Return the idle share of a schedule, split into the bubble and the rest, as in the tile and the waterfall."""
    step = float(row["total_time"])
    bubble, told = percent(float(row["bubble_time"]) / step), f"idle {percent(share)}"
    if told == f"idle {bubble}":
        return told
    host = float(row.get("overhead_time") or 0.0) / step
    rest = f"stragglers and host {percent(host)}" if host > 0 else "rest from unequal stages"
    return f"{told}: bubble {bubble}, {rest}"


def _bar_names(found: Schedule, row: Mapping[Any, Any]) -> dict[str, str]:
    """Return the names of a schedule's bars, by kind of time; only of kinds that occur."""
    again = " with recompute" if _has_time(row, "recompute_time", "recomm_exposed_time") else ""
    # Full sharding gathers weights block by block; the schedule has all of it at its end.
    exchanged = "weight gathers, exposed" if row.get("zero_stage") == 3 else "gradient exchange, exposed"
    words = {
        "forward": ("forward", "forward"),
        "backward": ("backward", f"backward{again}"),
        "exchange": ("data", exchanged),
        "optimizer": ("optimizer", "optimizer step"),
    }
    there = set(found.tasks["kind"])
    named = {key: word for task, (key, word) in words.items() if task in there}
    return named | ({"bubble": "idle"} if len(found.idle()) else {})


def _of_weights(found: Schedule) -> list[Kind]:
    """Return the legend's item for weight gradients, if the schedule has them as tasks of their own."""
    return [replace(WEIGHTS, name="weight gradient")] if (found.tasks["kind"] == WEIGHTS.key).any() else []


def _inside_bars(row: Mapping[Any, Any]) -> str:
    """Return a sentence on the exposed parts of a chunk's bar."""
    parts = [word for word, names in _EXPOSED_PARTS.items() if _has_time(row, *names)]
    if not parts:
        return "Each bar: one chunk of one microbatch; nothing is exposed."
    listed = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"Each bar: one chunk of one microbatch, with its exposed {listed}."


def _has_time(row: Mapping[Any, Any], *names: str) -> bool:
    """Return True if any of these takes time; a figure that the cost model does not have takes none."""
    return any(float(row.get(name, 0.0)) > 0 for name in names)


def networks(exploration: Exploration, row: dict[str, Any], mode: str) -> None:
    """Draws partner GPUs, and the time on the links; nothing if the cost model does not place ranks.

    Args:
        exploration: the exploration of the execution.
        row: fields and statistics of the execution by name, in the register's base units.
        mode: "light" or "dark".
    """
    system = exploration.scenario.system
    found = account_of(exploration.scenario, row).communication()
    if found is None:
        return
    left, right = st.columns([1.45, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        procs = int(row["num_procs"])
        drawn = _drawn_networks(system, procs)
        kinds = zip(("bands are", "lines part"), drawn, strict=False)
        words = [f"{kind} {size:,} GPUs on {name}" for kind, (size, name) in kinds]
        st.html(markup.head("Who talks to whom", "; ".join(["partners of GPU 0", *words])))
        where = {group.name: networks_of(system, group.tiers) for group in found.groups}
        domain, around = (*(size for size, _ in drawn), None, None)[:2]
        show(partners(found.groups, where, procs, domain or procs, mode, around=around), "execution_partners")
        tiers = [network_name(system, tier).partition(", ") for tier in range(system.tiers)]
        st.html(markup.chips([(name, rest) for name, _, rest in tiers]))
        st.caption(found.placed)
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Time on the links", "per step; solid is exposed, faint is hidden"))
        where |= {group.name: network_name(system, group.tier) for group in found.groups if len(group.tiers) == 1}
        show(traffic(found.times, where, mode), "execution_traffic")
        if found.counted:
            st.caption(found.counted)


def _drawn_networks(system: System, procs: int) -> list[tuple[int, str]]:
    """Return size and name of the innermost network of which few enough lie side by side, and of the one around it
    where the GPUs fill several."""
    named = zip(system.networks, network_words(system), strict=True)
    few = [(network.size, name) for network, name in named if procs / network.size <= MOST_DOMAINS]
    return few[:1] + [each for each in few[1:2] if each[0] < procs]


def bandwidths(exploration: Exploration, row: dict[str, Any]) -> None:
    """Draws the bandwidths that would hide offload and overlapped communication, and the available ones.

    Args:
        exploration: the exploration of the execution.
        row: fields and statistics of the execution by name, in the register's base units.
    """
    system = exploration.scenario.system
    st.html(markup.head("Bandwidth that would hide it", "per GPU; available is the peak"))
    host = system.mem2.bandwidth_gb_per_s * 1e9 if system.mem2.capacity_gib > 0 else 0.0
    rows = [
        (by_name(name), float(row[name]), host)
        for name, flag in _NEEDS
        if row[flag] and not pd.isna(row[name])  # the optimizer's state may move once per step only
    ]
    if any(row[flag] for _, flag in _NEEDS):
        rows.append((by_name("offload_mem_bw_req"), float(row["offload_mem_bw_req"]), host))
    for name, net, on in (
        ("tp_bw_overlap_req", "tensor_par_net", row["tensor_par_overlap"] != "none"),
        ("dp_bw_overlap_req_chunk", "data_par_net", bool(row["data_par_overlap"])),
        ("dp_bw_overlap_req_tail", "data_par_net", bool(row["data_par_overlap"])),
    ):
        if on and float(row[name]) > 0:
            there = system.network_at(int(row[net])).bandwidth_gb_per_s * 1e9
            rows.append((by_name(name), float(row[name]), there))
    if not rows:
        st.caption("Nothing is offloaded, and no overlap of communication asks for a bandwidth.")
        return
    table = pd.DataFrame(
        {
            "Bandwidth": [column.label for column, *_ in rows],
            "needed": [format_value("offload_mem_bw_req", need) for _, need, _ in rows],
            "available": [format_value("offload_mem_bw_req", there) if there else "none" for _, _, there in rows],
            "enough": ["yes" if need <= there else "no" for _, need, there in rows],
        }
    )
    figures, words = st.columns([1, 1], gap="medium")
    figures.dataframe(
        table,
        hide_index=True,
        height="content",
        row_height=28,
        key="execution_bandwidths",
        alt="Bandwidths that would hide offload and overlapped communication",
        column_config={
            "Bandwidth": st.column_config.TextColumn(width=215),
            "needed": st.column_config.TextColumn(width=72, help="Bandwidth that would hide the transfer."),
            "available": st.column_config.TextColumn(width=72, help="Peak of the link used."),
            "enough": st.column_config.TextColumn(width=62),
        },
    )
    words.html(markup.meanings((column.label, column.description) for column, *_ in rows))


def parse_figure() -> LinkField:
    """Parse the figure whose formula is shown; its options are known from the execution."""
    reader = LinkReader(ExecutionLink, "execution")
    reader.read("figure")
    return reader.fields["figure"]


@st.fragment
def formula_panel(exploration: Exploration, row: dict[str, Any], figure: FragmentView[LinkField]) -> None:
    """Draws any figure with its expression, numbers, units and source.

    Args:
        exploration: the exploration of the execution.
        row: fields and statistics of the execution by name, in the register's base units.
        figure: the figure in the link.
    """
    st.html(markup.head("Formula of a figure", "expression, numbers, source"))
    scenario = exploration.scenario
    account, further = account_of(scenario, row), derived_metrics(scenario)
    columns = [
        *(metric.column for metric in further.values()),
        *(by_name(name) for name in known_figures(scenario, row)),
    ]
    whole, parts = st.columns(2, gap="medium")
    with whole:
        field = figure.current().among(figure_names(columns))
        draw_choice(field, label="Figure")
        name = field.value
        if name in further:
            derived_written(further[name], row, scenario, parts)
            return
        column = by_name(name)
        st.caption(literal(column.description))
        told, value = account.formula(name), format_value(column, row[name])
        if isinstance(told, Untold):
            _draw_without_formula(name, told, value)
            return
        found = formula(column, told)
        written_out(found, value)
        parts_explained(found, account.expressions)
        st.caption(f"Source: {found.source}.")
    with parts:
        made_of(found)


def known_figures(scenario: Scenario, row: Mapping[Any, Any]) -> list[str]:
    """Returns the names of the statistics that have a value, the most telling first.

    Args:
        scenario: scenario of the execution.
        row: fields and statistics of the execution by name, in the register's base units.
    """
    return [column.name for column in reversed(statistics_of(scenario.cost_model)) if not pd.isna(row[column.name])]


def figure_names(columns: Iterable[Column]) -> dict[str, str]:
    """Returns labels of figures in the list of a formula panel, by name.

    Args:
        columns: the register's columns of the figures.
    """
    return {column.name: f"{column.label} · {column.group}" for column in columns}


def derived_written(metric: Metric, row: Mapping[Any, Any], scenario: Scenario, parts: Place) -> None:
    """Draws a figure that is derived from others: its formula, and its parts in another place.

    Args:
        metric: the figure, with the statistic from which it is derived.
        row: fields and statistics of the execution by name, in the register's base units.
        scenario: scenario of the execution.
        parts: place for the parts.
    """
    found = derived_formula(metric, row, scenario)
    st.caption(literal(metric.column.description))
    value = metric.of(float(value_of(metric.statistic, row)))
    written_out(found, format_value(metric.column, value))
    st.caption(literal(f"Source: {found.source}."))
    with parts:
        made_of(found)


def written_out(found: Formula, value: str) -> None:
    """Draws a formula, its numbers and its value; equal lines once.

    Args:
        found: the formula, its numbers and parts.
        value: the value with its unit.
    """
    lines = dict.fromkeys((found.expression, found.numbers, value))
    st.code(f"{found.column.name} = " + "\n= ".join(lines), language=None, wrap_lines=True)


def parts_explained(found: Formula, known: Container[str]) -> None:
    """Draws buttons that open the formulas of a formula's parts.

    Args:
        found: the formula, its numbers and parts.
        known: names of the figures that have a formula.
    """
    more = [part for part, _, _ in found.parts if part in known]
    if not more:
        return
    with st.container(horizontal=True, gap="xsmall"):
        for part in more:
            st.button(
                by_name(part).short,
                key=f"execution_why_{part}",
                type="tertiary",
                icon=":material/function:",
                on_click=state.set_url_value,
                args=("execution_figure", part),
                help=f"Formula of {by_name(part).label}",
            )


def made_of(found: Formula) -> None:
    """Draws every part of a formula, in reading order.

    Args:
        found: the formula, its numbers and parts.
    """
    parts = pd.DataFrame(found.parts, columns=["name", "value", "meaning"])
    parts["value"] = parts["value"].replace("", ABSENT)
    st.dataframe(
        parts,
        hide_index=True,
        height="content",
        row_height=28,
        key="execution_parts",
        alt=f"Inputs of {found.column.label} is made of",
        column_config={
            "name": st.column_config.TextColumn(width=200),
            "value": st.column_config.TextColumn(width=90),
            "meaning": st.column_config.TextColumn(width=250),
        },
    )


def _draw_without_formula(name: str, told: Untold, value: str) -> None:
    if told.summed:
        st.code(f"{name} = {told.summed}\n= {value}", language=None, wrap_lines=True)
    else:
        st.markdown(f"**{value}**")
    st.caption(told.sentence)
