"""The upper part of the Explore page: headline figures, and the map with the panel of the selected cell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard import state
from dashboard.charts.cell_map import cell_map
from dashboard.charts.markup import Tile, figure_strip, map_legend
from dashboard.charts.ramp import Domain
from dashboard.controls import choose, segments, show, switch
from dashboard.derived import FLOPS_FORMULA, MFU_FORMULA, QUICK, Metric, days_for, metrics, utilisation
from dashboard.explore_data import cells_of, near_best
from dashboard.explore_download import download
from dashboard.explore_lower import costs, infeasible
from dashboard.explore_panel import panel
from dashboard.format import count, days, decimals_for, format_value, percent, plain, scale_for
from dashboard.text import literal
from engine import Exploration
from engine.columns import by_name

__all__ = ["headline", "overview"]

_DOMAINS: Final[dict[str, tuple[Domain, str]]] = {
    "near": ("near best", "40 to 100 % of the best"),
    "zero": ("from zero", "from zero"),
    "log": ("logarithmic", "logarithmic"),
}


def headline(exploration: Exploration, best: dict[str, Any]) -> None:
    """The strip of figures of the best execution and of the space."""
    scenario = exploration.scenario
    rate, training = float(best["sample_rate"]), bool(best["training"])
    peak = scenario.system.matrix[scenario.datatype].tflops * 1e12
    capacity = scenario.system.mem1.capacity_gib * 2**30
    memory = float(best["proc_mem_tier1_cap_req"])
    near, cells = near_best(exploration, exploration.key, rate)
    fitting = int((exploration.by_cell()["feasible"] > 0).sum())
    total_efficiency = by_name("total_efficiency")
    tiles = [
        Tile(
            "Best throughput", format_value("sample_rate", rate),
            f"{_thousands(rate * scenario.model.seq_size)} tokens/s",
            formula="batch ÷ step time",
        ),
        Tile(
            "MFU", percent(utilisation(scenario, rate, training)),
            f"total efficiency {percent(best['total_efficiency'])}",
            formula=f"{MFU_FORMULA}; peak {format_value('useful_flops', peak)}/s; "
                    f"model FLOP per sample = {FLOPS_FORMULA}. "
                    f"Total efficiency: {total_efficiency.description}",
        ),
        Tile("Step time", format_value("total_time", best["total_time"]), f"{int(best['batch_size']):,} sequences",
             formula=by_name("total_time").description),
        Tile("1 T tokens take", days(days_for(scenario, rate)), "at this rate, no failures",
             formula="10¹² ÷ (throughput · sequence length)"),
        Tile("HBM per GPU", format_value("proc_mem_tier1_cap_req", memory),
             f"{percent(memory / capacity, 0)} of {format_value('proc_mem_tier1_cap_req', capacity)}",
             formula=by_name("proc_mem_tier1_cap_req").description),
        Tile("Feasible", count(exploration.feasible),
             f"{percent(exploration.feasible / exploration.total)} of {count(exploration.total)}",
             formula="Executions that this system can run, of all in the space."),
        Tile("Within 5 % of best", f"{count(near)} executions", f"in {cells:,} of {fitting:,} cells that fit",
             formula="Feasible executions with at least 95 % of the best throughput."),
    ]  # fmt: skip
    st.html(figure_strip(tiles))


def _thousands(value: float) -> str:
    """A count of three digits: "302 k", "1.68 M"."""
    for factor, name in ((1e9, "bn"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{plain(value / factor)} {name}"
    return plain(value)


@st.fragment
def overview(exploration: Exploration) -> None:
    """Map, panel of the selected cell, and what lies below. Clicking and switching rerun nothing else."""
    left, right = st.columns([1.86, 1], gap="medium")
    with left:
        metric, domain, as_table = _toolbar(exploration)
    cells = cells_of(exploration, metric)
    cell = state.selected_cell() or _best_cell(cells, metric)
    with left:
        if as_table:
            _table(cells, metric)
        else:
            chart = cell_map(cells, metric.column, state.theme_mode(), selected=cell, domain=domain)
            show(chart, "explore_map", on_select=_clicked, selection_mode="points")
            st.html(map_legend(exploration.scenario.num_procs))
    with right, st.container(border=True, gap="xsmall", key="panel"):
        panel(exploration, metric, cells, cell)
    with left:
        costs(exploration, metric)
    with right:
        infeasible(exploration)
        download(exploration)


def _toolbar(exploration: Exploration) -> tuple[Metric, Domain, bool]:
    """The row above the map: metric, help, view."""
    known = metrics(exploration.scenario)
    key = state.url_value("metric", QUICK[0], tuple(known))
    offered = {name: known[name].short for name in (*QUICK, *([] if key in QUICK else [key]))}
    with st.container(horizontal=True, vertical_alignment="center", key="explore_toolbar"):
        segments("Metric", offered, "metric")
        st.space("stretch")
        with st.popover("Terms", type="tertiary", icon=":material/help:", help="What the words and figures mean."):
            _terms(known[key])
        with st.popover("View", type="tertiary", icon=":material/tune:", help="Metric, colours, table, cell by name."):
            _pick_metric(known, key)
            domain = choose("Colours", {name: words for name, (_, words) in _DOMAINS.items()}, "map_domain")
            as_table = switch("As table", "map_table", help="The same figures as a table, for the keyboard too.")
            _pick_cell(exploration)
    return known[key], _DOMAINS[domain][0], as_table


def _pick_metric(known: Mapping[str, Metric], key: str) -> None:
    """Every metric, beside the few that have a button."""

    def picked() -> None:
        state.set_url_value("metric", st.session_state["_metric_list"])

    st.session_state["_metric_list"] = key
    st.selectbox(
        "Metric", list(known), key="_metric_list", on_change=picked, help=literal(known[key].column.description),
        format_func=lambda name: known[name].column.label,
    )  # fmt: skip


def _pick_cell(exploration: Exploration) -> None:
    """Choosing a cell without a mouse."""
    cells = exploration.scenario.space.cells
    now = state.selected_cell()
    names = sorted({(cell.tensor_par, cell.pipeline_par) for cell in cells})

    def picked() -> None:
        value = st.session_state["_pick_cell"]
        if value is None:
            state.select_cell(None)
        else:
            state.select_cell(*value)

    st.session_state["_pick_cell"] = now
    st.selectbox("Cell", names, key="_pick_cell", on_change=picked, placeholder="the best",
                 format_func=lambda cell: f"TP {cell[0]:,} × PP {cell[1]:,}")  # fmt: skip


def _clicked() -> None:
    points = st.session_state["explore_map"]["selection"]["points"]
    for point in points:
        custom = point.get("customdata")
        if custom:
            state.select_cell(custom[0], custom[1])
            return


def _best_cell(cells: pd.DataFrame, metric: Metric) -> tuple[int, int] | None:
    """The cell that is shown when none is selected: the best, or the one nearest to fitting."""
    if not len(cells):
        return None
    known = cells[cells["value"].notna()]
    if len(known):
        row = known.sort_values("value", ascending=metric.column.better == "lower", kind="stable").iloc[0]
    else:
        row = cells.sort_values("shortfall_bytes", kind="stable", na_position="last").iloc[0]
    return int(row["tensor_par"]), int(row["pipeline_par"])


def _table(cells: pd.DataFrame, metric: Metric) -> None:
    """The map as a table; a row is a cell."""
    scale = scale_for(metric.column, cells["value"])
    name = scale.title(metric.column.label)
    shown = pd.DataFrame(
        {
            "TP": cells["tensor_par"],
            "PP": cells["pipeline_par"],
            "DP": cells["data_par"],
            name: cells["value"] / scale.factor,
            "feasible": cells["feasible"],
            "executions": cells["total"],
            "why nothing fits": cells["reason_text"].fillna(""),
        }
    )
    digits = decimals_for(cells["value"], scale)

    def picked() -> None:
        rows = st.session_state["explore_cells"]["selection"]["rows"]
        if rows:
            state.select_cell(int(shown["TP"].iloc[rows[0]]), int(shown["PP"].iloc[rows[0]]))

    st.dataframe(
        shown, key="explore_cells", on_select=picked, selection_mode="single-row", hide_index=True, height=560,
        column_config={
            name: st.column_config.NumberColumn(format=f"%.{digits}f", help=metric.column.description),
            "feasible": st.column_config.NumberColumn(format="localized"),
            "executions": st.column_config.NumberColumn(format="localized"),
        },
        alt=f"{metric.column.label} of every cell",
    )  # fmt: skip


def _terms(metric: Metric) -> None:
    """What a first-time reader needs to know."""
    st.markdown(
        "**An execution** is one complete way to run the model: how it is divided among the GPUs, what is kept, "
        "recomputed, overlapped and offloaded. **A cell** of the map stands for every execution with the same tensor "
        "and pipeline parallel degrees; it shows the best of them. Click a cell to see that execution and the others."
    )
    lines = []
    for name in ("tensor_par", "pipeline_par", "data_par", "microbatch_size", "activation_recompute",
                 "pipeline_interleaving", "tensor_par_comm_type", "optimizer_sharding"):  # fmt: skip
        column = by_name(name)
        lines.append(f"- **{column.label}** ({column.short}): {literal(column.description)}")
    st.markdown("\n".join(lines))
    st.markdown(f"**{literal(metric.column.label)}**: {literal(metric.column.description)}")
    if metric.formula:
        st.caption(literal(f"{metric.column.label} = {metric.formula}"))
    st.caption(literal(f"MFU = {MFU_FORMULA}, where model FLOP per sample = {FLOPS_FORMULA}"))
    st.caption(literal(f"Total efficiency (not MFU): {by_name('total_efficiency').description}"))
