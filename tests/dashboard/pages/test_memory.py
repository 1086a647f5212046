"""The Memory page shows what the engine computes, and says what would make things fit."""

import dataclasses

import pandas as pd
import pytest

from dashboard.charts.elements.palette import MEMORY_KINDS, kinds_of, palette
from dashboard.charts.execution.memory_bars import tier_pieces
from dashboard.charts.explored.memory_requirements import memory_needs
from dashboard.queries.memory_requirements import needs_of, with_hbm
from dashboard.queries.tie_breaking import best_of
from dashboard.words.numbers import format_value, gibibytes
from engine import Scenario, explore_scenario, whatif
from engine.store import StoreCondition
from hardware import GIB
from tests.dashboard.page_runs import again, exploration, figure, html, plainly, run

HBM = "proc_mem_tier1_cap_req"


def test_it_opens_on_the_best_execution() -> None:
    found = exploration()
    best = best_of(found)
    assert best is not None
    page = run("memory", found, {"figures": "fastest"})
    assert gibibytes(best[HBM]).split()[0] in html(page)
    assert format_value("sample_rate", best["sample_rate"]).split()[0] in html(page)
    assert "fastest of all" in html(page)


def test_a_selected_execution_is_shown_beside_the_best() -> None:
    found = exploration()
    chosen = int(found.top(40)["id"].iloc[-1])
    page = run("memory", found, {"id": str(chosen)})
    row = found.evaluate_ids([chosen]).iloc[0]
    assert gibibytes(row[HBM]).split()[0] in html(page)
    axis = figure(page, "memory_one")["layout"]["yaxis"]
    assert set(axis["ticktext"]) == {"this", "fastest"}


@pytest.mark.parametrize("name", ["memory", "execution"])
def test_every_piece_of_the_bars_has_its_size_in_words(name: str) -> None:
    found = exploration("none")
    offloading = found.rows.top(1, where=[StoreCondition("optimizer_offload", "=", True)], names=["id"])[
        "id"
    ].to_pylist()[0]
    row = found.evaluate_ids([offloading]).iloc[0].to_dict()
    said = plainly(html(run(name, found, {"id": str(offloading)})))
    own, host = tier_pieces(row)
    assert host["optimizer"] > 0
    for kind in kinds_of(MEMORY_KINDS, "calculon"):
        size = gibibytes(own[kind.key]) if own[kind.key] > 0 or not host[kind.key] else ""
        there = f"{gibibytes(host[kind.key])} in host memory" if host[kind.key] > 0 else ""
        assert plainly(f"</i>{kind.name} <b>{' + '.join(filter(None, (size, there)))}</b>") in said


def test_an_execution_that_does_not_run_says_why() -> None:
    found = exploration()
    table = found.evaluate_ids(range(0, found.total, 997))
    broken = table[table["status"] != "ok"].iloc[0]
    page = run("memory", found, {"id": str(int(broken["id"]))})
    assert str(broken["reason_text"]).split()[0] in page.warning[0].value
    assert "does not run" in page.warning[0].value


def test_an_execution_without_room_is_drawn_past_the_line() -> None:
    found = exploration("tight")
    needs = needs_of(found.scenario)
    worst = needs[~needs["fits"]].iloc[0]
    page = run("memory", found, {"id": str(int(worst["id"]))})
    assert gibibytes(worst["need"]).split()[0] in html(page)
    assert "Too much" in html(page)


def test_a_cell_without_room_shows_its_nearest_execution() -> None:
    found = exploration("tight")
    nearest = needs_of(found.scenario).iloc[0]
    page = run("memory", found, {"cell": f"{nearest['tensor_par']}x{nearest['pipeline_par']}"})
    assert "nearest to fitting in its cell" in html(page)
    assert gibibytes(nearest["need"]).split()[0] in html(page)


@pytest.mark.parametrize("limits", ["tight", "hopeless"])
def test_any_cell_can_be_chosen_without_a_pointer(limits: str) -> None:
    found = exploration(limits)
    page = run("memory", found)
    (picker,) = [box for box in page.selectbox if box.key == "_memory_cell"]
    assert len(picker.options) == len(found.by_cell()[["tensor_par", "pipeline_par"]].drop_duplicates())
    needs = needs_of(found.scenario)
    misfit = needs[~needs["fits"].astype(bool)].iloc[0]
    wanted = f"TP {misfit['tensor_par']} × PP {misfit['pipeline_par']}"
    picker.select(wanted)
    after = again(page, found)
    assert after.session_state["_url"]["cell"] == f"{misfit['tensor_par']}x{misfit['pipeline_par']}"
    assert plainly(gibibytes(misfit["need"])) in plainly(html(after))
    assert "nearest to fitting in its cell" in html(after)


def test_the_bars_are_the_best_of_every_cell() -> None:
    found = exploration()
    page = run("memory", found)
    cells = found.by_cell().sort_values("value")
    runs = cells[cells["feasible"] > 0].drop_duplicates(["tensor_par", "pipeline_par"], keep="last")
    drawn = figure(page, "memory_cells")
    ids = {int(point[2]) for trace in drawn["data"] for point in trace["customdata"]}
    assert sorted(found.evaluate_ids(sorted(ids))["sample_rate"]) == sorted(runs["value"])
    best = best_of(found)
    assert best is not None
    assert best["id"] in ids  # of several that tie the one that all pages show
    page.segmented_control(key="_memory_sort").set_value("need")
    order = again(page, found)
    labels = figure(order, "memory_cells")["layout"]["yaxis"]["ticktext"]
    rows = found.evaluate_ids(sorted(ids)).sort_values(HBM, ascending=False, kind="stable")
    assert labels[0] == f"TP {rows['tensor_par'].iloc[0]} × PP {rows['pipeline_par'].iloc[0]}"


def test_nothing_fits_is_an_answer() -> None:
    found = exploration("hopeless")
    page = run("memory", found)
    assert "Nothing fits" in page.warning[0].value
    needs = needs_of(found.scenario)
    assert gibibytes(needs["need"].min()) in page.warning[0].value
    assert not needs["remedy"].any()
    assert " ".join(each.value for each in page.caption).count("nly more memory") == 1
    assert "only more memory" not in str(figure(page, "memory_needs"))


def test_what_a_smaller_memory_leaves_is_what_an_exploration_of_it_finds() -> None:
    found = exploration("tight")
    page = run("memory", found, {"memory_hbm": "40"})
    system = found.scenario.system
    smaller = system.model_copy(update={"mem1": system.mem1.model_copy(update={"capacity_gib": 40.0})})
    scenario = Scenario(found.scenario.model, smaller, 16, 32, "float16", found.scenario.limits)
    other = explore_scenario(scenario)
    assert other.best is not None
    assert format_value("sample_rate", other.best["sample_rate"]) in html(page)
    cells = other.by_cell()
    assert with_hbm(needs_of(found.scenario), 40) == int((cells["feasible"] > 0).sum())
    # The slider begins where less begins to cost.
    start = run("memory", found).slider[0].value
    rates = []
    for capacity in (start, start + 1):
        other = whatif.reoptimise(found.scenario, {"hbm_capacity": float(capacity)}).best
        assert other is not None
        rates.append(other["sample_rate"])
    assert found.best is not None
    assert rates[0] < rates[1] == found.best["sample_rate"]


def test_unlimited_memory_is_called_so_and_leaves_the_scale_to_the_bars() -> None:
    limits = {**exploration("tight").scenario.limits, "pipeline_par": [1, 2]}
    scenario = Scenario.of("gpt3-13B", "a100_80e", num_procs=16, max_batch_size=32, datatype="float16", limits=limits)
    found = explore_scenario(scenario)
    page = run("memory", found)
    shown = html(page)
    assert "of unlimited memory" in shown
    assert "PiB" not in shown
    needs = needs_of(scenario)
    chart = memory_needs(needs, scenario.system.mem1.capacity_gib * GIB)
    assert chart.figure.layout.xaxis.range[1] == pytest.approx(1.02 * needs["need"].max() / GIB)
    assert not chart.figure.layout.shapes


@pytest.mark.parametrize("gib", [5e5, 5e8])
def test_a_description_that_claims_huge_memory_takes_no_room_of_the_server(gib: float) -> None:
    limits = {**exploration("tight").scenario.limits, "pipeline_par": [1, 2]}
    scenario = Scenario.of("gpt3-13B", "a100_80g", num_procs=16, max_batch_size=32, datatype="float16", limits=limits)
    memory = scenario.system.mem1.model_copy(update={"capacity_gib": gib})
    huge = dataclasses.replace(scenario, system=scenario.system.model_copy(update={"mem1": memory}))
    page = run("memory", explore_scenario(huge))
    (slider,) = page.slider
    assert slider.max <= 65_536


@pytest.mark.parametrize("needs", [[577, 583, 798], [90, 120, 5000], [20, 40, 60]])
def test_the_cells_nearest_to_fitting_differ_in_length(needs: list[float]) -> None:
    """Bars far beyond the capacity are cut, but never all to one length."""
    cells = pd.DataFrame(
        {
            "tensor_par": [1, 2, 4],
            "pipeline_par": 1,
            "need": [need * 2**30 for need in needs],
            "remedy": ["" if need <= 80 else "only more memory" for need in needs],
        }
    )
    figure = memory_needs(cells, 80 * 2**30).figure
    (bars,) = [trace for trace in figure.data if trace.type == "bar"]
    assert bars.x[0] < bars.x[1]
    assert list(bars.x[:2]) == pytest.approx(needs[:2])
    assert max(bars.x) <= figure.layout.xaxis.range[1]
    cut = sum(need > drawn + 1e-9 for need, drawn in zip(needs, bars.x, strict=True))
    texts = [each.text for each in figure.layout.annotations]
    assert texts.count("»") == cut
    assert ("» longer than drawn" in texts) == (cut > 0)


def test_needs_are_exact_and_remedies_work() -> None:
    found = exploration("tight")
    needs = needs_of(found.scenario)
    assert not needs["fits"].all()
    assert needs["fits"].any()
    cells = found.by_cell(HBM).set_index(["tensor_par", "pipeline_par"])
    capacity = found.scenario.system.mem1.capacity_gib * GIB
    for row in needs.to_dict("records"):
        cell = cells.loc[(row["tensor_par"], row["pipeline_par"])]
        expected = cell["value"] if row["fits"] else cell["shortfall_bytes"] + capacity
        assert row["need"] == pytest.approx(expected, rel=1e-12)
    checked = found.evaluate_ids(needs["id"])
    assert (checked["status"] == "ok").tolist() == needs["fits"].tolist()
    assert set(checked.loc[checked["status"] != "ok", "reason"]) == {"memory_tier1"}
    offload = needs[needs["remedy"].str.startswith("offload")]
    assert len(offload)
    limits = {name: limit for name, limit in found.scenario.limits.items() if not name.endswith("_offload")}
    relaxed = explore_scenario(Scenario(found.scenario.model, found.scenario.system, 16, 32, "float16", limits))
    fitting = relaxed.by_cell().query("feasible > 0").set_index(["tensor_par", "pipeline_par"]).index
    plain = offload[~offload["remedy"].str.startswith("offload and")]
    assert all((row["tensor_par"], row["pipeline_par"]) in fitting for row in plain.to_dict("records"))


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_chart_hatches_what_does_not_fit(mode: str) -> None:
    needs = needs_of(exploration("tight").scenario)
    chart = memory_needs(needs, 80 * GIB, mode)
    (trace,) = chart.figure.data
    assert [bool(shape) for shape in trace.marker.pattern.shape] == [not fits for fits in needs["fits"]]
    line = next(shape for shape in chart.figure.layout.shapes if shape.line.color == palette(mode).worse)
    assert line.x0 == 80
    assert f"{int(needs['fits'].sum())} of {len(needs)} cells" in chart.alt


def test_pieces_add_up_to_what_the_engine_says() -> None:
    for row in exploration().top(30).to_dict("records"):
        first, second = tier_pieces(row)
        assert sum(first.values()) == pytest.approx(row[HBM])
        assert sum(second.values()) == pytest.approx(row["proc_mem_tier2_cap_req"])
