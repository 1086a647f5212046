"""Section of the Serving page: the shown deployment next to a second one, of the same system or another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.advice import rows_table
from dashboard.charts.serving_comparison import compared_steps
from dashboard.link import state
from dashboard.link.fields import LinkField
from dashboard.pages.serving.inputs import pick_deployment
from dashboard.pages.serving.link import PAGE_NAME
from dashboard.queries.serving import comparison_rows
from dashboard.widgets.chart import show
from dashboard.widgets.link_fields import draw_choice
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.scenarios import system_name
from dashboard.words.serving import bits_words
from engine.questions.documents.serving import DeploymentsQuestion
from engine.questions.serving import compare_with_second
from engine.serving import (
    DeploymentComparison,
    DeploymentRecommendation,
    ServingExploration,
    deployment_name,
)

__all__ = ["draw_comparison", "keep_to_compare"]


def keep_to_compare(number: int) -> None:
    """Write the second deployment of a comparison to the link.

    Args:
        number: its id.
    """
    state.set_url_values({f"{PAGE_NAME}_beside": str(number), f"{PAGE_NAME}_other_system": None})


def draw_comparison(
    question: DeploymentsQuestion,
    fields: Mapping[str, LinkField],
    found: ServingExploration,
    advice: DeploymentRecommendation,
    chosen: Mapping[str, Any],
    mode: str,
) -> None:
    """Draw the choice of a second deployment, the figures of both and the parts of their decode steps.

    Args:
        question: of the page.
        fields: of the page by name.
        found: all deployments.
        advice: the recommendation.
        chosen: deployment that the page shows.
        mode: the theme.
    """
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("Compare two deployments", "the one shown above is A"))
        with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
            draw_choice(fields["other_system"], label="System of B", help="", width=300, resets=("serving_beside",))
            if question.other_system is None:
                options = _second_options(question, found, advice)
                draw_choice(replace(fields["beside"], options=options), label="Deployment B", help="", width=420)
            if question.other_system is None and question.beside is not None:
                st.button(
                    "Swap",
                    icon=":material/swap_horiz:",
                    type="tertiary",
                    key="serving_swap",
                    on_click=_swap,
                    args=(int(chosen["id"]), question.beside),
                )
        try:
            compared = compare_with_second(question, found, chosen)
        except ValueError as problem:
            st.warning(literal(str(problem)), icon=":material/block:")
            return
        if compared is None:
            st.caption("Choose a second deployment or another system, or click Keep to compare above.")
            return
        _draw_compared(*compared, found, mode)


def _swap(shown: int, beside: int) -> None:
    pick_deployment(beside)
    state.set_url_values({f"{PAGE_NAME}_beside": str(shown)})


def _second_options(
    question: DeploymentsQuestion, found: ServingExploration, advice: DeploymentRecommendation
) -> dict[int | None, str]:
    """Return the deployments to choose from, in words by id: the recommended one, the ends of the frontier, others."""
    options: dict[int | None, str] = {None: "None"}
    fastest = {str(name): value for name, value in found.frontier.iloc[0].items()}
    rows = (("Recommended", advice.row), ("Most output per GPU", found.best), ("Fastest per user", fastest))
    for name, row in rows:
        if row is not None:
            options.setdefault(int(row["id"]), f"{name}: {deployment_name(row)}")
    for each in advice.rejected:
        options.setdefault(int(each.row["id"]), f"{deployment_name(each.row)}, {bits_words(each.row)}")
    if question.beside is not None:
        options.setdefault(question.beside, f"Deployment {question.beside:,}")
    return options


def _draw_compared(
    compared: DeploymentComparison, there: ServingExploration, found: ServingExploration, mode: str
) -> None:
    pair = {"A": compared.one, "B": compared.other}
    names = [f"{letter}: {deployment_name(row)}, {bits_words(row)}" for letter, row in pair.items()]
    if there is not found:
        names = [
            f"{name} on {system_name(each.system).partition(', ')[0]}"
            for name, each in zip(names, (found, there), strict=True)
        ]
    st.markdown(f"**{literal(names[0])}**  \n**{literal(names[1])}**")
    st.markdown(literal(compared.sentence.replace("The second", "B")))
    left, right = st.columns([1, 1], gap="medium")
    with left:
        # The difference first: narrow windows show the first columns.
        rows = [(name, difference, one, other) for name, one, other, difference in comparison_rows(compared)]
        st.html(rows_table(("", "B against A", "A", "B"), rows, texts=(0,)))
    with right:
        st.html(markup.head("One decode step", "parts of A and B, modelled"))
        show(compared_steps(compared.one, compared.other, mode, is_narrow()), "serving_compared_steps")
