"""Single changes of the step: a row per change, each with a button that applies it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from dashboard.charts.elements import markup
from dashboard.link import state
from dashboard.link.fields import LinkField
from dashboard.pages.post_training.choices import split_text
from dashboard.words.markdown import literal
from dashboard.words.numbers import plain, signed_percent

__all__ = ["change_texts", "draw_changes"]

SAME: Final = 0.005
"""Change of the step that counts as none []."""
WIDTHS: Final = (5, 2, 2, 2)


def change_texts(fields: Mapping[str, LinkField], change: Mapping[str, Any], software: float) -> dict[str, str | None]:
    """Return the parameters of the link with a change.

    A step of one's own was measured without the change: its factor of the software takes its place.

    Args:
        fields: of the page by name.
        change: new values by path of the question's fields.
        software: factor of the answer.
    """
    texts: dict[str, str | None] = {}
    own = fields["measured_step_s"]
    if own.value is not None:
        texts = {own.parameter: None, fields["software"].parameter: fields["software"].text(software)}
    for path, value in change.items():
        outer, _, name = path.rpartition(".")
        field = fields[f"rollout_{name}" if outer == "rollout" else name]
        texts[field.parameter] = split_text(value) if name == "split" else field.text(value)
    return texts


def draw_changes(fields: Mapping[str, LinkField], answer: Mapping[str, Any], where: str) -> None:
    """Draw the changes, the fastest first.

    Args:
        fields: of the page by name.
        answer: to `plan_post_training`.
        where: mode and split of the figures.
    """
    changes = answer["changes"]
    if not changes:
        return
    with st.container(border=True, gap="xsmall"):
        st.html(markup.head("What would change it", where))
        for place, row in enumerate(changes):
            words, step, share, button = st.columns(WIDTHS, vertical_alignment="center")
            words.markdown(literal(row["change"]))
            step.markdown("does not run" if row["step_s"] is None else f"{plain(row['step_s'])} s")
            share.markdown(_share(row["ratio"]))
            button.button(
                "Apply",
                key=f"post_training_change_{place}",
                type="tertiary",
                disabled=row["step_s"] is None,
                on_click=_apply,
                args=(change_texts(fields, row["fields"], answer["software"]),),
                help=f"{row['change']}: changes the link",
            )


def _share(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return "no change" if abs(ratio - 1.0) < SAME else signed_percent(ratio - 1.0)


def _apply(texts: dict[str, str | None]) -> None:
    state.set_url_values(texts)
