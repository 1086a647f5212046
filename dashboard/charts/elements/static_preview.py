"""A chart as a picture that needs no Plotly: what a browser shows while it still reads Plotly's five megabytes.

Drawn from the figure itself, so that both say the same; a picture answers neither pointer nor keyboard. Of plain boxes
and lines of text, since Streamlit takes vector graphics out of HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any, Final, NamedTuple

from dashboard.charts.elements.drawing import Drawing

__all__ = ["is_drawable", "still"]

_BESIDE: Final = 5
"""Room that Plotly leaves between the plot and the names at its left [px]."""
_BELOW: Final = 11
"""Distance of the middle of names below the plot [px]."""
_RAISED: Final = 41
"""Downward shift of the middle of texts at points [% of their height]."""
_TITLE: Final = 8
"""Distance of the middle of a title from the edge of the figure [px]."""

_Box = tuple[str, str, str, str]
"""Left, bottom, width and height, as CSS wants them."""


class _Plot(NamedTuple):
    """The part of a figure inside its axes: everything is placed by shares of it, from the lower left corner."""

    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[str, str]:
        """Returns a place."""
        return _format_share((x - self.x[0]) / (self.x[1] - self.x[0])), _format_share(
            (y - self.y[0]) / (self.y[1] - self.y[0])
        )

    def box(self, x: tuple[float, float], y: tuple[float, float]) -> _Box:
        """Returns a rectangle between two places each way."""
        width, height = (x[1] - x[0]) / (self.x[1] - self.x[0]), (y[1] - y[0]) / (self.y[1] - self.y[0])
        return (*self.at(x[0], y[0]), _format_share(width), _format_share(height))


def is_drawable(figure: Drawing) -> bool:
    """Returns whether `still` can draw a figure: large maps are drawn as heatmaps, and there is nothing on an empty
    one."""
    return bool(figure.traces) and all(trace["type"] in ("bar", "scatter") for trace in figure.traces)


def still(figure: Drawing) -> str:
    """Returns a figure as HTML of the figure's height that fills the width it is given.

    Draws what maps are made of: bars, texts, round markers, rectangles, notes at points, the ticks and titles of one
    pair of axes, and one colour bar. The margins and the ranges of the axes must be stated in the layout.
    """
    layout = figure.layout
    plot = _Plot(tuple(layout["xaxis"]["range"]), tuple(layout["yaxis"]["range"]))
    margin = {side: round(room) for side, room in layout["margin"].items()}  # as Plotly does
    marks: list[str] = []
    for trace in figure.traces:
        if trace["type"] == "bar":
            marks += _bar_elements(plot, trace)
        elif trace.get("marker", {}).get("showscale"):
            marks += _colour_bar(trace["marker"], margin)
        else:
            marks += _point_elements(plot, trace)
    marks += _frame_elements(plot, layout.get("shapes", ()))
    marks += _note_elements(plot, layout.get("annotations", ()))
    marks += _axis_elements(plot, layout, margin)
    inside = f"left:{margin['l']}px;right:{margin['r']}px;top:{margin['t']}px;bottom:{margin['b']}px"
    return (
        f'<div class="ss-still" aria-hidden="true" style="height:{layout["height"]}px">'
        f'<div style="{inside}">{"".join(marks)}</div></div>'
    )


def _bar_elements(plot: _Plot, trace: Mapping[str, Any]) -> Iterator[str]:
    half, marker = trace["width"] / 2, trace["marker"]
    for x, low, height, colour, shape in zip(
        trace["x"], trace["base"], trace["y"], marker["color"], marker["pattern"]["shape"], strict=True
    ):
        look = "" if shape else f"background:{colour}"
        yield _box_element(plot.box((x - half, x + half), (low, low + height)), look, "ss-hatch" if shape else "")


def _point_elements(plot: _Plot, trace: Mapping[str, Any]) -> Iterator[str]:
    """Texts or round markers."""
    for number, (x, y) in enumerate(zip(trace["x"], trace["y"], strict=True)):
        left, bottom = plot.at(x, y)
        if trace["mode"] == "text":
            yield _text_element(trace["text"][number], trace["textfont"], left, bottom, down=_RAISED)
        else:
            marker, size = trace["marker"], f"{trace['marker']['size']}px"
            look = f"background:{marker['color']};opacity:{marker['opacity']};border-radius:50%"
            yield _box_element((left, bottom, size, size), f"{look};transform:translate(-50%,50%)")


def _colour_bar(marker: Mapping[str, Any], margin: Mapping[str, Any]) -> Iterator[str]:
    """Yield the bar right of the plot: colours from the lower end up, ticks and title."""
    bar, length = marker["colorbar"], marker["colorbar"]["len"]
    low, right = (1 - length) / 2, bar["xpad"]
    stops = ",".join(f"{colour} {_format_share(place)}" for place, colour in marker["colorscale"])
    place = (f"calc(100% + {right}px)", _format_share(low), f"{bar['thickness']}px", _format_share(length))
    yield _box_element(place, f"background:linear-gradient(to top,{stops})")
    beside = f"calc(100% + {right + bar['thickness'] + _BESIDE - 2}px)"
    for tick, text in zip(bar["tickvals"], bar["ticktext"], strict=True):
        yield _text_element(text, bar["tickfont"], beside, _format_share(low + tick * length), across=0)
    title = bar["title"]
    yield _text_element(title["text"], title["font"], f"calc(100% + {margin['r'] - 2 * _TITLE}px)", "50%", turned=True)


def _frame_elements(plot: _Plot, shapes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for shape in shapes:
        line = shape["line"]
        kind = "dotted" if line["dash"] == "dot" else "solid"
        look = f"outline:{line['width']}px {kind} {line['color']};outline-offset:{-line['width'] / 2}px"
        yield _box_element(plot.box((shape["x0"], shape["x1"]), (shape["y0"], shape["y1"])), look)


def _note_elements(plot: _Plot, notes: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    across, down = {"left": 0, "right": -100}, {"top": 100, "bottom": 0}
    for note in notes:
        moved = across.get(note.get("xanchor", ""), -50), down.get(note.get("yanchor", ""), 50)
        yield _text_element(note["text"], note["font"], *plot.at(note["x"], note["y"]), across=moved[0], down=moved[1])


def _axis_elements(plot: _Plot, layout: Mapping[str, Any], margin: Mapping[str, Any]) -> Iterator[str]:
    """Names at both axes and their titles."""
    across, up = layout["xaxis"], layout["yaxis"]
    for value, text in zip(across["tickvals"], across["ticktext"], strict=True):
        yield _text_element(text, across["tickfont"], plot.at(value, plot.y[0])[0], f"{-_BELOW}px")
    for value, text in zip(up["tickvals"], up["ticktext"], strict=True):
        yield _text_element(text, up["tickfont"], f"{-_BESIDE}px", plot.at(plot.x[0], value)[1], across=-100)
    yield _text_element(across["title"]["text"], across["title"]["font"], "50%", f"{_TITLE - margin['b']}px")
    yield _text_element(up["title"]["text"], up["title"]["font"], f"{_TITLE - margin['l']}px", "50%", turned=True)


def _box_element(place: _Box, look: str, kind: str = "") -> str:
    """A box at a place. kind: its class."""
    left, bottom, width, height = place
    named = f' class="{kind}"' if kind else ""
    return f'<i{named} style="left:{left};bottom:{bottom};width:{width};height:{height};{look}"></i>'


def _text_element(
    text: str,
    font: Mapping[str, Any],
    left: str,
    bottom: str,
    *,
    across: int = -50,
    down: int = 50,
    turned: bool = False,
) -> str:
    """Return a line of text at a place, centred by default.

    across, down: shift from there [% of its width and height]; turned: whether it runs upwards.
    """
    turn = " rotate(-90deg)" if turned else ""
    look = f"font-size:{font['size']}px;color:{font['color']};transform:translate({across}%,{down}%){turn}"
    return f'<span style="left:{left};bottom:{bottom};{look}">{escape(text)}</span>'


def _format_share(value: float) -> str:
    return f"{100 * value:.3f}%"
