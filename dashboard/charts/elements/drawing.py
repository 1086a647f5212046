"""Drawings: the content of a chart as the dictionaries that Plotly's JavaScript takes.

Plotly's own figure validates every property on assignment, and all others of its kind again. That took a third of the
server's work for a page with many marks and notes. A drawing has the same interface without validation; `Chart.figure`
has Plotly validate all of it once, as the tests of charts do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import plotly.graph_objects as go

from dashboard.compat import plotly_figures

__all__ = ["Drawing", "Part", "merged", "vertical_band", "vertical_line"]

Part = Mapping[str, Any]
"""A trace, an axis, a note, ..., by Plotly's names for its properties."""


class Drawing:
    """Traces and a layout.

    Attributes:
        traces: in the order in which they are drawn.
        layout: the rest, the axes, notes and shapes among it.
    """

    __slots__ = ("layout", "traces")

    def __init__(self, traces: Iterable[Part] = (), layout: Part | None = None) -> None:
        self.traces: list[dict[str, Any]] = [dict(each) for each in traces]
        self.layout: dict[str, Any] = dict(layout or {})

    @property
    def figure(self) -> go.Figure:
        """A figure of Plotly's that draws the same.

        Raises:
            ValueError: for a property that Plotly does not know, or that has a value of another kind.
        """
        return go.Figure(data=[{**each} for each in self.traces], layout=self.layout)  # which moves the type to the end

    def to_json(self) -> str:
        """Returns what Plotly's JavaScript draws, unchecked."""
        return plotly_figures.as_json(self.traces, self.layout)

    @property
    def notes(self) -> list[dict[str, Any]]:
        """The notes on the chart, to which others may be added."""
        found: list[dict[str, Any]] = self.layout.setdefault("annotations", [])
        return found

    def add_trace(self, *traces: Part) -> None:
        """Draws one or several traces over the present ones."""
        self.traces += [dict(each) for each in traces]

    def draw(self, kind: str, **parts: Any) -> None:
        """Draw a trace over the present ones, such as "bar"; parts without a value are left out."""
        self.traces.append({"type": kind} | {name: part for name, part in parts.items() if part is not None})

    def add_shape(self, **shape: Any) -> None:
        """Draws a line or a rectangle."""
        self.layout.setdefault("shapes", []).append(shape)

    def add_hline(self, y: float, **look: Any) -> None:
        """Draws a line across the whole plot at a height [in the units of the axis]."""
        self.add_shape(type="line", x0=0, x1=1, xref="x domain", y0=y, y1=y, yref="y", **look)

    def add_vline(self, x: float, **look: Any) -> None:
        """Draws a line from the bottom to the top of the plot at a place [in the units of the axis]."""
        self.add_shape(type="line", x0=x, x1=x, xref="x", y0=0, y1=1, yref="y domain", **look)

    def update_layout(self, changes: Part | None = None, **more: Any) -> None:
        """Merges settings into the layout, at any depth."""
        self.layout = merged(self.layout, {**(changes or {}), **more})

    def update_xaxes(self, changes: Part | None = None, **more: Any) -> None:
        """Merges settings into every horizontal axis, at any depth. A title may be given as text."""
        self._update_axes("xaxis", {**(changes or {}), **more})

    def update_yaxes(self, changes: Part | None = None, **more: Any) -> None:
        """Merges settings into every vertical axis, at any depth. A title may be given as text."""
        self._update_axes("yaxis", {**(changes or {}), **more})

    def _update_axes(self, begin: str, changes: dict[str, Any]) -> None:
        if isinstance(changes.get("title"), str):
            changes["title"] = {"text": changes["title"]}
        for name in [name for name in self.layout if name.startswith(begin)]:
            self.layout[name] = merged(self.layout[name], changes)


def merged(base: Part, more: Part) -> dict[str, Any]:
    """Returns settings with others laid over them, at any depth."""
    both = {
        name: merged(base[name], value) if isinstance(value, Mapping) and isinstance(base.get(name), Mapping) else value
        for name, value in more.items()
    }
    return {**base, **both}


def vertical_line(x: float, colour: str, width: float, *, dash: str | None = None) -> dict[str, Any]:
    """Return the shape of a line over the whole height of a chart.

    Args:
        x: position on the horizontal axis.
        colour: of the line.
        width: of the line [px].
        dash: style of Plotly's, such as "dot"; None for a solid line.
    """
    line = {"color": colour, "width": width, **({} if dash is None else {"dash": dash})}
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line}


def vertical_band(start: float, end: float, colour: str) -> dict[str, Any]:
    """Return the shape of a band over the whole height of a chart, below its marks.

    Args:
        start: position on the horizontal axis.
        end: the other one.
        colour: of the band.
    """
    return {
        "type": "rect",
        "x0": start,
        "x1": end,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "fillcolor": colour,
        "line": {"width": 0},
        "layer": "below",
    }
