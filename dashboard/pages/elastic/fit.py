"""Fit of a card's seven parameters to profiled runs, with its warnings, and Table 2."""

from __future__ import annotations

import hashlib
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.jobs.elastic_plans import FitQuestion, Fitted
from dashboard.pages.elastic.answers import answered
from dashboard.pages.elastic.cards import keep_card
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.widgets.controls import choose
from dashboard.widgets.link_numbers import whole_in_link
from dashboard.widgets.own_table import KEPT, own_table
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, plain
from engine.planners import elastic
from engine.planners.elastic.cards import PARAMETERS, Environment, changed_card
from engine.planners.elastic.fitting import BOUNDS
from engine.planners.elastic.measured.profiles import COLUMNS, profile_names, profile_table
from engine.reproductions.rubick.table_2 import NOTES, table_2, table_2_cases, table_2_models

__all__ = ["fit"]

OWN: Final = "own"
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


def fit(mode: str) -> None:
    """Draws the fit of a profile.

    Args:
        mode: "light" or "dark"; unused.

    Raises `engine.planners.contract.PlanError` for input that cannot be read.
    """
    asked = _ask_fit()
    if asked is None:
        st.info("Upload a profile of runs, or take one of the artifact’s.", icon=":material/upload_file:")
    else:
        told = hashlib.sha256(asked.profile.encode()).hexdigest()
        found = answered(asked, ("fit", told, asked.pcie, asked.nvlink), "Fitting", "seven parameters, many starts")
        if isinstance(found, Fitted):
            _draw_fitted(found, asked)
    with st.container(border=True, gap="xsmall"):
        mean = plain(float(table_2_cases()["error_pct"].mean()), 3)
        st.html(markup.head("Table 2", f"the artifact’s check of its fits: mean error {mean} % of 99 cases"))
        worded(table_2(), _TABLE_2, "elastic_table_2", "Mean and largest error of each model and class of plans.")
        st.markdown(literal(" ".join(NOTES)))


def _ask_fit() -> FitQuestion | None:
    titles = {name: table_2_models()[name].title for name in profile_names()}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        name = choose("Profile", {**titles, OWN: "My profile"}, "elastic_profile", width=210)
        if name != OWN:
            known = table_2_models()[name].environment
            return FitQuestion(name, known.pcie, known.nvlink)
        pcie = whole_in_link("elastic_pcie", "To the host", 8, 10_000, "Between GPU and host [MiB/ms, about GiB/s].")
        nvlink = whole_in_link("elastic_nvlink", "In the node", 50, 10_000, "Between GPUs of a node [MiB/ms].")
        with st.popover("Profile", icon=":material/upload_file:", help="Profiled runs of one node."):
            columns = ", ".join(f"`{column}`" for column in COLUMNS)
            st.markdown(
                f"CSV with a row per run: {columns}. `zero` is 0 for plain data parallelism, 1 for ZeRO-Offload, 2 for "
                f"ZeRO-DP; the factors are 2 for a forward pass done twice, else 1. {KEPT}"
            )
            text = own_table("Profile (CSV)", "elastic_own_profile", "profile", MOST_MEGABYTES, profile_table)
    return None if text is None else FitQuestion(text, float(pcie), float(nvlink))


def _draw_fitted(found: Fitted, asked: FitQuestion) -> None:
    made = found.fit
    runs = found.held_out.merge(
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
        _draw_use(found, asked)
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Every run", "its error with the run in the fit, and with it left out"))
        worded(runs, _RUNS, "elastic_fitted", "Every run with its prediction.")
    downloads({"Parameters": rows, "Runs": runs, "Table 2": table_2()}, "elastic_fit")


def _describe_parameter(name: str, at_bound: tuple[str, ...], unused: tuple[str, ...]) -> str:
    return "not determined by the runs" if name in unused else "at a bound" if name in at_bound else ""


def _draw_use(found: Fitted, asked: FitQuestion) -> None:
    """Draw a button that puts the parameters on a card."""
    titles = {name: elastic.load_card(name).title for name in elastic.card_names()}
    name = choose("On the card", titles, "elastic_onto", width=210)
    if not st.button("Use as my card", icon=":material/check:", key="elastic_use_fit"):
        return
    environment = Environment(pcie=asked.pcie, nvlink=asked.nvlink)
    changes = {"performance": found.fit.parameters.model_dump(), "environment": environment.model_dump()}
    card = elastic.load_card(name)
    keep_card(changed_card(card, changes), card.name)
    st.rerun()
