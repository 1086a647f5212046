"""The What-if page answers with what the engine finds, as numbers, words and pictures, and keeps it in the link."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import Mock, patch

import pytest
from streamlit.testing.v1 import AppTest

import engine
from dashboard.charts.size_sweep import Size, fall_off, size_bars
from dashboard.charts.surface import Side, Spot, gain_map
from dashboard.charts.sweep import Stop, sweep_line
from dashboard.charts.tornado import Swing, tornado
from dashboard.format import format_value, gibibytes, signed_percent
from dashboard.nearest_fit import enough_processors
from dashboard.palette import palette
from dashboard.plainest import best_of
from dashboard.whatif_answer import _plainly, answer
from dashboard.whatif_changes import in_words, options, text_of
from dashboard.whatif_progress import account, searching, span
from dashboard.whatif_studies import Studies, studies
from dashboard.wording import differences, title
from engine import Scenario, whatif
from engine.memory_needs import least_memory
from engine.whatif import Study
from tests.dashboard.pages import again, exploration, figure, html, plainly, run

HARDER = "hbm_bandwidth:6144;net1_bandwidth:100"


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    studies.clear()


def page(link: dict[str, str] | None = None) -> AppTest:
    return run("whatif", exploration(), link)


def settled(app: AppTest) -> AppTest:
    """The page once all its studies are done."""
    latest = time.monotonic() + 60
    while any(not each.done.is_set() for each in studies()._runs.values()):
        assert time.monotonic() < latest
        time.sleep(0.05)
    return again(app, exploration())


def test_without_changes_it_shows_the_base() -> None:
    found = html(page())
    best = exploration().best
    assert best is not None
    assert format_value("sample_rate", best["sample_rate"]).split()[0] in found
    assert "the base" in found


def test_the_answer_is_the_engines() -> None:
    found = exploration()
    answer = whatif.reoptimise(found.scenario, {"hbm_bandwidth": 6144, "net1_bandwidth": 100})
    assert answer.best is not None
    text = html(page({"whatif_changes": HARDER}))
    assert format_value("sample_rate", answer.best["sample_rate"]).split()[0] in text
    assert signed_percent(answer.gain) in text
    assert signed_percent(answer.kept_gain) in text
    assert f"TP\u00a0{answer.best['tensor_par']}" in text


def test_a_slider_changes_the_link_and_reset_takes_it_back() -> None:
    app = page()
    app.select_slider(key="_whatif_sliders_hbm_capacity").set_value(160.0)
    app = again(app, exploration())
    assert app.session_state["_url"]["whatif_changes"] == "hbm_capacity:160"
    app.button(key="whatif_reset").click()
    app = again(app, exploration())
    assert "whatif_changes" not in app.session_state["_url"]


def test_a_slider_that_leaves_a_value_of_its_own_keeps_where_it_was_moved() -> None:
    """A value of the link is one of the slider's as long as it stands there, so its values change as it moves."""
    app = page({"whatif_changes": "hbm_capacity:93.5"})
    key = "_whatif_sliders_hbm_capacity"
    assert app.select_slider(key=key).value == 93.5
    for value in (100.0, 120.0, 80.0):
        app.select_slider(key=key).set_value(value)
        app = again(app, exploration())
        assert app.select_slider(key=key).value == value
        assert app.session_state["_url"].get("whatif_changes") == (f"hbm_capacity:{value:g}" if value != 80 else None)
    app = again(app, exploration())
    assert app.select_slider(key=key).value == 80


def test_exact_values_and_model_fields() -> None:
    app = page({"whatif_input": "exact"})
    app.number_input(key="_whatif_exact_hbm_capacity").set_value(93.5)
    app = again(app, exploration())
    app.number_input(key="_whatif_exact_sequence").set_value(4096)
    app = again(app, exploration())
    assert app.session_state["_url"]["whatif_changes"] == "hbm_capacity:93.5;sequence:4096"
    answer = whatif.reoptimise(exploration().scenario, {"hbm_capacity": 93.5, "sequence": 4096})
    assert answer.best is not None
    assert format_value("sample_rate", answer.best["sample_rate"]).split()[0] in html(app)


@pytest.mark.parametrize(
    "text", ["hbm_capacity:-1", "hbm_capacity:1e999", "nonsense:4", "hbm_capacity:80;" * 60, "<script>:1", "matrix:0"]
)
def test_a_link_that_cannot_be_changes_nothing(text: str) -> None:
    app = page({"whatif_changes": text})
    assert "the base" in html(app)


def test_nothing_runs_is_an_answer() -> None:
    app = page({"whatif_changes": "hbm_capacity:0.5"})
    (warning,) = [each.value for each in app.warning if "runs after this change" in each.value]
    assert re.search(r"\. The old best: .*\. Before, TP", plainly(warning))


def test_nothing_runs_without_any_change_either() -> None:
    app = run("whatif", exploration("hopeless"))
    assert any("executions runs.**" in warning.value for warning in app.warning)


@pytest.mark.parametrize("name", ["hbm_capacity", "procs"])
def test_where_nothing_runs_it_says_how_far_off_and_one_click_makes_something_run(name: str) -> None:
    scenario = exploration("hopeless").scenario
    app = run("whatif", exploration("hopeless"))
    need = least_memory(scenario.space)["need"].min()
    said = plainly(app.warning[0].value)
    for size in (need, need - scenario.system.mem1.capacity_gib * 2**30):
        assert plainly(gibibytes(size)) in said
    assert app.selectbox(key="_whatif_one").value == "hbm_capacity"
    app.button(key=f"whatif_help_{name}").click()
    app = again(app, exploration("hopeless"))
    changed, _, value = app.session_state["_url"]["whatif_changes"].partition(":")
    assert changed == name
    assert float(value) == (math.ceil(need / 2**30) if name == "hbm_capacity" else enough_processors(scenario))
    assert whatif.reoptimise(scenario, {name: float(value)}).best is not None
    assert not app.warning
    assert "nothing ran before" in html(app)
    best = title(answer(scenario, {name: float(value)}).best or {})
    cell, others = best.split(" × DP")
    assert f">{plainly(cell)}<" in plainly(html(app))  # the tile has room for the cell, the rest stands below it
    assert f">DP{others}<" in plainly(html(app))


def test_where_a_slider_stood_before_a_change_from_elsewhere_is_no_move() -> None:
    """The browser may tell of it once more, while it asks for the studies."""
    found = exploration("hopeless")
    app = run("whatif", found)
    before = app.select_slider(key="_whatif_sliders_hbm_capacity").value
    app.button(key="whatif_help_hbm_capacity").click()
    app = again(app, found)
    changes = app.session_state["_url"]["whatif_changes"]
    after = app.select_slider(key="_whatif_sliders_hbm_capacity~1")
    assert f"hbm_capacity:{after.value:g}" == changes
    assert after.value != before
    after.set_value(before)  # a move of the slider that there is now counts
    app = again(app, found)
    assert "whatif_changes" not in app.session_state["_url"]
    assert app.select_slider(key="_whatif_sliders_hbm_capacity~1").value == before


def test_lifting_the_limits_is_offered_where_they_stand_in_the_way() -> None:
    limits = {"tensor_par": 1, "pipeline_par": 1, "weight_offload": False, "optimizer_offload": False,
              "activations_offload": False, "optimizer_sharding": False}  # fmt: skip
    found = engine.explore("gpt3-13B", "h100_80g_nvl8", num_procs=16, max_batch_size=32, datatype="float16",
                           limits=limits)  # fmt: skip
    app = run("whatif", found)
    with patch("dashboard.state.set_scenario", Mock()) as changed:
        app.button(key="whatif_help_limits").click()
        again(app, found)
    (scenario,) = changed.call_args.args
    assert not scenario.limits
    assert whatif.reoptimise(scenario, {}).best is not None


def test_the_old_best_stays_where_others_only_tie_with_it() -> None:
    """Of the executions that are equally fast after a change, the one that was best before is no worse."""
    found = answer(exploration().scenario, {"hbm_bandwidth": 6144.0, "hbm_capacity": 120.0})
    free = whatif.reoptimise(exploration().scenario, found.changes)
    assert found.best is not None
    assert free.best is not None
    assert free.kept is not None
    assert found.best["sample_rate"] == free.best["sample_rate"]
    if free.kept["sample_rate"] == free.best["sample_rate"]:
        assert not differences(free.kept, found.best)
    same = replace(free, best=free.best | {"weight_offload": True}, kept=free.best | {"weight_offload": False})
    assert _plainly(same).best == same.kept


def test_the_old_best_is_the_plainest_of_those_that_tie_though_nothing_was_explored() -> None:
    """As on the other pages, which read it from an exploration; a server that was started anew may have none."""
    found = exploration()
    plain, first = best_of(found), found.best
    assert plain is not None
    assert first is not None
    assert plain["id"] != first["id"]
    unchanged = answer(found.scenario, {})
    assert unchanged.base is not None
    assert unchanged.best is not None
    assert unchanged.base["id"] == plain["id"]
    assert not differences(plain, unchanged.best)
    changed = answer(found.scenario, {"hbm_bandwidth": 6144.0})
    kept = changed.scenario.evaluate(found.scenario.space.table([plain["id"]])).iloc[0]
    assert changed.kept is not None
    assert changed.kept["total_time"] == kept["total_time"]


def test_the_four_studies_are_drawn_from_the_engine() -> None:
    found = exploration()
    app = settled(page({"whatif_changes": "hbm_capacity:100"}))
    drawn = figure(app, "whatif_sweep")
    line = next(trace for trace in drawn["data"] if "markers" in trace.get("mode", "") and trace.get("customdata"))
    values = [point[0] for point in line["customdata"]]
    points = {point.values["net1_bandwidth"]: point for point in whatif.sweep(found.scenario, "net1_bandwidth", values)}
    assert line["y"] == pytest.approx([points[value].rate for value in values])
    cells = figure(app, "whatif_two")["data"][0]["customdata"]
    assert len(cells) == 64
    assert [50.0, 80.0] in cells
    bars = figure(app, "whatif_tornado")["data"]
    assert {row[0] for row in bars[0]["customdata"]} >= {"matrix", "hbm_bandwidth", "net1_latency"}
    sizes = figure(app, "whatif_sizes")["data"][0]
    assert [16] in sizes["customdata"]
    assert max(sizes["y"]) == 1


def test_studies_around_the_whatif_keep_its_changes() -> None:
    app = settled(page({"whatif_changes": "hbm_bandwidth:6144", "whatif_around": "whatif", "whatif_one": "matrix"}))
    drawn = figure(app, "whatif_sweep")
    line = next(trace for trace in drawn["data"] if "markers" in trace.get("mode", "") and trace.get("customdata"))
    base = exploration().scenario
    at = [point[0] for point in line["customdata"]].index(1000.0)
    answer = whatif.reoptimise(base, {"hbm_bandwidth": 6144})
    assert answer.best is not None
    assert line["y"][at] == pytest.approx(answer.best["sample_rate"])


def test_slider_values_hold_the_base_and_the_value() -> None:
    scenario = exploration().scenario
    for which in whatif.parameters(scenario):
        found = options(which, which.value * 1.5 if not which.discrete else which.value * 2)
        assert which.value in found
        assert found == sorted(set(found))
        for value in found:
            assert whatif.changed(scenario, {which.name: value}).space.total >= 0
    capacity = whatif.parameter(scenario, "hbm_capacity")
    assert plainly(in_words(capacity, 100)) == "100 GiB ×1.25"
    assert plainly(in_words(capacity, 80)) == "80 GiB"
    assert in_words(whatif.parameter(scenario, "host_capacity"), 0) == "off"
    assert text_of({"a": 1.0, "b": 2.5}) == "a:1;b:2.5"


def study(count: int, wait: float = 0.0) -> Callable[[], Study[int]]:
    def results(done: int) -> Iterator[int]:
        for number in range(done, count):
            time.sleep(wait)
            yield number

    return lambda: Study(count, results)


def test_studies_take_turns_and_are_shared() -> None:
    runner = Studies()
    try:
        slow = runner.request("slow", study(1000, 0.002))
        quick = runner.request("quick", study(5))
        assert runner.request("slow", study(1)) is slow
        assert quick.done.wait(10)
        assert not slow.done.is_set()
        assert quick.found == [0, 1, 2, 3, 4]
        assert quick.finished
        runner.cancel("slow")
        assert slow.done.wait(10)
        assert slow.cancelled
        assert 0 < len(slow.found) < 1000
        assert not slow.finished
    finally:
        runner.close()


def test_points_that_take_long_do_not_hold_up_a_study_whose_points_are_quick() -> None:
    runner = Studies()
    try:
        slow = runner.request("slow", study(1000, 0.1))
        time.sleep(0.3)
        quick = runner.request("quick", study(30, 0.002))
        before = len(slow.found)
        assert quick.done.wait(20)
        assert len(slow.found) - before < 10  # in turn they would have been 30
        found = len(slow.found)
        time.sleep(0.5)
        assert len(slow.found) > found
    finally:
        runner.close()


def test_a_study_that_was_stopped_goes_on_after_what_it_found() -> None:
    made = []

    def make() -> Study[int]:
        made.append(1)
        return study(40, 0.01)()

    runner = Studies()
    try:
        run = runner.request("study", make)
        while len(run.found) < 3:
            time.sleep(0.005)
        runner.cancel("study")
        assert run.done.is_set()
        time.sleep(0.1)  # the point that was being looked for is found yet
        stopped = len(run.found)
        assert 3 <= stopped < 40
        assert (run.cancelled, run.finished) == (True, False)
        assert runner.request("study", make) is run  # looking at it does not start it
        time.sleep(0.1)
        assert len(run.found) == stopped
        runner.go_on("study")
        assert run.done.wait(10)
        assert run.found == list(range(40))
        assert run.finished
        assert len(made) == 2
    finally:
        runner.close()


def test_stopping_while_the_last_point_is_looked_for_leaves_a_finished_study() -> None:
    runner = Studies()
    try:
        run = runner.request("study", study(2, 0.2))
        while not run.found:
            time.sleep(0.005)
        runner.cancel("study")
        latest = time.monotonic() + 10
        while len(run.found) < 2 or run.cancelled:
            assert time.monotonic() < latest
            time.sleep(0.005)
        assert run.finished
    finally:
        runner.close()


def test_a_study_nobody_looks_at_waits_and_goes_on_when_somebody_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.whatif_studies.UNWATCHED", 0.1)
    runner = Studies()
    try:
        run = runner.request("study", study(100, 0.01))
        assert run.done.wait(10)
        time.sleep(0.1)
        assert 0 < len(run.found) < 100
        assert (run.cancelled, run.finished) == (False, False)
        latest = time.monotonic() + 20
        while not run.finished:
            assert runner.request("study", study(1)) is run
            assert time.monotonic() < latest
            time.sleep(0.02)
        assert run.found == list(range(100))
    finally:
        runner.close()


def test_a_study_says_how_long_it_may_yet_take_once_its_points_tell() -> None:
    """The first point makes things ready; what tells is what follows it."""
    runner = Studies()
    runner.close()  # nothing works on them but the test
    run, short, new = (runner.request(name, study(40)) for name in ("run", "short", "new"))
    assert runner.wait_for(run) is None
    assert account(run, None) == "0 of 40 points"
    assert run.step()
    assert runner.wait_for(run) is None
    run._timed.extend([0.2, 0.2])
    assert runner.wait_for(run) is None
    run._timed.clear()
    run._timed.append(2.0)
    run.found.append(0)
    short.found = [0] * 35
    short._timed.append(2.0)
    assert runner.wait_for(short) == pytest.approx(3 * 10)  # the three share the time equally until it is done
    assert runner.wait_for(run) == pytest.approx(76 + 10 + 76)
    runner.cancel("new")
    assert new.cancelled
    assert account(run, runner.wait_for(run)) == f"2 of 40 points · {span(86)} left"


def test_times_to_wait_are_told_in_words() -> None:
    assert tuple(plainly(span(seconds)) for seconds in (0.2, 80, 100, 7200)) == ("1 s", "80 s", "2 min", "2 h")
    small = exploration().scenario
    assert searching(small) == f"Searching {small.space.total:,} executions for the best"
    many = Scenario.of(
        "deepseek-v3", "h100_80g_sxm", num_procs=1024, max_batch_size=1024, datatype="bfloat16",
        limits={"batch_size": {"min": 1}},
    )  # fmt: skip
    assert plainly(searching(many)) == "Searching 268 M executions for the best; that many may take 11 s"


def test_a_failing_study_says_so_and_hurts_no_other() -> None:
    def broken() -> Study[Any]:
        raise ValueError("No such thing.")

    runner = Studies()
    try:
        bad = runner.request("bad", broken)
        good = runner.request("good", study(3))
        assert bad.done.wait(10)
        assert good.done.wait(10)
        assert bad.problem == "No such thing."
        assert good.finished
    finally:
        runner.close()


def test_a_question_goes_first() -> None:
    runner = Studies()
    try:
        slow = runner.request("slow", study(10_000, 0.001))
        with runner.asking():
            time.sleep(0.1)
            before = len(slow.found)
            time.sleep(0.2)
            assert len(slow.found) - before <= 2
    finally:
        runner.close()


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_tornado_puts_the_widest_first_and_says_what_is_kept(mode: str) -> None:
    nan = math.nan
    swings = [Swing("a", "Little", -0.01, 0.01, -0.02, 0.0), Swing("b", "Much", -0.2, 0.1, nan, 0.05)]
    chart = tornado(swings, ("−10 %", "+10 %"), mode)
    assert list(chart.figure.layout.yaxis.ticktext) == ["Much", "Little"]
    ticks = [shape for shape in chart.figure.layout.shapes if shape.line.color == palette(mode).text]
    assert sorted(shape.x0 for shape in ticks) == pytest.approx([-2, 0, 5])
    assert "Much matters most" in chart.alt
    partly = tornado([Swing("a", "Half", -0.1, None, -0.1, None)], ("−10 %", "+10 %"), mode).figure
    assert "not computed" in partly.data[1].hovertext[0]
    assert "nothing runs" not in partly.data[1].hovertext[0]
    assert tornado([], ("", "")).alt


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


def test_sizes_say_where_efficiency_falls_off() -> None:
    sizes = [Size(8, 8.0, 0.5, "1·1"), Size(16, 15.0, 0.47, "1·2"), Size(32, 20.0, 0.3, "2·2"),
             Size(64, math.nan, math.nan, "", "too few")]  # fmt: skip
    assert fall_off(sizes) == 32
    assert "From 32 GPUs on" in size_bars(sizes, here=16).alt
    some = size_bars(sizes[1:3], here=16, every=[8, 16, 32, 64]).figure  # the others are on their way
    assert list(some.data[0].x) == [1, 2]
    assert list(some.layout.xaxis.ticktext) == ["8", "16", "32", "64"]
    assert size_bars(sizes, here=16, show="total").figure.data[0].y[2] == pytest.approx(20)
