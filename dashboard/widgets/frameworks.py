"""Cost of the scenario's framework in a line, and the way to the execution that a framework runs instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard.link import state
from dashboard.link.figures import parse_figures
from dashboard.queries.frameworks import framework_cost, framework_execution
from dashboard.queries.scenario_edits import altered
from dashboard.widgets.figures import draw_doubts
from dashboard.words.markdown import literal
from dashboard.words.numbers import format_value, percent
from engine import Scenario
from engine.executions.execution_names import execution_name
from engine.executions.frameworks.registry import ANY, FRAMEWORK_RULES
from engine.recommendation import FIGURES_OF

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
    """Draw the execution that a framework runs in place of another one, with a button that shows it: the recommended or
    the fastest, as pages show.

    execution: the other one. framework: word of the framework. key: of the button; None without one.
    """
    found = framework_cost(scenario, scenario.key, framework)
    if found is None:
        return
    shown = None if found.best is None else framework_execution(found.scenario, parse_figures().question)
    if shown is None:
        if found.fastest is not None:
            st.caption(literal(found.sentence))
        return
    rate = float(shown.execution["sample_rate"])
    words = f"{execution_name(shown.execution)}, {format_value('sample_rate', rate)}"
    if given := float(execution.get("sample_rate") or 0.0):
        behind = 1.0 - rate / given
        words += f", {percent(behind)} slower than this" if behind > 0.0 else ", not slower than this"
    st.markdown(literal(f"{FIGURES_OF[shown.figures_of]} with {found.title}: {words}."))
    if shown.remark:
        st.caption(literal(shown.remark))
    draw_doubts(found.scenario, shown.execution)
    if key is None:
        return
    st.button(
        f"Search what {found.title} runs",
        icon=":material/arrow_forward:",
        key=f"{key}_framework_best",
        on_click=_show_execution,
        args=(found.scenario, shown.id),
    )


def _show_execution(scenario: Scenario, execution: int) -> None:
    """Make the framework part of the scenario, and select one of its executions by id."""
    with state.one_step():
        state.set_scenario(scenario)
        state.select(execution)
    st.rerun()  # the whole page, of which the card may be a part that runs alone
