"""The card on the system's size: likely sizes, every size of a range, and what stands out among them."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts.size_sweep import Size, fall_off, size_chart, slower
from dashboard.whatif_studies import studies
from engine import best_of, whatif
from tests.dashboard.pages import again, exploration, figure, plainly, run
from tests.dashboard.test_whatif import settled


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    studies.clear()


def page(**link: str) -> AppTest:
    return settled(run("whatif", exploration(), dict(link)))


def test_sizes_say_where_efficiency_falls_off() -> None:
    sizes = [Size(8, 8.0, 0.5, "1·1"), Size(16, 15.0, 0.47, "1·2"), Size(32, 20.0, 0.3, "2·2"),
             Size(64, math.nan, math.nan, "", "too few")]  # fmt: skip
    assert fall_off(sizes) == 32
    assert "From 32 GPUs on" in size_chart(sizes, here=16).alt
    some = size_chart(sizes[1:3], here=16, every=[8, 16, 32, 64]).figure  # the others are on their way
    assert list(some.data[0].x) == [1, 2]
    assert list(some.layout.xaxis.ticktext) == ["8", "16", "32", "64"]
    assert size_chart(sizes, here=16, show="total").figure.data[0].y[2] == pytest.approx(20)


def test_a_larger_machine_that_does_less_stands_out() -> None:
    rates = {8: 8.0, 16: 15.0, 24: 14.0, 32: math.nan, 40: 14.9, 48: 15.0, 56: 15.1}
    sizes = [Size(procs, rate, 0.4, "1·1") for procs, rate in rates.items()]
    assert slower(sizes[::-1]) == [24, 40]
    assert "2 sizes of them do less than a smaller one" in size_chart(sizes, here=16).alt
    chart = size_chart(sizes, here=16, every=range(8, 8 * 40, 8), show="total").figure
    line, points = chart.data
    assert list(points.x) == list(rates)
    assert points.y[1] == 15
    assert line.y[3] is None  # a gap where nothing runs
    symbols = dict(zip(points.x, points.marker.symbol, strict=True))
    assert {procs for procs, symbol in symbols.items() if symbol == "circle-open"} == {24, 40}
    assert symbols[32].startswith("x")
    assert [each[0] for each in points.customdata] == list(rates)
    chart = size_chart(sizes, here=16, every=range(8, 8 * 40, 8)).figure
    shares = chart.data[1].y
    assert shares[2] == pytest.approx(14 / 24 / 1.0)
    assert chart.layout.yaxis.range[0] < shares[3] < min(*shares[:3], *shares[4:])  # its cross stands below all others


def test_every_size_of_a_range_is_the_engines_optimum() -> None:
    app = page(whatif_range="4..34:1")
    points = figure(app, "whatif_sizes")["data"][1]
    assert list(points["x"]) == list(range(4, 35))
    scenario = exploration().scenario
    rates = {count: best_of(whatif.changed(scenario, {"procs": count})).get("sample_rate", math.nan)
             for count in (8, 12, 16, 31)}  # fmt: skip
    each = {count: rate / count for count, rate in rates.items()}
    shares = points["y"]
    assert shares[12] / shares[4] == pytest.approx(each[16] / each[8])
    assert shares[8] / shares[4] == pytest.approx(each[12] / each[8])
    assert math.isnan(rates[31]) == points["marker"]["symbol"][27].startswith("x")


def test_the_range_is_typed_and_taken_back() -> None:
    app = page()
    app.button_group(key="_whatif_range_which").set_value("every")
    app = settled(again(app, exploration()))
    # Whole nodes up to twice the scenario's 16 processors.
    assert app.session_state["_url"]["whatif_range"] == "8..32:8"
    app.number_input(key="_whatif_range_1").set_value(40.0)
    app = settled(again(app, exploration()))
    assert app.session_state["_url"]["whatif_range"] == "8..40:8"
    key = next(each.key for each in app.button_group if str(each.key).startswith("_whatif_range_which"))
    app.button_group(key=key).set_value("likely")
    app = again(app, exploration())
    assert "whatif_range" not in app.session_state["_url"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [("1..99999:1", "99,999 sizes"), ("9..8:1", "no size"), ("8..16:0", "step between sizes"),
     ("0..8:1", "number of GPUs"), ("1..999999999999:1", "2,147,483,647")],
)  # fmt: skip
def test_a_range_that_is_none_is_told_in_a_sentence(text: str, sentence: str) -> None:
    app = page(whatif_range=text)
    assert sentence in plainly([each.value for each in app.warning])
    app.number_input(key="_whatif_range_2").set_value(4.0)  # it is typed again where it was wrong
    app = again(app, exploration())
    assert app.session_state["_url"]["whatif_range"] == f"{text.partition(':')[0]}:4"


@pytest.mark.parametrize("text", ["<script>", "8..", "8..16", "-8..16:8", "1e3..2e3:1"])
def test_what_is_no_range_leaves_the_likely_sizes(text: str) -> None:
    app = page(whatif_range=text)
    assert "range of sizes" in str(app.session_state["_url_problems"])
    assert len(figure(app, "whatif_sizes")["data"]) == 1
