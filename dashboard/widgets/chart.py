"""Charts in a page: drawn in place by a component, where Streamlit's own would make each anew whenever it changes.

Streamlit takes a Plotly chart with another figure for another element. Here it is the same as long as its key is: the
browser changes what differs, and zoom, focus and scrolling stay. Figures arrive as Plotly writes them, arrays as bytes.
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
"""Height of a figure that says none, as Plotly has it [px]."""


def show(
    chart: Chart, key: str, *, on_click: Callable[[], None] | None = None, config: dict[str, Any] | None = None,
    on_brush: Callable[[], None] | None = None, brushes: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Shows a chart of `dashboard.charts` with its finding as alternative text.

    Args:
        chart: figure and sentence.
        key: of the element, unlike all others of the page.
        on_click: what happens when a mark is clicked, which `clicked` tells; charts do not answer where None.
        config: options of Plotly beside those that all charts have.
        on_brush: what happens when a stretch of an axis of parallel coordinates is brushed or taken back, or a box is
            drawn over a plot, which `brushed` tells.
        brushes: what a box drawn over the plot is about, such as {"x": "usd"}; none can be drawn where it is empty.
    """
    drawing = stacked(chart.drawing) if chart.rows and is_narrow() else chart.drawing
    if brushes:
        drawing.update_layout(dragmode="select")
    named = {"toImageButtonOptions": CONFIG["toImageButtonOptions"] | {"filename": f"shardscape_{key}"}}
    told = {
        "figure": drawing.to_json(), "alt": chart.alt, "config": {**CONFIG, **named, **(config or {})},
        "height": drawing.layout.get("height") or _HEIGHT, "clickable": on_click is not None,
        "brushes": None if on_brush is None else dict(brushes or {}), "script": front_end.SCRIPT,
        "library": plotly_figures.address(each["type"] for each in drawing.traces),
    }  # fmt: skip
    _CHART(key=key, data=told, height="content", on_clicked_change=on_click or _nothing,
           on_brushed_change=on_brush or _nothing)  # fmt: skip


def clicked(key: str) -> list[Any]:
    """Returns the `customdata` of the mark that was clicked, in a callback of `show`; empty where it has none.

    Args:
        key: of the chart.
    """
    found = st.session_state.get(key)
    return list(found.clicked or ()) if found is not None else []


def brushed(key: str) -> dict[str, tuple[float, float] | None]:
    """Returns the stretches that were brushed by what they are about, in a callback of `show`; None of an axis on which
    nothing is brushed any more.

    Args:
        key: of the chart.
    """
    found = st.session_state.get(key)
    ends: dict[str, list[float] | None] = (found.brushed or {}) if found is not None else {}
    return {name: None if pair is None else (float(min(pair)), float(max(pair))) for name, pair in ends.items()}


def _nothing() -> None:
    pass
