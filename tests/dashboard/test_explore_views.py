"""Explore with filters, along other axes and in small multiples: the figures are the engine's for the same question."""

from __future__ import annotations

from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dashboard import explore_data
from dashboard.derived import metrics
from dashboard.explore_axes import Axes, cells_for
from dashboard.explore_filter import where_of
from dashboard.filters import parse
from dashboard.format import count, format_value
from engine.store import Condition
from tests.dashboard.pages import again, exploration, figure, html, run

NONE_OR_FULL = "activation_recompute:none,full"
LEAN = "activation_recompute:none,full;proc_mem_tier1_cap_req:..21474836480.0"
LEAN_CONDITIONS = [
    Condition("activation_recompute", "in", ["none", "full"]), Condition("proc_mem_tier1_cap_req", "<=", 20 * 2.0**30),
]  # fmt: skip


def words(app: AppTest) -> str:
    return "\n".join(str(part.value).replace("\\", "") for part in (*app.markdown, *app.caption))


def texts_by_cell(app: AppTest) -> dict[str, str]:
    """What hovering says of every cell of the map, in all panels, by what a click on it reports."""
    bars = [trace for trace in figure(app, "explore_pairs")["data"] if trace["type"] == "bar"]
    pairs = [pair for trace in bars for pair in zip(trace["customdata"], trace["hovertext"], strict=True)]
    return {custom[0]: text for custom, text in pairs}


def check_cells(app: AppTest, fields: list[str], where: list[Condition], metric: str) -> None:
    """Every group that the engine finds is on the map with its value and number, and no other has a value."""
    groups = exploration().rows.best_by(fields, metric, where=where).to_pylist()
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
    found = exploration()
    app = run("explore", found, {"results_where": LEAN})
    check_cells(app, ["tensor_par", "pipeline_par"], LEAN_CONDITIONS, "sample_rate")
    best = found.rows.top(1, "sample_rate", where=LEAN_CONDITIONS).to_pylist()[0]
    left = found.rows.count(LEAN_CONDITIONS)
    assert 0 < left < found.feasible
    text = html(app)
    assert f'aria-label="Best throughput {format_value("sample_rate", best["sample_rate"])}' in text
    assert f'aria-label="Meet the filters {count(left)}' in text
    assert f"TP {best['tensor_par']} × PP {best['pipeline_par']}" in text
    assert f"{count(left)} of {count(found.feasible)} that run" in words(app)
    labels = [button.label.replace("\\", "") for button in app.button]
    assert "Recompute none or full" in labels
    assert "HBM needed ≤ 20 GiB" in labels
    here = [*LEAN_CONDITIONS, *(Condition(n, "=", best[n]) for n in ("tensor_par", "pipeline_par"))]
    assert f"executions<b>{count(found.rows.count(here))}</b>" in text
    fastest = found.rows.top(60, where=here)["total_time"].to_pylist()
    assert app.dataframe[0].value["total_time"].tolist() == pytest.approx([1000 * s for s in fastest], rel=1e-12)
    rails = {row["text"] for row in figure(app, "explore_choices")["layout"]["annotations"]}
    assert "none" in rails
    assert "attention only" not in rails  # what the filters leave out costs nothing


def test_costs_with_filters_are_those_of_the_rows_that_meet_them() -> None:
    found = exploration()
    costs = explore_data.choice_costs(found, found.key, "total_time", 1.0, explore_data.frozen(LEAN_CONDITIONS))
    names = ["activation_recompute", "microbatch_size", "data_par_net", "optimizer_sharding", "total_time"]
    rows = found.rows.table(names, where=LEAN_CONDITIONS).to_pandas()
    for field in names[:-1]:
        best = rows.groupby(field, observed=True)["total_time"].min()
        shown = costs[costs["field"] == field].set_index("choice")["value"].to_dict()
        assert shown == (best.to_dict() if len(best) > 1 else {})


def test_a_filter_is_added_by_a_pill_and_removed_by_its_chip() -> None:
    found = exploration()
    app = run("explore", found)
    assert figure(app, "explore_map")["data"]
    app.button_group(key="_explore_pick_tensor_par_overlap").set_value(["ring"])
    again(app, found)
    assert app.session_state["_url"]["results_where"] == "tensor_par_overlap:ring"
    check_cells(app, ["tensor_par", "pipeline_par"], [Condition("tensor_par_overlap", "=", "ring")], "sample_rate")
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
    assert f"what binds is throughput ≥ {format_value('sample_rate', 1e6)}." in words(app)
    app.button(key="explore_relax_sample_rate").click()
    again(app, found)
    best = found.rows.top(1, where=[Condition("activation_recompute", "=", "none")])["sample_rate"][0].as_py()
    assert app.session_state["_url"]["results_where"] == f"activation_recompute:none;sample_rate:{best!r}.."
    assert f'aria-label="Best throughput {format_value("sample_rate", best)}' in html(app)


def test_filters_that_exclude_each_other_can_be_cleared() -> None:
    found = exploration()
    app = run("explore", found, {"results_where": "sample_rate:1e9..;total_time:..1e-9"})
    assert "dropping a single one is not enough" in words(app)
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
        ({"map_x": "microbatch_size", "map_y": "pipeline_interleaving"},
         ["pipeline_interleaving", "microbatch_size"], [], "sample_rate"),
        ({"map_x": "data_par", "map_y": "optimizer_sharding", "metric": "total_time"},
         ["optimizer_sharding", "data_par"], [], "total_time"),
        ({"map_x": "tensor_par"}, ["pipeline_par", "tensor_par"], [], "sample_rate"),
        ({"map_facet": "activation_recompute"},
         ["tensor_par", "pipeline_par", "activation_recompute"], [], "sample_rate"),
        ({"map_facet": "tensor_par_comm_type", "map_x": "microbatch_size", "results_where": NONE_OR_FULL},
         ["tensor_par", "microbatch_size", "tensor_par_comm_type"], LEAN_CONDITIONS[:1], "sample_rate"),
    ],
)  # fmt: skip
def test_any_axes_show_the_engine_s_groups(
    link: dict[str, str], fields: list[str], where: list[Condition], metric: str
) -> None:
    app = run("explore", exploration(), link)
    check_cells(app, fields, where, metric)
    if "map_facet" in link:
        panels = {trace["xaxis"] for trace in figure(app, "explore_pairs")["data"] if trace["type"] == "bar"}
        assert len(panels) == len(set(exploration().rows.best_by(fields[-1:], "sample_rate")[fields[-1]].to_pylist())
                                  ) or where  # fmt: skip


def test_a_selected_pair_is_what_the_panel_describes() -> None:
    found = exploration()
    link = {"map_x": "microbatch_size", "map_y": "pipeline_interleaving",
            "map_at": "pipeline_interleaving:1;microbatch_size:2"}  # fmt: skip
    app = run("explore", found, link)
    where = [Condition("pipeline_interleaving", "=", 1), Condition("microbatch_size", "=", 2)]
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
    monkeypatch.setattr("dashboard.explore_axes.MOST_FACETS", 4)
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
    app = run("explore", found)
    app.selectbox(key="_map_x").set_value("tensor_par")
    again(app, found)
    check_cells(app, ["pipeline_par", "tensor_par"], [], "sample_rate")
    app.button(key="map_reset").click()
    again(app, found)
    assert figure(app, "explore_map")["data"]


@pytest.mark.parametrize(
    "link",
    [
        {"map_x": "id; DROP TABLE"}, {"map_x": "tensor_par", "map_y": "tensor_par"}, {"map_y": "sample_rate"},
        {"map_facet": "<script>"}, {"map_facet": "pipeline_par"}, {"map_x": "training"},
        {"results_where": "<script>alert(1)</script>"}, {"results_where": "nothing:1"},
        {"results_where": "tensor_par:" + "9" * 18}, {"results_where": "sample_rate:1e308..1e-308"},
        {"results_where": "tensor_par:-1e300.."}, {"results_where": "sample_rate:nan..inf"},
        {"map_x": "data_par", "map_at": "data_par:2;data_par:3"}, {"map_x": "data_par", "map_at": "':--"},
        {"map_x": "data_par", "map_at": "sample_rate:1..2"}, {"map_x": "data_par", "map_at": "training:on"},
    ],
)  # fmt: skip
def test_hostile_views_are_refused_in_words_and_harm_nothing(link: dict[str, str]) -> None:
    app = run("explore", exploration(), link)
    assert not app.error
    assert "<script>" not in html(app)
