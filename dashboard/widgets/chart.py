"""Charts in a page: drawn in place by a component, where Streamlit's own would make each anew whenever it changes.

Streamlit takes a Plotly chart with another figure for another element. Here it is the same as long as its key is: the
browser changes what differs, and zoom, focus and scrolling stay. Figures arrive as Plotly writes them, arrays as bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import streamlit as st

from dashboard.charts import CONFIG
from dashboard.charts.elements.template import Chart, stacked
from dashboard.compat import front_end, plotly_figures
from dashboard.widgets.window import is_narrow

__all__ = ["NAME", "clicked", "show"]

NAME: Final = "shardscape_chart"
_CHART: Final = st.components.v2.component(
    NAME, js=(Path(__file__).parent / "chart.js").read_text(encoding="utf-8"), isolate_styles=False
)
_HEIGHT: Final = 450
"""Height of a figure that says none, as Plotly has it [px]."""


def show(
    chart: Chart, key: str, *, on_click: Callable[[], None] | None = None, config: dict[str, Any] | None = None
) -> None:
    """Shows a chart of `dashboard.charts` with its finding as alternative text.

    Args:
        chart: figure and sentence.
        key: of the element, unlike all others of the page.
        on_click: what happens when a mark is clicked, which `clicked` tells; charts do not answer where None.
        config: options of Plotly beside those that all charts have.
    """
    figure = stacked(chart.figure) if chart.rows and is_narrow() else chart.figure
    named = {"toImageButtonOptions": CONFIG["toImageButtonOptions"] | {"filename": f"shardscape_{key}"}}
    told = {
        "figure": plotly_figures.as_json(figure), "alt": chart.alt, "config": {**CONFIG, **named, **(config or {})},
        "height": figure.layout.height or _HEIGHT, "clickable": on_click is not None, "script": front_end.SCRIPT,
        "library": plotly_figures.address(figure),
    }  # fmt: skip
    _CHART(key=key, data=told, height="content", on_clicked_change=on_click or _nothing)


def clicked(key: str) -> list[Any]:
    """Returns the `customdata` of the mark that was clicked, in a callback of `show`; empty where it has none.

    Args:
        key: of the chart.
    """
    found = st.session_state.get(key)
    return list(found.clicked or ()) if found is not None else []


def _nothing() -> None:
    pass
