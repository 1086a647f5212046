"""Choices of models are the models that a scenario accepts."""

from __future__ import annotations

import models
from dashboard.link.catalogue import known_models, usable_models
from engine.scenarios.scenario import Scenario


def has_scenario(name: str) -> bool:
    try:
        made = Scenario.of(
            name, "h100_80g_sxm", num_procs=64, max_batch_size=64, datatype="bfloat16", cost_model="calibrated"
        )
    except models.ModelFileError:
        return False
    return made.space.total > 0


def test_choices_of_models_are_those_that_a_scenario_accepts() -> None:
    assert set(usable_models()) == {name for name in models.names() if has_scenario(name)}
    assert set(known_models()) == set(models.names())
