"""The operations of one block by the calibrated cost model: table and roofline."""

from __future__ import annotations

from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.roofline import Roofs, roofline
from dashboard.widgets.controls import segments, show
from dashboard.words.executions import microbatches
from dashboard.words.numbers import ABSENT, counted, format_value
from engine import Exploration, Scenario
from engine.columns import fields_of
from engine.cost_models.calibrated import Case, model_shapes, parameters_of
from engine.cost_models.calibrated.operation_columns import OPERATION_COLUMNS, Shown, shown
from engine.cost_models.calibrated.operation_table import case_of_execution
from engine.cost_models.calibrated.physics.operations import (
    BLOCKS,
    Limits,
    block_operations,
    blocks_of,
    limits,
    summarised,
)

__all__ = ["case_of_row", "layers"]

_UNIT_ALONE: Final = ("flops", "mem_accessed", "arithmetic_intensity", "rate")
"""Columns whose unit says what they are."""


def case_of_row(scenario: Scenario, row: dict[str, Any]) -> Case:
    """What the cost model reads of one execution."""
    return case_of_execution(
        scenario.model, scenario.system, {column.name: row[column.name] for column in fields_of("calibrated")}
    )


@st.cache_data(show_spinner=False, max_entries=64)
def _operations(_scenario: Scenario, key: str, row: dict[str, Any], kind: str) -> tuple[pd.DataFrame, Limits]:
    case, values = case_of_row(_scenario, row), parameters_of(_scenario.used_calibration)
    most = limits(case, values)
    return summarised(block_operations(case, values, kind), most), most


def layers(exploration: Exploration, row: dict[str, Any], mode: str) -> None:
    """Table and roofline side by side."""
    scenario = exploration.scenario
    left, right = st.columns([1.45, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        number = counted(microbatches(row), "microbatch")
        st.html(markup.head("Operations of one block", f"on one GPU, for one of {number}"))
        kinds = blocks_of(model_shapes(scenario.model))
        choices = {each: BLOCKS[each] for each in kinds}
        kind = segments("Block", choices, "execution_block") if len(kinds) > 1 else kinds[0]
        found, most = _operations(scenario, scenario.key, row, kind)
        _table(found)
        st.caption(
            "Without what the backward pass computes again and without waiting for kernel launches. Communication "
            "counts with what nothing hides of it. Formulas: `engine.cost_models.calibrated.physics`, in "
            "gemm, attention, elementwise, experts and collectives."
        )
    with right.container(border=True, gap="xsmall", height="stretch"):
        datatype = format_value("datatype", str(row["datatype"]))
        st.html(markup.head("Roofline", f"linear layers on one GPU, {datatype}; area is time"))
        roofs = Roofs(most.peak, most.sustained, most.memory_peak, ("peak", "sustained"))
        show(roofline(found, roofs, mode), "execution_roofline")
        if str(row["attention_kernel"]) != "unfused":
            st.caption(
                "The fused attention core keeps its scores on chip, so it has no bytes to be drawn at. All else that "
                "is not in the plot is traffic of memory or network."
            )


def _table(found: pd.DataFrame) -> None:
    headers = {each.column.name: _header(each) for each in OPERATION_COLUMNS}
    table = pd.DataFrame({
        headers[each.column.name]: found[each.column.name] if each.column.dtype == "str"
        else found[each.column.name] / each.size
        for each in OPERATION_COLUMNS
    })  # fmt: skip
    times = "%,.0f" if max(found["fw_time"].max(), found["bw_time"].max()) > 1e-3 else "%,.1f"
    widths = {"label": 142, "fw_time": 62, "bw_time": 62, "flops": 60, "mem_accessed": 58, "arithmetic_intensity": 62,
              "rate": 66, "bound": 72}  # fmt: skip
    config: dict[str, Any] = {
        headers[name]: st.column_config.NumberColumn(
            format=times if name.endswith("time") else "%,.0f", width=width, help=shown(name).column.description
        )
        for name, width in widths.items()
    }
    for name in ("label", "bound"):
        config[headers[name]] = st.column_config.TextColumn(
            width=widths[name], help=None if name == "label" else shown(name).column.description
        )
    share = headers["share"]
    config[share] = st.column_config.ProgressColumn(
        format="%.1f %%", min_value=0, max_value=float(table[share].max()), width=96,
        help=shown("share").column.description,
    )  # fmt: skip
    st.dataframe(
        table, hide_index=True, height="content", row_height=28, key="execution_layers", placeholder=ABSENT,
        alt=f"The {len(table)} operations of a block with their times, work, bytes and what bounds them",
        column_config=config,
    )  # fmt: skip


def _header(each: Shown) -> str:
    """A header as narrow as its column."""
    name = each.column.name
    if name in _UNIT_ALONE:
        return each.unit
    if name == "label":
        return each.column.label
    return f"{each.column.short}, {each.unit}" if name.endswith("time") else each.column.short
