"""Models that cost models do not time: counted and listed, refused in one sentence, and not offered."""

from __future__ import annotations

import pytest

import models
from dashboard.link.catalogue import known_models, usable_models
from engine.scenarios.scenario import Scenario


def has_scenario(name: str) -> bool:
    try:
        Scenario.of(name, "h100_80g_sxm", num_procs=64, max_batch_size=64, datatype="bfloat16", cost_model="calibrated")
    except models.ModelFileError:
        return False
    return True


def test_choices_of_models_are_those_that_a_scenario_accepts() -> None:
    accepted = {name for name in models.names() if has_scenario(name)}
    assert set(models.timed_names()) == accepted
    assert set(usable_models()) == accepted
    assert set(known_models()) == set(models.names())


@pytest.mark.parametrize("name", ["qwen3-next-80B-A3B", "kimi-k3", "gemma-4-31B"])
def test_a_model_that_is_not_timed_is_still_counted(name: str) -> None:
    model = models.load(name)
    assert models.parameter_counts(model).total > 1e10
    assert model.not_represented
