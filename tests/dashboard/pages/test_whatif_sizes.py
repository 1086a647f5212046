"""The card on the system's size: likely sizes, every size of a range, and what stands out among them."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts.what_if.scaling_study import Size, fall_off, size_chart, slower
from dashboard.jobs.server import studies
from dashboard.jobs.studies import Studies
from dashboard.link.document_validation import scenario_of
from engine import Exploration, best_of, whatif
from tests.dashboard.page_runs import COARSE, again, exploration, figure, plainly, run
from tests.dashboard.pages.test_whatif import MADE, only, studied, waited_for


@pytest.fixture(autouse=True, scope="module")
def _found_once() -> Iterator[None]:
    """What studies of the page found stays for the tests of this file, which look at the same few spaces; most look at
    the sizes only."""
    studies().close()
    with only("shown_sizes"):
        yield
    studies().close()


def found() -> Exploration:
    """A small space, as the studies of the page search it for every point."""
    return exploration("tight")


def page(**link: str) -> AppTest:
    return studied(dict(link), found())


def searched(app: AppTest) -> AppTest:
    """The page once more after a widget was changed, with all its studies done."""
    with waited_for():
        return again(app, found())


def test_sizes_say_where_efficiency_falls_off() -> None:
    sizes = [
        Size(8, 8.0, 0.5, "1·1"),
        Size(16, 15.0, 0.47, "1·2"),
        Size(32, 20.0, 0.3, "2·2"),
        Size(64, math.nan, math.nan, "", "too few"),
    ]
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
    with patch("dashboard.charts.what_if.scaling_study.MOST_BARS", 8):  # of more there are points
        app = page(whatif_range="4..34:2")
    points = figure(app, "whatif_sizes")["data"][1]
    assert list(points["x"]) == list(range(4, 35, 2))
    scenario = found().scenario
    rates = {
        count: best_of(whatif.changed(scenario, {"procs": count})).get("sample_rate", math.nan)
        for count in (8, 12, 16, 34)
    }
    each = {count: rate / count for count, rate in rates.items()}
    shares = points["y"]
    assert shares[6] / shares[2] == pytest.approx(each[16] / each[8])
    assert shares[4] / shares[2] == pytest.approx(each[12] / each[8])
    assert math.isnan(rates[34]) == points["marker"]["symbol"][15].startswith("x")


def test_the_range_is_typed_and_taken_back() -> None:
    app = page()
    app.button_group(key="_whatif_range_which").set_value("every")
    app = searched(app)
    # Whole nodes up to twice the scenario's 16 processors.
    assert app.session_state["_url"]["whatif_range"] == "8..32:8"
    app.number_input(key="_whatif_range_1").set_value(40.0)
    app = searched(app)
    assert app.session_state["_url"]["whatif_range"] == "8..40:8"
    key = next(each.key for each in app.button_group if str(each.key).startswith("_whatif_range_which"))
    app.button_group(key=key).set_value("likely")
    app = again(app, found())
    assert "whatif_range" not in app.session_state["_url"]


def test_fields_of_the_range_that_are_typed_before_either_is_drawn_again_both_count() -> None:
    app = page(whatif_range="8..32:8")
    app.number_input(key="_whatif_range_0").set_value(4.0)
    app.number_input(key="_whatif_range_1").set_value(24.0)
    app.number_input(key="_whatif_range_2").set_value(2.0)
    app = again(app, found())
    assert app.session_state["_url"]["whatif_range"] == "4..24:2"


@pytest.mark.parametrize(
    ("link", "sentence"),
    [
        ({}, "Highlighted: this scenario."),
        ({"whatif_changes": "procs:32"}, "Highlighted: the what-if's number of GPUs."),
        ({"whatif_changes": "procs:32", "whatif_around": "whatif"}, "Highlighted: this what-if."),
    ],
)
def test_what_is_highlighted_is_told(link: dict[str, str], sentence: str) -> None:
    app = page(whatif_range="8..32:8", **link)
    assert sentence in plainly([each.value for each in app.caption])


def test_where_efficiency_falls_off_is_told_of_the_sizes_shown() -> None:
    scenario, counts = found().scenario, (8, 32, 56, 80, 104, 128)
    each = {count: best_of(whatif.changed(scenario, {"procs": count}))["sample_rate"] / count for count in counts}
    low = [count for count in counts if each[count] < 0.9 * max(each.values())]
    falls = min(count for count in counts if set(low) >= {larger for larger in counts if larger >= count})
    told = plainly(" ".join(each.value for each in page(whatif_range="8..128:24").caption))
    assert f"From {falls} GPUs on, throughput per GPU is under 90 % of the best." in told
    # What a bar prints is on the same side of it as the bar.
    for share in (0.9, 0.90001, 0.8999, 0.8951, 0.896, 0.86, 0.89999999):
        sizes = [Size(1, 100.0, 0.5, "1·1"), Size(2, 200.0 * share, 0.5, "1·2")]
        printed = [each.text for each in size_chart(sizes, here=1).figure.layout.annotations]
        number = float(next(text for text in printed if text not in ("100", "1·1", "1·2")))
        assert (number < 90) == (fall_off(sizes) == 2), share


def test_where_nothing_runs_the_smallest_size_that_does_is_told() -> None:
    hopeless = exploration("hopeless")
    runs = {count: bool(best_of(whatif.changed(hopeless.scenario, {"procs": count}))) for count in range(28, 41, 4)}
    assert not all(runs[count] for count in runs if count > min(count for count in runs if runs[count]))
    app = studied({"whatif_range": "28..40:4"}, hopeless)
    told = plainly([each.value for each in app.caption])
    assert f"The smallest that runs has {min(count for count in runs if runs[count])} GPUs." in told
    app = studied({"whatif_range": "8..16:8"}, hopeless)
    assert "Nothing runs at any of them." in plainly([each.value for each in app.caption])


@pytest.mark.parametrize(
    ("batch", "words"),
    [("kept", "a batch of at most 32 sequences."), ("scaled", "a batch in proportion to the GPUs.")],
)
def test_what_the_batch_is_at_every_size_is_told(batch: str, words: str) -> None:
    app = page(whatif_range="8..24:8", whatif_batch=batch)
    assert f"Throughput of the fastest execution at each size with {words}" in plainly(
        [each.value for each in app.caption]
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1..99999:1", "99,999 sizes"),
        ("9..8:1", "no size"),
        ("8..16:0", "step between sizes"),
        ("0..8:1", "number of GPUs"),
        ("1..999999999999:1", "2,147,483,647"),
    ],
)
def test_a_range_that_is_none_is_told_in_a_sentence(text: str, sentence: str) -> None:
    app = run("whatif", found(), {"whatif_range": text})
    assert sentence in plainly([each.value for each in app.warning])
    app.number_input(key="_whatif_range_2").set_value(4.0)  # it is typed again where it was wrong
    app = again(app, found())
    assert app.session_state["_url"]["whatif_range"] == f"{text.partition(':')[0]}:4"


@pytest.mark.parametrize("text", ["<script>", "8..", "8..16", "-8..16:8", "1e3..2e3:1"])
def test_what_is_no_range_leaves_the_likely_sizes(text: str) -> None:
    app = page(whatif_range=text)
    assert "range of sizes" in str(app.session_state["_url_problems"])
    assert len(figure(app, "whatif_sizes")["data"]) == 1


def test_what_the_studies_found_is_a_file_that_explains_itself() -> None:
    link = {
        "whatif_range": "8..24:8",
        "whatif_changes": "hbm_bandwidth:6144",
        "whatif_around": "whatif",
        "whatif_one": "hbm_capacity",
    }
    with patch.object(Studies, "made", MADE), patch("streamlit.download_button") as button:
        page(**link)
    assert button.call_args.kwargs["file_name"].endswith("_studies.csv.zip")
    with zipfile.ZipFile(io.BytesIO(button.call_args.kwargs["data"]())) as packed:
        about = json.loads(packed.read("about.json"))
        tables = {Path(name).stem: pd.read_csv(packed.open(name)) for name in about["files"]}
        assert {f"{name}.csv" for name in tables} | {"about.json"} == set(packed.namelist())
    # With what the file says of itself the engine finds the same.
    scenario = scenario_of(about["scenario"], "The file")
    (change,) = about["changed_in_all"].values()
    assert change == 6144
    assert tables["sizes"]["procs [GPUs]"].tolist() == [8, 16, 24]
    for count, rate in zip((8, 16, 24), tables["sizes"]["sample_rate [samples/s]"], strict=True):
        best = best_of(whatif.changed(scenario, {"hbm_bandwidth": 6144, "procs": count}))
        assert rate == pytest.approx(best.get("sample_rate", math.nan), rel=1e-12, nan_ok=True)
    swept = tables["sweep"].set_index("hbm_capacity [GiB]")
    answer = whatif.reoptimise(scenario, {"hbm_bandwidth": 6144, "hbm_capacity": 40})
    assert answer.best is not None
    assert swept.loc[40, "sample_rate [samples/s]"] == pytest.approx(answer.best["sample_rate"], rel=1e-12)
    assert swept.loc[40, "tensor_par"] == answer.best["tensor_par"]
    shared = ["parameter", "label", "unit", "base", "factor", "value"]
    assert list(tables["parameters"])[: len(shared)] == shared
    assert len(tables["sweep_two"]) == len(COARSE) ** 2
    known = {column["name"] for column in about["columns"]}
    named = {name.partition(" [")[0].removeprefix("fixed_layout_") for table in tables.values() for name in table}
    assert named <= known | {*shared, "feasible", "problem"}
