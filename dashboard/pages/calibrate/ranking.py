"""Changes of the scenario's ranking by a fitted calibration."""

from __future__ import annotations

import numpy as np
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.link.document_validation import PROBLEMS, sentence
from dashboard.link.fields import LinkField
from dashboard.pages.calibrate import tables
from dashboard.widgets.link_fields import draw_switch
from dashboard.words.markdown import literal
from dashboard.words.numbers import percent
from engine import CostModelError, Scenario, calibrate
from engine.calibrate import CalibrateError, CalibrationOutcome, Reranked
from hardware import Calibration, System

__all__ = ["draw_ranking", "rank_by_both", "same_accelerator"]


def draw_ranking(scenario: Scenario, outcome: CalibrationOutcome, wanted: LinkField) -> None:
    """Draw the scenario's best executions in their new order.

    Args:
        scenario: scenario of the link.
        outcome: the fit.
        wanted: switch of the ranking, which takes a while.
    """
    st.html(markup.head("What changes for the scenario", _describe_scenario(scenario)))
    if not same_accelerator(scenario.system, outcome.checked.system):
        theirs, ours = (literal(system.title or system.name) for system in (scenario.system, outcome.checked.system))
        st.caption(
            f"The scenario is on {theirs}, the runs were on {ours}; choose that system in the scenario to see how its "
            "executions rank."
        )
        return
    draw_switch(wanted)
    if not wanted.value:
        return
    try:
        found = rank_by_both(scenario, outcome.base, calibrate.document(outcome))
    except (*PROBLEMS, CalibrateError, CostModelError) as problem:
        st.info(literal(sentence(problem)), icon=":material/info:")
        return
    told = f"The {len(found.table):,} best executions by either calibration, ranked by both: "
    if found.changed:
        told += f"another one is best now, {_describe_gain(found.gain)} faster than the old best."
        errors = outcome.errors_unseen or outcome.errors_after
        if 100 * found.gain < errors["mean"]:
            told += " That is less than the mean error of a prediction, so the two are tied."
    else:
        told += "the best stays the best."
    if np.isfinite(found.tau):
        told += f" Kendall's tau between the two orders is {found.tau:.2f}."
    st.caption(told)
    tables.draw_order(found)


def _describe_gain(share: float) -> str:
    return percent(share) if share >= 0.0005 else f"under {percent(0.001)}"


def rank_by_both(scenario: Scenario, before: Calibration, after: Calibration) -> Reranked:
    """Returns the best executions of a scenario by either calibration, ranked by both."""
    mark = "-".join(calibrate.recalibrated(scenario, one).key for one in (before, after))
    return _rank_by_both(mark, scenario, before, after)


@st.cache_resource(show_spinner="Finding the best executions by both calibrations", max_entries=24)
def _rank_by_both(mark: str, _scenario: Scenario, _before: Calibration, _after: Calibration) -> Reranked:
    return calibrate.rerank(_scenario, _before, _after)


def _describe_scenario(scenario: Scenario) -> str:
    system = scenario.system
    return f"{scenario.model.title or scenario.model.name} on {scenario.num_procs:,} × {system.title or system.name}"


def same_accelerator(one: System, other: System) -> bool:
    """Returns whether two systems have the same accelerator."""
    if one.accelerator is None or other.accelerator is None:
        return one.name == other.name
    return one.accelerator.name == other.accelerator.name
