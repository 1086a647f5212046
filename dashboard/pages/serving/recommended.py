"""Section of the Serving page: the recommended deployment next to the one with the most output, others, report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard.charts.elements.advice import rows_table, sides
from dashboard.charts.elements.markup import head
from dashboard.files.serving_report import build_report, contender_rows
from dashboard.pages.serving.inputs import pick_deployment
from dashboard.pages.serving.queries import question_key, tried_changes
from dashboard.queries.serving import recommended_sides
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.menus import filled
from dashboard.words.markdown import literal
from dashboard.words.numbers import percent
from engine.questions.documents.serving import DeploymentsQuestion
from engine.questions.serving import compare_with_second
from engine.serving import DeploymentRecommendation, ServingExploration

__all__ = ["draw_band"]


def draw_band(
    question: DeploymentsQuestion,
    found: ServingExploration,
    advice: DeploymentRecommendation,
    chosen: Mapping[str, Any],
    address: str,
) -> None:
    """Draw the recommended deployment next to the one with the most output per GPU.

    Args:
        question: of the page.
        found: all deployments.
        advice: the recommendation.
        chosen: deployment that the page shows.
        address: link to the page.
    """
    best = found.best
    if advice.row is None or best is None:
        return
    shown, own = int(chosen["id"]), int(advice.row["id"])
    with st.container(border=True, gap="xsmall", key="serving_band"):
        st.html(sides(recommended_sides(found, advice, shown)))
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            if shown != own:
                st.button(
                    "Show recommended",
                    icon=":material/verified:",
                    type="tertiary",
                    key="serving_take",
                    on_click=pick_deployment,
                    args=(None,),
                )
            if int(best["id"]) not in (own, shown):
                st.button(
                    "Show most output",
                    icon=":material/star:",
                    type="tertiary",
                    key="serving_most",
                    on_click=pick_deployment,
                    args=(int(best["id"]),),
                )
            with st.popover(
                "Why not the others",
                icon=":material/format_list_numbered:",
                type="tertiary",
                key="serving_why",
                help="The best of other layouts and precisions, and why each is not recommended.",
            ):
                if filled("serving_why"):
                    _draw_contenders(advice)

            def report() -> bytes:
                changed = tried_changes(question_key(question), question.cache_room, found, advice)
                return build_report(question, found, advice, chosen, changed, _second(question, found, chosen), address)

            draw_download(
                "Report",
                report,
                f"{found.model.name}_{found.system.name}_{found.space.num_procs}_serving.html",
                "text/html",
                key="serving_report",
                help="Figures, tables and assumptions in one HTML file that opens offline; print it for PDF.",
            )


def _second(question: DeploymentsQuestion, found: ServingExploration, chosen: Mapping[str, Any]) -> Any:
    """Return the comparison of the page, None where its second deployment does not run."""
    try:
        return compare_with_second(question, found, chosen)
    except ValueError:
        return None


def _draw_contenders(advice: DeploymentRecommendation) -> None:
    st.html(head("Why not the others", "the best of other layouts and precisions, most output first"))
    st.html(rows_table(("Deployment", "Output per GPU", "Why not"), contender_rows(advice), texts=(0, 2)))
    st.html(head("Terms"))
    st.markdown(
        literal(
            f"Error of a comparison: {percent(advice.error, 0)}. So near the predicted ratio are outputs of 80 % of "
            "pairs of measured servers with different layouts."
        )
    )
    st.markdown(
        literal(
            f"Room in the cache: for {percent(advice.cache_room, 0)} more requests than the batch. "
            "Change it under Choices."
        )
    )
