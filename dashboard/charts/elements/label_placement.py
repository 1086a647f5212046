"""Placement of names on a chart: clear of its lines, its marks and earlier names.

Plotly does not move annotations that overlap. Sizes are estimates for the narrowest plot in which the chart is drawn;
on a wider one everything is farther apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

__all__ = ["LINE_HEIGHT", "Box", "Place", "Room", "annotation", "text_width"]

LINE_HEIGHT: Final = 15.0
"""Height of a line of small text [px]."""

_ADVANCE: Final = 5.9
"""Mean width of a character of small text [px]."""
_STEP: Final = 3.0
"""Distance of the sample points of a line [px]."""
_OUTSIDE: Final = 4.0
"""Penalty for a pixel outside the plot, in covered points of a line."""

_BEFORE: Final = {"left": 0.0, "center": 0.5, "right": 1.0}
_BELOW: Final = {"bottom": 0.0, "middle": 0.5, "top": 1.0}


class Box(NamedTuple):
    """A rectangle of the plot [px], from its lower left corner."""

    left: float
    bottom: float
    right: float
    top: float

    def overlap(self, other: Box) -> float:
        """Returns the area that both cover [px²]."""
        wide = min(self.right, other.right) - max(self.left, other.left)
        high = min(self.top, other.top) - max(self.bottom, other.bottom)
        return wide * high if wide > 0 and high > 0 else 0.0


class Place(NamedTuple):
    """A place for a name, as an annotation has it: axis coordinates, anchors, and shifts [px]."""

    x: float
    y: float
    xanchor: str = "center"
    yanchor: str = "middle"
    xshift: float = 0.0
    yshift: float = 0.0


def text_width(text: str) -> float:
    """Returns the estimated width of small text [px]."""
    return _ADVANCE * len(text)


class Room:
    """Occupied places of a plot, in pixels."""

    def __init__(self, x: tuple[float, float], y: tuple[float, float], width: float, height: float) -> None:
        """x, y: ranges of the axes as Plotly has them, logarithms on a logarithmic axis. width, height [px]."""
        self._x, self._y, self._width, self._height = x, y, width, height
        self._points: list[tuple[float, float]] = []
        self._boxes: list[Box] = []

    def line(self, points: Sequence[tuple[float, float]]) -> None:
        """Adds a line through points that are finite."""
        spots = [self._pixels(*point) for point in points]
        for (x0, y0), (x1, y1) in pairwise(spots):
            parts = max(1, math.ceil(math.hypot(x1 - x0, y1 - y0) / _STEP))
            self._points += [(x0 + (x1 - x0) * part / parts, y0 + (y1 - y0) * part / parts) for part in range(parts)]
        self._points += spots[-1:]

    def mark(self, x: float, y: float, size: float) -> None:
        """Adds a mark of `size` [px]."""
        across, up = self._pixels(x, y)
        self._boxes.append(Box(across - size / 2, up - size / 2, across + size / 2, up + size / 2))

    def put(self, text: str, places: Sequence[Place]) -> Place:
        """Returns the first of the places that cover least, and keep it free from now on."""
        costs = [self.cost(self.box(text, place)) for place in places]
        best = places[costs.index(min(costs))]
        self._boxes.append(self.box(text, best))
        return best

    def box(self, text: str, place: Place) -> Box:
        """Returns what a name would cover."""
        x, y = self._pixels(place.x, place.y)
        wide = text_width(text)
        left = x + place.xshift - wide * _BEFORE[place.xanchor]
        bottom = y + place.yshift - LINE_HEIGHT * _BELOW[place.yanchor]
        return Box(left, bottom, left + wide, bottom + LINE_HEIGHT)

    def cost(self, box: Box) -> float:
        """Returns how much a name there would cover or stick out; 0 where it is clear of everything."""
        x, y = np.array(self._points or [(math.inf, math.inf)]).T
        covered = float(np.sum((box.left <= x) & (x <= box.right) & (box.bottom <= y) & (y <= box.top)))
        covered += sum(box.overlap(other) for other in self._boxes)
        beyond = (-box.left, -box.bottom, box.right - self._width, box.top - self._height)
        return covered + _OUTSIDE * sum(max(0.0, pixels) for pixels in beyond)

    def _pixels(self, x: float, y: float) -> tuple[float, float]:
        across, up = ((at - ends[0]) / (ends[1] - ends[0]) for at, ends in ((x, self._x), (y, self._y)))
        return across * self._width, up * self._height


def annotation(place: Place) -> dict[str, Any]:
    """Returns a place as arguments of `dashboard.charts.elements.template.noted`."""
    return place._asdict()
