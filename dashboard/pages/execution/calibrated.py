"""What the Execution page shows of the calibrated cost model in place of Calculon's layers, links and networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.networks import LOOK, Group, Traffic, innermost_first
from dashboard.pages.execution.calibrated_layers import case_of_row
from dashboard.pages.execution.detail import (  # fmt: skip
    derived_written,
    figure_names,
    made_of,
    network_boxes,
    parts_explained,
    written_out,
)
from dashboard.pages.execution.economics_formulas import derived_metrics
from dashboard.widgets.controls import choose
from dashboard.words.calibrated_formulas import EXPRESSIONS, Made, calibrated_formula, explained
from dashboard.words.markdown import literal
from dashboard.words.numbers import format_value, percent, plain
from engine import Exploration, Scenario
from engine.columns import by_name, statistics_of
from engine.cost_models.calibrated import StepTimes, effective_rates, parameters_of, step_times
from engine.cost_models.calibrated.physics.links import link_times

__all__ = ["formula_panel", "networks", "parts_of_step", "parts_table", "traffic_rows"]

_TRAFFIC: Final = (
    ("TP", "tp", "tp_comm_exposed_time"), ("TP repeated", "recomm", "recomm_exposed_time"),
    ("CP", "cp", "cp_comm_exposed_time"), ("EP", "ep", "ep_comm_exposed_time"), ("PP", "pp", "pp_comm_exposed_time"),
    ("DP", "dp", "dp_comm_exposed_time"),
)  # fmt: skip
"""Kinds of communication, their names in `link_times`, and the statistic with what of it is exposed."""

_PARTS: Final = {
    "linear": ("Linear layers", "matrix products of all blocks, forward and backward", "gemm"),
    "attention": ("Attention", "scores and values, by the rate of the attention kernel", "attention"),
    "elementwise": ("Element-wise", "norms, activation functions, residuals: memory traffic", "elementwise"),
    "recompute": ("Recompute", "what the backward pass needs, computed again", "recompute"),
    "launch": ("Kernel launches", "what of the host's launching no computation hides", "launch"),
    "ends": ("Embedding and head", "vocabulary layers and loss, on the first and last stage", "head"),
    "tensor_exposed": ("TP communication", "exposed collectives of tensor parallelism, also repeated", "collectives"),
    "context_exposed": ("CP communication", "exposed ring of keys and values", "context_parallel"),
    "expert_exposed": ("EP communication", "exposed dispatch and return of tokens", "experts"),
    "gather_exposed": ("Weight gathers", "exposed gathers of sharded weights, block by block", "sharding"),
    "pipeline_exposed": ("PP communication", "messages between stages that stages wait for", "pipeline"),
    "bubble": ("Pipeline bubble", "filling and draining of the pipeline", "pipeline"),
    "data_exposed": ("DP communication", "exposed exchange of gradients", "sharding"),
    "tied": ("Tied embeddings", "exchange between first and last stage", "sharding"),
    "offload": ("Offload", "transfers to and from host memory that nothing hides", "offload"),
    "optimizer": ("Optimizer step", "update of the weights a GPU holds", "optimizer"),
    "straggler": ("Stragglers", "waiting for the slowest of many GPUs", "step"),
    "fixed": ("Host", "constant work of the host per step", "step"),
}
"""Parts of a step -> name, what it is, module of `engine.cost_models.calibrated` that has the formula and its
source."""


@st.cache_data(show_spinner=False, max_entries=64)
def _step(_scenario: Scenario, key: str, row: dict[str, Any]) -> dict[str, float]:
    return step_parts(_scenario, row)


def step_parts(scenario: Scenario, row: dict[str, Any]) -> dict[str, float]:
    """The parts of an execution's step [s] by name of `engine.cost_models.calibrated.StepTimes`, and `offload`; they
    add up."""
    times = step_times(case_of_row(scenario, row), parameters_of(scenario.used_calibration))
    parts = {item.name: float(np.ravel(getattr(times, item.name))[0]) for item in fields(StepTimes)}
    offload = float(row["fw_offload_exposed_time"]) + float(row["bw_offload_exposed_time"])
    # Processors wait for the slowest with what offloading shows, too.
    straggler = float(row["overhead_time"]) - parts["fixed"]
    return parts | {"offload": offload, "straggler": straggler, "step": float(row["total_time"])}


def parts_table(scenario: Scenario, row: dict[str, Any]) -> pd.DataFrame:
    """The parts of a step that take any time, largest first: `part`, `seconds`, `share`, `what`, and the module of
    `engine.cost_models.calibrated` that has the `formula`."""
    times = _step(scenario, scenario.key, row)
    # What tensor parallelism sends again is communication here as it is elsewhere on the page.
    again = float(row["recomm_exposed_time"])
    times = times | {"recompute": times["recompute"] - again, "tensor_exposed": times["tensor_exposed"] + again}
    rows = [
        (name, times[key], times[key] / times["step"], what, module)
        for key, (name, what, module) in _PARTS.items()
        if times[key] > 1e-9
    ]
    found = pd.DataFrame(rows, columns=["part", "seconds", "share", "what", "formula"])
    result: pd.DataFrame = found.sort_values("seconds", ascending=False, kind="stable")
    return result


def parts_of_step(exploration: Exploration, row: dict[str, Any]) -> None:
    """The step in finer parts than the waterfall, and the rates that they rest on."""
    scenario = exploration.scenario
    left, right = st.columns([1.45, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("What the step is made of", "the slowest stage; every term of the cost model"))
        found = parts_table(scenario, row)
        shown = pd.DataFrame(
            {
                "Part": found["part"],
                "time": [format_value("total_time", seconds) for seconds in found["seconds"]],
                "share": found["share"] * 100,
                "What it is": found["what"],
                "module": found["formula"],
            }
        )
        st.dataframe(
            shown, hide_index=True, height="content", row_height=28, key="execution_parts_of_step",
            alt=f"The {len(shown)} parts of the step with their times and shares",
            column_config={
                "Part": st.column_config.TextColumn(width=136),
                "time": st.column_config.TextColumn(width=58),
                "share": st.column_config.ProgressColumn(
                    format="%.1f %%", min_value=0, max_value=max(1.0, float(shown["share"].max())), width=86
                ),
                "What it is": st.column_config.TextColumn(width=318),
                "module": st.column_config.TextColumn(
                    help="Module of engine.cost_models.calibrated that has the formula and its source.", width=86
                ),
            },
        )  # fmt: skip
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("What a GPU sustains", f"calibration {scenario.used_calibration.name}"))
        rates = effective_rates(scenario.system, scenario.used_calibration)
        table = pd.DataFrame(
            {
                "Rate": [rate.name for rate in rates],
                "peak": [_rate(rate.peak, rate.unit) for rate in rates],
                "sustained": [_rate(rate.sustained, rate.unit) for rate in rates],
                "share": [percent(rate.share, 0) for rate in rates],
                "label": [rate.provenance for rate in rates],
            }
        )
        about = st.column_config.TextColumn
        st.dataframe(
            table, hide_index=True, height="content", row_height=28, key="execution_rates",
            alt="Peak and sustained rates of one GPU, and what they rest on",
            column_config={
                "peak": about(help="What the datasheet says."),
                "sustained": about(help="What long operations reach by the calibration."),
                "share": about(help="Sustained rate over peak."),
                "label": about(help="What the sustained rate rests on: fitted to measured runs, measured by a "
                                    "benchmark, or stated without either."),
            },
        )  # fmt: skip
        st.caption("Rates of long operations; short ones reach less. The Library page has the source of each.")


def _rate(value: float, unit: str) -> str:
    """A rate with its unit: "676 TFLOP/s", "2.75 TB/s"."""
    if unit == "FLOP/s":
        return f"{format_value('useful_flops', value)}/s"
    return format_value("offload_mem_bw_req", value) if unit == "bytes/s" else f"{plain(value)} {unit}"


def networks(exploration: Exploration, row: dict[str, Any], mode: str) -> None:
    """Who talks to whom, and what that costs."""
    groups = innermost_first(row, exploration.scenario.system)
    network_boxes(
        exploration, row, mode, groups, traffic_rows(exploration.scenario, row, groups),
        "Ranks are placed innermost first: tensor, context, data, then pipeline, and no group over more networks than "
        "it needs: what is left over of a network stays idle. A collective that spans tiers is split into an exchange "
        "on each; which network carries what follows from the placement.",
        "A whole bar would show if nothing overlapped, on the slowest stage. DP includes gathers of sharded weights.",
    )  # fmt: skip


@st.cache_data(show_spinner=False, max_entries=64)
def _links(_scenario: Scenario, key: str, row: dict[str, Any]) -> dict[str, float]:
    found = link_times(case_of_row(_scenario, row), parameters_of(_scenario.used_calibration))
    return {name: float(np.ravel(seconds)[0]) for name, seconds in found.items()}


def traffic_rows(scenario: Scenario, row: dict[str, Any], groups: Sequence[Group]) -> list[Traffic]:
    """Time on the links and exposed, for every kind of communication that there is."""
    links, where = _links(scenario, scenario.key, row), {group.name: group.where for group in groups}
    found = []
    for name, kind, exposed in _TRAFFIC:
        short = name.partition(" ")[0]
        times = links[kind], float(row[exposed])
        if max(times) > 0 and short in where:
            found.append(Traffic(name, LOOK[short], *times, where[short]))
    return found


def figures(row: dict[str, Any]) -> list[str]:
    """Names of the statistics that the execution has a value of, the most telling first."""
    return [column.name for column in reversed(statistics_of("calibrated")) if not pd.isna(row[column.name])]


@st.fragment
def formula_panel(exploration: Exploration, row: dict[str, Any]) -> None:
    """Any figure with its expression, the numbers put in, units and source."""
    st.html(markup.head("How a figure comes about", "expression, numbers, source"))
    scenario = exploration.scenario
    further = derived_metrics(scenario)
    columns = [*(metric.column for metric in further.values()), *(by_name(name) for name in figures(row))]
    whole, parts = st.columns(2, gap="medium")
    with whole:
        name = choose("Figure", figure_names(columns), "execution_figure", default="total_time")
        if name in further:
            derived_written(further[name], row, scenario, parts)
            return
        column = by_name(name)
        st.caption(literal(column.description))
        found = calibrated_formula(name, row, Made(scenario, _step(scenario, scenario.key, row)))
        value = format_value(column, row[name])
        if found is None:
            st.markdown(f"**{value}**")
            st.caption(explained(name))
            return
        written_out(found, value)
        parts_explained(found, EXPRESSIONS)
        st.caption(f"Source: {found.source}.")
    with parts:
        made_of(found)
