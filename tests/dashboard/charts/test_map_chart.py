"""The map of cells: its figure, its colours, the picture that stands for it, its caption."""

import math
import re
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.colour_scale import Domain, ramp_for
from dashboard.charts.elements.palette import DARK, LIGHT, contrast, palette
from dashboard.charts.elements.static_preview import is_drawable, still
from dashboard.charts.explored.best_map import MOST_LABELS
from dashboard.charts.explored.degree_map import degree_map
from dashboard.words import numbers
from tests.dashboard.page_runs import plainly

GIB = 2.0**30
PALETTES = [LIGHT, DARK]


def cells(values: list[list[float]], **more: Any) -> pd.DataFrame:
    """Return a map whose rows are TP 1, 2, 4, ... and whose columns are PP 1, 2, 4, ...; NaN does not fit."""
    rows = []
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            fits = not math.isnan(value)
            rows.append(
                {
                    "tensor_par": 2**row,
                    "pipeline_par": 2**column,
                    "value": value,
                    "total": 100,
                    "feasible": 40 if fits else 0,
                    "id": 10 * row + column if fits else None,
                    "reason": None if fits else "memory",
                    "reason_text": None if fits else "It needs 95 GiB more.",
                    "shortfall_bytes": math.nan if fits else 94.2 * GIB,
                    **more,
                }
            )
    return pd.DataFrame(rows)


def bars(figure: go.Figure) -> Any:
    """Return the one bar trace of a cell map."""
    (trace,) = [trace for trace in figure.data if trace.type == "bar"]
    return trace


def labels(figure: go.Figure) -> dict[tuple[int, int], tuple[str, str]]:
    """Return text and colour of every label of a cell map by (x, y)."""
    return {
        (x, y): (label, trace.textfont.color)
        for trace in figure.data
        if trace.type == "scatter" and trace.mode == "text"
        for x, y, label in zip(trace.x, trace.y, trace.text, strict=True)
    }


LEVELS = ("≤ 40", "50", "60", "70", "80", "90", "100")
TITLES = ("Pipeline parallel (PP)", "Tensor parallel (TP)")
MAP = [[math.nan, 305.0, 473.0], [500.0, 612.0, 703.0], [527.0, 820.0, 54.9]]


def test_every_cell_shows_its_value_and_identity() -> None:
    figure = degree_map(cells(MAP), "sample_rate").figure
    shown = labels(figure)
    trace = bars(figure)
    assert len(trace.x) == 9
    for x, y, base, custom in zip(trace.x, trace.y, trace.base, trace.customdata, strict=True):
        row = round(base + y / 2)
        value = MAP[row][x]
        assert list(custom) == [2**row, 2**x, -1 if math.isnan(value) else 10 * row + x]
        assert shown[x, row][0] == ("+94" if math.isnan(value) else numbers.plain(value))


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_hatch_is_on_infeasible_cells_and_nowhere_else(mode: str) -> None:
    trace = bars(degree_map(cells(MAP), "sample_rate", mode).figure)
    shapes = zip(trace.x, trace.base, trace.marker.pattern.shape, strict=True)
    hatched = {(x, round(base + 0.475)) for x, base, shape in shapes if shape == "/"}
    assert hatched == {(0, 0)}
    for shape, colour in zip(trace.marker.pattern.shape, trace.marker.color, strict=True):
        assert (colour == palette(mode).muted) == (shape == "/")


@pytest.mark.parametrize(("metric", "best"), [("sample_rate", 820.0), ("total_time", 54.9)])
@pytest.mark.parametrize("domain", ["near best", "from zero", "logarithmic"])
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_best_is_strongest_in_either_direction(metric: str, best: float, domain: Domain, mode: str) -> None:
    colours = palette(mode)
    figure = degree_map(cells(MAP), metric, mode, domain=domain).figure
    trace = bars(figure)
    paint = {
        MAP[round(b + 0.475)][x]: colour for x, b, colour in zip(trace.x, trace.base, trace.marker.color, strict=True)
    }
    order = sorted((value for value in paint if not math.isnan(value)), reverse=metric == "sample_rate")
    distances = [contrast(paint[value], colours.background) for value in order]
    assert order[0] == best
    assert distances == sorted(distances, reverse=True)
    assert distances[0] > distances[-1]
    if domain != "from zero" or metric == "sample_rate":
        assert paint[best] == colours.sequential[-1]
    star = [note for note in figure.layout.annotations if note.text == "★"]
    assert len(star) == 1
    assert MAP[round(star[0].y - 0.46)][round(star[0].x - 0.44)] == best


def test_colours_below_forty_percent_of_the_best_are_clipped() -> None:
    trace = bars(degree_map(cells([[100.0, 41.0, 40.0, 39.0, 1.0]]), "sample_rate").figure)
    assert trace.marker.color[2] == trace.marker.color[4] == LIGHT.sequential[0]
    assert trace.marker.color[1] != LIGHT.sequential[0]


@pytest.mark.parametrize("colours", PALETTES, ids=["light", "dark"])
def test_labels_are_legible_on_the_whole_ramp(colours: Any) -> None:
    table = cells([[float(row * 14 + column) for column in range(14)] for row in range(1, 15)])
    figure = degree_map(table, "sample_rate", colours.mode).figure
    trace, shown = bars(figure), labels(figure)
    worst = min(
        contrast(colour, shown[x, round(base + 0.475)][1])
        for x, base, colour in zip(trace.x, trace.base, trace.marker.color, strict=True)
    )
    assert worst >= 4.5


def test_selected_cell_is_framed_and_absent_selection_is_not() -> None:
    framed = degree_map(cells(MAP), "sample_rate", selected=(4, 2), base_cell=(1, 4)).figure.layout.shapes
    boxes = [((shape.x0 + shape.x1) / 2, (shape.y0 + shape.y1) / 2, shape.line.dash) for shape in framed]
    assert boxes == [(2, 0, "dot"), (1, 2, "solid"), (1, 2, "solid")]
    assert not degree_map(cells(MAP), "sample_rate", selected=(3, 3)).figure.layout.shapes


def test_pairs_without_executions_are_dots_not_cells() -> None:
    table = cells(MAP)
    table.loc[(table["tensor_par"] == 2) & (table["pipeline_par"] == 2), "total"] = 0
    figure = degree_map(table, "sample_rate").figure
    assert len(bars(figure).x) == 8
    dots = [trace for trace in figure.data if trace.type == "scatter" and trace.marker.size == 2.5]
    assert [(list(trace.x), list(trace.y)) for trace in dots] == [([1], [1])]


def test_a_large_map_becomes_a_heatmap_that_still_reports_cells() -> None:
    side = math.isqrt(MOST_LABELS) + 1
    table = pd.DataFrame(
        [
            {
                "tensor_par": row,
                "pipeline_par": column,
                "value": math.nan if row == column else row + column / 100,
                "total": 1,
                "feasible": 1,
                "id": 7,
                "reason": "",
                "reason_text": "",
                "shortfall_bytes": 0.0,
            }
            for row in range(1, side + 1)
            for column in range(1, side + 1)
        ]
    )
    figure = degree_map(table, "sample_rate").figure
    assert not [trace for trace in figure.data if trace.type == "bar"]
    overlay = [trace for trace in figure.data if trace.customdata is not None]
    assert len(overlay) == 1
    assert len(overlay[0].x) == side * side
    (heat,) = [trace for trace in figure.data if trace.type == "heatmap"]
    drawn = np.array(heat.z, dtype=float)
    assert np.isnan(drawn).sum() == side
    assert np.nanargmax(drawn) == side * side - 2  # the last cell is on the diagonal and does not fit


def test_the_caption_of_a_map_names_the_unit_of_its_cells() -> None:
    assert "the best setting with this TP and PP, in GiB." in markup.map_legend(512, "GiB")
    assert "the fastest setting with this TP and PP." in markup.map_legend(512, "", fastest=True)
    nothing = markup.map_legend(512, "GiB", runs=False)
    assert "best" not in nothing
    assert "GiB the nearest lacks" in nothing


@pytest.mark.parametrize(
    ("values", "lower", "domain", "expected"),
    [
        ([200.0, 50.0], False, "near best", ("≤ 40", "100", "% of best")),
        ([200.0, 50.0], True, "near best", ("≥ 2.5", "1", "× best")),
        ([200.0, 50.0], False, "from zero", ("0", "200", "samples/s")),
        ([200.0, 50.0], True, "logarithmic", ("200", "50", "samples/s")),
        ([200.0], False, "logarithmic", ("200", "200", "samples/s")),
    ],
)
def test_one_legend_says_what_the_colours_of_several_maps_stand_for(
    values: list[float], lower: bool, domain: Domain, expected: tuple[str, str, str]
) -> None:
    scale = numbers.scale_for(numbers.column_of("sample_rate"), values)
    ends = ramp_for(values, lower_is_better=lower, domain=domain).ends(scale)
    assert ends == expected
    said = markup.ramp(*ends)
    assert f"Colours from {expected[0]} to {expected[1]} {expected[2]}" in said
    assert said.index(LIGHT.sequential[0]) < said.index(LIGHT.sequential[-1])


def test_maps_with_a_legend_for_all_have_no_bars_of_their_own() -> None:
    alone, shared = (degree_map(cells(MAP), "sample_rate", bar=bar).figure for bar in (True, False))
    carriers = [
        [trace for trace in figure.data if "colorbar" in trace.marker.to_plotly_json()] for figure in (alone, shared)
    ]
    assert [len(found) for found in carriers] == [1, 0]
    assert shared.layout.margin.r < alone.layout.margin.r
    assert bars(alone).marker.color == bars(shared).marker.color


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_picture_of_a_map_has_its_colours_and_words(mode: str) -> None:
    table = cells(MAP).iloc[:-1]
    chart = degree_map(table, "sample_rate", mode, selected=(2, 4))
    assert is_drawable(chart.drawing)
    picture, figure = still(chart.drawing), chart.figure
    trace = bars(figure)
    plain = [colour for colour, shape in zip(trace.marker.color, trace.marker.pattern.shape, strict=True) if not shape]
    assert re.findall(r"background:(#\w{6})\"", picture) == plain
    assert picture.count("ss-hatch") == 1
    written = re.findall(r"<span [^>]*>([^<]*)</span>", picture)
    values = [label for label, _ in labels(figure).values()]
    assert sorted(written) == sorted([*values, *"124124", "★", *LEVELS, "% of best", *TITLES])
    # The hatched cell is the lower left one of three by three: 0.95 of a place, with 0.02 around all of them.
    place = re.findall(r"ss-hatch\" style=\"left:(.*?)%;bottom:(.*?)%;width:(.*?)%;height:(.*?)%", picture)
    assert [float(share) for share in place[0]] == pytest.approx(2 * [4.5 / 3.04] + 2 * [95 / 3.04], abs=1e-3)


def test_a_picture_is_of_small_maps_and_its_words_are_not_markup() -> None:
    assert not is_drawable(degree_map(cells([[1.0]]).iloc[:0], "sample_rate").drawing)
    side = math.isqrt(MOST_LABELS) + 1
    assert not is_drawable(degree_map(cells([[1.0] * side] * side), "sample_rate").drawing)
    drawing = degree_map(cells(MAP), "sample_rate").drawing
    drawing.update_xaxes(title="<script>")
    assert "<script>" not in still(drawing)
    assert "&lt;script&gt;" in still(drawing)


def test_maps_without_any_value_say_so() -> None:
    assert "nothing fits" in degree_map(cells([[math.nan]]), "sample_rate").alt
    assert "No pair" in degree_map(cells([[1.0]]).iloc[:0], "sample_rate").alt


def test_infinite_values_are_the_worst_and_printed() -> None:
    figure = degree_map(cells([[1e9, math.inf, 2e9]]), "offload_mem_bw_req").figure
    assert labels(figure)[1, 0][0] == "∞"
    assert bars(figure).marker.color[1] == LIGHT.sequential[0]


@pytest.mark.parametrize(
    ("gib", "expected"),
    [
        (94.2, "+94"),
        (10.0, "+10"),
        (0.34, "+0.3"),
        (0.001, "+0.1"),
        (1023.0, "+1,023"),
        (1024.0, "+1.0T"),
        (1500.0, "+1.5T"),
        (20_480.0, "+20T"),
        (0.0, "–"),
        (math.nan, "–"),
    ],
)
def test_the_label_of_a_shortfall_agrees_with_sentences_and_never_says_zero(gib: float, expected: str) -> None:
    assert numbers.shortfall(gib * GIB) == expected


@given(
    st.lists(st.one_of(st.floats(allow_nan=True), st.just(0.0)), min_size=1, max_size=20),
    st.booleans(),
    st.sampled_from(["near best", "from zero", "logarithmic"]),
)
def test_ramp_is_monotone_and_within_bounds(values: list[float], lower: bool, domain: Domain) -> None:
    known = [value for value in values if math.isfinite(value) and abs(value) < 1e300]
    ramp = ramp_for(known, lower_is_better=lower, domain=domain)
    places = [ramp.position(value) for value in sorted(known, reverse=lower)]
    assert all(0 <= place <= 1 for place in places)
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (7.1, 9.6, ["7.5", "8.0", "8.5", "9.0", "9.5"]),  # no power of ten, no 1, 2 or 5 of one
        (9.601, 9.618, ["9.605", "9.610", "9.615"]),
        (2.2, 9.0, ["4", "6", "8"]),
        (0.9, 90.0, ["1", "2", "5", "10", "20", "50"]),
        (5.0, 5000.0, ["10", "100", "1,000"]),
        (1e-3, 1e9, ["0.001", "0.1", "10", "1,000", "100,000", "1 × 10⁷", "1 × 10⁹"]),
    ],
)
def test_a_logarithmic_colour_bar_has_ticks_over_any_range(low: float, high: float, expected: list[str]) -> None:
    ramp = ramp_for([low, high], lower_is_better=False, domain="logarithmic")
    places, texts, unit = ramp.ticks(numbers.Scale(1.0, "samples/s"))
    assert [plainly(word) for word in texts] == expected
    assert unit == "samples/s"
    values = [float(word) for word in expected] if high < 1000 else np.geomspace(10, 1000, 3) if low == 5 else None
    if values is not None:  # where each stands follows from its logarithm
        assert places == pytest.approx([math.log(value / low) / math.log(high / low) for value in values])


@given(st.floats(1e-4, 1e9), st.floats(1e-5, 1e6))
def test_a_logarithmic_colour_bar_has_at_least_three_ticks(low: float, wider: float) -> None:
    ramp = ramp_for([low, low * (1 + wider)], lower_is_better=True, domain="logarithmic")
    places, texts, _ = ramp.ticks(numbers.Scale(1.0, ""))
    assert 3 <= len(texts) == len(set(texts)) <= 13
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
