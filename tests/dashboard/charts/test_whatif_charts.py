"""Charts of What-if: tornado, sweeps, sizes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from dashboard.charts.elements.drawing import Drawing
from dashboard.charts.elements.palette import palette
from dashboard.charts.elements.template import stacked
from dashboard.charts.what_if.surface import Side, Spot, gain_map
from dashboard.charts.what_if.sweep import Stop, sweep_line
from dashboard.charts.what_if.tornado import Swing, tornado
from dashboard.words.numbers import signed_percent


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_tornado_puts_the_widest_first_and_says_what_is_kept(mode: str) -> None:
    nan = math.nan
    swings = [Swing("a", "Little", -0.01, 0.01, -0.02, 0.0), Swing("b", "Much", -0.2, 0.1, nan, 0.05)]
    chart = tornado(swings, ("−10 %", "+10 %"), mode)
    assert list(chart.figure.layout.yaxis.ticktext) == ["Much", "Little"]
    ticks = [shape for shape in chart.figure.layout.shapes if shape.line.color == palette(mode).text]
    assert sorted(shape.x0 for shape in ticks) == pytest.approx([-2, 0, 5])
    assert "Much matters most" in chart.alt
    # Beside the line of the fixed layout stands its own number, not the bar's.
    texts = [note.text for note in chart.figure.layout.annotations]
    assert {"−2.0 | −1.0", "−20.0", "+10.0", "+1.0"} <= set(texts)
    partly = tornado([Swing("a", "Half", -0.1, None, -0.1, None)], ("−10 %", "+10 %"), mode).figure
    assert "not computed" in partly.data[1].hovertext[0]
    assert "nothing runs" not in partly.data[1].hovertext[0]
    assert tornado([], ("", "")).alt


def test_on_a_phone_the_tornado_has_names_above_bars_and_marks_as_long_as_beside_them() -> None:
    swings = [Swing(f"p{place}", f"Parameter {place}", -0.1, 0.1, -0.2, 0.05) for place in range(5)]
    chart = tornado(swings, ("−10 %", "+10 %"))
    wide, narrow = chart.drawing, stacked(chart.drawing)
    assert chart.rows
    assert not narrow.layout["yaxis"]["showticklabels"]
    assert {swing.label for swing in swings} <= {note["text"] for note in narrow.layout["annotations"]}

    def lengths(drawing: Drawing) -> list[float]:
        """Of the marks, in thicknesses of bars; the line at zero runs through all rows."""
        marks = [abs(mark["y1"] - mark["y0"]) for mark in drawing.layout["shapes"]]
        return [length / drawing.traces[0]["width"] for length in marks if length < 1]

    assert len(lengths(wide)) == 10
    assert lengths(narrow) == pytest.approx(lengths(wide))
    assert narrow.traces[0]["width"] < wide.traces[0]["width"]


def test_the_sweep_marks_where_the_best_changes() -> None:
    stops = [Stop(10, 100, 90, "1·2·4"), Stop(20, 120, 95, "1·2·4"), Stop(40, 150, math.nan, "2·2·2")]
    chart = sweep_line(stops, "Bandwidth", "GB/s", at_base=20, whatif=(40, 150))
    assert "changes 1 time;" in chart.alt.replace(".", ";")
    texts = [each.text for each in chart.figure.layout.annotations]
    assert {"1·2·4", "base", "what-if"} <= set(texts)
    assert "Nothing runs" in sweep_line([Stop(1, math.nan, math.nan, "")], "x", "y", at_base=1).alt


SWEPT = [12.5, 15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 100, 120, 150, 200]
SHAPES: dict[str, tuple[Callable[[float], float], Callable[[float], float], tuple[float, float] | None]] = {
    "what-if beside the base": (lambda v: 90 + v / 20, lambda v: min(90 + v / 20, 50 + v), (48, 92)),
    "what-if at the foot": (lambda v: 90 + v / 20, lambda v: math.nan if v < 50 else 60.0, (50.5, 60.2)),
    "saturating": (lambda v: 9.7 - 20 / v, lambda v: 9.7 - 20 / v - (0.4 if v < 18 else 0), None),
    "level": (lambda _: 100.0, lambda _: 100.0, (60, 100)),
    "what-if at the end": (lambda v: 10 * math.log(v), lambda v: 9.9 * math.log(v) - 30 / v, (200, 53)),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("width", [360, 760])
def test_names_on_a_sweep_cover_neither_each_other_nor_a_line(shape: str, width: int) -> None:
    best, kept, whatif = SHAPES[shape]
    stops = [Stop(value, best(value), kept(value), "8·4·2") for value in SWEPT]
    layout = sweep_line(stops, "Bandwidth", "GB/s", at_base=50, whatif=whatif).figure.layout
    left, right = map(float, layout.xaxis.range)
    low, high = map(float, layout.yaxis.range)
    height = 348 - 24 - 46

    def across(value: float) -> float:
        return (value - left) / (right - left) * width

    def up(rate: float) -> float:
        return (rate - low) / (high - low) * height

    boxes = {}
    for each in layout.annotations:
        if each.yref == "paper":
            continue  # above the plot
        wide, tall = 5.6 * len(each.text), 11.0
        x = across(each.x) + (each.xshift or 0) - wide * {"left": 0, "center": 0.5, "right": 1}[each.xanchor]
        y = up(each.y) + (each.yshift or 0) + (2 if each.yanchor == "bottom" else -2)
        y -= tall * {"bottom": 0, "middle": 0.5, "top": 1}[each.yanchor]
        boxes[each.text] = (x, x + wide, y, y + tall)
    assert "base" in boxes
    assert ("what-if" in boxes) == (whatif is not None)
    for name, (x0, x1, y0, y1) in boxes.items():
        assert min(x0, y0, width - x1, height + 12 - y1) >= 0, name
        for other, (a0, a1, b0, b1) in boxes.items():
            assert name == other or min(x1, a1) <= max(x0, a0) or min(y1, b1) <= max(y0, b0), (name, other)
        for rate in (best, kept):
            known = [math.log10(value) for value in SWEPT if math.isfinite(rate(value))]
            for part in range(200):
                at = known[0] + (known[-1] - known[0]) * part / 199
                within = x0 <= across(at) <= x1 and y0 <= up(rate(10**at)) <= y1
                assert not within, f"{name} covers a line at {10**at:.4g}"


def test_ends_of_a_sweep_lie_within_the_chart() -> None:
    """Plotly draws no labels beyond the chart, and puts the title of an axis without labels at minus infinity."""
    stops = [Stop(12.5, 2.3, 2.3, "a"), Stop(200, 2.4, 2.4, "a")]
    left, right = sweep_line(stops, "Bandwidth", "GB/s", at_base=50).figure.layout.xaxis.range
    for end, text in ((math.log10(12.5) - left, "12.5"), (right - math.log10(200), "200")):
        assert end / (right - left) * 360 >= 6 * len(text) / 2


def test_studies_in_which_nothing_runs_say_so() -> None:
    nan = math.nan
    assert "Nothing runs" in tornado([Swing("a", "HBM", nan, nan, nan, nan)], ("−10 %", "+10 %")).alt
    spots = [Spot(x, y, nan, "") for x in (1.0, 2.0) for y in (1.0, 2.0)]
    side = Side("Bandwidth", "GB/s", [1.0, 2.0], 1)
    chart = gain_map(spots, side, side, 0.0)
    assert "nothing runs" in chart.alt
    assert not chart.figure.data
    assert gain_map(spots[:3], side, side, 0.0).figure.data  # the last may still run
    some = gain_map([*spots[:3], Spot(2.0, 2.0, 5.0, "TP 1")], side, side, 0.0)
    assert "best here" in some.alt
    assert "±0" in {text for trace in some.figure.data[1:-1] for text in trace.text}


@pytest.mark.parametrize("count", [3, 20])
def test_the_map_of_two_holds_every_spot(count: int) -> None:
    values = [float(number + 1) for number in range(count)]
    spots = [Spot(x, y, math.nan if x == y == 1 else 10 * x, "TP 1") for x in values for y in values]
    side = Side("A", "GB/s", values, 1.0, 2.0)
    chart = gain_map(spots, side, side, 20.0)
    points = [list(point) for trace in chart.figure.data if trace.customdata is not None for point in trace.customdata]
    assert sorted(points) == sorted([spot.x, spot.y] for spot in spots)
    assert f"{signed_percent(10 * count / 20 - 1)} at {count} GB/s" in chart.alt
    assert len(chart.figure.layout.shapes) == 2


@pytest.mark.parametrize("degrees", ["TP 4 × PP 1", "TP 4 × PP 4 × DP 32"])
def test_names_of_bands_lie_within_the_margin_above(degrees: str) -> None:
    stops = [Stop(value, 100.0 + value, 100.0 + value, degrees) for value in (10.0, 20.0, 40.0, 80.0)]
    layout = sweep_line(stops, "Bandwidth", "GB/s", at_base=20).figure.layout
    (name,) = [note for note in layout.annotations if note.yref == "paper"]
    lines = name.text.count("<br>") + 1
    assert layout.margin.t >= name.yshift + lines * 1.25 * name.font.size
