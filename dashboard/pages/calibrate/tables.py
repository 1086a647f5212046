"""Tables of the Calibrate page: every run with its use, the parameters, and the executions in their new order."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.accuracy.calibration import Moved
from dashboard.charts.elements import markup
from dashboard.widgets.tables import ROW, height_of, signed
from dashboard.words.measured_runs import assumed
from dashboard.words.numbers import format_value, percent, plain, signed_percent
from engine.calibrate import CalibrationOutcome, CheckedRuns, ParameterEstimate, Parameters, Reranked, adjustable
from engine.columns import by_name
from engine.executions.execution_names import execution_name

__all__ = ["draw_order", "draw_parameters", "draw_runs", "draw_template_fields", "parameter_labels", "parameter_moves"]

LISTED: Final = 1_000
ORDERED: Final = 50
SHORT: Final = 9
"""Rows up to which the table of runs is shown whole."""


def _number_column(label: str, form: str | None, width: int, help_text: str = "") -> Any:
    return st.column_config.NumberColumn(label, format=form, width=width, help=help_text or None)


def _given_id(text: str) -> str:
    """Return the id of a run; empty if the reader made it from the row's number."""
    return "" if text.removeprefix("row-").isdecimal() and text.startswith("row-") else text


def draw_runs(checked: CheckedRuns, outcome: CalibrationOutcome | None) -> None:
    """Draws every run: whether it is used, the reason if refused, missing fields, and assumptions."""
    accepted = checked.accepted
    refused = int((~accepted).sum())
    many = f"{len(accepted):,} run{'s' if len(accepted) != 1 else ''}"
    st.html(markup.head("Which runs are used", f"{many}, {refused:,} refused" if refused else f"{many}, none refused"))
    nothing = np.full(len(accepted), np.nan)
    before = nothing if outcome is None else outcome.predicted_before / checked.measured - 1
    after = nothing if outcome is None else outcome.predicted_unseen / checked.measured - 1
    fitted = nothing if outcome is None else outcome.predicted_after / checked.measured - 1
    why = [
        str(checked.reason_text[row]) if not accepted[row] else str(checked.remarks[row])
        for row in range(len(accepted))
    ]
    shown = pd.DataFrame(
        {
            "run": list(checked.labels),
            "id": [_given_id(str(text)) for text in checked.table["id"]],
            "used": np.where(accepted, "used", "refused"),
            "why": why,
            "missing": [", ".join(names) for names in checked.missing],
            "model": checked.table["model"].where(checked.table["model"] != "", checked.table["id"]),
            "measured": checked.measured,
            "before": 100 * before,
            "after": 100 * after,
            "fitted": 100 * fitted,
            "assumed": [
                assumed(str(text)) if used else ""
                for text, used in zip(checked.mapped.assumptions, accepted, strict=True)
            ],
        }
    )
    empty = [name for name in ("id", "why", "missing", "assumed") if (shown[name] == "").all()]
    shown = shown.drop(columns=[*empty, *(name for name in ("before", "after", "fitted") if shown[name].isna().all())])
    # Refused runs come first: the user has to mend them.
    shown = shown.iloc[np.argsort(accepted, kind="stable")]
    st.dataframe(
        signed(shown.head(LISTED), ("before", "after", "fitted")),
        hide_index=True,
        key="calibrate_runs",
        height="content" if len(shown) <= SHORT else 360,
        placeholder="–",
        alt=f"{many}, {refused:,} of them refused, with the reason of each.",
        column_config={
            "run": st.column_config.TextColumn("Run", width=110, help="Row below the header, from 1; or the log"),
            "id": st.column_config.TextColumn("Id", width=110, help="As the table has it."),
            "used": st.column_config.TextColumn("Used", width=70),
            "why": st.column_config.TextColumn("Reason or remark", width=360),
            "missing": st.column_config.TextColumn("Missing", width=130, help="Needed fields that the run lacks"),
            "model": st.column_config.TextColumn("Model", width=150),
            "measured": _number_column("Measured, s", "%.3f", 94),
            "before": _number_column("Before, %", None, 80, "Predicted over measured, before the fit"),
            "after": _number_column("Unseen, %", None, 84, "Predicted over measured, by a fit that left the run out"),
            "fitted": _number_column("Fitted, %", None, 80, "Predicted over measured, by the fit to all runs"),
            "assumed": st.column_config.TextColumn("Assumed", width=300, help="Values that the run does not state"),
        },
    )
    if len(shown) > LISTED:
        st.caption(f"The first {LISTED:,} of {len(shown):,}, refused ones first.")


def _format_parameter(value: float, unit: str) -> str:
    return format_value("total_time", value) if unit == "s" else plain(value)


def parameter_moves(estimates: tuple[ParameterEstimate, ...]) -> list[Moved]:
    """Return the estimates as rows of the chart."""
    return [
        Moved(
            item.about.label,
            item.value / item.prior,
            (item.prior_range[0] / item.prior, item.prior_range[1] / item.prior),
            (item.value_range[0] / item.prior, item.value_range[1] / item.prior),
            f"{_format_parameter(item.prior, item.about.unit)} before, "
            f"{_format_parameter(item.value, item.about.unit)} after",
        )
        for item in estimates
    ]


def draw_parameters(outcome: CalibrationOutcome) -> None:
    """Draws each parameter before and after the fit."""
    rows = [
        {
            "parameter": item.about.label,
            "before": _format_parameter(item.prior, item.about.unit),
            "after": _format_parameter(item.value, item.about.unit),
            "change": signed_percent(item.value / item.prior - 1),
            "range": " to ".join(_format_parameter(end, item.about.unit) for end in item.value_range),
            "learned": percent(item.learned, 0),
            "meaning": item.about.meaning,
        }
        for item in outcome.estimates
    ]
    texts = {
        "parameter": ("Parameter", 160, None),
        "before": ("Before", 74, "The calibration that the fit starts from"),
        "after": ("After", 74, None),
        "change": ("Change", 70, None),
        "range": ("90 % range", 130, "Holds the value with 90 % probability, if errors are independent"),
        "learned": ("From runs", 76, "Share of the prior uncertainty that the runs removed"),
        "meaning": ("Meaning", 300, None),
    }
    st.dataframe(
        pd.DataFrame(rows),
        hide_index=True,
        key="calibrate_values",
        height="content",
        alt=f"{len(rows)} fitted parameters, before and after.",
        column_config={
            name: st.column_config.TextColumn(label, width=width, help=told)
            for name, (label, width, told) in texts.items()
        },
    )


def draw_order(ranked: Reranked) -> None:
    """Draws the best executions in their new order."""
    table = ranked.distinct.head(ORDERED)
    shown = pd.DataFrame(
        {
            "rank": table["rank_after"],
            "was": table["rank_before"],
            "execution": [execution_name(row) for row in table.to_dict("records")],
            "microbatch": table["microbatch_size"],
            "before": table["rate_before"],
            "after": table["rate_after"],
            "step_before": table["step_before"],
            "step": table["step_after"],
            "alike": table["alike"],
        }
    )
    rate = by_name("sample_rate").label
    st.dataframe(
        shown,
        hide_index=True,
        key="calibrate_order",
        height=height_of(len(shown), 260),
        row_height=ROW,
        alt=f"The best {len(shown)} executions by the new calibration, with their rank before.",
        column_config={
            "rank": _number_column("Rank", "%d", 60),
            "was": _number_column("Was", "%d", 60, "Rank before the fit"),
            "execution": st.column_config.TextColumn("Execution", width=230),
            "microbatch": _number_column("Microbatch", "%d", 90),
            "before": _number_column("Samples/s before", "%.4g", 126, f"{rate} before the fit"),
            "after": _number_column("Samples/s after", "%.4g", 120, f"{rate} after the fit"),
            "step_before": _number_column("Step before, s", "%.4g", 110),
            "step": _number_column("Step after, s", "%.4g", 110),
            "alike": _number_column("Alike", "%d", 70, "Executions of these degrees with the same rates, shown as one"),
        },
    )


def draw_template_fields(fields: dict[str, str]) -> None:
    """Draws the meaning of each column of the template."""
    st.dataframe(
        pd.DataFrame({"field": list(fields), "meaning": list(fields.values())}),
        hide_index=True,
        height=240,
        key="calibrate_fields",
        alt=f"{len(fields)} fields of a run, and the meaning of each.",
        column_config={
            "field": st.column_config.TextColumn("Field", width=150),
            "meaning": st.column_config.TextColumn("Meaning", width=380),
        },
    )


def parameter_labels(checked: CheckedRuns, start: Parameters) -> dict[str, str]:
    """Returns names and labels of the parameters that may be chosen."""
    return {name: one.label for name, one in adjustable(checked.system, start).items()}
