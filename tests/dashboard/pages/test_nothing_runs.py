"""Where nothing runs every page says how far off it is and offers changes that help."""

from __future__ import annotations

import functools
import math
import re
from typing import Any

import pytest

import hardware
from dashboard.link import scenario_parameters
from dashboard.queries.nearest_fit import enough_processors, fits, how_far, lacking, remedies, short_of
from dashboard.queries.scenario_edits import altered
from dashboard.words.numbers import gibibytes
from engine import Exploration, Scenario, whatif
from engine.exploration.memory_requirements import least_memory
from engine.exploration.run import explore_scenario as explored
from tests.dashboard.page_runs import again, exploration, figure, html, plainly, run


@pytest.mark.parametrize(
    ("name", "button"),
    [
        ("explore", "explore_way_0"),
        ("execution", "nothing_runs_0"),
        ("memory", "nothing_runs_0"),
        ("pareto", "nothing_runs_0"),
        ("results", "nothing_runs_0"),
    ],
)
def test_a_page_without_executions_offers_what_helps(name: str, button: str) -> None:
    found = exploration("hopeless")
    page = run(name, found)
    assert "Nothing fits" in page.warning[0].value
    page.button(key=button).click()
    again(page, found)
    scenario = scenario_parameters.read_scenario(page.session_state["_url"]).scenario
    assert scenario.num_procs == enough_processors(found.scenario)
    assert explored(scenario).best is not None


def test_how_far_off_it_is_names_both_memories() -> None:
    found = exploration("hopeless")
    said = plainly(run("results", found).warning[0].value)
    nearest = found.by_cell().sort_values("shortfall_bytes").iloc[0]
    assert nearest["shortfall_hbm_bytes"] > 0
    assert nearest["shortfall_host_bytes"] > 0
    system = found.scenario.system
    for memory, name, kind in (
        (system.mem1, "shortfall_hbm_bytes", "HBM"),
        (system.mem2, "shortfall_host_bytes", "host memory"),
    ):
        need = gibibytes(memory.capacity_gib * 2**30 + nearest[name])
        assert plainly(f"**{need}** of {kind} where a GPU has {gibibytes(memory.capacity_gib * 2**30)},") in said
    alone = least_memory(found.scenario.space)["need"].min()
    assert plainly(f"Without more host memory, another fits with {gibibytes(alone)} of HBM.") in said


@pytest.mark.parametrize("procs", [4, 16])
@pytest.mark.parametrize("cost_model", ["calculon", "calibrated"])
def test_what_is_offered_is_the_least_that_alone_makes_something_run(procs: int, cost_model: str) -> None:
    """By a search of the whole space with it, and with a GiB less."""
    model = "gpt3-175B" if procs == 4 else "megatron-1T"
    scenario = Scenario.of(
        model, "h100_80g_nvl8", num_procs=procs, max_batch_size=16, datatype="float16", cost_model=cost_model
    )
    now = {which.name: which for which in whatif.parameters(scenario)}
    offered = remedies(scenario, scenario.key)
    assert {"hbm_capacity", "host_capacity"} <= {remedy.name for remedy in offered} or procs == 16
    assert offered
    shares = [remedy.value / now[remedy.name].value for remedy in offered]
    assert shares == sorted(shares)
    for name, value, words in offered:
        assert whatif.reoptimise(scenario, {name: value}).best is not None, words
        if name != "procs":
            assert whatif.reoptimise(scenario, {name: value - 1}).best is None, words
    for name in {"hbm_capacity", "host_capacity"} - {remedy.name for remedy in offered}:
        assert whatif.reoptimise(scenario, {name: now[name].highest}).best is None, name


def test_the_smallest_likely_size_that_fits_is_found() -> None:
    scenario = exploration("hopeless").scenario
    enough = enough_processors(scenario)
    assert enough is not None
    assert enough > scenario.num_procs
    assert explored(altered(scenario, num_procs=enough)).best is not None
    powers = [2**n for n in range(12)]
    between = [size for size in (*powers, *(3 * power for power in powers)) if scenario.num_procs < size < enough]
    assert all(explored(altered(scenario, num_procs=size)).best is None for size in between)


def test_limits_that_alone_stand_in_the_way_are_named() -> None:
    limits = {
        "tensor_par": 1,
        "pipeline_par": 1,
        "weight_offload": False,
        "optimizer_offload": False,
        "activations_offload": False,
        "optimizer_sharding": False,
    }
    scenario = Scenario.of(
        "gpt3-13B", "h100_80g_nvl8", num_procs=16, max_batch_size=32, datatype="float16", limits=limits
    )
    assert not fits(scenario)
    assert fits(scenario, limits={})
    assert enough_processors(scenario) is None  # 13 billion parameters on one GPU each, however many there are
    page = run("execution", explored(scenario))
    assert page.button(key="nothing_runs_0").label == "Lift all limits"


HOPELESS: dict[str, dict[str, Any]] = {
    "both memories": {"model": "llama-3.1-405B", "num_procs": 16, "limits": {"microbatch_size": [1, 2]}},
    "context parallel": {"model": "llama-3.1-8B", "num_procs": 8, "limits": {"context_par": [1, 2, 4]}},
    "experts": {"model": "deepseek-v3", "num_procs": 32, "limits": {"microbatch_size": 1, "tensor_par": [4, 8]}},
    "no offload": {
        "model": "llama-3.1-405B",
        "num_procs": 16,
        "limits": {"weight_offload": False, "activations_offload": False, "optimizer_offload": False},
    },
    "batches": {
        "model": "gpt3-175B",
        "num_procs": 8,
        "cost_model": "calculon",
        "limits": {"batch_size": [8, 16], "microbatch_size": 1, "tensor_par_overlap": "none"},
    },
}
SMALLER = {"context parallel": 4.0}
"""HBM of the system [GiB] where 80 would be enough."""


@functools.cache
def hopeless(name: str) -> Exploration:
    system = hardware.load("h100_80g_sxm")
    if name in SMALLER:
        memory = {"mem1.capacity_gib": SMALLER[name], "mem2.capacity_gib": 8.0}
        system = hardware.edited(system, memory, name="small")
    asked = {"system": system, "max_batch_size": 16, "datatype": "bfloat16", **HOPELESS[name]}
    found = explored(Scenario.of(asked.pop("model"), asked.pop("system"), **asked))
    assert found.best is None
    return found


def numbers(text: str) -> list[float]:
    return [float(each.replace(",", "")) for each in re.findall(r"\d[\d,]*\.?\d*", text)]


@pytest.mark.parametrize("name", HOPELESS)
def test_numbers_of_a_page_agree(name: str) -> None:
    """A cell's executions, the reasons that they do not run, and what its nearest one lacks are told once."""
    found = hopeless(name)
    cells = found.by_pair()
    assert int(cells["total"].sum()) == found.total == sum(found.infeasible_by_reason.values())
    if name in ("context parallel", "experts", "batches"):
        assert len(cells) < len(found.by_cell())
    for row in cells.to_dict("records")[:: max(1, len(cells) // 3)]:
        page = run("explore", found, {"cell": f"{row['tensor_par']}x{row['pipeline_par']}"})
        why = plainly(" ".join(part.value for part in page.markdown if f"{row['total']:,} exec" in part.value))
        why = why.replace("\\", "")
        cell, _, text, *_ = figure(page, "explore_map")["data"]
        places = [(tensor, pipeline) for tensor, pipeline, _ in cell["customdata"]]
        label = text["text"][places.index((row["tensor_par"], row["pipeline_par"]))]
        (chips,) = re.findall(r"executions by the first reason.*", html(page), re.DOTALL)
        counts = re.findall(r"<b>([^<]*)</b>", chips.split("</div>")[1])
        assert sum(numbers(each)[0] for each in counts) == row["total"]
        if math.isnan(row["shortfall_bytes"]):
            assert "+" not in label
            continue
        assert f"None of {row['total']:,} executions runs" in why
        tiers = re.findall(r"([\d.,]+) (MiB|GiB|TiB) (?:too much|in all)", why)
        sizes = [numbers(amount)[0] * {"MiB": 1 / 1024, "GiB": 1.0, "TiB": 1024.0}[unit] for amount, unit in tiers]
        assert len(sizes) in (1, 3)
        assert sum(sizes[:-1] or sizes) == pytest.approx(sizes[-1], rel=0.02)
        assert numbers(label)[0] == pytest.approx(sizes[-1], rel=0.006, abs=0.51)  # whole GiB
    nearest = cells.loc[cells["shortfall_bytes"].idxmin()]
    for said in (how_far(found), short_of(found)):
        assert gibibytes(nearest["shortfall_bytes"]) in said
    # Whichever cell is looked at, the map says what the nearest one lacks.
    assert plainly(lacking(nearest)) in plainly(" ".join(each.value for each in page.caption))
