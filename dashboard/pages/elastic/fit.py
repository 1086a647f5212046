"""Fit of a card's seven parameters to profiled runs, with its warnings, and Table 2."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.elastic.answers import answer_later
from dashboard.pages.elastic.cards import keep_card
from dashboard.pages.elastic.link import OWN, PAGE_NAME, FitLink
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.link_fields import draw_choice, draw_decimal
from dashboard.widgets.own_table import KEPT, NO_TABLE, OwnTable, draw_own_table, parse_own_table
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, plain
from engine.planners import elastic
from engine.planners.elastic.cards import PARAMETERS, changed_card
from engine.planners.elastic.fitting import BOUNDS
from engine.planners.elastic.measured.profiles import COLUMNS, profile_names, profile_table
from engine.questions.documents.elastic import ProfileFitQuestion
from engine.questions.elastic_fits import FittedProfile, find_environment
from engine.reproductions.rubick.table_2 import NOTES, table_2, table_2_cases, table_2_models

__all__ = ["FitView", "draw_fit", "parse_fit"]

MOST_MEGABYTES: Final = 1
_RUNS: Final = {
    "gpus": "GPUs",
    "cpu_threads": "CPU threads",
    "zero": "ZeRO kind",
    "iteration_ms": "measured, ms",
    "predicted_iteration_ms": "predicted, ms",
    "in_sample_pct": "error in the fit, %",
    "held_out_pct": "error left out, %",
    "overlap_sync_error_pct": "gradients, %",
    "optimize_error_pct": "optimizer, %",
}
_FOUND: Final = {"name": "parameter", "value": "value", "least": "least", "most": "most", "remark": "remark"}
_TABLE_2: Final = {
    "model": "model",
    "plan": "plans",
    "avg_pct": "mean error, %",
    "max_pct": "largest, %",
    "cases": "cases",
}


@dataclass(frozen=True, slots=True)
class FitView:
    """Part of the link about a fit."""

    profile: LinkField
    onto: LinkField
    rates: Mapping[str, LinkField]
    """Bandwidths of the node, of the user's own profile."""
    own: OwnTable
    question: ProfileFitQuestion | None
    """None until the user's own profile is uploaded, or with a problem."""


def parse_fit(mode: str) -> FitView:
    """Parse this part of the link. mode: "light" or "dark"; unused."""
    page, asked = LinkReader(FitLink, PAGE_NAME), LinkReader(ProfileFitQuestion, PAGE_NAME)
    titles = {name: table_2_models()[name].title for name in profile_names()}
    name = page.read("profile", default=next(iter(titles)), options={**titles, OWN: "My profile"})
    cards = {each: elastic.load_card(each).title for each in elastic.card_names()}
    page.read("onto", default=next(iter(cards)), options=cards)
    own = NO_TABLE
    question = None
    if name == OWN:
        asked.read("pcie", default=8.0, most=10_000)
        asked.read("nvlink", default=50.0, most=10_000)
        own = parse_own_table("elastic_own_profile", "profile", profile_table)
        question = None if own.text is None else asked.build(profile=own.text, held_out=True)
    else:
        question = asked.build(profile=name, held_out=True)
    return FitView(page.fields["profile"], page.fields["onto"], asked.fields, own, question)


def draw_fit(view: FitView) -> None:
    """Draw the fit of a profile, and Table 2.

    Raises `engine.planners.contract.PlanError` for input that cannot be read.
    """
    _draw_inputs(view)
    asked = view.question
    if asked is None:
        view.own.require()
        st.info("Upload a profile of runs, or take one of the artifact’s.", icon=":material/upload_file:")
    else:
        found = answer_later(asked, "Fitting", "seven parameters, many starts")
        if isinstance(found, FittedProfile) and found.held_out is not None:
            _draw_fitted(found, found.held_out, view, asked)
    with st.container(border=True, gap="xsmall"):
        mean = plain(float(table_2_cases()["error_pct"].mean()), 3)
        st.html(markup.head("Table 2", f"the artifact’s check of its fits: mean error {mean} % of 99 cases"))
        worded(table_2(), _TABLE_2, "elastic_table_2", "Mean and largest error of each model and class of plans.")
        st.markdown(literal(" ".join(NOTES)))


def _draw_inputs(view: FitView) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        draw_choice(view.profile, width=210)
        if view.profile.value != OWN:
            return
        draw_decimal(view.rates["pcie"], label="To the host, MiB/ms", width=170)
        draw_decimal(view.rates["nvlink"], label="In the node, MiB/ms", width=170)
        with st.popover("Profile", icon=":material/upload_file:", help="Profiled runs of one node."):
            columns = ", ".join(f"`{column}`" for column in COLUMNS)
            st.markdown(
                f"CSV with a row per run: {columns}. `zero` is 0 for plain data parallelism, 1 for ZeRO-Offload, 2 for "
                f"ZeRO-DP; the factors are 2 for a forward pass done twice, else 1. {KEPT}"
            )
            draw_own_table("Profile (CSV)", "elastic_own_profile", MOST_MEGABYTES, profile_table)


def _draw_fitted(found: FittedProfile, held_out: pd.DataFrame, view: FitView, asked: ProfileFitQuestion) -> None:
    made = found.fit
    runs = held_out.merge(
        made.table.drop(columns=["gpus", "cpu_threads", "zero", "iteration_ms"]), left_index=True, right_index=True
    )
    inside, outside = (float(runs[name].abs().mean()) for name in ("in_sample_pct", "held_out_pct"))
    st.html(
        markup.figure_strip(
            [
                markup.Tile("Objective", plain(made.objective, 3), f"{counted(len(made.starts), 'start')}"),
                markup.Tile("Error in the fit", f"{plain(inside, 3)} %", f"mean of {counted(len(runs), 'run')}"),
                markup.Tile("Error of runs left out", f"{plain(outside, 3)} %", "each in turn"),
                markup.Tile("At a bound", str(len(made.at_bound)), ", ".join(made.at_bound) or "none of seven"),
            ]
        )
    )
    for warning in (*found.notes, *made.warnings):
        st.markdown(literal(warning))
    left, right = st.columns([1, 1.4], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Parameters", "times in ms, sizes in Mi parameters"))
        values = made.parameters.model_dump()
        rows = pd.DataFrame(
            {
                "name": PARAMETERS,
                "value": [float(values[name]) for name in PARAMETERS],
                "least": [low for low, _ in BOUNDS],
                "most": [float("nan") if high == float("inf") else high for _, high in BOUNDS],
                "remark": [_describe_parameter(name, made.at_bound, made.unused) for name in PARAMETERS],
            }
        )
        worded(rows, _FOUND, "elastic_parameters", "The seven parameters with their bounds.")
        _draw_use(found, view, asked)
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Every run", "its error with the run in the fit, and with it left out"))
        worded(runs, _RUNS, "elastic_fitted", "Every run with its prediction.")
    downloads({"Parameters": rows, "Runs": runs, "Table 2": table_2()}, "elastic_fit")


def _describe_parameter(name: str, at_bound: tuple[str, ...], unused: tuple[str, ...]) -> str:
    return "not determined by the runs" if name in unused else "at a bound" if name in at_bound else ""


def _draw_use(found: FittedProfile, view: FitView, asked: ProfileFitQuestion) -> None:
    """Draw a button that puts the parameters on a card."""
    draw_choice(view.onto, width=210)
    if not was_clicked("Use as my card", icon=":material/check:", key="elastic_use_fit"):
        return
    environment = find_environment(asked)
    changes = {"performance": found.fit.parameters.model_dump(), "environment": environment.model_dump()}
    card = elastic.load_card(view.onto.value)
    keep_card(changed_card(card, changes), card.name)
    st.rerun()
