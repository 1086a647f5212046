"""Predictions beside measurements: the performance model as published and as calibrated, run by run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.elastic import measured_and_predicted
from dashboard.pages.elastic.bases import against
from dashboard.pages.elastic.cards import ChosenCard, ask_for_card, chosen_card
from dashboard.pages.elastic.one_job import VARIANTS
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.widgets.chart import show
from dashboard.widgets.controls import segments
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, plain
from engine.planners.contract import PlanError
from engine.planners.elastic.accuracy import by_class, ranking
from engine.planners.elastic.plan_names import with_plan_titles

__all__ = ["accuracy"]

RUNS: Final = {"all": "All runs", "one": "On one node", "3d": "With degrees"}
_RANKING: Final = {
    "placement": "placement",
    "cpu_threads": "CPU threads",
    "plans": "plans",
    "best_measured": "fastest measured",
    "best_predicted": "picked",
    "regret_pct": "slower by, %",
    "mean_error_pct": "mean error, %",
    "worst_error_pct": "largest, %",
    "spearman": "rank correlation",
}
_CLASSES: Final = {
    "variant": "model",
    "plan_class": "plans",
    "avg_pct": "mean error, %",
    "max_pct": "largest, %",
    "cases": "runs",
}
_ROWS: Final = {
    "variant": "model",
    "plan": "plan",
    "placement": "placement",
    "measured_ms": "measured, ms",
    "predicted_ms": "predicted, ms",
    "error_pct": "error, %",
    "reason": "why it would not run",
}


def accuracy(mode: str) -> None:
    """Draws predictions of both variants next to a card's measured runs.

    Args:
        mode: "light" or "dark".

    Raises `engine.planners.contract.PlanError` if the card has no measurements.
    """
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        chosen = chosen_card()
        runs = segments("Runs", RUNS, "elastic_runs")
    if chosen is None:
        ask_for_card()
        return
    rows, absent = _compare_variants(chosen, runs)
    for sentence in absent:
        st.markdown(literal(sentence))
    st.html(markup.figure_strip(_error_tiles(rows)))
    left, right = st.columns([1.25, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("Measured and predicted iterations", "on the dotted line they are equal"))
        chart = measured_and_predicted({name: with_plan_titles(each) for name, each in rows.items()}, mode)
        show(chart, "elastic_accuracy")
        st.markdown(literal(chart.alt))
    with right.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head("By class of plans", "error without sign"))
        classes = _join_variants(rows, by_class)
        worded(classes, _CLASSES, "elastic_classes", "Mean and largest error of each class of plans.")
    every = _join_variants(rows, lambda table: table)
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Does it pick the fastest plan", "among the plans measured there"))
        worded(
            _join_variants(rows, ranking),
            {"variant": "model", **_RANKING},
            "elastic_ranking",
            "Every placement with the fastest plan and the one picked.",
        )
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Every run", f"{counted(len(every), 'prediction')}"))
        worded(every, _ROWS, "elastic_runs_table", "Every run with what each variant predicts.")
    downloads({"Runs": every, "Classes": classes, "Picks": _join_variants(rows, ranking)}, "elastic_accuracy")


def _compare_variants(chosen: ChosenCard, runs: str) -> tuple[dict[str, pd.DataFrame], list[str]]:
    """Return the runs by variant title, and a sentence for each variant that cannot predict them."""
    measured = chosen.measured
    if measured is None:
        raise PlanError("There are no measurements of this card; upload some in the menu Card.")
    found, absent = {}, []
    for variant, title in VARIANTS.items():
        try:
            found[title] = against(chosen, variant, runs)
        except PlanError as problem:
            absent.append(f"{title}: {problem}")
    if not found:
        raise PlanError(" ".join(absent))
    return found, absent


def _join_variants(rows: Mapping[str, pd.DataFrame], made: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
    """Return the tables of all variants as one."""
    parts = []
    for title, table in rows.items():
        part = made(table).copy()
        part.insert(0, "variant", title)
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def _error_tiles(rows: Mapping[str, pd.DataFrame]) -> list[markup.Tile]:
    tiles = []
    for title, table in rows.items():
        error = table["error_pct"].dropna().abs()
        mean = f"{plain(float(error.mean()), 3)} %" if len(error) else "–"
        told = f"at most {plain(float(error.max()), 3)} %, {counted(len(error), 'run')}" if len(error) else "no run"
        tiles.append(markup.Tile(f"{title}: mean error", mean, told))
        if len(error):
            picks = ranking(table)["regret_pct"]
            worst = f"at most {plain(float(picks.max()), 3)} %, {counted(len(picks), 'placement')}"
            tiles.append(markup.Tile(f"{title}: pick slower", f"{plain(float(picks.mean()), 3)} %", worst))
    return tiles
