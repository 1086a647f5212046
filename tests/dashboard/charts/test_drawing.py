"""A drawing is changed as a figure of Plotly's is, and comes to the same."""

from __future__ import annotations

import json
from typing import Any

import plotly.graph_objects as go
import pytest

from dashboard.charts.elements.drawing import Drawing

LAYOUT = {
    "xaxis": {"showgrid": False, "title": {"font": {"size": 11}}},
    "yaxis": {"range": [0, 1]},
    "margin": {"t": 8},
    "yaxis2": {"title": {"text": "before"}},
}


def test_what_changes_a_figure_changes_a_drawing_alike() -> None:
    figure, drawing = go.Figure(layout={**LAYOUT, "template": "none"}), Drawing(layout=LAYOUT)
    for each, title in ((figure, "title_text"), (drawing, "title")):
        each.add_trace({"type": "bar", "x": [1, 2], "y": [3, 4], "base": [0, 1]})
        each.add_trace({"type": "scatter", "x": [1], "y": [2], "marker": {"size": 5}})
        each.update_xaxes({"tickfont": {"size": 9}}, nticks=3, **{title: "across"})
        each.update_yaxes(range=[2, 5], **{title: "up"})
        each.update_layout(margin={"l": 3}, showlegend=True, legend={"itemsizing": "constant"})
        each.add_hline(0.5, line={"width": 1}, opacity=0.6)
        each.add_vline(2, line={"dash": "dot"})
        each.add_shape(type="rect", x0=0, x1=1, y0=0, y1=2, layer="below")
    note: dict[str, Any] = {"text": "a", "x": 1, "y": 2, "showarrow": False}
    figure.add_annotation(note)
    drawing.notes.append(note)
    expected = json.loads(figure.to_json())
    expected["layout"].pop("template", None)
    assert json.loads(drawing.to_json()) == expected
    assert drawing.figure.layout.xaxis.title.text == "across"


def test_what_plotly_does_not_know_is_found_by_its_figure() -> None:
    strange = Drawing([{"type": "bar", "no such thing": 1}])
    with pytest.raises(ValueError, match="no such thing"):
        assert strange.figure


def test_what_plotly_does_not_know_is_found_behind_charts_that_were_checked() -> None:
    """Tests have Plotly check each kind of chart once, see `_checked_charts`."""
    bar: dict[str, Any] = {"type": "bar", "x": [1, 2], "y": [3, 4], "text": ["a", "b"], "textposition": "inside"}
    for right in (bar, {**bar, "text": ["c", "d"], "x": [5, 6]}):
        Drawing([right]).to_json()
    for wrong in ({"textposition": "nowhere"}, {"opacity": 1.5}, {"marker": {"color": "#12345"}}, {"txt": ["a"]}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Drawing([bar | wrong]).to_json()
