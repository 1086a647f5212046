"""Distribution of executions over one metric."""

from collections.abc import Sequence
from typing import Final

from dashboard.charts.elements.drawing import vertical_line
from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import Chart, empty, written
from dashboard.words.names import in_sentence
from dashboard.words.numbers import Scale, column_of, count, counted, format_value, scale_for
from engine.columns import Column

HEIGHT: Final = 84
_ROOMY: Final = 110
"""Height from which the axis has a title where its ticks have no unit [px]."""
_TONE: Final = 0.62


def histogram(
    counts: Sequence[int],
    edges: Sequence[float],
    metric: Column | str,
    mode: str = "light",
    *,
    marked: float | None = None,
    height: int = HEIGHT,
) -> Chart:
    """Draws counts per bin.

    counts: executions per bin, n of them; edges: n + 1 bin edges in the metric's unit, ascending.
    marked: value to point out with a line, such as that of the execution in view.
    """
    column, colours = column_of(metric), palette(mode)
    total = int(sum(counts))
    if total == 0 or len(edges) != len(counts) + 1:
        return empty(colours, height, "No execution to count.")
    scale = scale_for(column, edges)
    low, high = [edge / scale.factor for edge in edges[:-1]], [edge / scale.factor for edge in edges[1:]]
    bars = {
        "type": "bar",
        "x": [(a + b) / 2 for a, b in zip(low, high, strict=True)],
        "y": [int(number) for number in counts],
        # A hair narrower than the bin; nothing at all would blur into one area.
        "width": [0.94 * (b - a) for a, b in zip(low, high, strict=True)],
        "marker": {"color": colours.ramp(_TONE), "line": {"width": 0}},
        "hovertext": [
            f"<b>{format_value(column, a)} to {format_value(column, b)}</b><br>{counted(number, 'execution')}"
            for a, b, number in zip(edges[:-1], edges[1:], counts, strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    lines = []
    if marked is not None:
        place = marked / scale.factor
        lines = [vertical_line(place, colours.text, 1.6)]
    suffix = _tick_suffix(scale)
    title = "" if suffix or height < _ROOMY else scale.unit
    layout = {
        # Room that is known beforehand: to find out Plotly would draw everything twice.
        "bargap": 0,
        "margin": {"t": 2, "b": 40 if title else 22, "autoexpand": False},
        "shapes": lines,
        "xaxis": {
            "ticksuffix": suffix,
            "nticks": 6,
            "range": [low[0], high[-1]],
            "automargin": False,
            "title": {"text": title},
        },
        "yaxis": {"visible": False, "range": [0, max(counts) * 1.04]},
    }
    return Chart(written(colours, height, [bars], layout), _summarize_histogram(counts, edges, column, total))


def _tick_suffix(scale: Scale) -> str:
    """Return the tick suffix; long units are left to the title or to the heading above the chart."""
    return scale.suffix if len(scale.unit) <= 4 else ""


def _summarize_histogram(counts: Sequence[int], edges: Sequence[float], column: Column, total: int) -> str:
    fullest = max(range(len(counts)), key=lambda index: counts[index])
    return (
        f"{counted(total, 'execution')} by {in_sentence(column.label)}, from {format_value(column, edges[0])} to "
        f"{format_value(column, edges[-1])}; the fullest bin holds {count(counts[fullest])}, from "
        f"{format_value(column, edges[fullest])} to {format_value(column, edges[fullest + 1])}."
    )
