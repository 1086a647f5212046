"""Where nothing runs every page says how far off it is and offers changes that help."""

from __future__ import annotations

from unittest.mock import Mock, patch

import pytest

from dashboard.altered import altered
from dashboard.nothing_runs import enough_processors, fits
from engine import Scenario
from engine.explore import explore_scenario as explored
from tests.dashboard.pages import again, exploration, run


@pytest.mark.parametrize("name", ["execution", "memory", "pareto", "results"])
def test_a_page_without_executions_offers_what_helps(name: str) -> None:
    found = exploration("hopeless")
    with patch("dashboard.state.set_scenario", Mock()) as changed:
        page = run(name, found)
        assert "Nothing fits" in page.warning[0].value
        page.button(key="nothing_runs_0").click()
        again(page, found)
    (scenario,) = changed.call_args.args
    assert scenario.num_procs == enough_processors(found.scenario)
    assert explored(scenario).best is not None


def test_the_smallest_doubling_that_fits_is_found() -> None:
    scenario = exploration("hopeless").scenario
    enough = enough_processors(scenario)
    assert enough is not None
    assert enough > scenario.num_procs
    half = altered(scenario, num_procs=enough // 2)
    assert explored(half).best is None


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
