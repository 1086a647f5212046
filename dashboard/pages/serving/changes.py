"""Section of the Serving page: what one more GPU, half the context or half a limit changes."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.pages.serving.inputs import write_inputs
from dashboard.pages.serving.queries import question_key, tried_changes
from dashboard.queries.serving import change_rows
from dashboard.widgets.tables import ROW, height_of
from engine.questions.documents.serving import DeploymentsQuestion
from engine.questions.fields import question_fields
from engine.serving import ChangedDeployment, DeploymentRecommendation, ServingExploration

__all__ = ["draw_changes"]


def draw_changes(question: DeploymentsQuestion, found: ServingExploration, advice: DeploymentRecommendation) -> None:
    """Draw the recommended deployment after each change; picking a row asks the changed question.

    Args:
        question: of the page.
        found: all deployments.
        advice: the recommendation.
    """
    changed = tried_changes(question_key(question), question.cache_room, found, advice)
    rows = change_rows(found, advice, changed)

    def picked() -> None:
        places = st.session_state["serving_changes"].selection.rows
        # The first row is the question as it is.
        if places and places[0] > 0:
            write_inputs(**_link_values(changed[places[0] - 1]))

    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("What would change the answer", "the recommended deployment of each; pick one to ask it"))
        st.dataframe(
            pd.DataFrame(rows),
            hide_index=True,
            key="serving_changes",
            column_config={
                "Change": st.column_config.TextColumn(width=230),
                "Effect": st.column_config.TextColumn(width=270),
                "Recommended": st.column_config.TextColumn(width=250),
                "Output": st.column_config.TextColumn(help="Of all GPUs."),
                "Cost per M": st.column_config.TextColumn(help="Cost per million output tokens."),
            },
            row_height=ROW,
            height=height_of(len(rows)),
            on_select=picked,
            selection_mode="single-row",
            alt=f"{len(changed)} changes with the recommended deployment of each.",
        )


def _link_values(changed: ChangedDeployment) -> dict[str, str | None]:
    """Return the inputs of a change as the link has them, by parameter."""
    fields = question_fields(DeploymentsQuestion)
    found: dict[str, str | None] = {}
    for name, value in changed.settings.items():
        field = fields[name if name in fields else f"{name}_s"]
        found[field.parameter] = f"{value / field.parameter_factor:g}" if isinstance(value, float) else str(value)
    return found
