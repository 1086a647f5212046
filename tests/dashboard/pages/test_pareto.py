"""The Pareto page draws the exact frontier, the density behind it, and true prices of moving along it."""

import itertools
import json
import zipfile
from io import BytesIO

import numpy as np
import pandas as pd
import pytest

from dashboard.charts.elements.palette import SCENARIOS, contrast, palette
from dashboard.charts.explored.pareto import pareto
from dashboard.pages.pareto.panel import _describe_prices
from dashboard.queries.pareto_fronts import BINS, axes_of, density, frontier, near, prices, rate_words, steps
from dashboard.words.numbers import format_value, plain, relative
from engine import explore_scenario, whatif
from engine.columns import EXTENSIONS, FIELDS, HEADLINE, by_name
from engine.cost_models.calibrated.fields import NOT_READ
from engine.executions.execution_names import execution_name
from tests.dashboard.page_runs import again, exploration, figure, html, plainly, run
from tests.dashboard.pages.test_calibrated_pages import dense

AXES = ("sample_rate", "proc_mem_tier1_cap_req")
COLUMNS = [by_name(name) for name in AXES]


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
    moves = {move.improves: move for move in steps(front, int(middle["id"]), COLUMNS)}
    assert set(moves) == set(AXES)
    position = len(front) // 2
    # Sorted from best to worst on the first axis: the neighbours are one step away.
    assert moves["sample_rate"].changes["sample_rate"] > 0
    assert moves["sample_rate"].changes[AXES[1]] > 0
    assert moves["sample_rate"].row["id"] in set(front["id"].iloc[:position])
    assert moves[AXES[1]].changes[AXES[1]] < 0
    assert steps(front, -5, COLUMNS) == []


def test_the_page_shows_frontier_and_prices() -> None:
    found = exploration()
    front = frontier(found, found.key, AXES)
    page = run("pareto", found)
    marks = next(trace for trace in figure(page, "pareto_plot")["data"] if trace["type"] == "scatter")
    assert {point[0] for point in marks["customdata"]} == set(front["id"])
    best = front.iloc[0]
    assert execution_name(best) in html(page)
    assert page.dataframe[0].value["id"].tolist() == front["id"].tolist()
    page.button(key=f"pareto_go_{AXES[1]}").click()
    moved = again(page, found)
    step = next(move for move in steps(front, int(best["id"]), COLUMNS) if move.improves == AXES[1])
    assert f"execution {int(step.row['id']):,}" in html(moved)


def test_three_axes_and_a_link() -> None:
    found = exploration()
    link = {
        "pareto_x": "total_time",
        "pareto_y": "proc_mem_tier2_cap_req",
        "pareto_z": "bubble_time",
        "pareto_xscale": "log",
        "pareto_close": "on",
    }
    page = run("pareto", found, link)
    drawn = figure(page, "pareto_plot")
    assert drawn["layout"]["xaxis"]["type"] == "log"
    marks = next(trace for trace in drawn["data"] if trace["type"] == "scatter")
    assert marks["mode"] == "markers"
    ids = set(found.frontier("proc_mem_tier2_cap_req", "total_time", "bubble_time")["id"])
    assert {point[0] for point in marks["customdata"]} <= ids


def test_equal_axes_are_explained() -> None:
    page = run("pareto", exploration(), {"pareto_x": "sample_rate"})
    assert "different figures" in page.info[0].value


def test_the_download_is_the_frontier() -> None:
    from dashboard.files import exports

    found = exploration()
    front = frontier(found, found.key, AXES)
    data = exports.of_frame(found, front[["id", *AXES]], "csv", "the frontier")()
    with zipfile.ZipFile(BytesIO(data)) as archive:
        lines = archive.read("executions.csv").decode().splitlines()
        account = json.loads(archive.read("about.json"))
    assert lines[0] == "id,sample_rate [samples/s],proc_mem_tier1_cap_req [bytes]"
    assert [float(value) for value in lines[1].split(",")] == [float(front.iloc[0][name]) for name in ("id", *AXES)]
    assert len(lines) == len(front) + 1
    assert account["scenario"] == json.loads(json.dumps(found.scenario.to_document()))
    assert account["selection"] == ["the frontier"]


@pytest.mark.parametrize("name", ["mfu", "tokens", "usd", "energy"])
def test_a_derived_figure_is_an_axis_with_the_values_that_its_formula_gives(name: str) -> None:
    found = exploration()
    metric = axes_of(found).get(name)
    if metric is None:
        pytest.skip(f"the system has no {name}")
    front = frontier(found, found.key, (name, AXES[1]))
    plain = frontier(found, found.key, AXES)
    assert front["id"].tolist() == plain["id"].tolist()
    assert front[name].tolist() == [metric.of(rate) for rate in plain["sample_rate"]]
    drawn = density(found, found.key, (AXES[1], name), (False, False), None)
    assert drawn is not None
    assert np.asarray(drawn.counts).sum() == found.feasible
    page = run("pareto", found, {"pareto_y": name})
    text = html(page)
    assert format_value(metric.column, front[name].iloc[0]) in text
    header = page.dataframe[0].value.columns.tolist()
    assert header[:4] == ["id", name, AXES[1], "change_y"]


def test_two_figures_that_follow_from_one_are_no_frontier() -> None:
    page = run("pareto", exploration(), {"pareto_y": "mfu", "pareto_x": "tokens"})
    assert "all follow from" in page.info[0].value


def test_a_stretch_too_short_for_its_digits_is_told_as_a_place() -> None:
    known = axes_of(exploration())
    axes = [known[name] for name in AXES]
    gib = 2.0**30
    found = pd.DataFrame({AXES[0]: [30.0, 20.0, 10.0], AXES[1]: [8.0 * gib, 4.001 * gib, 4.0005 * gib]})
    said = plainly(_describe_prices(found, axes, {AXES[0]: 30.0, AXES[1]: 8.0 * gib}))
    assert "2.50 samples/s per GiB (8 GiB to 4.00 GiB)" in said
    assert "per GiB (near 4.00 GiB)" in said


def test_prices_are_the_slopes_between_neighbours() -> None:
    found = exploration()
    front = frontier(found, found.key, AXES)
    cost = prices(front, *AXES)
    assert len(cost) == len(front)
    assert np.isnan(cost["price"].iloc[-1])
    rows = front.to_dict("records")
    for one, two, price in zip(rows[:-1], rows[1:], cost["price"], strict=False):
        lost = one["sample_rate"] - two["sample_rate"]
        saved = one[AXES[1]] - two[AXES[1]]
        assert lost > 0
        assert saved > 0
        assert price == pytest.approx(lost / saved, rel=1e-12)
    gib = cost["price"].iloc[0] * 2**30
    words = rate_words(cost["price"].iloc[0], *COLUMNS, (front["sample_rate"].max(), front[AXES[1]].max()))
    assert words.endswith("samples/s per GiB")
    assert float(words.split()[0].replace(",", "")) == pytest.approx(gib, rel=5e-3)
    page = run("pareto", found)
    table = page.dataframe[0].value
    assert table["price"].iloc[0] == pytest.approx(gib, rel=1e-12)
    assert words in "".join(part.value for part in page.markdown)
    dearest = cost["price"].max() * 2**30
    said = next(part.value for part in page.caption if "Along the frontier" in part.value)
    assert f"{plain(dearest)} samples/s per GiB" in plainly(said).replace("\\", "")


def test_the_table_shows_what_tells_executions_apart_and_all_else_on_demand() -> None:
    found = exploration()
    front = frontier(found, found.key, AXES)
    shown = run("pareto", found).dataframe[0].value
    leading = ["id", *AXES, "change_y", "change_x", "price", "tensor_par", "pipeline_par", "data_par"]
    assert shown.columns.tolist()[: len(leading)] == leading
    assert all(shown[name].nunique() > 1 for name in shown.columns[len(leading) :])
    assert "num_procs" not in shown  # the same in all
    every = run("pareto", found, {"pareto_columns": "on"}).dataframe[0].value
    assert {column.name for column in (*FIELDS, *HEADLINE)} <= set(every.columns)
    assert every["microbatch_size"].tolist() == front["microbatch_size"].tolist()


def test_the_table_of_the_calibrated_model_has_its_fields_and_no_networks() -> None:
    found = dense()
    page = run("pareto", found, {"pareto_columns": "on"})
    columns = page.dataframe[0].value.columns
    assert {column.name for column in EXTENSIONS} <= set(columns)
    assert not NOT_READ & set(columns)  # nothing follows from them there


def test_a_third_figure_that_all_share_is_told_instead_of_coloured() -> None:
    rows = pd.DataFrame({"id": [1, 2], "total_time": [1.0, 2.0], "sample_rate": [2.0, 4.0], "bubble_time": [0.0, 0.0]})
    drawn = pareto(rows, "total_time", "sample_rate", z="bubble_time").figure
    assert [plainly(note.text) for note in drawn.layout.annotations] == ["All marks: pipeline bubble 0 s"]
    assert not drawn.data[-1].marker.showscale
    rows["bubble_time"] = [0.5, 0.25]
    drawn = pareto(rows, "total_time", "sample_rate", z="bubble_time").figure
    assert not drawn.layout.annotations
    assert drawn.data[-1].marker.showscale


def test_other_scenarios_share_the_plot_and_are_told_apart_without_colour() -> None:
    found = exploration()
    other = explore_scenario(whatif.changed(found.scenario, {"hbm_bandwidth": 6144}))
    page = run("pareto", found, {"pareto_b": "~hbm_bandwidth:6144", "pareto_d": "~hbm_bandwidth:6144"})
    scatters = [trace for trace in figure(page, "pareto_plot")["data"] if trace["type"] == "scatter"]
    lines = [trace for trace in scatters if trace["name"] != "Recommended"]
    assert len({trace["marker"].get("symbol", "circle") for trace in lines}) == 3
    assert len({trace["line"].get("dash", "solid") for trace in lines}) == 3
    assert [trace["name"][:4] for trace in lines] == ["B · ", "C · ", "A · "]
    front = frontier(other, other.key, AXES)
    mine = frontier(found, found.key, AXES)
    assert lines[0]["y"] == pytest.approx(front.sort_values(AXES[1])["sample_rate"].tolist())
    bound = mine[AXES[1]].iloc[0]
    best = front.loc[front[AXES[1]] <= bound, "sample_rate"].max()
    table = next(part.value for part in page.dataframe if "Scenario" in part.value.columns)
    row = table[table[""] == "B"].iloc[0]
    assert row["Throughput then"] == format_value("sample_rate", best)
    assert row["against A"] == relative(best, mine["sample_rate"].iloc[0])


def test_a_damaged_other_scenario_is_left_out_and_said() -> None:
    page = run("pareto", exploration(), {"pareto_b": "~nothing:3"})
    assert "left out" in page.warning[0].value
    assert figure(page, "pareto_plot")["data"]


MACHADO = {  # severity 1.0, from the tables of the paper named in `dashboard.charts.elements.palette`
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
OKLAB = (
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ],
    [
        [0.2104542553, 0.793617785, -0.0040720468],
        [1.9779984951, -2.428592205, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.808675766],
    ],
)


@pytest.mark.parametrize("deficiency", MACHADO)
@pytest.mark.parametrize(("mode", "least"), [("light", 0.095), ("dark", 0.132)])
def test_scenario_colours_are_told_apart_with_any_deficiency(deficiency: str, mode: str, least: float) -> None:
    def lab(colour: str) -> np.ndarray:
        shares = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
        linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
        seen = np.clip(np.array(MACHADO[deficiency]) @ linear, 0, 1)
        return np.array(OKLAB[1]) @ np.cbrt(np.array(OKLAB[0]) @ seen)

    for one, other in itertools.combinations(SCENARIOS[mode], 2):  # type: ignore[index]
        assert np.linalg.norm(lab(one) - lab(other)) >= least - 5e-4
    assert all(contrast(colour, palette(mode).background) >= 3 for colour in SCENARIOS[mode])  # type: ignore[index]
