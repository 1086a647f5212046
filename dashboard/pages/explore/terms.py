"""Terms of the Explore page for a first-time reader, in one popover."""

from __future__ import annotations

import streamlit as st

from dashboard.queries.economics import MFU_FORMULA, Metric, flops_formula
from dashboard.widgets.launch import chosen_framework
from dashboard.words.glossary import flags, words
from dashboard.words.markdown import literal
from engine import Scenario, launch
from engine.columns import by_name

__all__ = ["terms"]


def terms(metric: Metric, scenario: Scenario) -> None:
    """Draws the explanation of the page's terms."""
    shown = "fastest" if metric.of_fastest else "best"
    st.markdown(
        "**An execution** is one complete way to run the model: how it is divided among the GPUs, what is kept, "
        "recomputed, overlapped and offloaded. **A cell** of the map stands for every execution with the same tensor "
        f"and pipeline parallel degrees; it shows the {shown} of them. Click a cell to see that execution and the "
        "others."
    )
    framework = launch.FRAMEWORKS[chosen_framework()]
    said = flags(scenario, framework.name)
    lines = [
        f"- **{word}**{f' ({short})' if short else ''}: {literal(meaning)}"
        + (f" {framework.title}: `{said[word]}`" if word in said else "")
        for word, short, meaning in words(scenario)
    ]
    st.markdown("\n".join(lines))
    others = ", ".join(each.title for each in launch.FRAMEWORKS.values() if each is not framework)
    st.caption(f"Flags are those of the framework chosen under Launch; it writes for {others}, too.")
    st.markdown(f"**{literal(metric.column.label)}**: {literal(metric.column.description)}")
    if metric.formula:
        st.caption(literal(f"{metric.column.label} = {metric.formula}"))
    st.caption(literal(f"MFU = {MFU_FORMULA}, where model FLOP per sample = {flops_formula(scenario)}"))
    st.caption(literal(f"Total efficiency (not MFU): {by_name('total_efficiency').description}"))
