"""The Explore page shows what the engine found, for the default scenario and for whatever a link asks for."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.jobs import server
from dashboard.link import scenario_parameters
from dashboard.link.examples import EXAMPLES, Example
from dashboard.link.figures import FiguresView
from dashboard.pages.registry import page
from dashboard.queries import explorations
from dashboard.queries.economics import metrics, token_flops, utilisation
from dashboard.widgets import needed_exploration
from dashboard.widgets.needed_exploration import PendingExploration
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, format_value, percent
from engine import Exploration, Scenario, explore, explore_scenario
from engine.executions.codes import OFFLOADS
from engine.store import StoreCondition
from tests.dashboard.link.test_sharing import complete, folded, nested
from tests.dashboard.page_runs import ROOT, figure, html, plainly, plots, progress
from tests.dashboard.server import own_server

SMALL = {"model": "gpt3-13B", "system": "h100_80g_nvl8", "procs": "16", "batch": "32", "type": "float16"}
FEW = "weight_offload:off;activations_offload:off;optimizer_offload:off"
BARE = (
    "weight_offload:off;activations_offload:off;optimizer_offload:off;optimizer_sharding:off;activation_recompute:none"
)


@pytest.fixture(scope="module", autouse=True)
def _memory_only() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDSCAPE_STORE", "off")
        server.server.clear()
        yield
        server.server.clear()


@functools.cache
def expected(*batches: int) -> Exploration:
    """The small scenario, by default with the largest batch only."""
    limits = {"batch_size": list(batches)} if batches else {}
    return explore_scenario(
        Scenario.of("gpt3-13B", "h100_80g_nvl8", num_procs=16, max_batch_size=32, datatype="float16", limits=limits)
    )


def opened(**parameters: str) -> AppTest:
    """The application at a link, run until its exploration is there."""
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    for name, value in parameters.items():
        app.query_params[name] = value
    return settled(app)


def settled(app: AppTest) -> AppTest:
    """Run the page until nothing is under way. A server without patience answers at once, so that runs measure no time:
    the exploration has a minute, however often the page is drawn in it."""
    latest = time.monotonic() + 60
    while time.monotonic() < latest:
        app.run()
        assert not app.exception, [error.value for error in app.exception]
        if not app.get("progress"):
            return app
    raise AssertionError("the exploration never ended")


def map_values(app: AppTest) -> dict[tuple[int, int], str]:
    """What each cell of the map prints, from its hover text, by (tensor, pipeline)."""
    bars = figure(app, "explore_map")["data"][0]
    return {(tp, pp): text for (tp, pp, _), text in zip(bars["customdata"], bars["hovertext"], strict=True)}


def test_the_default_page_shows_the_best_of_llama_on_512_h100s_below_examples_until_they_are_dismissed() -> None:
    app = opened(figures="fastest")
    direct = explore_scenario(
        Scenario.of(
            "llama-3.1-70B",
            "h100_80g_sxm",
            num_procs=512,
            max_batch_size=1024,
            datatype="bfloat16",
            limits=dict.fromkeys(OFFLOADS, False),
        )
    )
    best = direct.best
    assert direct.scenario.cost_model == "calibrated"
    assert direct.scenario.model.seq_size == 8_192
    assert best is not None
    text = html(app)
    value = format_value("sample_rate", best["sample_rate"])
    assert f'aria-label="Throughput {value}' in text
    assert f'aria-label="Feasible {count(direct.feasible)}' in text
    assert len(map_values(app)) == len(direct.by_cell().drop_duplicates(["tensor_par", "pipeline_par"]))
    assert any("378,108 executions" in plainly(part.value).replace("\\", "") for part in app.markdown)
    assert not app.warning
    assert not app.error
    assert EXAMPLES[0].title in html(app)
    offered = [button.label for button in app.button if str(button.key).startswith("example_")]
    assert offered == [one.title for one in EXAMPLES[1:]]
    app.button(key="examples_dismiss").click().run()
    assert not any(str(button.key).startswith("example") for button in app.button)
    away = opened(**SMALL)
    assert not any(str(button.key).startswith("example") for button in away.button)


def test_an_example_is_explored_with_a_click() -> None:
    """It is only begun here: it is the largest of the examples."""
    with own_server(None, PATIENCE=0):
        app = opened()
        app.button(key="example_codesign").click().run()
        assert "gpt3-175B" in app.query_params["model"]
        app.button(key="job_stop_exploration").click().run()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.name)
def test_examples_are_links_that_are_taken_as_they_stand(example: Example) -> None:
    if example.page == "explore":
        reading = scenario_parameters.read_scenario(example.parameters)
        assert reading.problems == ()
        told = scenario_parameters.parameters_of(reading.scenario)
        assert scenario_parameters.read_scenario(told) == reading
    else:
        assert example.parameters.keys() <= page(example.page).parameters.keys()


def test_every_cell_of_the_map_has_the_engine_s_value() -> None:
    app = opened(**SMALL, metric="total_time")
    cells = expected().by_cell("total_time")
    shown = map_values(app)
    assert set(shown) == set(zip(cells["tensor_par"], cells["pipeline_par"], strict=True))
    for row in cells.to_dict("records"):
        if row["feasible"]:
            text = shown[row["tensor_par"], row["pipeline_par"]]
            assert f"Step time {format_value('total_time', row['value'])}" in text


@pytest.mark.parametrize(
    ("metric", "parts"),
    [
        ("bubble_share", ["bubble_time"]),
        (
            "comm_exposed_share",
            ["tp_comm_exposed_time", "recomm_exposed_time", "pp_comm_exposed_time", "dp_comm_exposed_time"],
        ),
    ],
)
def test_every_cell_of_the_map_has_the_share_in_its_fastest_execution(metric: str, parts: list[str]) -> None:
    app = opened(**SMALL, metric=metric)
    pair = ["tensor_par", "pipeline_par"]
    rows = expected().rows.table([*pair, "id", "sample_rate", "total_time", *parts]).to_pandas()
    fastest = rows.sort_values(["sample_rate", "id"], ascending=[False, True]).groupby(pair).first()
    shares = fastest[parts].sum(axis=1) / fastest["total_time"]
    shown = map_values(app)
    assert len(shares) > 4
    assert shares.max() > 0
    for cell, share in shares.items():
        assert f" share {format_value(metric, share)}" in shown[cell]
    assert "Each cell: the fastest" in html(app)
    assert "best throughput with the choice fixed" in html(app)


def test_changing_the_model_explores_the_other_model() -> None:
    app = opened(**SMALL, limits=FEW, figures="fastest")
    app.selectbox(key="sentence_model").select("gpt3-6.7B")
    settled(app)
    other = explore_scenario(
        Scenario.of(
            "gpt3-6.7B",
            "h100_80g_nvl8",
            num_procs=16,
            max_batch_size=32,
            datatype="float16",
            limits=dict.fromkeys(OFFLOADS, False),
        )
    )
    assert other.best is not None
    assert f'aria-label="Throughput {format_value("sample_rate", other.best["sample_rate"])}' in html(app)
    assert app.query_params["model"] == "gpt3-6.7B"


def test_a_system_without_the_datatype_takes_one_that_it_has() -> None:
    app = opened(**{**SMALL, "type": "float8", "limits": FEW})
    app.selectbox(key="sentence_system").select("a100_80g")
    settled(app)
    assert app.query_params["system"] == "a100_80g"
    assert app.query_params["type"] == "float16"


def test_the_panel_describes_the_selected_cell() -> None:
    app = opened(**SMALL, cell="4x2")
    cells = expected().by_cell()
    row = cells[(cells["tensor_par"] == 4) & (cells["pipeline_par"] == 2)].iloc[0]
    text = html(app)
    assert "TP 4 × PP 2 × DP 2" in text
    assert f"feasible <b>{count(row['feasible'])}</b>" in text
    best = expected().evaluate_ids([row["id"]]).iloc[0]
    assert f"<b>{format_value('total_time', best['total_time'])}</b>" in text
    table = app.dataframe[0].value
    fastest = expected().rows.top(
        60, where=[StoreCondition("tensor_par", "=", 4), StoreCondition("pipeline_par", "=", 2)]
    )
    assert len(table) == fastest.num_rows
    milliseconds = [1000 * seconds for seconds in fastest["total_time"].to_pylist()]
    assert table["total_time"].tolist() == pytest.approx(milliseconds, rel=1e-12)


def test_a_selected_execution_takes_the_place_of_the_best() -> None:
    table = expected().rows.page(1000, 1, names=["id", "tensor_par", "pipeline_par", "total_time"]).to_pylist()[0]
    app = opened(**SMALL, cell=f"{table['tensor_par']}x{table['pipeline_par']}", id=str(table["id"]))
    assert f"<b>{format_value('total_time', table['total_time'])}</b>" in html(app)
    assert "selected below" in html(app)
    # One that was read from a launch configuration is called the reader's own, with its place, and is easy to find.
    rate = expected().evaluate_ids([table["id"]])["sample_rate"].iloc[0]
    faster = expected().rows.count([StoreCondition("sample_rate", ">", rate)])
    link = {**SMALL, "cell": f"{table['tensor_par']}x{table['pipeline_par']}", "own": str(table["id"])}
    app = opened(**link, id=link["own"])
    assert "your execution" in html(app)
    assert "selected below" not in html(app)
    said = f"**Your execution**: place {faster + 1:,} of {expected().feasible:,} that run, the best is"
    assert any(part.value.startswith(said) for part in app.markdown)
    app = opened(**link)
    app.button(key="panel_yours").click()
    settled(app)
    assert app.query_params["id"] == link["own"]
    assert "your execution" in html(app)


def test_a_cell_in_which_nothing_fits_says_why_and_what_helps_and_fits_with_the_limit_lifted() -> None:
    app = opened(**SMALL, limits=BARE, cell="1x1")
    text = html(app)
    assert "What would make it fit" in text
    assert "feasible <b>0</b>" in text
    assert any("needs" in part.value and "too much" in part.value for part in app.markdown)
    button = next(one for one in app.button if (one.key or "").startswith("remedy_"))
    assert "instead of" in button.label or "Allow" in button.label
    next(one for one in app.button if one.label.startswith("Allow")).click()
    settled(app)
    assert app.query_params.get("limits", "") != BARE


def test_a_scenario_in_which_nothing_fits_is_explained() -> None:
    app = opened(model="megatron-1T", system="h100_80g_nvl8", procs="8", batch="8", type="float16")
    assert any("Nothing fits" in warning.value for warning in app.warning)
    assert "What would make it fit" in html(app)
    assert not app.error


def test_an_empty_space_is_explained() -> None:
    app = opened(**{**SMALL, "limits": "tensor_par:3"})
    assert any("There is no way to run" in info.value for info in app.info)


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (
            {"model": "gpt3-13B", "system": "h100_80g_nvl8", "procs": "8", "limits": "tensor_par:8"},
            "the 40 heads and the hidden size of 5,140, PP has to divide the 40 blocks",
        ),
        (
            {"model": "deepseek-v3", "system": "h100_80g_sxm", "procs": "7919", "type": "bfloat16"},
            "the 128 heads and the hidden size of 7,168, PP must not exceed the 61 blocks",
        ),
    ],
)
def test_an_empty_space_names_the_sizes_that_leave_nothing(link: dict[str, str], words: str) -> None:
    app = opened(**{**SMALL, "batch": "16", **link})
    assert any(words in info.value.replace("\\", "") for info in app.info), [info.value for info in app.info]


def test_a_long_exploration_shows_progress_and_can_be_cancelled_and_asked_for_again() -> None:
    asked = {"model": "gpt3-175B", "system": "h100_80g_nvl8", "procs": "512", "batch": "512", "datatype": "float8"}
    with own_server(None, PATIENCE=0):
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        for name, value in asked.items():
            app.query_params[name] = value
        app.run()
        for _ in range(2):
            assert progress(app)
            assert not plots(app)
            app.button(key="job_stop_exploration").click().run()
            settled(app)
            assert "cancelled" in app.info[0].value
            app.button(key="job_again_exploration").click().run()
        app.button(key="job_stop_exploration").click().run()


def test_what_goes_wrong_with_the_server_during_a_run_is_told_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    explored = needed_exploration.begin_exploration
    said = "The result could not be stored and is kept in memory. No space left."

    def full(scenario: Scenario, figures: FiguresView, watcher: str) -> Exploration | PendingExploration:
        server.explorations().warnings[:] = [said]
        return explored(scenario, figures, watcher)

    opened(**SMALL)  # explored: storing it would take the warning back
    monkeypatch.setattr(needed_exploration, "begin_exploration", full)
    try:
        app = opened(**SMALL)
        assert [toast.value for toast in app.toast] == [literal(said)]
        assert not app.warning
        app.run()
        assert not app.toast
        assert [warning.value for warning in app.warning] == [literal(said)]
    finally:
        server.explorations().warnings.clear()


def test_a_space_beyond_the_server_s_bound_is_refused_with_advice() -> None:
    with own_server(None, LARGEST_SPACE=1000):
        app = opened(**{**SMALL, "batch": "31"})
    assert "this server explores up to 1,000" in app.error[0].value.replace("\\", "")


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"model": "no-such-model"}, "no-such-model"),
        ({"model": "../../etc/passwd"}, "is not a name"),
        ({"model": "<script>alert(1)</script>"}, "is not a name"),
        ({"procs": "-5"}, "number of GPUs is -5"),
        ({"procs": "9" * 40}, "number of GPUs is"),
        ({"batch": "1e3"}, "batch is 1e3"),
        ({"limits": "tensor_par"}, "cannot be read"),
        ({"limits": "no_such_field:1"}, "no_such_field"),
        ({"limits": "weight_offload:maybe"}, "maybe"),
        ({"scenario": "!!!"}, "scenario"),
        ({"scenario": "garbage"}, "damaged"),
        ({"scenario": "2abc"}, "newer"),
        ({"scenario": folded(b" " * 5_000_000)}, "expands"),
        ({"scenario": folded(complete(limits=nested(400)))}, "nested"),
        ({"scenario": folded(complete(num_procs=10**30))}, "num_procs"),
        ({"procs": "1000000000000"}, "whole number"),
    ],
)
def test_what_a_link_gets_wrong_of_a_scenario_is_one_sentence(parameters: dict[str, str], words: str) -> None:
    (said,) = scenario_parameters.read_scenario({**SMALL, **parameters}).problems
    assert words.lower() in said.lower()


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"type": "float7"}, "datatype is float7"),
        ({"cell": "axb"}, "cells look like 8x4"),
        ({"id": "123456789012345678"}, "ids run from 0"),
        ({"metric": "evil"}, "metric cannot be"),
    ],
)
def test_what_a_link_gets_wrong_is_told_in_one_sentence(parameters: dict[str, str], words: str) -> None:
    app = opened(**{**SMALL, **parameters})
    assert len(app.warning) == 1
    text = app.warning[0].value.replace("\\", "")
    assert words.lower() in text.lower()
    assert figure(app, "explore_map")["data"]
    assert not app.error


def test_several_batch_sizes_share_a_cell() -> None:
    both = expected(16, 32)
    cells = explorations.cells_of(both, metrics(both.scenario)["sample_rate"])
    parts = [expected(size).by_cell() for size in (16, 32)]
    assert not cells.duplicated(["tensor_par", "pipeline_par"]).any()
    assert int(cells["total"].sum()) == both.total
    assert int(cells["feasible"].sum()) == both.feasible
    for row in cells.to_dict("records"):
        alike = pd.concat(
            [p[(p["tensor_par"] == row["tensor_par"]) & (p["pipeline_par"] == row["pipeline_par"])] for p in parts]
        )
        assert row["value"] == alike["value"].max() or (pd.isna(row["value"]) and alike["value"].isna().all())


def test_what_each_choice_costs_is_the_best_with_that_choice_fixed() -> None:
    whole = expected()
    costs = explorations.choice_costs(whole, metrics(whole.scenario)["sample_rate"])
    rows = whole.rows.table(["activation_recompute", "microbatch_size", "weight_offload", "sample_rate"]).to_pandas()
    for field in ("activation_recompute", "microbatch_size", "weight_offload"):
        best = rows.groupby(field, observed=True)["sample_rate"].max()
        found = costs[costs["field"] == field].dropna().set_index("choice")["value"]
        assert found.to_dict() == best.to_dict()


@pytest.mark.parametrize(
    ("system", "datatype", "limits"),
    [
        ("h100_80g_nvl8", "float16", {"tensor_par": 4, "microbatch_size": 1}),
        ("h100_80g_nvl8", "float16", {"tensor_par": 1, "pipeline_par": {"min": 8}, "data_par_net": 1}),
        ("h100_80g_sxm", "bfloat16", {"tensor_par": 1}),
        ("h100_80g_sxm", "bfloat16", {"pipeline_par": {"min": 2}, "microbatch_size": 1}),
    ],
)
def test_choices_without_a_cost_exist_in_the_space_and_none_of_them_runs(
    system: str, datatype: str, limits: dict[str, Any]
) -> None:
    found = explore("gpt3-13B", system, num_procs=16, max_batch_size=16, datatype=datatype, limits=limits)
    rows = found.scenario.evaluate(found.scenario.space.table(range(found.total)))
    costs = explorations.choice_costs(found, metrics(found.scenario)["sample_rate"])
    assert len(costs)
    runs = (rows["status"] == "ok").to_numpy()
    for row in costs.to_dict("records"):
        alike = (rows[row["field"]] == row["choice"]).to_numpy()
        assert alike.any()
        assert pd.isna(row["value"]) == (not runs[alike].any())
    for field in (name for name in explorations.CHOICES if name in rows):
        assert set(explorations.options_of(found, field)) == set(rows[field].unique())


def test_model_flops_follow_the_published_formula() -> None:
    scenario = Scenario.of("gpt3-175B", "h100_80g_nvl8", num_procs=512, max_batch_size=512, datatype="float16")
    model = scenario.model
    hidden, length = model.hidden, model.seq_size
    published = 72 * model.num_blocks * length * hidden**2 * (1 + length / (6 * hidden))
    assert token_flops(scenario).model() * length == pytest.approx(published, rel=1e-12)
    peak = 512 * 1e12 * scenario.system.matrix["float16"].tflops
    assert utilisation(scenario, 100.0) == pytest.approx(100 * published / peak)


def test_the_page_states_model_flop_utilisation() -> None:
    best = expected().best
    assert best is not None
    assert f'aria-label="MFU, full {percent(utilisation(expected().scenario, best["sample_rate"]))}' in html(
        opened(**SMALL, figures="fastest")
    )
