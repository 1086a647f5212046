"""The parts of an execution's step, finer than in the waterfall, and the sustained rates that they use."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.pages.execution.accounts import account_of
from dashboard.words.numbers import format_value, percent, plain
from engine import Exploration
from engine.cost_models.registry import cost_model_of

__all__ = ["parts_of_step"]


def parts_of_step(exploration: Exploration, row: dict[str, Any]) -> None:
    """Draws the parts of the step, finer than in the waterfall, and the sustained rates that they use."""
    scenario = exploration.scenario
    cost_model, parts = cost_model_of(scenario), account_of(scenario, row).parts()
    if not parts:
        return
    left, right = st.columns([1.45, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Parts of the step", "the slowest stage; every term of the cost model"))
        shown = pd.DataFrame(
            {
                "Part": [part.name for part in parts],
                "time": [format_value("total_time", part.seconds) for part in parts],
                "share": [100.0 * part.seconds / float(row["total_time"]) for part in parts],
                "Meaning": [part.what for part in parts],
                "module": [part.source for part in parts],
            }
        )
        st.dataframe(
            shown,
            hide_index=True,
            height="content",
            row_height=28,
            key="execution_parts_of_step",
            alt=f"The {len(shown)} parts of the step with their times and shares",
            column_config={
                "Part": st.column_config.TextColumn(width=136),
                "time": st.column_config.TextColumn(width=58),
                "share": st.column_config.ProgressColumn(
                    format="%.1f %%", min_value=0, max_value=max(1.0, float(shown["share"].max())), width=86
                ),
                "Meaning": st.column_config.TextColumn(width=318),
                "module": st.column_config.TextColumn(
                    help="Module of the cost model that has the formula and its source.", width=86
                ),
            },
        )
    rates = cost_model.sustained_rates(scenario.system, scenario.calibration)
    if not rates:
        return
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Sustained rates of a GPU", f"calibration {scenario.used_calibration.name}"))
        table = pd.DataFrame(
            {
                "Rate": [rate.name for rate in rates],
                "peak": [_format_rate(rate.peak, rate.unit) for rate in rates],
                "sustained": [_format_rate(rate.sustained, rate.unit) for rate in rates],
                "share": [percent(rate.share, 0) for rate in rates],
                "label": [rate.provenance for rate in rates],
            }
        )
        about = st.column_config.TextColumn
        st.dataframe(
            table,
            hide_index=True,
            height="content",
            row_height=28,
            key="execution_rates",
            alt="Peak and sustained rates of one GPU, and their basis",
            column_config={
                "peak": about(help="From the datasheet."),
                "sustained": about(help="Rate of long operations by the calibration."),
                "share": about(help="Sustained rate over peak."),
                "label": about(
                    help="Basis of the sustained rate: fitted to measured runs, measured by a "
                    "benchmark, or stated without either."
                ),
            },
        )
        st.caption("Rates of long operations; short ones reach less. The Library page has the source of each.")


def _format_rate(value: float, unit: str) -> str:
    """Return a rate with its unit: "676 TFLOP/s", "2.75 TB/s"."""
    if unit == "FLOP/s":
        return f"{format_value('useful_flops', value)}/s"
    return format_value("offload_mem_bw_req", value) if unit == "bytes/s" else f"{plain(value)} {unit}"
