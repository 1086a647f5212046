"""Cost of the scenario's framework in a line, and the way to the best execution that a framework runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard.link import state
from dashboard.queries.frameworks import framework_cost
from dashboard.queries.scenario_edits import altered
from dashboard.widgets.figures import draw_doubts
from dashboard.words.markdown import literal
from dashboard.words.numbers import format_value, percent
from engine import Scenario
from engine.executions.execution_names import execution_name
from engine.executions.frameworks.registry import ANY, FRAMEWORK_RULES
from engine.launch import FrameworkCost

__all__ = ["draw_cost_line", "draw_framework_best", "draw_nothing_runs_there"]


def draw_cost_line(scenario: Scenario, key: str, *, is_final: bool) -> None:
    """Draw what the framework of a scenario costs, and the way to any; nothing without a framework.

    key: of the button. is_final: False while figures are still computed, which leaves room for the line.
    """
    if scenario.framework == ANY:
        return
    title = FRAMEWORK_RULES[scenario.framework].title
    found = framework_cost(scenario, scenario.key, scenario.framework) if is_final else None
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", key=f"{key}_cost"):
        words = f"Comparing {title} with any framework." if found is None else found.sentence
        st.markdown(f":small[:gray[:material/deployed_code: {literal(words)}]]", width="content")
        if is_final:
            st.button("Any framework", type="tertiary", key=f"{key}_any", on_click=_use_any)


def draw_nothing_runs_there(sentence: str) -> None:
    """Draw why the framework of the scenario runs nothing, and the way to any.

    sentence: the reason.
    """
    st.info(literal(sentence), icon=":material/block:")
    st.button("Any framework", icon=":material/arrow_forward:", key="framework_any", on_click=_use_any)


def _use_any() -> None:
    state.change_scenario(lambda now: altered(now, framework=ANY))


def draw_framework_best(scenario: Scenario, execution: Mapping[Any, Any], framework: str, key: str | None) -> None:
    """Draw the best execution that a framework runs in place of another one, with a button that shows it.

    execution: the other one. framework: word of the framework. key: of the button; None without one.
    """
    found = framework_cost(scenario, scenario.key, framework)
    if found is None:
        return
    if found.best is None:
        if found.fastest is not None:
            st.caption(literal(found.sentence))
        return
    rate = float(found.best["sample_rate"])
    words = f"{execution_name(found.best)}, {format_value('sample_rate', rate)}"
    if given := float(execution.get("sample_rate") or 0.0):
        behind = 1.0 - rate / given
        words += f", {percent(behind)} slower than this" if behind > 0.0 else ", not slower than this"
    st.markdown(literal(f"The fastest that {found.title} runs: {words}."))
    draw_doubts(found.scenario, found.best)
    if key is None:
        return
    st.button(
        f"Search what {found.title} runs",
        icon=":material/arrow_forward:",
        key=f"{key}_framework_best",
        on_click=_show_best,
        args=(found,),
    )


def _show_best(found: FrameworkCost) -> None:
    """Make the framework part of the scenario, and select its best execution."""
    if found.best is None:
        return
    with state.one_step():
        state.set_scenario(found.scenario)
        state.select(int(found.best["id"]))
    st.rerun()  # the whole page, of which the card may be a part that runs alone
