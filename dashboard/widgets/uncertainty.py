"""Uncertainty of figures, as a menu next to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard.queries.accuracy import EXPLAINED, FITTED, beside, error_of, label_of, span
from dashboard.widgets.menus import filled
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, percent
from engine import Scenario
from engine.cost_models.words import told_not_measured
from engine.validation.uncertainty import SHARE, Interval

__all__ = ["popover"]


def popover(
    scenario: Scenario, execution: Mapping[Any, Any], key: str, *, others: int | None = None, scope: str = ""
) -> None:
    """Draws the words that open an explanation of labels and intervals.

    others: executions within the error, in the scope that `scope` names, such as " of this cell".
    """
    label, error = label_of(scenario, execution), error_of(scenario, execution)
    told = f"{label}, {span(error.most.low, error.most.high)}" if error else beside(scenario, execution) or label
    with st.popover(
        f":gray[How sure:] {told}",
        icon=":material/straighten:",
        type="tertiary",
        key=key,
        help="How sure these figures are",
    ):
        if not filled(key):
            return
        unknown = told_not_measured(scenario.not_measured(execution))
        st.markdown(f"**{label.capitalize()}.** {unknown or EXPLAINED[label]}")
        if error is None:
            if label == FITTED:
                st.markdown("Too few runs of this kind of model were measured to say how far the time may be off.")
            return
        st.markdown(
            f"Of **{error.most.rests_on}**, {percent(SHARE, 0)} took {_factors_in_words(error.most)} the time "
            f"predicted by a fit without their source, half of them {_factors_in_words(error.half)}. "
            f"{error.most.held_words} Throughput, tokens per second and MFU follow from the time."
        )
        if scenario.calibration is not None:
            st.markdown(
                f"These runs were predicted with the library's values; the scenario uses "
                f"**{literal(scenario.calibration.name)}**."
            )
        st.markdown("Memory is **modelled**: tensors are counted, not fitted. Validation lists its errors by source.")
        if others is not None:
            several = f"{count(others)} other executions{scope} lie"
            many = f"{'One' if others else 'No'} other execution{scope} lies" if others < 2 else several
            st.markdown(
                f"**{many} within the error**: a throughput that differs by less than {percent(error.width)}, half "
                "the width of the interval, is tied. Predictions for one system have similar errors, so their order "
                "is more certain than their times."
            )


def _factors_in_words(found: Interval) -> str:
    """An interval as factors: "0.93 to 1.14 times"."""
    return f"{found.low:.2f} to {found.high:.2f} times"
