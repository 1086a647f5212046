"""The What-if page's table: each change alone and all together, for several models and numbers of GPUs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd
import streamlit as st

from dashboard.charts.elements.advice import rows_table
from dashboard.charts.elements.markup import head
from dashboard.widgets.job_card import job_card
from dashboard.widgets.link_fields import draw_list
from dashboard.words.changes import described
from dashboard.words.numbers import ABSENT, count, plain, signed_percent
from engine.recommendation import TabulatedChange
from engine.recommendation.change_tables import TOGETHER

if TYPE_CHECKING:
    from dashboard.pages.whatif.board import WhatIfBoard

__all__ = ["MOST_CHOSEN", "card", "change_rows"]

MOST_CHOSEN = 6
"""Other models or sizes of one table on the page; the command takes more."""


def card(board: WhatIfBoard) -> None:
    """Draws the card."""
    st.html(head("Each change alone, and all together"))
    if not board.changes:
        st.caption("Change something: the table then has every change by itself, also for other models and sizes.")
        return
    first, second = st.columns(2, gap="medium")
    with first:
        draw_list(board.view.fields["table_models"], most=MOST_CHOSEN)
    with second:
        draw_list(board.view.fields["table_sizes"], most=MOST_CHOSEN)
    run = board.table
    if run is None:
        st.caption("One change of one model at one size is the answer above; add a change, a model or a size.")
        return
    rows: list[TabulatedChange] = list(run.found)
    role = board.view.figures.question.figures_of
    headers = ("Model", "GPUs", "Change", "Before", "After", "Gain", "Fixed layout", "Fastest gains", f"{role} after")
    st.html(
        rows_table(
            [each[:1].upper() + each[1:] for each in headers], (_cells(board, row) for row in rows), texts=(0, 2, 8)
        )
    )
    job_card(run, mark="table")
    remarks = dict.fromkeys(row.remark for row in rows if row.remark)
    st.caption(
        f"Throughput of the {role} execution before and after, samples/s; the largest batch is the scenario's "
        f"everywhere.{''.join(f' {each}' for each in remarks)}"
    )


def change_rows(board: WhatIfBoard) -> pd.DataFrame:
    """Returns the rows so far as a table for files."""
    return pd.DataFrame(
        [
            {
                "model": row.model,
                "num_procs": row.num_procs,
                "parameters": " ".join(row.parameters),
                "change": row.label,
                "before [samples/s]": row.before,
                "after [samples/s]": row.after,
                "gain": row.gain,
                "kept_gain": row.kept_gain,
                "fastest_gain": row.fastest_gain,
                "execution": row.execution,
                "figures_of": row.figures_of,
                "remark": row.remark,
                "problem": row.problem,
            }
            for row in (board.table.found if board.table is not None else ())
        ]
    )


def _cells(board: WhatIfBoard, row: TabulatedChange) -> tuple[str, ...]:
    change = TOGETHER
    if len(row.parameters) == 1:
        change = ", ".join(described(board.scenario, {name: board.changes[name] for name in row.parameters}))
    gains = (_signed(gain) for gain in (row.gain, row.kept_gain, row.fastest_gain))
    rates = (_rate(rate) for rate in (row.before, row.after))
    return (row.model, count(row.num_procs), change, *rates, *gains, row.problem or row.execution)


def _rate(value: float) -> str:
    return ABSENT if math.isnan(value) else plain(value)


def _signed(gain: Any) -> str:
    return ABSENT if math.isnan(gain) else signed_percent(gain)
