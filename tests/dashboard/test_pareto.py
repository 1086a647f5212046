"""The Pareto page draws the exact frontier, the density behind it, and true prices of moving along it."""

import json
import zipfile
from io import BytesIO

import numpy as np
import pytest

from dashboard.charts.template import degrees
from dashboard.pareto_data import BINS, density, frontier, near, steps
from engine.columns import by_name
from tests.dashboard.pages import again, exploration, figure, html, run

AXES = ("sample_rate", "proc_mem_tier1_cap_req")


def dominated(found: np.ndarray, all_rows: np.ndarray) -> bool:
    """Whether any row is at least as good (lower) on every axis and better on one than some found one."""
    for row in found:
        no_worse = (all_rows <= row).all(axis=1)
        if (no_worse & (all_rows < row).any(axis=1)).any():
            return True
    return False


@pytest.mark.parametrize("axes", [AXES, ("total_efficiency", "proc_mem_tier2_cap_req", "bubble_time")])
def test_the_frontier_is_beaten_by_nothing_and_lacks_nothing(axes: tuple[str, ...]) -> None:
    found = exploration()
    signs = np.array([-1.0 if by_name(name).better == "higher" else 1.0 for name in axes])
    table = found.rows.table(["id", *axes])
    every = np.column_stack([table[name].to_numpy() for name in axes]) * signs
    front = frontier(found, found.key, axes)
    points = front[list(axes)].to_numpy() * signs
    assert not dominated(points, every)
    rest = every[~np.isin(table["id"].to_numpy(), front["id"])]
    for row in rest[:: max(1, len(rest) // 300)]:
        assert ((points <= row).all(axis=1)).any()


def test_every_execution_is_in_the_density() -> None:
    found = exploration()
    for logarithmic in ((False, False), (True, False), (False, True), (True, True)):
        drawn = density(found, found.key, (AXES[1], AXES[0]), logarithmic, None)
        assert drawn is not None
        counts = np.asarray(drawn.counts)
        assert counts.shape == (BINS, BINS)
        assert counts.sum() == found.feasible
    axis = np.array(density(found, found.key, (AXES[1], AXES[0]), (True, False), None).x_edges)  # type: ignore[union-attr]
    assert np.allclose(np.diff(np.log(axis)), np.diff(np.log(axis))[0])


def test_executions_at_zero_have_no_place_on_a_logarithmic_axis() -> None:
    found = exploration()
    drawn = density(found, found.key, ("bubble_time", "sample_rate"), (True, False), None)
    assert drawn is not None
    assert np.asarray(drawn.counts).sum() == (found.rows.table(["bubble_time"])["bubble_time"].to_numpy() > 0).sum()


def test_close_up_holds_the_frontier() -> None:
    found = exploration()
    front = frontier(found, found.key, AXES)
    for (low, high), name in zip(near(front, AXES), AXES, strict=True):
        assert low <= front[name].min()
        assert high >= front[name].max()


def test_steps_improve_what_they_say_at_the_least_cost() -> None:
    found = exploration()
    front = frontier(found, found.key, AXES)
    middle = front.iloc[len(front) // 2]
    moves = {move.improves: move for move in steps(front, int(middle["id"]), AXES)}
    assert set(moves) == set(AXES)
    position = len(front) // 2
    # Sorted from best to worst on the first axis: the neighbours are one step away.
    assert moves["sample_rate"].changes["sample_rate"] > 0
    assert moves["sample_rate"].changes[AXES[1]] > 0
    assert moves["sample_rate"].row["id"] in set(front["id"].iloc[:position])
    assert moves[AXES[1]].changes[AXES[1]] < 0
    assert steps(front, -5, AXES) == []


def test_the_page_shows_frontier_and_prices() -> None:
    found = exploration()
    front = frontier(found, found.key, AXES)
    page = run("pareto", found)
    marks = next(trace for trace in figure(page, "pareto_plot")["data"] if trace["type"] == "scatter")
    assert {point[0] for point in marks["customdata"]} == set(front["id"])
    best = front.iloc[0]
    assert degrees(best["tensor_par"], best["pipeline_par"], best["data_par"]) in html(page)
    assert page.dataframe[0].value["id"].tolist() == front["id"].tolist()
    page.button(key=f"pareto_go_{AXES[1]}").click()
    moved = again(page, found)
    step = next(move for move in steps(front, int(best["id"]), AXES) if move.improves == AXES[1])
    assert f"execution {int(step.row['id']):,}" in html(moved)


def test_three_axes_and_a_link() -> None:
    found = exploration()
    link = {"pareto_x": "total_time", "pareto_y": "proc_mem_tier2_cap_req", "pareto_z": "bubble_time",
            "pareto_xscale": "log", "pareto_close": "on"}  # fmt: skip
    page = run("pareto", found, link)
    drawn = figure(page, "pareto_plot")
    assert drawn["layout"]["xaxis"]["type"] == "log"
    marks = next(trace for trace in drawn["data"] if trace["type"] == "scatter")
    assert marks["mode"] == "markers"
    ids = set(found.frontier("proc_mem_tier2_cap_req", "total_time", "bubble_time")["id"])
    assert {point[0] for point in marks["customdata"]} <= ids


def test_equal_axes_and_empty_spaces_are_explained() -> None:
    page = run("pareto", exploration(), {"pareto_x": "sample_rate"})
    assert "different figures" in page.info[0].value
    page = run("pareto", exploration("hopeless"))
    assert "no frontier" in page.info[0].value


def test_the_download_is_the_frontier() -> None:
    from dashboard import export

    found = exploration()
    front = frontier(found, found.key, AXES)
    data = export.of_frame(found, front[["id", *AXES]], "csv", "the frontier")()
    with zipfile.ZipFile(BytesIO(data)) as archive:
        lines = archive.read("executions.csv").decode().splitlines()
        account = json.loads(archive.read("about.json"))
    assert lines[0] == "id,sample_rate [samples/s],proc_mem_tier1_cap_req [bytes]"
    assert [float(value) for value in lines[1].split(",")] == [float(front.iloc[0][name]) for name in ("id", *AXES)]
    assert len(lines) == len(front) + 1
    assert account["scenario"] == json.loads(json.dumps(found.scenario.to_document()))
    assert account["selection"] == ["the frontier"]
