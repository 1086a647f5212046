"""All schedules in a table: whether they run with these numbers, their times and memory, and the reasons if not."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.queries.schedules import ScheduleOutcome
from dashboard.widgets.tables import height_of
from dashboard.words.numbers import scale_for

__all__ = ["draw_feasibility", "feasibility_table"]


def feasibility_table(found: Sequence[ScheduleOutcome]) -> pd.DataFrame:
    """Returns a row per schedule: its result, and the frameworks that offer it."""
    first = next((each.step for each in found if each.runs), float("nan"))
    rows = []
    for each in found:
        made = each.found
        rows.append(
            {
                "schedule": each.rule.title,
                "runs": "yes" if each.runs else "too much memory" if each.too_much else "no",
                "step": each.step if made else None,
                "over_best": 100 * (each.step / first - 1) if made else None,
                "idle": 100 * each.idle if made else None,
                "activations": each.peak if made else None,
                "parameters": each.rule.parameter_copies if made else None,
                "messages": sum(made.messages_sent) if made else None,
                "offered": ", ".join(each.rule.frameworks) or "none",
                "why": each.reason or " ".join(made.remarks if made else ()),
            }
        )
    return pd.DataFrame(rows)


def draw_feasibility(found: Sequence[ScheduleOutcome]) -> None:
    """Draws the table."""
    table = feasibility_table(found)
    running = int((table["runs"] == "yes").sum())
    st.html(markup.head("Which schedules run", f"{running} of {len(table)}, the fastest first"))
    scale = scale_for("total_time", table["step"].dropna())
    shown = table.assign(step=table["step"] / scale.factor)
    number = st.column_config.NumberColumn
    st.dataframe(
        shown,
        hide_index=True,
        height=height_of(len(shown), 560),
        placeholder="–",
        key="schedules_table",
        alt="Every schedule with its time, idle share, activations, copies of parameters, messages, and why it does "
        "not run.",
        column_config={
            "schedule": st.column_config.TextColumn("Schedule", width=275),
            "runs": st.column_config.TextColumn("Runs", width=80),
            "step": number(
                f"Step [{scale.unit}]",
                format="%.4g",
                width=80,
                help="Pipeline and the rest of the step; of one rank if spans are counted.",
            ),
            "over_best": number("Over best [%]", format="%.1f", width=90),
            "idle": number("Idle [%]", format="%.1f", width=70, help="Mean over ranks, of the pipeline."),
            "activations": number(
                "Activations",
                format="%.4g",
                width=90,
                help="Most that a rank holds, in those of a rank's whole share of the model for one microbatch.",
            ),
            "parameters": number("Copies", width=70, help="How often each parameter is held."),
            "messages": number("Messages", width=80, help="Between ranks, activations and gradients."),
            "offered": st.column_config.TextColumn("Offered by", width=170),
            "why": st.column_config.TextColumn("Reason or remark", width=520),
        },
    )
