"""Statistics that are not stored as filters, as the metric of the map and as the order of the table."""

from __future__ import annotations

import functools
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

import engine
from dashboard.files import exports
from dashboard.jobs.unstored_statistics import UnstoredStatistics
from dashboard.queries.economics import metrics, unstored_metrics
from dashboard.queries.filters import conditions, derived_of, parse, text
from dashboard.widgets.needed_statistics import names_of
from dashboard.words.numbers import format_value, plain
from engine import Exploration, Scenario, WorkSizes, working_in
from engine.columns import by_name, defined_of
from engine.exploration.unstored_statistics import add_columns, is_stored
from tests.dashboard.page_runs import FEW, SMALL, again, explored_by_server, figure, html, run
from tests.dashboard.server import own_server

LONG = 60.0
SYSTEMS = {"calculon": "h100_80g_nvl8", "calibrated": "h100_80g_sxm"}
CELL = ["tensor_par", "pipeline_par"]


@pytest.fixture(name="server", autouse=True)
def _server() -> Iterator[UnstoredStatistics]:
    """A server that has evaluated nothing yet."""
    with own_server(None) as place:
        yield place.server.unstored_statistics


def fresh(cost_model: str = "calculon") -> Exploration:
    """An exploration to which nothing was added by another test."""
    limits = {**FEW, "weight_offload": False, "tensor_par_overlap": "none"}
    return engine.explore("gpt3-13B", SYSTEMS[cost_model], **SMALL, limits=limits)


@functools.cache
def table_of(cost_model: str) -> pd.DataFrame:
    """All figures of every execution that runs, evaluated by its id."""
    found = fresh(cost_model)
    return found.evaluate_ids(found.rows.table(["id"])["id"].to_numpy())


def map_of(page: AppTest) -> dict[str, tuple[str, int]]:
    """What the cells of the map say: (the value as hovering tells it, the execution) by what a click reports."""
    bars = [trace for trace in figure(page, "explore_pairs")["data"] if trace["type"] == "bar"]
    return {
        at: (told, number)
        for trace in bars
        for told, (at, number) in zip(trace["hovertext"], trace["customdata"], strict=True)
    }


def link_of(name: str, low: float | None = None, high: float | None = None) -> str:
    return f"{name}:{'' if low is None else repr(float(low))}..{'' if high is None else repr(float(high))}"


@pytest.mark.parametrize("cost_model", list(SYSTEMS))
def test_the_map_is_of_what_meets_filters_on_and_is_ranked_by_any_statistic(cost_model: str) -> None:
    found, every = fresh(cost_model), table_of(cost_model)
    bound = float(every["weight_space"].quantile(0.6))
    chosen = every[every["weight_space"] <= bound]
    assert 0 < len(chosen) < len(every)
    page = run("explore", found, {"metric": "act_space", "results_where": link_of("weight_space", None, bound)})
    assert not found.rows.missing(["act_space", "weight_space"])
    order = chosen.sort_values(["act_space", "id"]).groupby(CELL)
    best, rows = order.first(), order.size()
    shown = map_of(page)
    known = {at: one for at, one in shown.items() if one[1] >= 0}
    assert {at: one[1] for at, one in known.items()} == {
        f"tensor_par:{tp};pipeline_par:{pp}": int(row["id"]) for (tp, pp), row in best.iterrows()
    }
    for (tp, pp), row in best.iterrows():
        hovered = known[f"tensor_par:{tp};pipeline_par:{pp}"][0]
        assert f"Activations {format_value('act_space', row['act_space'])}" in hovered
        assert f"{rows[tp, pp]:,} execution" in hovered.replace("\u00a0", " ")
    assert f"{len(chosen):,}" in html(page)


def test_a_statistic_with_no_better_direction_is_that_of_the_fastest() -> None:
    found, every = fresh(), table_of("calculon")
    name = "block_optim_flops"
    assert by_name(name).better is None
    assert unstored_metrics(found.scenario)[name].of_fastest
    page = run("explore", found, {"metric": name})
    fastest = every.sort_values(["sample_rate", "id"], ascending=[False, True]).groupby(CELL).first()
    shown = {at: number for at, (_, number) in map_of(page).items() if number >= 0}
    assert shown == {f"tensor_par:{tp};pipeline_par:{pp}": int(row["id"]) for (tp, pp), row in fastest.iterrows()}
    assert any("of the fastest" in part.value for part in page.markdown)


@pytest.mark.parametrize("cost_model", list(SYSTEMS))
def test_the_table_is_filtered_and_sorted_by_any_statistic(cost_model: str) -> None:
    found, every = fresh(cost_model), table_of(cost_model)
    low = float(every["act_grad_space"].median())
    link = {
        "results_where": link_of("act_grad_space", low),
        "results_sort": "optimizer_space",
        "results_columns": "id,optimizer_space,act_grad_space",
    }
    page = run("results", found, link)
    expected = every[every["act_grad_space"] >= low].sort_values(["optimizer_space", "id"])
    table = page.dataframe[0].value
    assert table["id"].tolist() == expected["id"].head(100).tolist()
    scale = expected["optimizer_space"].iloc[0] / table["optimizer_space"].iloc[0]
    assert np.allclose(table["optimizer_space"] * scale, expected["optimizer_space"].head(100), rtol=1e-12)


def test_every_statistic_can_be_filtered_by_and_says_so_in_a_link() -> None:
    for cost_model in SYSTEMS:
        found, every = fresh(cost_model), table_of(cost_model)
        known = derived_of(found.scenario)
        for column in defined_of(cost_model):
            bound = float(every[column.name].median())
            filters, problems = parse(link_of(column.name, bound), known)
            assert not problems
            assert parse(text(filters), known)[0] == filters
            assert [tuple(one) for one in conditions(filters)] == [(column.name, ">=", bound)]
            assert column.label in filters[0].words


@pytest.mark.parametrize(
    ("cost_model", "wrong"),
    [
        (
            "calculon",
            {
                "logit_space:1..2": "no field or result 'logit_space'",
                "act_space:1e999..": "The filter 'act_space:1e999..' cannot be read",
                "act_space:nan..": "The filter 'act_space:nan..' cannot be read",
                "act_space:": "The filter 'act_space:' cannot be read",
                "act_space:..": "The filter 'act_space:..' cannot be read",
                "status:1..2": "no field or result 'status'",
                "act_space.parquet:1..2": "no field or result 'act_space.parquet'",
                "..-added:1..2": "no field or result '..-added'",
            },
        ),
        ("calibrated", {"block_fw_flops:1..2": "no field or result 'block_fw_flops'"}),
    ],
)
def test_filters_that_cannot_be_are_left_out(cost_model: str, wrong: dict[str, str]) -> None:
    page = run("explore", fresh(cost_model), {"results_where": ";".join(wrong)})
    sentences = " ".join(page.session_state["_url_problems"].values())
    assert [said for said in wrong.values() if said not in sentences] == []
    assert figure(page, "explore_map")["data"]


def test_a_metric_that_is_none_is_answered_as_any_other() -> None:
    page = run("explore", fresh(), {"metric": "logit_space"})
    assert page.session_state["_url_problems"]["metric"]
    assert figure(page, "explore_map")["data"]


def test_a_page_that_asks_for_nothing_further_starts_nothing(server: UnstoredStatistics) -> None:
    found = fresh()
    page = run("explore", found, {"metric": "total_time", "results_where": "tensor_par:1,2;mfu:0.1.."})
    assert figure(page, "explore_pairs")["data"]
    run("results", found, {"results_sort": "total_time"})
    assert not server.board.jobs(server.kind)


def test_choosers_say_the_group_and_what_asking_takes(server: UnstoredStatistics) -> None:
    found = fresh()
    known = metrics(found.scenario) | unstored_metrics(found.scenario)
    server.rates["calculon"] = found.feasible / 12.0
    twelve = format_value("total_time", 12.0, digits=2)
    assert names_of(found, known)["act_space"] == f"Activations · Memory · about {twelve}"
    assert names_of(found, known)["total_time"] == "Step time"
    server.need(found, ["act_space"], "me")
    assert names_of(found, known)["act_space"] == "Activations · Memory"
    server.rates["calculon"] = found.feasible / 0.4
    quick = f" · under {format_value('total_time', 1.0, digits=1)}"
    assert names_of(found, known)["weight_space"] == f"Weights · Memory{quick}"
    # The same in every chooser, each of which has all of them once.
    names = set(unstored_metrics(found.scenario))
    assert names == {column.name for column in defined_of("calculon") if not is_stored(column.name)}
    page = run("explore", found, opened=["filter", "view"])
    lists = {box.label: box.options for box in (*page.selectbox, *page.multiselect)}
    for label in ("Metric", "Ranges of fields and results"):
        assert lists[label].count(f"Weights · Memory{quick}") == 1
        assert sum(quick in option for option in lists[label]) == len(names) - 1
    page = run("results", found, opened=["filter"])
    lists = {box.label: box.options for box in (*page.selectbox, *page.multiselect)}
    for label in ("Ranges of fields and results", "Sort by"):
        assert sum(quick in option for option in lists[label]) == len(names) - 1


def test_a_range_can_be_had_before_it_is_in_force(server: UnstoredStatistics) -> None:
    found, every = fresh(), table_of("calculon")
    page = run("explore", found, opened=["filter"])
    chooser = next(box for box in page.multiselect if box.label.startswith("Ranges"))
    chooser.set_value([*chooser.value, "act_space"])
    page = again(page, found)
    assert not any("Activations" in field.label for field in page.number_input)
    page.button(key="evaluate_act_space").click()
    page = again(page, found)
    assert server.need(found, ["act_space"], "me") is None
    page = again(page, found)
    least, most = (
        next(field for field in page.number_input if field.label.startswith(f"Activations {word}"))
        for word in ("at least", "at most")
    )
    span = (every["act_space"].min() / 2**30, every["act_space"].max() / 2**30)
    assert [least.placeholder, most.placeholder] == [f"from {plain(span[0])}", f"to {plain(span[1])}"]
    most.set_value((span[0] + span[1]) / 2)
    page = again(page, found)
    left = int((every["act_space"] <= (span[0] + span[1]) / 2 * 2**30).sum())
    assert f"{left:,} of" in "".join(part.value for part in page.markdown)


def test_too_many_at_once_are_refused_on_every_page() -> None:
    found = fresh()
    where = ";".join(link_of(name, 0) for name in ("act_space", "weight_space"))
    with working_in(WorkSizes(columns_added_in_memory=1)):
        for page, more in (("explore", {}), ("results", {}), ("pareto", {})):
            told = run(page, found, {"results_where": where, **more}).info
            assert any("These 2 figures are not stored" in one.value for one in told), page


def test_asking_for_one_has_all_evaluated_where_there_is_room(server: UnstoredStatistics, tmp_path: Path) -> None:
    limits = {
        "tensor_par": [1, 2],
        "weight_offload": False,
        "optimizer_offload": False,
        "microbatch_size": [1, 2],
        "data_par_overlap": True,
    }
    found = engine.explore("gpt3-13B", SYSTEMS["calculon"], **SMALL, limits=limits, store=tmp_path / "results.duckdb")
    every = list(unstored_metrics(found.scenario))
    with working_in(WorkSizes(bytes_of_added_columns=8 * found.feasible)):
        assert server.need(found, ["act_space"], "me") is None
        assert found.rows.missing(every) == [name for name in every if name != "act_space"]
    assert server.need(found, ["weight_space"], "me") is None
    assert not found.rows.missing(every)
    page = run("explore", found, {"metric": "dp_comm_link_time"})
    assert figure(page, "explore_pairs")["data"]
    whole = found.evaluate_ids(found.rows.table(["id"])["id"].to_numpy())
    stored = found.rows.table(every)
    assert all(np.array_equal(stored[name].to_numpy(), whole[name]) for name in every)


def test_a_map_per_datatype_evaluates_each() -> None:
    found = fresh()
    asked = {**SMALL, "datatype": "float8"}
    other = explored_by_server(Scenario.of("gpt3-13B", SYSTEMS["calculon"], **asked, limits=found.scenario.limits))
    page = run("explore", found, {"map_facet": "datatype", "metric": "weight_space"})
    titles = [note["text"] for note in figure(page, "explore_pairs")["layout"]["annotations"]]
    assert {"<b>Datatype FP8</b>", "<b>Datatype FP16</b>"} <= set(titles)
    assert not other.rows.missing(["weight_space"])


def test_a_filter_that_leaves_nothing_says_what_would() -> None:
    found, every = fresh(), table_of("calculon")
    page = run("explore", found, {"results_where": "act_space:..1"})
    least = format_value("act_space", every["act_space"].min())
    assert any("No execution meets" in part.value for part in page.markdown)
    page.button(key="explore_relax_act_space").click()
    page = again(page, found)
    assert least in "".join(button.label for button in page.button)
    assert figure(page, "explore_pairs")["data"]


def test_an_export_is_of_what_the_filter_selects() -> None:
    found, every = fresh(), table_of("calculon")
    bound = float(every["act_space"].median())
    filters, _ = parse(link_of("act_space", None, bound), derived_of(found.scenario))
    add_columns(found, ["act_space", "optimizer_space"])
    target = io.BytesIO()
    exports.of_rows(
        found,
        "csv",
        names=["id", "act_space", "useful_flops"],
        where=conditions(filters),
        order_by=(("optimizer_space", "descending"),),
    )(target)
    with zipfile.ZipFile(target) as archive:
        table = pd.read_csv(archive.open("executions.csv"))
    expected = every[every["act_space"] <= bound].sort_values(["optimizer_space", "id"], ascending=[False, True])
    assert table["id"].tolist() == expected["id"].tolist()
    assert np.allclose(table["act_space [bytes]"], expected["act_space"], rtol=1e-12)
    assert np.allclose(table["useful_flops [FLOP]"], expected["useful_flops"], rtol=1e-12)
