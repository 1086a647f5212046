"""Every page works for scenarios of the calibrated cost model, also for models that Calculon cannot describe."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

import engine
from dashboard.charts.elements.palette import MEMORY_KINDS, TIME_KINDS, kinds_of
from dashboard.charts.execution.memory_bars import tier_pieces
from dashboard.charts.execution.networks import LOOK, partners
from dashboard.charts.execution.time_bar import time_kinds, time_pieces
from dashboard.files.execution_files import execution_json
from dashboard.queries.memory_requirements import needs_of
from dashboard.words.changes import text_of
from dashboard.words.executions import choices, differences, networks_of
from dashboard.words.formulas import formula
from dashboard.words.numbers import format_value
from engine import Exploration, whatif
from engine.columns import ALL_FIELDS, by_name, fields_of, headline_of
from engine.cost_models.calibrated import block_level, parameters_of
from engine.cost_models.calibrated.account import CalibratedAccount, innermost_first
from engine.cost_models.calibrated.cost_model import CALIBRATED
from engine.cost_models.calibrated.formulas import EXPRESSIONS
from engine.cost_models.formulas import Untold
from engine.executions.execution_names import execution_name
from engine.simulate.schedule import schedule
from tests.dashboard.page_runs import again, figure, html, plots, run
from tests.dashboard.pages.test_whatif import unstudied
from tests.engine.cost_models.calibrated.small import system_with

PAGES = ("explore", "execution", "whatif", "memory", "pareto", "compare", "results", "scenarios", "library")
GIB = 2.0**30
HOSTS_OF_8 = system_with((8, 450.0), (65536, 50.0))
NO_OFFLOAD = {"weight_offload": False, "activations_offload": False, "optimizer_offload": False}


@functools.cache
def dense() -> Exploration:
    """Llama 3.1 70B on 16 H100: grouped queries, gated MLP."""
    return engine.explore(
        "llama-3.1-70B",
        "h100_80g_sxm",
        num_procs=16,
        max_batch_size=32,
        datatype="bfloat16",
        limits={
            "pipeline_par": [1, 2, 4],
            "tensor_par": [2, 4, 8],
            "microbatch_size": [1, 2],
            "tensor_par_overlap": "none",
            "data_par_overlap": True,
        },
    )


@functools.cache
def experts() -> Exploration:
    """DeepSeek-V3 on 512 H100: latent attention and experts, which Calculon's block cannot stand for."""
    return engine.explore(
        "deepseek-v3",
        "h100_80g_sxm",
        num_procs=512,
        max_batch_size=512,
        datatype="float8",
        limits={
            "tensor_par": [1, 2],
            "microbatch_size": [1],
            "expert_par": [8, 16, 32],
            **NO_OFFLOAD,
            "stage_layout": "even",
        },
    )


BOTH = pytest.mark.parametrize("found", [dense, experts], ids=["dense", "experts"])


@functools.cache
def opened(page: str, found: Callable[[], Exploration], block: str = "") -> AppTest:
    """A page with figures of the fastest, for all tests that only look at it."""
    return run(page, found(), {"figures": "fastest"} | ({"execution_block": block} if block else {}))


def test_whatif_moves_compute_with_power_and_each_alone_on_request() -> None:
    """The first slider does something; links of before there was one change the matrix peak or the power alone."""
    scenario, best = dense().scenario, dense().best
    assert best is not None
    peak = whatif.parameter(scenario, "matrix").value
    gains = {}
    for changes in ({"compute": 2 * peak}, {"matrix": 2 * peak}, {"power": 1400.0}):
        with unstudied():
            app = run("whatif", dense(), {"whatif_changes": text_of(changes), "figures": "fastest"})
        assert not app.exception
        answer = whatif.reoptimise(scenario, changes)
        assert answer.best is not None
        assert format_value("sample_rate", answer.best["sample_rate"]).split()[0] in html(app)
        (name,) = changes
        gains[name] = answer.gain
        labels = {
            slider.key.split("whatif_sliders_")[1].split("-")[0]: slider.label
            for slider in app.select_slider
            if "whatif_sliders_" in str(slider.key)
        }
        assert next(iter(labels.values())).startswith(("Compute and power", "**Compute and power**"))
        assert any(label.startswith(f"**{whatif.parameter(scenario, name).label}**") for label in labels.values())
        if name == "compute":  # what moves with it is shown where it is
            values = [slider.value for slider in app.select_slider if "alone" in slider.label]
            assert values == [2 * peak, 1400]
    assert gains["compute"] > gains["power"] >= gains["matrix"]
    assert gains["compute"] > 0.3
    assert abs(gains["matrix"]) < 1e-9


def account(found: Exploration, row: dict[str, Any]) -> CalibratedAccount:
    """What the cost model tells of an execution."""
    scenario = found.scenario
    return CALIBRATED.account(scenario.model, scenario.system, row, scenario.calibration)


def words(app: AppTest) -> str:
    """All text of a page."""
    kinds = ("markdown", "caption", "warning", "error", "info", "code")
    return "\n".join([html(app), *(str(element.value) for kind in kinds for element in app.get(kind))])


def rows(found: Exploration, number: int = 200) -> list[dict[str, Any]]:
    """Executions that run, from all over the space."""
    ids = found.rows.table(["id"])["id"].to_numpy()
    chosen = np.random.default_rng(3).choice(ids, min(number, len(ids)), replace=False)
    return [{str(name): value for name, value in row.items()} for row in found.evaluate_ids(chosen).to_dict("records")]


@BOTH
@pytest.mark.parametrize("page", PAGES)
def test_every_page_opens_without_undefined_numbers(page: str, found: Any) -> None:
    shown = words(opened(page, found))
    assert not re.search(r"(?i)(?<![a-z])(nan|inf)(?![a-z])", shown)


@BOTH
def test_a_cell_is_a_pair_of_tensor_and_pipeline_degrees(found: Any) -> None:
    """Also where the engine's cells are finer, by context and expert parallel degrees."""
    rows = found().rows.table(["tensor_par", "pipeline_par"]).to_pandas().drop_duplicates()
    assert re.search(rf"\b{len(rows)} layouts", words(opened("explore", found)))


@BOTH
def test_results_show_at_first_what_tells_executions_apart(found: Any) -> None:
    """Degrees, ZeRO stage and kind of recompute are shown; networks follow from how ranks are placed."""
    shown = set(opened("results", found).dataframe[0].value.columns)
    assert {"context_par", "zero_stage", "selective_recompute", "sample_rate"} <= shown
    assert not {"data_par_net", "optimizer_sharding"} & shown


def test_results_show_expert_parallelism_where_there_are_experts_or_it_is_asked_for() -> None:
    def columns(found: Any, **link: str) -> set[str]:
        return set(run("results", found, link).dataframe[0].value.columns)

    assert "expert_par" in columns(experts())
    assert "expert_par" not in columns(dense())
    assert "expert_par" in columns(dense(), results_columns="id,expert_par")


def ranked(**degrees: int) -> dict[str, Any]:
    """Degrees of an execution, all 1 but those given."""
    names = (
        "tensor_par",
        "context_par",
        "data_par",
        "pipeline_par",
        "expert_par",
        "expert_tensor_par",
        "pipeline_interleaving",
    )
    return {name: degrees.get(name, 1) for name in names}


def test_ranks_talk_to_those_that_the_cost_model_places_them_beside() -> None:
    """64 GPUs in hosts of 8: two replicas of four tensor ranks share a host, stages are 32 GPUs apart."""
    row = ranked(tensor_par=4, data_par=8, pipeline_par=2, expert_par=16)
    groups = {group.name: group for group in innermost_first(row, HOSTS_OF_8)}
    assert groups["TP"].partners == (0, 1, 2, 3)
    assert groups["DP"].partners == (0, 4, 8, 12, 16, 20, 24, 28)
    assert groups["EP"].partners == tuple(range(16))
    assert groups["PP"].partners == (0, 32)
    told = {name: networks_of(HOSTS_OF_8, group.tiers) for name, group in groups.items()}
    both = "NVLink and InfiniBand"
    assert told == {"TP": "NVLink", "DP": both, "EP": both, "PP": "InfiniBand"}
    spread = ranked(tensor_par=8, context_par=2, data_par=2)
    apart = {group.name: group for group in innermost_first(spread, HOSTS_OF_8)}
    assert apart["CP"].partners == (0, 8)
    assert apart["DP"].partners == (0, 16)
    assert {apart[name].tiers for name in ("CP", "DP")} == {(1,)}
    assert apart["PP"].degree == 1
    whole = innermost_first(ranked(tensor_par=4, data_par=9, pipeline_par=2), system_with((72, 900.0), (65536, 50.0)))
    assert {group.tiers for group in whole} == {(0,)}
    four = system_with((8, 450.0), (64, 100.0), (1024, 50.0), (65536, 25.0))
    wide = {group.name: group.tiers for group in innermost_first(ranked(tensor_par=8, data_par=128), four)}
    assert wide == {"TP": (0,), "DP": (1, 2), "PP": (0,)}
    assert networks_of(four, wide["DP"]) == "InfiniBand and spine"


def test_the_formula_of_a_calibrated_figure_leads_on_to_those_of_its_parts() -> None:
    page = run("execution", dense())
    page.button(key="execution_why_bw_time").click()
    page = again(page, dense())
    assert page.session_state["_url"]["execution_figure"] == "bw_time"
    assert any(each.value.startswith("bw_time = linear + attention") for each in page.code)


def test_a_mixture_of_experts_shows_whom_its_experts_exchange_tokens_with() -> None:
    found = experts()
    wide = next(row for row in rows(found) if row["expert_par"] > 1)
    groups = innermost_first(wide, HOSTS_OF_8)
    where = {group.name: networks_of(HOSTS_OF_8, group.tiers) for group in groups}
    chart = partners(groups, where, int(wide["num_procs"]), 8)
    assert f"EP over {wide['expert_par']} GPUs on {where['EP']}" in chart.alt
    assert "execution_partners" in str(plots(opened("execution", experts)))


@BOTH
def test_execution_tells_the_step_in_the_terms_of_its_cost_model(found: Any) -> None:
    best = found().best
    assert best is not None
    page = opened("execution", found)
    text = words(page)
    assert "Parts of the step" in text
    assert "Layers of one block" not in text  # Calculon's
    step = figure(page, "execution_time")["data"][0]
    assert sum(step["x"][1:]) == pytest.approx(step["x"][0])
    assert sum(part.seconds for part in account(found(), best).parts()) == pytest.approx(best["total_time"], rel=1e-6)


@BOTH
def test_the_operations_of_a_block_are_those_of_the_cost_model(found: Any) -> None:
    scenario, best = found().scenario, found().best
    case = account(found(), best).case
    block = block_level(case, parameters_of(scenario.used_calibration))
    for routed, times in ((kind.experts, each) for kind, each in block.kinds.items()):
        kind = "experts" if routed else "dense"
        page = opened("execution", found, kind if found is experts else "")
        table = next(each.value for each in page.dataframe if "bound by" in each.value)
        # Launches show after routing only.
        assert table["fw, µs"].sum() / 1e6 == pytest.approx(float(np.ravel(times.forward)[0]))
        assert table["share of block"].sum() == pytest.approx(100)
        assert ("MLP, linear 1" in set(table["Operation"])) is (kind == "dense")
        drawn = [trace for trace in figure(page, "execution_roofline")["data"] if trace["mode"] == "markers"]
        linear = table["FLOP/B"].notna().sum()
        assert [len(trace["x"]) for trace in drawn] == [linear] * 3


def test_the_load_of_experts_is_stated_with_every_execution_that_spreads_them() -> None:
    """Also where it is even; the dispatcher where it is not the usual one."""
    for found in (dense, experts):
        for row in rows(found(), 20):
            stated = dict(choices(row, found().scenario.system))
            assert stated.get("expert load") == ("100 %" if row["expert_par"] > 1 else None)
            assert "dispatcher" not in " ".join(stated)
    uneven = dict(
        choices(
            rows(experts(), 1)[0] | {"expert_par": 8, "expert_imbalance": 125, "token_dispatcher": "deepep"},
            experts().scenario.system,
        )
    )
    assert (uneven["expert load"], uneven["token dispatcher"]) == ("125 %", "DeepEP")


@BOTH
def test_links_are_told_for_whom_gpu_0_talks_to(found: Any) -> None:
    scenario = found().scenario
    for row in rows(found(), 20):
        groups = innermost_first(row, scenario.system)
        told = account(found(), row).communication().times
        talking = {group.name for group in groups if group.degree > 1 and (group.name != "DP" or row["zero_stage"] < 3)}
        assert talking <= {each.name for each in told} <= {*LOOK, "TP repeated"}
        assert all(each.exposed <= each.link * (1 + 1e-9) for each in told)
        kinds = [f"{kind}_comm_exposed_time" for kind in ("tp", "cp", "ep", "pp", "dp")]
        shown = sum(row[kind] for kind in (*kinds, "recomm_exposed_time"))
        assert sum(each.exposed for each in told) == pytest.approx(shown)
    assert "execution_traffic" in str(plots(opened("execution", found)))


@BOTH
def test_pieces_add_up_to_step_and_memory(found: Any) -> None:
    capacity = found().scenario.system.mem1.capacity_gib * GIB
    for row in rows(found()):
        assert sum(time_pieces(row).values()) == pytest.approx(row["total_time"])
        first, second = tier_pieces(row)
        assert sum(first.values()) == pytest.approx(row["proc_mem_tier1_cap_req"])
        assert sum(first.values()) <= capacity * (1 + 1e-9)
        assert sum(second.values()) == pytest.approx(row["proc_mem_tier2_cap_req"])
        assert min(*first.values(), *second.values()) >= 0


def test_kinds_of_the_two_cost_models() -> None:
    parts = [name for kind in TIME_KINDS for name in kind.statistics]
    assert sorted(parts) == sorted(column.name for column in headline_of("calibrated") if column.group == "Time")
    assert len(kinds_of(TIME_KINDS, "calculon")) == len(TIME_KINDS) - 3
    assert len(kinds_of(MEMORY_KINDS, "calculon")) == len(MEMORY_KINDS) - 3
    without = {kind.key for kind in time_kinds(rows(dense(), 1)[0])}
    assert "expert" not in without
    assert "overhead" in without
    assert "expert" in {kind.key for kind in time_kinds(*rows(experts(), 20))}


@BOTH
def test_formulas_give_the_figures(found: Any) -> None:
    for row in rows(found(), 12):
        of_row = account(found(), row)
        for name in EXPRESSIONS:
            expression = of_row.formula(name)
            assert not isinstance(expression, Untold)
            told = formula(by_name(name), expression)
            assert told.value == pytest.approx(row[name], rel=1e-6, abs=1e-9), name
            assert "nan" not in told.numbers


@BOTH
def test_schedule_ends_with_the_step(found: Any) -> None:
    blocks = {"dense": 80, "experts": 61}["dense" if found is dense else "experts"]
    for row in rows(found(), 20):
        made = schedule(row, blocks)
        step = row["total_time"]
        assert made.tasks["end"].max() + row["overhead_time"] <= made.end * (1 + 1e-9)
        lengths = (made.tasks["end"] - made.tasks["start"]).groupby(made.tasks["stage"]).sum()
        assert lengths.max() + made.skipped <= step * (1 + 1e-9)
        assert (made.tasks["end"] > made.tasks["start"]).all()


@BOTH
def test_what_is_idle_and_no_bubble_is_named(found: Any) -> None:
    """The heading of the schedule and the tile of the bubble agree, or the heading says what else is idle."""
    text = html(opened("execution", found))
    told = re.search(r"idle ([\d.]+)\s%(: bubble [\d.]+\s%, stragglers and host [\d.]+\s%)?", text)
    assert told is not None
    idle, more = told.groups()
    bubble = re.search(r">Bubble.*?ss-tile-value\">([\d.]+)", text, re.DOTALL)
    assert bubble is not None
    assert (idle == bubble[1]) != bool(more)
    assert f"bubble {bubble[1]}" in (more or f"bubble {bubble[1]}")


@BOTH
def test_memory_needs_reach_the_least_demanding_execution(found: Any) -> None:
    """Against a sweep of every execution of a cell, evaluated one by one."""
    scenario = found().scenario
    needs = needs_of(scenario)
    cell = needs.iloc[-1]
    listed = scenario.space.table(np.linspace(0, scenario.space.total - 1, 3000).astype(int))
    inside = (listed["tensor_par"] == cell["tensor_par"]) & (listed["pipeline_par"] == cell["pipeline_par"])
    table = scenario.evaluate(listed[inside].head(400))
    there = table["proc_mem_tier1_cap_req"].dropna()
    assert len(there)
    assert there.min() >= cell["need"] * (1 - 1e-9)
    least = scenario.evaluate(scenario.space.table([int(cell["id"])])).iloc[0]
    assert least["proc_mem_tier1_cap_req"] == pytest.approx(cell["need"])


def test_words_name_what_only_this_cost_model_has() -> None:
    row = next(row for row in rows(experts()) if row["zero_stage"] == 1 and row["activation_recompute"] == "full")
    assert f"EP {row['expert_par']}" in execution_name(row)
    facts = dict(choices(row, HOSTS_OF_8))
    assert facts["ZeRO"].startswith("1")
    assert not any("network" in key for key in facts)
    one, other = row, {**row, "selective_recompute": "modules", "activation_recompute": "attn_only"}
    assert dict(choices(other, HOSTS_OF_8))["recompute"] == "selective (norms, activations)"
    assert ("Selective recompute", "–", "norms, activations") in differences(one, other)
    exact = {column.name: row[column.name] for column in fields_of("calculon")}
    attention = {**exact, "activation_recompute": "attn_only"}
    assert dict(choices(attention, HOSTS_OF_8))["recompute"] == "selective (attention)"
    assert "ZeRO" not in dict(choices(exact, HOSTS_OF_8))
    assert "EP" not in execution_name(exact)
    told = {label for label, _, _ in differences(exact, row)}
    assert "Expert parallel" in told


def test_the_file_of_an_execution_has_every_field() -> None:
    row = rows(dense(), 1)[0]
    assert list(json.loads(execution_json(row, "calibrated"))) == [column.name for column in ALL_FIELDS]
    assert len(json.loads(execution_json(row, "calculon"))) == 23
