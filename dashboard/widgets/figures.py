"""The choice "Figures of: Recommended or Fastest", and the place of figures while the recommendation is worked out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from dashboard.charts.elements.markup import doubts_line
from dashboard.compat.session import in_browser, run_again
from dashboard.jobs.server import explorations
from dashboard.link.figures import FiguresView
from dashboard.queries import accuracy
from dashboard.queries.explorations import Where
from dashboard.queries.figures import Cell, is_ready
from dashboard.widgets.link_fields import draw_segments
from engine import Exploration, Scenario
from engine.questions.documents.explorations import FiguresQuestion

__all__ = ["doubts_markup", "draw_doubts", "draw_figures_choice", "patience_s", "watch_figures"]

_PATIENCE: Final = 1.5
"""Time that a page waits for the recommendation once its map is drawn; a click is answered no later than that [s]."""
_LEAST: Final = 1e-3
"""Shortest time that begins to work out a recommendation [s]."""
_POLL: Final = 0.25
"""Interval between looks at a recommendation that takes longer [s]."""


def draw_figures_choice(view: FiguresView) -> None:
    """Draw the choice of the execution whose figures all pages show."""
    draw_segments(view.choice)
    st.caption(
        "Recommended: the simplest as fast as the best within the error of predictions, with room in memory. "
        "Fastest: the highest predicted throughput."
    )


def doubts_markup(scenario: Scenario, execution: Mapping[Any, Any], remark: str = "") -> str:
    """Returns what speaks against an execution as HTML that follows its figures; empty for most.

    remark: why this execution is shown instead of the one asked for.
    """
    sentences = (*([remark] if remark else []), *accuracy.doubts(scenario, execution))
    return doubts_line(sentences) if sentences else ""


def draw_doubts(scenario: Scenario, execution: Mapping[Any, Any], remark: str = "") -> None:
    """Draw what speaks against an execution, where its figures are no HTML. See `doubts_markup`."""
    if found := doubts_markup(scenario, execution, remark):
        st.html(found)


def patience_s() -> float | None:
    """Returns the time to wait for a recommendation in a page that a browser shows; None, until it is there, without
    one, such as in a test. A server without patience waits for nothing."""
    most = explorations().board.patience
    return max(_LEAST, min(most, _PATIENCE)) if in_browser() or most == 0 else None


def watch_figures(
    exploration: Exploration,
    asked: FiguresQuestion,
    where: Where,
    cell: Cell | None,
    parts: tuple[str, ...],
    key: str,
) -> None:
    """Look again and again whether an execution is known, and redraw parts of the page then.

    cell: of the execution; None for the best of all. parts: keys of fragments; the whole page if empty. key: of this
    place.
    """

    def look() -> None:
        if is_ready(exploration, asked, where, cell):
            if parts:
                run_again(parts)
            st.rerun()

    with st.container(key=key, gap=None):
        st.fragment(look, run_every=_POLL)()
