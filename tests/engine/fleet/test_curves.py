"""Curves of jobs: the rates of Elastic's curves of library models, once failures are left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

import hardware
import models
from engine.economics import RunInputs
from engine.exploration.proven_optimum import best_of
from engine.fleet.curves import curve_of_job
from engine.planners.elastic import model_curve
from engine.scenarios.scenario import Scenario


def test_a_job_has_the_rates_of_elastic() -> None:
    model, system = models.load("llama-3-8B"), hardware.load("h100_80g_sxm")
    limits = {"tensor_par": [1, 2], "pipeline_par": 1, "context_par": 1, "batch_size": [96]}
    limits |= {f"{name}_offload": False for name in ("weight", "activations", "optimizer")}

    def scenario_at(gpus: int) -> Scenario:
        return Scenario.of(
            model, system, num_procs=gpus, max_batch_size=96, datatype="bfloat16", limits=limits, cost_model=None
        )

    never = replace(RunInputs.of(system, mtbf_h=1e12), tokens=1e12)
    found = curve_of_job(0, 24, scenario_at, lambda scenario: best_of(scenario) or None, never)
    table = model_curve(model, system, batch=96, gpus=[8, 16, 24], limits=limits, keep_smaller=0.0)
    assert [size.gpus for size in found.sizes] == table["stored_gpus"].tolist()
    rates = [size.tokens_per_s / model.seq_size for size in found.sizes]
    assert rates == pytest.approx(table["stored_best"].tolist(), rel=1e-3)
