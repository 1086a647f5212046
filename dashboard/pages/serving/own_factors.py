"""Factors of the person's own servers on the Serving page: applied by a click, stated above all adjusted figures."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from dashboard.link import state
from dashboard.link.fields import LinkField
from dashboard.link.serving_factors import factors_text
from dashboard.pages.serving.inputs import write_inputs
from dashboard.widgets.clicks import was_clicked
from dashboard.words.markdown import literal
from dashboard.words.serving import WORDS
from engine.questions.documents.serving import DeploymentsQuestion
from engine.questions.serving import load_factors
from engine.serving import EngineFactors, ServingExploration
from hardware import Calibration

__all__ = ["draw_adjusted", "draw_factors"]


def draw_factors(found: ServingExploration, factors: Calibration, key: str) -> None:
    """Draw measured factors, with a button that adjusts the page's figures by them.

    Args:
        found: the page's exploration.
        factors: measured on the page's system.
        key: of the button.

    Raises `engine.serving.FactorError` for a calibration without factors, and for another system's.
    """
    own = EngineFactors.of(factors, found.system)
    text = factors_text(own, factors.date)
    st.markdown(literal(f"Your factors, measured over predicted: {_describe_engines(own)}."))
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        if was_clicked(
            "Adjust the page",
            icon=":material/tune:",
            key=key,
            help="All latencies of these engines get the factors; output, cost and services follow. Part of the link.",
        ):
            shown = found.space.choices("engine")
            # Factors of engines that are not shown would change nothing.
            engines = {} if set(own.engines) & set(shown) else {"engine": ",".join(own.engines)}
            write_inputs(factors=text, **engines)
            state.rerun_page()


def draw_adjusted(question: DeploymentsQuestion, found: ServingExploration, fields: Mapping[str, LinkField]) -> None:
    """Draw the note that figures are adjusted, with the factors and a button that removes them; nothing without.

    Args:
        question: of the page.
        found: its exploration.
        fields: of the page by name.
    """
    own = load_factors(question.factors, found.system)
    if own is None:
        return
    shown = set(found.space.choices("engine"))
    words = f"**Adjusted by your own servers.** {literal(_describe_engines(own))}; measured over predicted."
    others = [WORDS[name] for name in found.space.choices("engine") if name not in own.engines]
    if not shown & set(own.engines):
        words += " No shown deployment runs on such an engine: choose it under Choices."
    elif others:
        words += f" Deployments on {literal(' and '.join(others))} are not adjusted."
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="serving_adjusted"):
        st.info(words, icon=":material/tune:")
        st.button(
            "Remove factors",
            icon=":material/close:",
            type="tertiary",
            key="serving_unadjust",
            on_click=write_inputs,
            kwargs={"factors": None},
        )


def _describe_engines(own: EngineFactors) -> str:
    """Return the factors by engine in words."""
    return "; ".join(
        f"{WORDS[name]}: first token × {each.time_to_first_token:.3g}, per token × {each.time_per_output_token:.3g}"
        for name, each in own.engines.items()
    )
