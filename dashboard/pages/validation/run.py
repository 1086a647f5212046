"""One measured run: the parts of its predicted step, the accuracy of the prediction, and its assumptions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.accuracy.measured import step_parts
from dashboard.charts.elements import markup
from dashboard.charts.elements.template import Chart
from dashboard.pages.validation.queries import PredictedRuns, interval_of
from dashboard.widgets.chart import show
from dashboard.words.markdown import literal
from dashboard.words.measured_runs import assumed, noted
from dashboard.words.numbers import format_value, gibibytes, percent, signed_percent
from hardware import GIB

__all__ = ["draw_run", "layout_words"]

DEGREES: Final = (("TP", "tp"), ("PP", "pp"), ("DP", "dp"), ("CP", "cp"), ("EP", "ep"), ("v", "vpp"), ("mb", "mbs"))


def layout_words(row: pd.Series[Any] | dict[str, Any]) -> str:
    """Returns the degrees of a run in one line; degrees of 1 are left out except for TP, PP and DP."""
    parts = []
    for short, name in DEGREES:
        value = float(row[name])
        if np.isfinite(value) and (value > 1 or name in ("tp", "pp", "dp")):
            parts.append(f"{short} {value:,.0f}")
    return " · ".join(parts)


def draw_run(checked: PredictedRuns, chosen: int | None, mode: str) -> None:
    """Draws the card of a run."""
    if chosen is None:
        st.caption("No run here has both a prediction and a measured time.")
        return
    row = checked.rows.iloc[chosen - 1]
    title = str(row["model"])[:60] or str(row["id"])[:60]
    st.html(markup.head(title, f"{str(row['hardware'])[:40]} × {row['num_gpus']:,.0f}"))
    facts = [
        ("source", str(row["source"])[:70]),
        ("layout", layout_words(row)),
        ("batch", f"{row['gbs']:,.0f}"),
        ("sequence", f"{row['seq_len']:,.0f}"),
        ("id", str(row["id"])[:70]),
    ]
    st.html(markup.chips([(name, told) for name, told in facts if told]))
    if row["status"] != "predicted":
        st.caption(f"Not predicted: {literal(str(row['reason_text'])[:400])}")
        return
    memory = row["predicted_mem_gib"] * GIB
    st.html(
        markup.facts(
            [
                ("measured", format_value("total_time", row["measured_step_time_s"])),
                ("calibrated", format_value("total_time", row["predicted_step_time_s"])),
                ("error", signed_percent(row["error"])),
            ]
        )
        + markup.facts(
            [
                ("HBM, measured", gibibytes(row["measured_mem_gib"] * GIB)),
                ("HBM, modelled", gibibytes(memory)),
                ("error", signed_percent(row["memory_error"])),
            ]
        )
    )
    chart, remarks = _parts_and_remarks(checked, checked.key, chosen, mode)
    show(chart, "validation_parts")
    st.caption(remarks)


@st.cache_resource(show_spinner=False, max_entries=64)
def _parts_and_remarks(_checked: PredictedRuns, key: str, chosen: int, mode: str) -> tuple[Chart, str]:
    """Return the chart of the predicted step's parts, and the remarks on its accuracy."""
    row = _checked.rows.iloc[chosen - 1]
    parts = {str(name): value for name, value in _checked.parts.iloc[chosen - 1].items() if name != "id"}
    return step_parts(parts, float(row["measured_step_time_s"]), mode), _describe_accuracy(row)


def _describe_software(rule: object) -> str:
    """Return the software whose facts fill the gaps of a run."""
    return "current frameworks" if rule == "default" else literal(str(rule))


def _describe_accuracy(row: pd.Series[Any]) -> str:
    """Return the accuracy and the assumptions of the prediction, as sentences."""
    words = []
    around = interval_of(row)
    if around is not None:
        low, high = (
            format_value("total_time", factor * row["predicted_step_time_s"]) for factor in (around.low, around.high)
        )
        words.append(
            f"With the errors of other sources, {percent(around.share, 0)} of runs take {low} to {high}: "
            f"{literal(around.rests_on)}. {around.held_words}"
        )
    words.append(f"Missing software settings: as usual for {_describe_software(row['software_rule'])}.")
    if row["assumptions"]:
        words.append(f"Assumed: {literal(assumed(str(row['assumptions'])[:300]))}.")
    if row["notes"]:
        words.append(f"Note of the source: {literal(noted(str(row['notes']), 300))}")
    return " ".join(words)
