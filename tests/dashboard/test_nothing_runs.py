"""Where nothing runs every page says how far off it is and offers changes that help."""

from __future__ import annotations

from unittest.mock import Mock, patch

import pytest

from dashboard.altered import altered
from dashboard.format import gibibytes
from dashboard.nearest_fit import enough_processors, fits
from engine import Scenario
from engine.explore import explore_scenario as explored
from engine.memory_needs import least_memory
from tests.dashboard.pages import again, exploration, plainly, run


@pytest.mark.parametrize(
    ("name", "button"),
    [
        ("explore", "explore_way_0"), ("execution", "nothing_runs_0"), ("memory", "nothing_runs_0"),
        ("pareto", "nothing_runs_0"), ("results", "nothing_runs_0"),
    ],
)
def test_a_page_without_executions_offers_what_helps(name: str, button: str) -> None:
    found = exploration("hopeless")
    with patch("dashboard.state.set_scenario", Mock()) as changed:
        page = run(name, found)
        assert "Nothing fits" in page.warning[0].value
        page.button(key=button).click()
        again(page, found)
    (scenario,) = changed.call_args.args
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
        (system.mem1, "shortfall_hbm_bytes", "HBM"), (system.mem2, "shortfall_host_bytes", "host memory"),
    ):  # fmt: skip
        need = gibibytes(memory.capacity_gib * 2**30 + nearest[name])
        assert plainly(f"**{need}** of the {gibibytes(memory.capacity_gib * 2**30)} of {kind}") in said
    alone = least_memory(found.scenario.space)["need"].min()
    assert plainly(f"More HBM alone would do from {gibibytes(alone)} on.") in said


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
    limits = {"tensor_par": 1, "pipeline_par": 1, "weight_offload": False, "optimizer_offload": False,
              "activations_offload": False, "optimizer_sharding": False}  # fmt: skip
    scenario = Scenario.of("gpt3-13B", "h100_80g_nvl8", num_procs=16, max_batch_size=32, datatype="float16",
                           limits=limits)  # fmt: skip
    assert not fits(scenario)
    assert fits(scenario, limits={})
    assert enough_processors(scenario) is None  # 13 billion parameters on one GPU each, however many there are
    page = run("execution", explored(scenario))
    assert page.button(key="nothing_runs_0").label == "Lift all limits"
