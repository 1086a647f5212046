"""Any statistic can be an axis of the Pareto page: evaluated again off the page, bounded, shared, stopped."""

import json
import threading
import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import numpy as np
import pytest

import engine
from dashboard.jobs.board import JobBoard
from dashboard.jobs.statistics_rows import evaluate
from dashboard.jobs.unstored_statistics import EvaluationJob, UnstoredStatistics
from dashboard.jobs.worker import Task
from dashboard.queries.pareto_fronts import axes_of, density, frontier
from dashboard.words.numbers import format_value
from engine import Exploration, ExplorationCancelled, Progress, whatif
from engine.columns import STATISTICS, by_name, statistics_of
from engine.exploration.unstored_statistics import add_columns, is_stored
from engine.store import StoreCondition
from tests.dashboard.page_runs import FEW, SMALL, TIGHT, again, exploration, explored_by_server, figure, html, run

LONG = 60.0
ME, OTHER = "me", "somebody else"
SOME = (StoreCondition("tensor_par", "=", 4), StoreCondition("microbatch_size", "=", 1))
"""Few executions, so that evaluating them in the tests takes little."""


class Slow:
    """An evaluation that goes on until it is let go or stopped."""

    def __init__(self) -> None:
        self.go, self.calls = threading.Event(), 0

    def __call__(self, task: Task, *about: Any) -> None:
        self.calls += 1
        task.tell(Progress(10, 40, 10, 2.0))
        while not self.go.wait(0.005):
            if task.stops():
                raise ExplorationCancelled("stopped")
        evaluate(task, *about)


@pytest.fixture(name="slow")
def _slow() -> Slow:
    return Slow()


@pytest.fixture(name="server")
def _server(slow: Slow) -> Iterator[UnstoredStatistics]:
    """Evaluates slowly, and makes nobody wait."""
    made = UnstoredStatistics(JobBoard(patience=0.0), evaluation=slow)
    yield made
    made.close()


def fresh(limits: str = "tight") -> Exploration:
    """An exploration to which nothing was added by another test."""
    chosen = TIGHT if limits == "tight" else {}
    return engine.explore("gpt3-13B", "h100_80g_nvl8", **SMALL, limits=chosen)


def every(found: Exploration, name: str, where: tuple[StoreCondition, ...] = ()) -> dict[int, float]:
    """A statistic by id, evaluated from the stored fields in one go."""
    table = found.rows.table(where=where).to_pandas()
    values = found.scenario.evaluate(table)[name]
    return dict(zip(table["id"].tolist(), values.tolist(), strict=True))


def brute(x: dict[int, float], y: dict[int, float]) -> set[tuple[float, float]]:
    """The points of which none is lower in both."""
    left: set[tuple[float, float]] = set()
    best = np.inf
    for point in sorted({(x[number], y[number]) for number in x}):
        if point[1] < best:
            left.add(point)
            best = point[1]
    return left


def test_every_statistic_of_the_cost_model_is_offered_once() -> None:
    known = axes_of(exploration())
    assert {column.name for column in STATISTICS} <= set(known)
    for column in STATISTICS:
        assert known[column.name].column.better == (column.better or "lower")
    upward = axes_of(exploration(), ("useful_flops", "act_space"))
    assert upward["useful_flops"].column.better == "higher"
    assert upward["act_space"].column.better == "lower"  # the register says so, whoever asks


def test_what_the_calibrated_cost_model_does_not_have_is_not_offered() -> None:
    found = engine.explore("gpt3-13B", "h100_80g_sxm", **SMALL, limits=FEW)
    assert found.scenario.cost_model == "calibrated"
    offered = [column.name for column in statistics_of("calibrated") if column.name in axes_of(found)]
    assert {"act_space", "logit_space", "cp_comm_exposed_time", "block_fw_time"} <= set(offered)
    assert "block_fw_flops" not in offered
    rows = found.evaluate_ids(found.rows.table(["id"])["id"].to_numpy()[::50])
    for column in statistics_of("calibrated"):
        assert rows[column.name].isna().all() == (column.name not in offered), column.name
    page = run("pareto", found, {"pareto_x": "act_space"})
    assert "Activations" in html(page)


@pytest.mark.parametrize("where", [(), SOME])
def test_the_frontier_of_statistics_that_are_not_stored_is_that_of_all_executions(where: Any) -> None:
    found = exploration() if where else exploration("tight")
    axes = ("block_fw_time", "tp_comm_link_time")
    assert not any(map(is_stored, axes))
    add_columns(found, axes)
    front = frontier(found, found.key, axes, where)
    x, y = (every(found, name, where) for name in axes)
    assert {tuple(point) for point in front[list(axes)].to_numpy().tolist()} == brute(x, y)
    assert len(front) == len(brute(x, y)) > 1
    for number, one, two in front[["id", *axes]].itertuples(index=False):
        assert (one, two) == (x[number], y[number])


def test_what_is_better_can_be_chosen_where_the_register_does_not_say() -> None:
    found = exploration()
    axes = ("sample_rate", "block_optim_flops")
    add_columns(found, axes)
    rates, values = (every(found, name, SOME) for name in axes)
    for upward, sign in (((), 1.0), (("block_optim_flops",), -1.0)):
        front = frontier(found, found.key, axes, SOME, upward)
        expected = brute({n: -rates[n] for n in rates}, {n: sign * values[n] for n in rates})
        assert {(-a, sign * b) for a, b in front[list(axes)].to_numpy().tolist()} == expected
    page = run("pareto", found, {"pareto_x": "block_optim_flops"})
    assert "lower optimizer operations" in page.caption[0].value
    assert "Lowest optimizer operations" in html(page)
    link = {"pareto_x": "block_optim_flops", "pareto_xbetter": "higher"}
    assert "Highest optimizer operations" in html(run("pareto", found, link))


def test_the_density_counts_every_execution_by_a_statistic_that_is_not_stored() -> None:
    found = exploration()
    add_columns(found, ["act_checkpoint_size", "act_space"])
    values = np.array(list(every(found, "act_checkpoint_size", SOME).values()))
    for logarithmic, expected in (((False, False), len(values)), ((True, False), int((values > 0).sum()))):
        drawn = density(found, found.key, ("act_checkpoint_size", "sample_rate"), logarithmic, None, SOME)
        assert drawn is not None
        assert np.asarray(drawn.counts).sum() == expected
    assert 0 < (values > 0).sum() < len(values)
    drawn = density(found, found.key, ("act_space", "sample_rate"), (False, False), None, SOME)
    assert drawn is not None
    acts = np.array(list(every(found, "act_space", SOME).values()))
    columns, _ = np.histogram(acts, bins=np.array(drawn.x_edges))
    assert np.asarray(drawn.counts).sum(axis=0).tolist() == columns.tolist()


def test_the_page_shows_prices_and_table_of_any_statistic() -> None:
    from dashboard.files import exports

    found = exploration()
    link = {"pareto_x": "act_space", "pareto_xscale": "log", "pareto_close": "on"}
    page = run("pareto", found, link)
    front = frontier(found, found.key, ("sample_rate", "act_space"))
    drawn = figure(page, "pareto_plot")
    assert drawn["layout"]["xaxis"]["title"]["text"].startswith("Activations")
    marks = next(trace for trace in drawn["data"] if trace["type"] == "scatter")
    assert {point[0] for point in marks["customdata"]} == set(front["id"])
    table = page.dataframe[0].value
    assert table["id"].tolist() == front["id"].tolist()
    assert table.columns.tolist()[:6] == ["id", "sample_rate", "act_space", "change_y", "change_x", "price"]
    scale = front["act_space"].iloc[0] / table["act_space"].iloc[0]
    assert np.allclose(table["act_space"] * scale, front["act_space"], rtol=1e-12)
    assert format_value("act_space", front["act_space"].iloc[0]) in html(page)
    page.button(key="pareto_go_act_space").click()
    assert f"execution {int(front['id'].iloc[1]):,}" in html(again(page, found))
    data = exports.of_frame(found, front[["id", "act_space"]], "csv", "the frontier")()
    with zipfile.ZipFile(BytesIO(data)) as archive:
        assert archive.read("executions.csv").decode().splitlines()[0] == "id,act_space [bytes]"
        assert json.loads(archive.read("about.json"))["columns"][1]["label"] == "Activations"


def test_a_frontier_at_zero_has_no_place_on_a_logarithmic_axis() -> None:
    link = {"pareto_x": "act_checkpoint_size", "pareto_xscale": "log", "pareto_y": "edgeblock_recomm_time"}
    page = run("pareto", exploration(), link)
    told = figure(page, "pareto_plot")["layout"]["annotations"][0]["text"]
    assert told == "All of the frontier is at 0, which a logarithmic axis does not have."


def test_filters_of_other_pages_hold_here_too() -> None:
    found = exploration()
    link = {"results_where": "activation_recompute:full;tensor_par:..4", "pareto_x": "act_space"}
    page = run("pareto", found, link)
    where = (StoreCondition("activation_recompute", "=", "full"), StoreCondition("tensor_par", "<=", 4.0))
    front = frontier(found, found.key, ("sample_rate", "act_space"), where)
    assert page.dataframe[0].value["id"].tolist() == front["id"].tolist()
    assert f"of {found.rows.count(where):,} filtered executions" in html(page)
    page.button(key="pareto_drop_tensor_par").click()
    page = again(page, found)
    assert f"of {found.rows.count(where[:1]):,} filtered executions" in html(page)
    nothing = run("pareto", found, {"results_where": "sample_rate:1e9.."})
    assert any("No execution meets" in part.value for part in nothing.markdown)


def test_another_scenario_has_the_same_filters_and_figures() -> None:
    found = exploration()
    other = explored_by_server(whatif.changed(found.scenario, {"hbm_bandwidth": 6144}))
    link = {"pareto_b": "~hbm_bandwidth:6144", "pareto_x": "act_space", "results_where": "tensor_par:1,2"}
    page = run("pareto", found, link)
    line = next(trace for trace in figure(page, "pareto_plot")["data"] if trace.get("name", "").startswith("B"))
    where = (StoreCondition("tensor_par", "in", (1, 2)),)
    front = frontier(other, other.key, ("sample_rate", "act_space"), where)
    assert len(front) > 1
    assert line["y"] == pytest.approx(front.sort_values("act_space")["sample_rate"].tolist())


def test_an_axis_that_there_is_not_is_answered_as_any_other() -> None:
    page = run("pareto", exploration(), {"pareto_x": "act_spac"})
    assert "did you mean act_space" in page.session_state["_url_problems"]["pareto_x"]
    assert figure(page, "pareto_plot")["data"]


def waiting(server: UnstoredStatistics, found: Exploration, watcher: str, name: str = "act_space") -> EvaluationJob:
    job = server.need(found, ["total_time", name], watcher)
    assert job is not None
    return job


def test_all_who_ask_share_one_evaluation_and_one_cannot_stop_it_for_others(
    server: UnstoredStatistics, slow: Slow
) -> None:
    found = fresh()
    mine, theirs = waiting(server, found, ME), waiting(server, found, OTHER)
    assert mine is theirs
    assert not server.board.cancel(mine, ME)
    while mine.state != "running":
        mine.wait(0.005)
    later = waiting(server, found, ME, "weight_space")
    assert server.board.position(later) == 1
    slow.go.set()
    assert mine.wait(LONG)
    assert later.wait(LONG)
    assert slow.calls == 2
    assert not found.rows.missing(["act_space", "weight_space"])
    assert server.need(found, ["act_space", "weight_space"], ME) is None


def test_it_can_be_stopped_and_started_again(server: UnstoredStatistics, slow: Slow) -> None:
    found = fresh()
    job = waiting(server, found, ME)
    assert server.board.cancel(job, ME)
    assert job.wait(LONG)
    assert waiting(server, found, ME) is job
    assert job.state == "cancelled"
    server.board.forget(job)
    slow.go.set()
    assert waiting(server, found, ME).wait(LONG)
    assert not found.rows.missing(["act_space"])


def test_what_was_stopped_is_told_only_to_who_asked_for_it(server: UnstoredStatistics, slow: Slow) -> None:
    found = fresh()
    job = EvaluationJob(server, found, ["act_space"], ["act_space", "weight_grad_space"])
    server.board.post(job, ME)
    assert waiting(server, found, OTHER, "weight_grad_space") is job  # evaluated on the way
    job.watched.pop(OTHER)
    assert server.board.cancel(job, ME)
    assert job.wait(LONG)
    assert server.find(found, "act_space") is job
    assert server.find(found, "weight_grad_space") is None
    assert waiting(server, found, ME, "weight_grad_space") is not job
    slow.go.set()


def test_what_nobody_looks_at_is_given_up(slow: Slow) -> None:
    found, server = fresh(), UnstoredStatistics(JobBoard(patience=0.0), evaluation=slow, unwatched=0.05)
    job = waiting(server, found, ME)
    assert job.wait(LONG)
    assert job.state == "cancelled"
    assert waiting(server, found, ME) is not job
    server.close()
    assert found.rows.missing(["act_space"])


@pytest.mark.parametrize(
    ("problem", "said"),
    [(ValueError("No shard."), "No shard."), (MemoryError(), "enough memory"), (KeyError("x"), "internal error")],
)
def test_a_failure_is_told_and_can_be_tried_again(problem: Exception, said: str) -> None:
    failures = [problem]

    def fail_once(*arguments: Any) -> None:
        if failures:
            raise failures.pop()
        evaluate(*arguments)

    found, server = fresh(), UnstoredStatistics(JobBoard(patience=LONG), evaluation=fail_once)
    job = server.need(found, ["block_fw_time"], ME)
    assert job is not None
    assert f"{by_name('block_fw_time').label} cannot be shown" in job.account
    assert said in job.account
    server.board.forget(job)
    assert server.need(found, ["block_fw_time"], ME) is None
    assert not found.rows.missing(["block_fw_time"])
    server.close()
