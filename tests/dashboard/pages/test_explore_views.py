"""Explore with filters, along other axes and in small multiples: the figures are the engine's for the same question."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

import hardware
from dashboard.charts.elements.static_preview import still
from dashboard.charts.explored.best_map import best_map, numbered
from dashboard.charts.explored.degree_map import degree_map
from dashboard.pages.explore.axes import Axes, cells_for
from dashboard.queries import explorations
from dashboard.queries.economics import metrics, utilisation
from dashboard.queries.filters import parse
from dashboard.widgets.filters.popover import where_of
from dashboard.words.numbers import count, format_value, percent
from engine import Exploration, explore
from engine.columns import by_name
from engine.store import StoreCondition
from hardware import network_names
from tests.dashboard.page_runs import SMALL, again, exploration, figure, html, plainly, plots, run

NONE_OR_FULL = "activation_recompute:none,full"
LEAN = "activation_recompute:none,full;proc_mem_tier1_cap_req:..21474836480.0"
LEAN_CONDITIONS = [
    StoreCondition("activation_recompute", "in", ["none", "full"]),
    StoreCondition("proc_mem_tier1_cap_req", "<=", 20 * 2.0**30),
]


def words(app: AppTest) -> str:
    return "\n".join(str(part.value).replace("\\", "") for part in (*app.markdown, *app.caption))


def texts_by_cell(app: AppTest) -> dict[str, str]:
    """What hovering says of every cell of the map, in all panels, by what a click on it reports."""
    bars = [trace for trace in figure(app, "explore_pairs")["data"] if trace["type"] == "bar"]
    pairs = [pair for trace in bars for pair in zip(trace["customdata"], trace["hovertext"], strict=True)]
    return {custom[0]: text for custom, text in pairs}


def check_cells(
    app: AppTest, fields: list[str], where: list[StoreCondition], metric: str, found: Exploration | None = None
) -> None:
    """Every group that the engine finds is on the map with its value and number, and no other has a value."""
    groups = (found or exploration()).rows.best_by(fields, metric, where=where).to_pylist()
    shown = texts_by_cell(app)
    valued = {at for at, text in shown.items() if "executions" in text and "None of" not in text}
    assert len(groups) == len(valued)
    for row in groups:
        at = ";".join(f"{name}:{link_value(row[name])}" for name in fields)
        assert format_value(metric, row["value"]) in shown[at]
        assert f"{count(row['rows'])} executions" in shown[at]


def link_value(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def test_filters_narrow_map_strip_panel_and_costs() -> None:
    found = exploration("none")
    app = run("explore", found, {"results_where": LEAN, "figures": "fastest"})
    check_cells(app, ["tensor_par", "pipeline_par"], LEAN_CONDITIONS, "sample_rate", found)
    best = found.rows.top(1, "sample_rate", where=LEAN_CONDITIONS).to_pylist()[0]
    left = found.rows.count(LEAN_CONDITIONS)
    assert 0 < left < found.feasible
    text = html(app)
    assert f'aria-label="Throughput {format_value("sample_rate", best["sample_rate"])}' in text
    assert f'aria-label="Meet the filters {count(left)}' in text
    assert f"TP {best['tensor_par']} × PP {best['pipeline_par']}" in text
    assert f"{count(left)} of {count(found.feasible)} that run" in words(app)
    labels = [plainly(button.label).replace("\\", "") for button in app.button]
    assert "Recompute none or full" in labels
    assert "HBM needed ≤ 20 GiB" in labels
    here = [*LEAN_CONDITIONS, *(StoreCondition(n, "=", best[n]) for n in ("tensor_par", "pipeline_par"))]
    assert f"executions <b>{count(found.rows.count(here))}</b>" in text
    fastest = found.rows.top(60, where=here)["total_time"].to_pylist()
    assert app.dataframe[0].value["total_time"].tolist() == pytest.approx([1000 * s for s in fastest], rel=1e-12)
    rails = {row["text"] for row in figure(app, "explore_choices")["layout"]["annotations"]}
    assert "none" in rails
    assert "selective" not in rails  # what the filters leave out costs nothing


def test_costs_with_filters_are_those_of_the_rows_that_meet_them() -> None:
    found = exploration()
    metric = metrics(found.scenario)["total_time"]
    costs = explorations.choice_costs(found, metric, explorations.frozen(LEAN_CONDITIONS))
    names = ["activation_recompute", "microbatch_size", "data_par_net", "optimizer_sharding", "total_time"]
    rows = found.rows.table(names, where=LEAN_CONDITIONS).to_pandas()
    for field in names[:-1]:
        best = rows.groupby(field, observed=True)["total_time"].min()
        shown = costs[costs["field"] == field].set_index("choice")["value"].to_dict()
        assert shown == (best.to_dict() if len(best) > 1 else {})


def test_a_filter_is_added_by_a_pill_and_removed_by_its_chip() -> None:
    found = exploration()
    app = run("explore", found, opened=["filter"])
    assert figure(app, "explore_map")["data"]
    app.button_group(key="_explore_pick_tensor_par_overlap").set_value(["ring"])
    again(app, found)
    assert app.session_state["_url"]["results_where"] == "tensor_par_overlap:ring"
    check_cells(app, ["tensor_par", "pipeline_par"], [StoreCondition("tensor_par_overlap", "=", "ring")], "sample_rate")
    app.number_input(key="_explore_high_proc_mem_tier1_cap_req").set_value(10.0)
    again(app, found)
    assert app.session_state["_url"]["results_where"].endswith(f";proc_mem_tier1_cap_req:..{10 * 2.0**30!r}")
    for name in ("proc_mem_tier1_cap_req", "tensor_par_overlap"):
        app.button(key=f"explore_drop_{name}").click()
        again(app, found)
    assert "results_where" not in app.session_state["_url"]
    assert figure(app, "explore_map")["data"]


def test_filters_are_those_of_the_results_page() -> None:
    found = exploration()
    app = run("results", found, {"results_where": LEAN})
    assert any(count(found.rows.count(LEAN_CONDITIONS)) in str(part.value) for part in app.html)


def test_filters_that_nothing_meets_name_what_binds_and_offer_the_nearest_relaxation() -> None:
    found = exploration()
    app = run("explore", found, {"results_where": "activation_recompute:none;sample_rate:1000000.0.."})
    assert f"removing throughput ≥ {format_value('sample_rate', 1e6)} would help." in words(app)
    app.button(key="explore_relax_sample_rate").click()
    again(app, found)
    best = found.rows.top(1, where=[StoreCondition("activation_recompute", "=", "none")])["sample_rate"][0].as_py()
    assert app.session_state["_url"]["results_where"] == f"activation_recompute:none;sample_rate:{best!r}.."
    assert f'aria-label="Throughput {format_value("sample_rate", best)}' in html(app)


def test_filters_that_exclude_each_other_can_be_cleared() -> None:
    found = exploration()
    app = run("explore", found, {"results_where": "sample_rate:1e9..;total_time:..1e-9"})
    assert "removing a single one is not enough" in words(app)
    app.button(key="explore_clear_all").click()
    again(app, found)
    assert figure(app, "explore_map")["data"]


def test_a_cell_without_an_execution_that_meets_the_filters_offers_a_way_out() -> None:
    found = exploration()
    one = found.by_cell().sort_values("value").iloc[0]
    cell = f"{one['tensor_par']}x{one['pipeline_par']}"
    where = f"sample_rate:{float(one['value']) * 1.5!r}.."
    app = run("explore", found, {"results_where": where, "cell": cell})
    assert "No execution meets these filters" in words(app)
    assert any(button.label.startswith("Relax to") for button in app.button)


@pytest.mark.parametrize(
    ("link", "fields", "where", "metric"),
    [
        (
            {"map_x": "microbatch_size", "map_y": "pipeline_interleaving"},
            ["pipeline_interleaving", "microbatch_size"],
            [],
            "sample_rate",
        ),
        (
            {"map_x": "data_par", "map_y": "optimizer_sharding", "metric": "total_time"},
            ["optimizer_sharding", "data_par"],
            [],
            "total_time",
        ),
        ({"map_x": "tensor_par"}, ["pipeline_par", "tensor_par"], [], "sample_rate"),
        (
            {"map_facet": "activation_recompute"},
            ["tensor_par", "pipeline_par", "activation_recompute"],
            [],
            "sample_rate",
        ),
        (
            {"map_facet": "tensor_par_comm_type", "map_x": "microbatch_size", "results_where": NONE_OR_FULL},
            ["tensor_par", "microbatch_size", "tensor_par_comm_type"],
            LEAN_CONDITIONS[:1],
            "sample_rate",
        ),
    ],
)
def test_any_axes_show_the_engine_s_groups(
    link: dict[str, str], fields: list[str], where: list[StoreCondition], metric: str
) -> None:
    app = run("explore", exploration(), link)
    check_cells(app, fields, where, metric)
    if "map_facet" in link:
        panels = {trace["xaxis"] for trace in figure(app, "explore_pairs")["data"] if trace["type"] == "bar"}
        assert (
            len(panels) == len(set(exploration().rows.best_by(fields[-1:], "sample_rate")[fields[-1]].to_pylist()))
            or where
        )


def test_a_selected_pair_is_what_the_panel_describes() -> None:
    found = exploration()
    link = {
        "map_x": "microbatch_size",
        "map_y": "pipeline_interleaving",
        "map_at": "pipeline_interleaving:1;microbatch_size:2",
    }
    app = run("explore", found, link)
    where = [StoreCondition("pipeline_interleaving", "=", 1), StoreCondition("microbatch_size", "=", 2)]
    best = found.rows.top(1, where=where).to_pylist()[0]
    assert "Interleaving 1 × Microbatch 2" in html(app)
    assert f"<b>{format_value('total_time', best['total_time'])}</b>" in html(app)
    assert "known for TP × PP only" in html(app)


def test_maps_that_fail_to_fit_keep_their_obstacles_with_filters_and_in_small_multiples() -> None:
    found = exploration("tight")
    missing = found.by_cell()
    missing = missing[missing["feasible"] == 0]
    assert len(missing)
    metric = metrics(found.scenario)["sample_rate"]
    for axes in (Axes("tensor_par", "pipeline_par", None), Axes("pipeline_par", "tensor_par", "tensor_par_comm_type")):
        cells, (panels, _) = cells_for(found, axes, metric, where_of(parse("tensor_par_overlap:none")[0]))
        hatched = cells[cells["label"] != ""]
        assert len(hatched) == len(missing) * max(panels, 1)
        assert set(hatched["why"]) == set(missing["reason_text"])


def test_small_multiples_of_a_field_with_many_values_are_those_with_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboard.pages.explore.axes.MOST_FACETS", 4)
    found = exploration()
    metric = metrics(found.scenario)["sample_rate"]
    cells, (shown, had) = cells_for(found, Axes("pipeline_par", "tensor_par", "pipeline_interleaving"), metric, ())
    best = found.rows.best_by(["pipeline_interleaving"], "sample_rate").to_pandas()
    assert (shown, had) == (4, len(best))
    assert had > 4
    kept = best.sort_values("value", ascending=False)["pipeline_interleaving"].iloc[:4]
    assert set(cells["facet"]) == set(kept)


def test_choosing_the_field_of_the_other_axis_swaps_them() -> None:
    found = exploration()
    app = run("explore", found, opened=["view"])
    app.selectbox(key="_map_x").set_value("tensor_par")
    again(app, found)
    check_cells(app, ["pipeline_par", "tensor_par"], [], "sample_rate")
    app.button(key="map_reset").click()
    again(app, found)
    assert figure(app, "explore_map")["data"]


@pytest.mark.parametrize(
    "link",
    [
        {"map_x": "id; DROP TABLE", "map_facet": "<script>", "results_where": "<script>alert(1)</script>"},
        {"map_x": "tensor_par", "map_y": "tensor_par", "results_where": "nothing:1"},
        {"map_y": "sample_rate", "map_facet": "pipeline_par", "results_where": "tensor_par:-1e300.."},
        {"map_x": "training", "results_where": "sample_rate:nan..inf"},
        {"results_where": "tensor_par:" + "9" * 18},
        {"results_where": "sample_rate:1e308..1e-308"},
        {"map_x": "data_par", "map_at": "data_par:2;data_par:3"},
        {"map_x": "data_par", "map_at": "':--"},
        {"map_x": "data_par", "map_at": "sample_rate:1..2"},
        {"map_x": "data_par", "map_at": "training:on"},
    ],
)
def test_hostile_views_are_refused_in_words_and_harm_nothing(link: dict[str, str]) -> None:
    app = run("explore", exploration(), link)
    assert not app.error
    assert "<script>" not in html(app)


def test_several_ranges_hold_at_once_on_results_fields_and_what_follows_from_them() -> None:
    found = exploration()
    half = 0.5 * metrics(found.scenario)["mfu"].factor * found.best["sample_rate"]  # type: ignore[index]
    link = f"mfu:{half!r}..;proc_mem_tier1_cap_req:..{30 * 2.0**30!r};microbatch_size:2..8"
    app = run("explore", found, {"results_where": link}, opened=["filter"])
    rows = found.rows.table(["sample_rate", "proc_mem_tier1_cap_req", "microbatch_size"]).to_pandas()
    mine = rows[
        (utilisation(found.scenario, 1.0) * rows["sample_rate"] >= half)
        & (rows["proc_mem_tier1_cap_req"] <= 30 * 2**30)
        & rows["microbatch_size"].between(2, 8)
    ]
    assert 0 < len(mine) < found.feasible
    assert f'aria-label="Meet the filters {count(len(mine))}' in html(app)
    assert f"{count(len(mine))} of {count(found.feasible)} that run" in words(app)
    labels = [plainly(button.label).replace("\\", "") for button in app.button]
    assert {"HBM needed ≤ 30 GiB", "Microbatch 2 to 8"} <= set(labels)
    assert any(label.startswith("MFU, full attention ≥") for label in labels)
    assert set(app.multiselect(key="_explore_ranges").value) == {
        "mfu",
        "proc_mem_tier1_cap_req",
        "microbatch_size",
    }


def test_a_range_is_added_in_its_own_unit_and_dropped_with_its_row() -> None:
    found = exploration()
    app = run("explore", found, {"results_where": NONE_OR_FULL}, opened=["filter"])
    app.multiselect(key="_explore_ranges").set_value(["total_time", "tensor_par"])
    again(app, found)
    app.number_input(key="_explore_high_tensor_par").set_value(4)
    again(app, found)
    slow = float(found.rows.value_range("total_time")[1])  # type: ignore[index]
    app.number_input(key="_explore_high_total_time").set_value(slow / 2)  # seconds
    again(app, found)
    assert app.session_state["_url"]["results_where"] == f"{NONE_OR_FULL};tensor_par:..4;total_time:..{slow / 2!r}"
    where = where_of(parse(app.session_state["_url"]["results_where"])[0])
    assert f'aria-label="Meet the filters {count(found.rows.count(where))}' in html(app)
    app.multiselect(key="_explore_ranges").set_value(["tensor_par"])
    again(app, found)
    assert app.session_state["_url"]["results_where"] == f"{NONE_OR_FULL};tensor_par:..4"


def test_the_other_rows_stay_where_the_first_range_is_typed() -> None:
    """Whoever goes on to the next row would otherwise type into one that is taken away."""
    found = exploration()
    app = run("explore", found, opened=["filter"])
    rows = app.multiselect(key="_explore_ranges").value
    assert set(rows) == {"proc_mem_tier1_cap_req", "mfu"}
    app.number_input(key="_explore_high_proc_mem_tier1_cap_req").set_value(30.0)
    again(app, found)
    assert app.session_state["_url"]["results_where"] == f"proc_mem_tier1_cap_req:..{30 * 2.0**30!r}"
    assert app.multiselect(key="_explore_ranges").value == rows
    assert app.number_input(key="_explore_low_mfu").value is None


def test_the_line_above_the_map_reads_as_a_sentence_whose_facet_can_be_taken_back() -> None:
    found = exploration()
    app = run("explore", found, {"results_where": NONE_OR_FULL, "map_facet": "weight_offload", "metric": "mfu"})
    said = words(app)
    assert "Best **MFU, full attention** by tensor parallel and pipeline parallel" in said
    assert "in a map per" in said
    assert "of those with" in said
    app.button(key="explore_drop_facet").click()
    again(app, found)
    assert "map_facet" not in app.session_state["_url"]
    assert "in a map per" not in words(app)


def test_a_derived_range_that_nothing_meets_is_relaxed_to_the_nearest() -> None:
    found = exploration()
    app = run("explore", found, {"results_where": "mfu:0.99.."})
    best = utilisation(found.scenario, found.best["sample_rate"])  # type: ignore[index]
    labels = [plainly(button.label).replace("\\", "") for button in app.button]
    assert f"Relax to MFU, full attention ≥ {plainly(percent(best))}" in labels
    app.button(key="explore_relax_mfu").click()
    again(app, found)
    assert 'aria-label="Meet the filters ' in html(app)
    assert f'aria-label="MFU, full {percent(best)}' in html(app)


@pytest.mark.parametrize(
    "link",
    [
        {"map_x": "data_par_net"},
        {"map_y": "data_par_net", "map_x": "microbatch_size"},
        {"map_facet": "data_par_net"},
    ],
)
def test_networks_on_the_map_have_names(link: dict[str, str]) -> None:
    app = run("explore", exploration(), link)
    names = network_names(exploration().scenario.system)
    assert names[0] == "NVLink"
    (chart,) = (each for each in plots(app) if each.id.endswith("explore_pairs"))
    hovers = [text for trace in chart.figure["data"] for text in trace.get("hovertext") or ()]
    assert any("DP network NVLink" in text or "DP net NVLink" in text for text in hovers)
    layout = chart.figure["layout"]
    axis = "xaxis" if "map_x" in link and link["map_x"] == "data_par_net" else "yaxis"
    if "map_facet" in link:
        assert any("NVLink" in note["text"] for note in layout["annotations"])
    else:
        assert set(layout[axis]["ticktext"]) <= set(names)
    table = run("explore", exploration(), {**link, "map_table": "on"})
    assert set(table.dataframe[0].value["DP network"]) <= set(names)


def crowded(cells: int, facets: int) -> pd.DataFrame:
    """A map of so many cells per panel, in a row of the first field for each of ten values of the second."""
    rows = [
        {
            "x": x,
            "y": y,
            "facet": facet,
            "value": 100.0 * facet + x + y / 100 if (x + y) % 7 else math.nan,
            "tally": "5",
            "id": x * 100 + y,
            "at": f"tensor_par:{x};pipeline_par:{y};microbatch_size:{facet}",
            "name": f"{x} × {y}",
            "label": "" if (x + y) % 7 else "+3",
            "why": "too large",
        }
        for facet in range(1, facets + 1)
        for y in range(1, 11)
        for x in range(1, cells // 10 + 1)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(("cells", "facets"), [(60, 3), (60, 6), (200, 1)])
def test_cells_are_numbered_while_numbers_fit(cells: int, facets: int) -> None:
    table = crowded(cells, facets)
    third = by_name("microbatch_size") if facets > 1 else None
    fields = by_name("tensor_par"), by_name("pipeline_par")
    drawn = best_map(table, *fields, by_name("sample_rate"), facet=third).figure
    texts = [text for trace in drawn.data if trace.type == "scatter" and trace.mode == "text" for text in trace.text]
    assert numbered(table)
    assert len(texts) == cells * facets


@pytest.mark.parametrize(("cells", "facets", "mode"), [(300, 1, "light"), (140, 6, "dark"), (1500, 1, "light")])
def test_maps_of_cells_too_small_for_numbers_still_read(cells: int, facets: int, mode: str) -> None:
    table = crowded(cells, facets)
    third = by_name("microbatch_size") if facets > 1 else None
    fields = by_name("tensor_par"), by_name("pipeline_par")
    chart = best_map(table, *fields, by_name("sample_rate"), mode, facet=third)
    assert not numbered(table)
    drawn = chart.figure
    hovers = {
        at: text
        for trace in drawn.data
        if trace.customdata is not None
        for (at, _), text in zip(trace.customdata, trace.hovertext, strict=True)
    }
    assert set(hovers) == set(table["at"])
    for row in table.dropna().sample(20, random_state=1).to_dict("records"):
        assert format_value("sample_rate", row["value"]) in hovers[row["at"]]
    colours = [line for trace in drawn.data if trace.type == "heatmap" for line in trace.z]
    assert sum(cell is not None for line in colours for cell in line) == table["value"].notna().sum()
    titles = [note.text for note in drawn.layout.annotations]
    for facet, panel in table.groupby("facet"):
        best = f"best {format_value('sample_rate', panel['value'].max())}"
        assert any(best in title and (facets == 1 or f"Microbatch {facet}" in title) for title in titles)
    assert sum(title.startswith("★") for title in titles) == 1
    assert format_value("sample_rate", table["value"].max()) in chart.alt


def test_the_calibrated_model_s_own_fields_can_be_filtered_by_and_are_weighed() -> None:
    found = explore(
        "gpt3-13B",
        "h100_80g_nvl8",
        num_procs=16,
        max_batch_size=16,
        datatype="float16",
        cost_model="calibrated",
        limits={"tensor_par": [4], "pipeline_par": [1]},
    )
    rows = found.rows.table(["zero_stage", "sample_rate"]).to_pandas()
    stages = sorted(int(stage) for stage in rows["zero_stage"].unique())
    assert len(stages) > 1
    assert set(stages) <= set(explorations.options_of(found, "zero_stage"))
    app = run("explore", found, {"results_where": f"zero_stage:{stages[-1]}"})
    left = int((rows["zero_stage"] == stages[-1]).sum())
    assert f'aria-label="Meet the filters {count(left)}' in html(app)
    costs = explorations.choice_costs(found, metrics(found.scenario)["sample_rate"])
    weighed = costs[costs["field"] == "zero_stage"].dropna().set_index("choice")["value"]
    assert weighed.to_dict() == rows.groupby("zero_stage")["sample_rate"].max().to_dict()
    for page in ("results", "pareto"):
        run(page, found)


def test_a_map_per_datatype_shows_the_explorations_of_the_others_beside_it() -> None:
    found = exploration()
    other = explore("gpt3-13B", "h100_80g_nvl8", **{**SMALL, "datatype": "float8"}, limits=found.scenario.limits)
    axes = Axes("pipeline_par", "tensor_par", "datatype")
    cells, (shown, had) = cells_for(found, axes, metrics(found.scenario)["mfu"], (), [other])
    assert (shown, had) == (2, 2)
    for one in (found, other):
        here = cells[(cells["facet"] == one.scenario.datatype) & cells["value"].notna()]
        best = one.rows.best_by(["tensor_par", "pipeline_par"], "sample_rate").to_pandas()
        training = bool(one.best["training"])  # type: ignore[index]
        expected = {
            (row.tensor_par, row.pipeline_par): utilisation(one.scenario, row.value, training)
            for row in best.itertuples()
        }
        drawn = {(row["tensor_par"], row["pipeline_par"]): row["value"] for row in here.to_dict("records")}
        assert drawn == pytest.approx(expected)
    app = run("explore", found, {"map_facet": "datatype", "figures": "fastest"})
    titles = [note["text"] for note in figure(app, "explore_pairs")["layout"]["annotations"]]
    assert {"<b>Datatype FP8</b>", "<b>Datatype FP16</b>"} <= set(titles)
    # The panel is about the datatype of the scenario, also where another one is faster.
    assert f"<b>{percent(utilisation(found.scenario, found.best['sample_rate']))}</b>" in html(app)  # type: ignore[index]
    assert "a click on a map of another datatype changes to it" in html(app)


def test_what_may_fit_is_marked_on_the_map_and_counted() -> None:
    """The tile counts executions above the capacity, and a cell says whether its best is one of them."""
    system = hardware.load("h100_80g_sxm")
    small = system.mem1.model_copy(update={"capacity_gib": 30.0})
    system = system.model_copy(update={"mem1": small, "mem2": system.mem2.model_copy(update={"capacity_gib": 0.0})})
    kind: dict[str, Any] = {"num_procs": 8, "max_batch_size": 8, "datatype": "bfloat16", "cost_model": "calibrated"}
    few = {"context_par": 1, "selective_recompute": "modules"}
    for limits in (few, {**few, "memory_excess": 13}):
        found = explore("llama-3-8B", system, limits=limits, **kind)
        app = run("explore", found)
        assert (f"{count(found.may_fit)} may fit" in plainly(html(app))) == (found.may_fit > 0) == (limits != few)
        best = found.by_pair()
        best = best[best["feasible"] > 0]
        need = found.evaluate_ids(best["id"])["proc_mem_tier1_cap_req"].to_numpy()
        bars = [trace for trace in figure(app, "explore_map")["data"] if trace["type"] == "bar"]
        texts = [pair for bar in bars for pair in zip(bar["customdata"], bar["hovertext"], strict=True)]
        marked = {tuple(where[:2]) for where, text in texts if "the best may fit" in text}
        pairs = zip(best["tensor_par"], best["pipeline_par"], need > 30.0 * 2**30, strict=True)
        expected = {(tensor, pipeline) for tensor, pipeline, over in pairs if over}
        assert marked == expected
        assert bool(expected) == (limits != few)
        # The sign is in the chart, in its picture, in the alternative text, in the legend and in the table.
        labels = [
            text
            for trace in figure(app, "explore_map")["data"]
            if trace["type"] == "scatter" and trace["mode"] == "text"
            for text in trace["text"]
        ]
        assert sum(text.endswith("?") for text in labels) == len(expected)
        drawn = degree_map(explorations.cells_of(found, metrics(found.scenario)["sample_rate"]), "sample_rate")
        assert still(drawn.drawing).count("?</span>") == len(expected)
        assert ("the best only may fit, marked ?" in drawn.alt) == (limits != few)
        assert ("? may fit: memory above the capacity" in html(app)) == (limits != few)
        rows = run("explore", found, {"map_table": "on"}).dataframe[0].value
        assert ("fit of the best" in rows) == (limits != few)
        assert rows.get("fit of the best", pd.Series(dtype=str)).tolist().count("may fit") == len(expected)
        others = texts_by_cell(run("explore", found, {"map_x": "microbatch_size", "map_y": "data_par"}))
        assert any("the best may fit" in text for text in others.values()) == (limits != few)
