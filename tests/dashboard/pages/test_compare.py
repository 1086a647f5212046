"""The Compare page: scenarios side by side on equal axes, what differs between them, and a link that holds them all."""

from __future__ import annotations

import functools
import math
import re
from html import unescape
from urllib.parse import parse_qsl, urlencode

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts.explored.difference import aligned_steps, difference_map
from dashboard.link import scenario_parameters
from dashboard.queries.compared_scenarios import Member, told
from dashboard.queries.scenario_differences import differences
from dashboard.queries.tie_breaking import best_of
from dashboard.words.executions import differences as choices_that_differ
from dashboard.words.numbers import format_value, gibibytes, relative
from engine import Exploration, Scenario, whatif
from tests.dashboard.page_runs import again, exploration, explored_by_server, figure, html, plainly, run

OTHER = "~hbm_bandwidth:6144;hbm_capacity:40"


def page(link: dict[str, str]) -> AppTest:
    """The page with figures of the fastest."""
    return run("compare", exploration(), {"figures": "fastest", **link})


@functools.cache
def two() -> AppTest:
    """The page with two scenarios, which several tests read."""
    return page({"compare_b": OTHER})


def other() -> Exploration:
    return explored_by_server(whatif.changed(exploration().scenario, {"hbm_bandwidth": 6144, "hbm_capacity": 40}))


def differences_shown(app: AppTest) -> pd.DataFrame:
    """The table of what differs."""
    markup = next(str(element.value) for element in app.html if ">Field</th>" in str(element.value))
    cells = [re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", row) for row in markup.split("<tr>")[1:]]
    return pd.DataFrame([[unescape(cell) for cell in row] for row in cells[1:]], columns=cells[0])


def test_alone_it_says_how_to_add_another() -> None:
    app = page({})
    assert "Add one to three scenarios" in app.info[0].value


@pytest.mark.parametrize(
    ("button", "differs"), [("procs", "GPUs"), ("hbm_bandwidth", "HBM bandwidth"), ("cost_model", "Cost model")]
)
def test_a_suggestion_is_one_click(button: str, differs: str) -> None:
    app = page({})
    app.button(key=f"compare_suggest_{button}").click()
    app = again(app, exploration())
    assert app.session_state["_url"]["compare_b"]
    shown = differences_shown(app)
    assert any(differs.lower() in str(field).lower() for field in shown["Field"])


def test_two_scenarios_are_compared() -> None:
    app = two()
    first, second = best_of(exploration()), best_of(other())
    assert first is not None
    assert second is not None
    text = html(app)
    assert format_value("sample_rate", second["sample_rate"]).split()[0] in text
    assert f"{relative(second['sample_rate'], first['sample_rate'])} against A" in text
    maps = [figure(app, f"compare_map_{letter}") for letter in "AB"]
    for axis in ("xaxis", "yaxis"):
        assert maps[0]["layout"][axis]["ticktext"] == maps[1]["layout"][axis]["ticktext"]
    assert len(figure(app, "compare_difference")["data"][0]["customdata"]) == len(exploration().by_cell())
    assert "setting with this TP and PP" in text
    assert "Colours from ≤ 40 to 100 % of best" in text


def test_what_does_not_fit_is_compared_too_and_says_how_far_off_it_is() -> None:
    least = whatif.changed(exploration().scenario, {"hbm_capacity": 0.5})
    app = page({"compare_b": "~hbm_capacity:0.5"})
    lacking = explored_by_server(least).by_cell().sort_values("shortfall_bytes").iloc[0]
    assert lacking["shortfall_hbm_bytes"] > 0
    said = f"nothing fits: the nearest lacks {gibibytes(lacking['shortfall_hbm_bytes'])} of HBM"
    assert plainly(said) in plainly(html(app))


def test_equal_values_have_equal_colours() -> None:
    app = page({"compare_b": "~net1_bandwidth:50.000001", "compare_c": "~hbm_bandwidth:6144"})
    fills = [figure(app, f"compare_map_{letter}")["data"][0]["marker"]["color"] for letter in "ABC"]
    assert fills[0] == fills[1]
    assert fills[0] != fills[2]


def test_a_whole_scenario_travels_in_the_link() -> None:
    scenario = Scenario.of("gpt3-13B", "a100_80g", num_procs=32, max_batch_size=32, datatype="float16")
    app = page({"compare_b": urlencode(scenario_parameters.parameters_of(scenario))})
    best = explored_by_server(scenario).best
    assert best is not None
    assert format_value("sample_rate", best["sample_rate"]).split()[0] in html(app)
    table = differences_shown(app)
    assert table.loc[table["Field"] == "GPUs", ["A", "B"]].to_numpy().tolist() == [["16", "32"]]


def test_an_edited_system_travels_too() -> None:
    scenario = whatif.changed(exploration().scenario, {"net0_latency": 3})
    app = page({"compare_b": urlencode(scenario_parameters.parameters_of(scenario))})
    table = differences_shown(app)
    assert table["Field"].tolist().count("NVLink latency, µs") == 1
    assert table.loc[table["Field"] == "NVLink latency, µs", "B"].item() == "3"


@pytest.mark.parametrize("text", ["~matrix:x", "~nothing:3", "~procs:1e12", "garbage", "scenario=AAAA", "~matrix:nan"])
def test_a_damaged_link_says_so(text: str) -> None:
    app = page({"compare_b": text})
    told = [element.value for element in (*app.warning, *app.info)]
    assert told


def test_removing_one_leaves_the_others() -> None:
    app = page({"compare_b": OTHER, "compare_c": "~procs:8"})
    app.segmented_control(key="_compare_pair").select("BC")
    app = again(app, exploration())
    app.button(key="compare_remove_compare_b").click()
    app = again(app, exploration())
    assert app.session_state["_url"]["compare_b"] == "~procs:8"
    assert "compare_c" not in app.session_state["_url"]
    assert len(figure(app, "compare_map_B")["data"]) > 0
    assert not app.warning  # nobody is to blame for a pair that is gone


def test_another_becomes_a_and_none_is_lost() -> None:
    base = exploration().scenario
    app = page({"compare_b": OTHER, "compare_c": "~procs:8"})
    app.button(key="compare_open_compare_b").click()
    app = again(app, explored_by_server(other().scenario))
    held = [dict(parse_qsl(app.session_state["_url"][slot])) for slot in ("compare_b", "compare_c")]
    assert scenario_parameters.read_scenario(app.session_state["_url"]).scenario.key == other().scenario.key
    assert scenario_parameters.read_scenario(held[0]).scenario.key == base.key
    assert scenario_parameters.read_scenario(held[1]).scenario.key == whatif.changed(base, {"procs": 8}).key


def test_a_variant_is_added() -> None:
    app = page({})
    app.selectbox(key="compare_what").select("procs")
    app = again(app, exploration())
    app.button(key="compare_add_variant").click()
    app = again(app, exploration())
    assert app.session_state["_url"]["compare_b"] == "~procs:32"


def test_differences_are_those_of_the_documents() -> None:
    base = exploration().scenario
    after = whatif.changed(base, {"hbm_capacity": 100, "sequence": 4096, "procs": 32})
    rows = {label: values for _, label, values in differences([base, after])}
    assert rows["HBM capacity, GiB"] == ["80", "100"]
    assert rows["Sequence length, tokens"] == ["2,048", "4,096"]
    assert rows["GPUs"] == ["16", "32"]
    assert set(rows) == {"HBM capacity, GiB", "Sequence length, tokens", "GPUs", "Executions"}
    limited = Scenario(base.model, base.system, 16, 32, "float16", {"tensor_par": {"min": 1, "max": 4}})
    assert ("Limits", "Tensor parallel", ["–", "1 to 4"]) in differences([base, limited])
    assert differences([base, base]) == []


MOE = {"system": "h100_80g_sxm", "num_procs": 64, "max_batch_size": 64, "datatype": "bfloat16"}


def test_a_mixture_of_experts_is_compared_by_its_architecture() -> None:
    base = Scenario.of("qwen3-30B-A3B", **MOE)
    rows = {label: values for _, label, values in differences([base, whatif.changed(base, {"power": 800})])}
    assert rows == {"Design power, W": ["700", "800"]}
    models_apart = differences([base, Scenario.of("mixtral-8x7B", **MOE), Scenario.of("llama-3-8B", **MOE)])
    said = {label: values for group, label, values in models_apart if group == "Model"}
    assert said["Experts"] == ["128", "8", "–"]
    assert said["Width of an expert"] == ["768", "14,336", "–"]
    assert said["Hidden size"] == ["2,048", "4,096", "4,096"]
    assert not any("published" in label.lower() for label in said)
    assert differences([base, base]) == []


def test_the_page_compares_mixtures_of_experts() -> None:
    base = explored_by_server(Scenario.of("qwen3-30B-A3B", **{**MOE, "num_procs": 8, "max_batch_size": 8}))
    app = run("compare", base, {"compare_b": "~power:800"})
    shown = differences_shown(app)
    assert list(shown["Field"]) == ["Design power, W"]
    assert figure(app, "compare_map_B")["data"]


def test_numbers_of_gpus_have_thousands_separators_in_every_table() -> None:
    first, second = {"num_procs": 512, "tensor_par": 8}, {"num_procs": 1024, "tensor_par": 8}
    assert ("GPUs", "512", "1,024") in choices_that_differ(first, second)


def test_what_a_scenario_changes_is_said_once() -> None:
    base = exploration().scenario
    one = Member("B", "compare_b", whatif.changed(base, {"hbm_capacity": 40}), {"hbm_capacity": 40})
    name, more = told(one, base)
    assert plainly(name) == "A with HBM capacity 40 GiB (×0.5)"
    assert "HBM" not in more
    assert "FP16" in more


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize(("metric", "sign"), [("sample_rate", 1), ("total_time", -1)])
def test_the_difference_says_who_is_better(mode: str, metric: str, sign: int) -> None:
    cells = {"tensor_par": [1, 2, 4], "pipeline_par": [1, 1, 1]}
    first = pd.DataFrame({**cells, "value": [1.0, 2.0, math.nan]})
    second = pd.DataFrame({**cells, "value": [2.0, 1.0, 3.0]})
    chart = difference_map(first, second, metric, mode)
    labels = [each.text for each in chart.figure.layout.annotations]
    assert labels == (["+100", "−50.0", "only B"] if sign > 0 else ["−50.0", "+100", "only B"])
    assert "better in 1 cells, worse in 1" in chart.alt


def test_steps_share_one_axis() -> None:
    rows = [row for row in (exploration().best, other().best) if row is not None]
    chart = aligned_steps(rows, ["A", "B"])
    assert chart.figure.layout.xaxis.range == chart.figure.layout.xaxis2.range
    assert format_value("total_time", rows[1]["total_time"]) in chart.alt


def test_memory_of_all_is_on_one_scale_with_the_capacity_of_each() -> None:
    app = two()
    drawn = figure(app, "compare_memory")
    bests = [best_of(exploration()), best_of(other())]
    letters = ["A", "B"]
    panels = {trace["xaxis"] for trace in drawn["data"]}
    for tier, axis in enumerate(sorted(panels)):
        needs = [best[f"proc_mem_tier{tier + 1}_cap_req"] for best in bests]  # type: ignore[index]
        for letter, need in zip(letters, needs, strict=True):
            place = drawn["layout"][f"y{axis.replace('x', 'axis')}"]
            row = place["tickvals"][place["ticktext"].index(letter)]
            mine = [trace for trace in drawn["data"] if trace["xaxis"] == axis]
            drawn_gib = sum(trace["x"][trace["y"].index(row)] for trace in mine)
            assert drawn_gib == pytest.approx(need / 2**30, rel=1e-9)
    lines = [shape["x0"] for shape in drawn["layout"]["shapes"] if shape["xref"] == "x"]
    assert sorted(lines) == [40, 80]
    reach = drawn["layout"]["xaxis"]["range"][1]
    assert reach >= 80
    named = {trace["name"] for trace in drawn["data"]}
    assert {"Weights", "Activations"} <= named


def test_cost_models_are_compared_and_named() -> None:
    app = page({})
    app.selectbox(key="compare_what").select("cost_model")
    app = again(app, exploration())
    app.button(key="compare_add_variant").click()
    app = again(app, exploration())
    sent = scenario_parameters.read_scenario(dict(parse_qsl(app.session_state["_url"]["compare_b"]))).scenario
    assert sent.cost_model == "calibrated"
    assert ("Run", "Cost model", ["Calculon", "Calibrated"]) in differences([exploration().scenario, sent])
    best = best_of(explored_by_server(sent))
    assert best is not None
    assert format_value("sample_rate", best["sample_rate"]).split()[0] in html(app)
    assert set(figure(app, "compare_map_B")["layout"]["xaxis"]["ticktext"])
