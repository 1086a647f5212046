"""Worth of one more dollar in each rate and capacity of a design."""

from __future__ import annotations

from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.files.codesign_report import DesignReportQuestion
from dashboard.jobs.design_sensitivity import SensitivityJob, SensitivityQuestion
from dashboard.jobs.server import server
from dashboard.link import state
from dashboard.link.fields import LinkField
from dashboard.widgets.job_card import found_soon
from dashboard.widgets.link_fields import draw_switch
from dashboard.widgets.tables import height_of
from dashboard.words.markdown import literal
from dashboard.words.numbers import plain
from engine.codesign import Results, estimate

__all__ = ["worth_of_more"]

MILLION: Final = 1e6
SEARCHES: Final = 20
"""Searches per model, about: one for each rate and capacity of a system."""


def worth_of_more(found: Results, question: DesignReportQuestion, design: int, field: LinkField) -> None:
    """Draws the gain of a design from ten per cent more of every rate and capacity, once switched on.

    Args:
        found: the computed points.
        question: the question about them.
        design: number of the design.
        field: switch of the link.
    """
    with st.container(border=True, key="codesign_worth"):
        st.html(markup.head("Where to spend more", f"from design {design:,}, in {question.up.label.lower()}"))
        draw_switch(field)
        if not field.value:
            return
        row = found.rows[found.rows["point"] // len(found.study.models) == design]
        if row["status"].isin(["infeasible", "problem"]).any():
            st.markdown("The design does not run, so there is no gain to compute.")
            return
        longest = server().settings.longest_seconds
        if SEARCHES * estimate(found.study, 1).seconds_low / found.study.designs > longest:
            st.info(
                f"It takes longer than the {longest:,.0f} s that this server allows for a search. Run "
                f"shardscape codesign with --sensitivity {design}.",
                icon=":material/block:",
            )
            return
        asked = SensitivityQuestion(found.study, design, question.up.name, question.of, question.at)
        shared, watcher = server(), state.watcher()
        job = shared.board.post(SensitivityJob(shared.design_sensitivity, asked), watcher)
        worth = found_soon(job, SensitivityJob, watcher, lambda one: one.worth)
        if worth is not None:
            _draw_worth(worth, design)


def _draw_worth(worth: pd.DataFrame, design: int) -> None:
    labels = [f"{label} [{unit}]" if unit else label for label, unit in zip(worth["label"], worth["unit"], strict=True)]
    shown = pd.DataFrame(
        {
            "Ten per cent better": labels,
            "From": [plain(each, 4) for each in worth["value"]],
            "To": [plain(each, 4) for each in worth["higher"]],
            "Gain [%]": (100 * worth["gain"]).round(4),
            "Costs [USD]": worth["more"].round(),
            "Gain [%] per million USD": [float(f"{100 * MILLION * each:.4g}") for each in worth["gain_per_usd"]],
        }
    )
    formats = {name: st.column_config.NumberColumn(format="localized") for name in shown.columns[3:]}
    st.dataframe(
        shown,
        hide_index=True,
        column_config=formats,
        height=height_of(len(shown), 420),
        placeholder="–",
        key="codesign_worth_table",
        alt=f"Gain of design {design} from more of each rate and capacity, the best use of money first.",
    )
    if free := [str(label) for label in worth["label"][worth["gain_per_usd"].isna()]]:
        st.caption(literal(f"No price given for {', '.join(free)}: last, without a gain per dollar."))
