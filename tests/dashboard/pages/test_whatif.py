"""The What-if page answers with what the engine finds, as numbers, words and pictures, and keeps it in the link."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from streamlit.testing.v1 import AppTest

import engine
from dashboard.jobs.server import studies
from dashboard.jobs.studies import Studies, StudyJob
from dashboard.jobs.whatif_answers import StudyName
from dashboard.link import scenario_parameters
from dashboard.pages.whatif.answer import _prefer_old_best, answer
from dashboard.pages.whatif.board import WhatIfBoard
from dashboard.queries.nearest_fit import enough_processors, remedies
from dashboard.queries.tie_breaking import best_of
from dashboard.words.changes import in_words, options, text_of
from dashboard.words.executions import differences
from dashboard.words.numbers import format_value, gibibytes, signed_percent
from engine import Exploration, whatif
from engine.executions.execution_names import execution_name
from engine.executions.tie_order import plainest_of
from engine.exploration.memory_requirements import least_memory
from engine.questions.changes import change_question
from engine.questions.documents.explorations import FiguresQuestion
from engine.recommendation import change_table
from engine.whatif import PointSequence
from tests.dashboard.page_runs import COARSE, again, exploration, figure, html, plainly, run
from tests.dashboard.server import own_server

HARDER = "hbm_bandwidth:6144;net1_bandwidth:100"


MADE = Studies.made


@pytest.fixture(autouse=True, scope="module")
def _nobody_looks_at_studies() -> Iterator[None]:
    """Most tests of this file do not; those that do ask for them."""
    studies().close()
    with only():
        yield
    studies().close()


@contextmanager
def unstudied() -> Iterator[None]:
    """Has studies end before they find anything, for tests of other cards."""
    with patch.object(StudyJob, "work", side_effect=ValueError("Nobody looks at this study.")):
        yield
    studies().close()


@contextmanager
def only(*names: StudyName) -> Iterator[None]:
    """Has other studies end before they find anything."""

    def made(of: Studies, name: StudyName, *arguments: Any, largest: float) -> PointSequence[Any]:
        if name not in names:
            raise ValueError("Nobody looks at this study.")
        return MADE(of, name, *arguments, largest=largest)

    with patch.object(Studies, "made", made):
        yield


@contextmanager
def every_study() -> Iterator[None]:
    """Has all studies find what there is, also those that were refused before."""
    studies().close()
    with patch.object(Studies, "made", MADE):
        yield


FASTEST = FiguresQuestion(figures_of="fastest")


def page(link: dict[str, str] | None = None) -> AppTest:
    return run("whatif", exploration(), {"figures": "fastest", **(link or {})})


@contextmanager
def waited_for() -> Iterator[None]:
    """Has the page wait for its studies before it draws them, where it would draw what there is and look again."""
    ask = WhatIfBoard._runs

    def found(board: WhatIfBoard) -> Any:
        asked = ask(board)
        assert all(each is None or each.wait(60) for each in asked)
        return asked

    with patch.object(WhatIfBoard, "_runs", found):
        yield


def studied(link: dict[str, str] | None = None, found: Exploration | None = None) -> AppTest:
    """The page with all its studies done."""
    with waited_for():
        return run("whatif", found or exploration(), {"figures": "fastest", **(link or {})})


def settled(app: AppTest, found: Exploration | None = None) -> AppTest:
    """The page once all its studies are done."""
    assert all(each.wait(60) for each in studies().board.jobs(studies().kind))
    return again(app, found or exploration())


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
    assert app.number_input(key="_whatif_exact_procs").label == "GPUs · base 16"  # the unit is not said twice
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
    assert app.selectbox(key="_whatif_one").value == remedies(scenario, scenario.key)[0].name
    app.button(key=f"whatif_help_{name}").click()
    app = again(app, exploration("hopeless"))
    changed, _, value = app.session_state["_url"]["whatif_changes"].partition(":")
    assert changed == name
    assert float(value) == (math.ceil(need / 2**30) if name == "hbm_capacity" else enough_processors(scenario))
    assert whatif.reoptimise(scenario, {name: float(value)}).best is not None
    assert not app.warning
    assert "nothing ran before" in html(app)
    best = execution_name(answer(change_question(scenario, {name: float(value)})).best or {})
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
    limits = {
        "tensor_par": 1,
        "pipeline_par": 1,
        "weight_offload": False,
        "optimizer_offload": False,
        "activations_offload": False,
        "optimizer_sharding": False,
    }
    found = engine.explore(
        "gpt3-13B", "h100_80g_nvl8", num_procs=16, max_batch_size=32, datatype="float16", limits=limits
    )
    app = run("whatif", found)
    app.button(key="whatif_help_limits").click()
    again(app, found)
    scenario = scenario_parameters.read_scenario(app.session_state["_url"]).scenario
    assert not scenario.limits
    assert whatif.reoptimise(scenario, {}).best is not None


def test_the_old_best_stays_where_others_only_tie_with_it() -> None:
    """Of the executions that are equally fast after a change, the one that was best before is no worse."""
    found = answer(change_question(exploration().scenario, {"hbm_bandwidth": 6144.0, "hbm_capacity": 120.0}, FASTEST))
    free = whatif.reoptimise(exploration().scenario, found.changes)
    assert found.best is not None
    assert free.best is not None
    assert free.kept is not None
    assert found.best["sample_rate"] == free.best["sample_rate"]
    if free.kept["sample_rate"] == free.best["sample_rate"]:
        assert not differences(free.kept, found.best)
    same = replace(free, best=free.best | {"weight_offload": True}, kept=free.best | {"weight_offload": False})
    assert _prefer_old_best(same).best == same.kept


def test_the_old_best_is_the_plainest_of_those_that_tie_though_nothing_was_explored() -> None:
    """As on the other pages, which read it from an exploration; a server that was started anew may have none."""
    found = exploration()
    plain, first = best_of(found), found.best
    assert plain is not None
    assert first is not None
    assert plain["id"] != first["id"]
    unchanged = answer(change_question(found.scenario, {}, FASTEST))
    assert unchanged.base is not None
    assert unchanged.best is not None
    assert unchanged.base["id"] == plain["id"]
    assert not differences(plain, unchanged.best)
    changed = answer(change_question(found.scenario, {"hbm_bandwidth": 6144.0}, FASTEST))
    kept = changed.scenario.evaluate(found.scenario.space.table([plain["id"]])).iloc[0]
    assert changed.kept is not None
    assert changed.kept["total_time"] == kept["total_time"]


def test_the_four_studies_are_drawn_from_the_engine() -> None:
    found = exploration()
    with every_study():
        app = settled(page({"whatif_changes": "hbm_capacity:100"}))
    drawn = figure(app, "whatif_sweep")
    line = next(trace for trace in drawn["data"] if "markers" in trace.get("mode", "") and trace.get("customdata"))
    values = [point[0] for point in line["customdata"]]
    points = {point.values["net1_bandwidth"]: point for point in whatif.sweep(found.scenario, "net1_bandwidth", values)}
    assert line["y"] == pytest.approx([points[value].rate for value in values])
    cells = figure(app, "whatif_two")["data"][0]["customdata"]
    assert len(cells) == len(COARSE) ** 2
    assert [50.0, 80.0] in cells
    bars = figure(app, "whatif_tornado")["data"]
    assert {row[0] for row in bars[0]["customdata"]} >= {"matrix", "hbm_bandwidth", "net1_latency"}
    sizes = figure(app, "whatif_sizes")["data"][0]
    assert [16] in sizes["customdata"]
    assert max(sizes["y"]) == 1


def test_studies_around_the_whatif_keep_its_changes() -> None:
    with only("sweep"):
        app = studied({"whatif_changes": "hbm_bandwidth:6144", "whatif_around": "whatif", "whatif_one": "matrix"})
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
    batch = whatif.parameter(exploration().scenario, "batch")
    assert plainly(in_words(batch, 367_567_200)).startswith("367,567,200 sequences")
    assert in_words(whatif.parameter(scenario, "host_capacity"), 0) == "off"
    assert text_of({"a": 1.0, "b": 2.5}) == "a:1;b:2.5"


def test_what_this_server_does_not_explore_it_does_not_search_either() -> None:
    """A search cannot be stopped: one of a space that takes hours would keep a thread of the server busy for as "
    "long."""
    scenario = exploration().scenario
    larger = whatif.changed(scenario, {"batch": 48.0})
    assert scenario.space.total < larger.space.total
    # The study of either page is waited for: what a unit is worth stands there only once it is done.
    with own_server(None, LARGEST_SPACE=scenario.space.total), only("sensitivity"):
        found = studied({"whatif_changes": "batch:48;hbm_bandwidth:6144"})
        same = studied({"whatif_changes": "hbm_bandwidth:6144"})
    said = " ".join(each.value for each in found.warning).replace("\\", "")
    assert f"The space has {larger.space.total:,} executions" in said
    assert "It is left as it was" in said
    assert html(found) == html(same)
    with own_server(None, LARGEST_SPACE=scenario.space.total - 1):
        refused = page()
    assert f"this server explores up to {scenario.space.total - 1:,}" in refused.error[0].value.replace("\\", "")


def test_an_amount_changes_a_parameter_and_what_is_none_is_refused() -> None:
    app = page({"whatif_input": "amounts"})
    field = next(each for each in app.text_input if each.key.startswith("_whatif_amounts_hbm_bandwidth"))
    assert field.placeholder == "+1 TB/s"
    field.set_value("+1 TB/s")
    app = again(app, exploration())
    bandwidth = exploration().scenario.system.mem1.bandwidth_gb_per_s
    assert app.session_state["_url"]["whatif_changes"] == f"hbm_bandwidth:{bandwidth + 1000:g}"
    field = next(each for each in app.text_input if each.key.startswith("_whatif_amounts_hbm_bandwidth"))
    assert field.value == "+1000 GB/s"
    field.set_value("+1 GiB")
    app = again(app, exploration())
    assert "not in 'GiB'" in plainly([each.value for each in app.toast])
    assert app.session_state["_url"]["whatif_changes"] == f"hbm_bandwidth:{bandwidth + 1000:g}"


def test_the_table_has_each_change_alone_and_all_together_for_the_file_too() -> None:
    link = {
        "whatif_changes": "hbm_bandwidth:6144;hbm_capacity:120",
        "whatif_table_sizes": "8",
        "figures": "recommended",
    }
    with every_study():
        app = studied(link)
    text = plainly(html(app))
    changes = {"hbm_bandwidth": 6144.0, "hbm_capacity": 120.0}
    rows = list(change_table(exploration().scenario, changes, counts=[8], choose=plainest_of))
    assert len(rows) == 6
    for row in rows:
        assert f"<td>{plainly(signed_percent(row.gain))}</td>" in text
        assert row.execution in text
    assert text.count("All together") == 2
