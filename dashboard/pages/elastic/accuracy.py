"""Predictions beside measurements: the performance model as published and as calibrated, run by run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.plans.elastic import measured_and_predicted
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.elastic.answers import find_accuracy
from dashboard.pages.elastic.cards import CardView, ChosenCard, ask_for_card, draw_card, parse_card
from dashboard.pages.elastic.link import PAGE_NAME, ElasticLink
from dashboard.pages.elastic.tables import downloads, worded
from dashboard.widgets.chart import show
from dashboard.widgets.link_fields import draw_segments
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted, plain
from engine.planners.contract import PlanError
from engine.planners.elastic.accuracy import by_class, ranking
from engine.planners.elastic.plan_names import with_plan_titles
from engine.questions.documents.elastic import CardAccuracyQuestion
from engine.questions.fields import question_field

__all__ = ["AccuracyView", "draw_accuracy", "parse_accuracy"]

VARIANTS: Final = question_field(CardAccuracyQuestion, "variant").words

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


@dataclass(frozen=True, slots=True)
class AccuracyView:
    """Part of the link about predictions next to measurements."""

    mode: str
    card: CardView
    runs: LinkField


def parse_accuracy(mode: str) -> AccuracyView:
    """Parse this part of the link. mode: "light" or "dark"."""
    reader = LinkReader(ElasticLink, PAGE_NAME)
    reader.read("runs")
    return AccuracyView(mode, parse_card(), reader.fields["runs"])


def draw_accuracy(view: AccuracyView) -> None:
    """Draw predictions of both variants next to a card's measured runs.

    Raises `engine.planners.contract.PlanError` if the card has no measurements.
    """
    mode, chosen = view.mode, view.card.chosen
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        draw_card(view.card)
        draw_segments(view.runs)
    if chosen is None:
        ask_for_card()
        return
    rows, absent = _compare_variants(chosen, view.runs.value)
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
            asked = CardAccuracyQuestion(
                **chosen.arguments, variant=variant, one_node=runs == "one", with_degrees=runs == "3d"
            )
            found[title] = find_accuracy(asked)
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
