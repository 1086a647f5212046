"""Charts in a page, updated in place by a component; Streamlit's own chart would be created again at every change.

Streamlit takes a Plotly chart with another figure for another element. Here it is the same as long as its key is: the
browser changes the differences, and zoom, focus and scrolling stay. Figures arrive in Plotly's JSON, arrays as bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import streamlit as st

from dashboard.charts import CONFIG
from dashboard.charts.elements.template import Chart, stacked
from dashboard.compat import front_end, plotly_figures
from dashboard.widgets.window import is_narrow

__all__ = ["NAME", "brushed", "clicked", "show"]

NAME: Final = "shardscape_chart"
_CHART: Final = st.components.v2.component(
    NAME, js=(Path(__file__).parent / "chart.js").read_text(encoding="utf-8"), isolate_styles=False
)
_HEIGHT: Final = 450
"""Plotly's default height of a figure [px]."""


def show(
    chart: Chart,
    key: str,
    *,
    on_click: Callable[[], None] | None = None,
    config: dict[str, Any] | None = None,
    on_brush: Callable[[], None] | None = None,
    brushes: Mapping[str, str] | None = None,
) -> None:
    """Shows a chart of `dashboard.charts` with its finding as alternative text.

    Args:
        chart: figure and sentence.
        key: of the element, unlike all others of the page.
        on_click: called when a mark is clicked, which `clicked` returns; charts ignore clicks if None.
        config: options of Plotly in addition to those common to all charts.
        on_brush: called when a stretch of an axis of parallel coordinates is brushed or reset, or a box is drawn over a
            plot, which `brushed` returns.
        brushes: quantities of a box drawn over the plot, such as {"x": "usd"}; empty: no box can be drawn.
    """
    drawing = stacked(chart.drawing) if chart.rows and is_narrow() else chart.drawing
    if brushes:
        drawing.update_layout(dragmode="select")
    named = {"toImageButtonOptions": CONFIG["toImageButtonOptions"] | {"filename": f"shardscape_{key}"}}
    told = {
        "figure": drawing.to_json(),
        "alt": chart.alt,
        "config": {**CONFIG, **named, **(config or {})},
        "height": drawing.layout.get("height") or _HEIGHT,
        "clickable": on_click is not None,
        "brushes": None if on_brush is None else dict(brushes or {}),
        "script": front_end.SCRIPT,
        "library": plotly_figures.address(each["type"] for each in drawing.traces),
    }
    _CHART(
        key=key,
        data=told,
        height="content",
        on_clicked_change=on_click or _do_nothing,
        on_brushed_change=on_brush or _do_nothing,
    )


def clicked(key: str) -> list[Any]:
    """Returns the `customdata` of the mark that was clicked, in a callback of `show`; empty where it has none.

    Args:
        key: of the chart.
    """
    found = st.session_state.get(key)
    return list(found.clicked or ()) if found is not None else []


def brushed(key: str) -> dict[str, tuple[float, float] | None]:
    """Returns the brushed stretches by quantity, in a callback of `show`; None for an axis whose brush was removed.

    Args:
        key: of the chart.
    """
    found = st.session_state.get(key)
    ends: dict[str, list[float] | None] = (found.brushed or {}) if found is not None else {}
    return {name: None if pair is None else (float(min(pair)), float(max(pair))) for name, pair in ends.items()}


def _do_nothing() -> None:
    pass
