"""Runs of fine-tuning against predictions: their errors, and which of them fit."""

import pandas as pd
import pytest

import models
from engine.exploration.proven_optimum import best_of
from engine.scenarios.scenario import Scenario
from engine.validation.fine_tuning import current_residuals, error_medians, fine_tuning_runs, predict_fine_tuning
from engine.validation.uncertainty import (
    adapter_residuals,
    fine_tuning_interval_of,
    fine_tuning_residuals,
    interval_of,
    interval_of_kind,
)

WITHOUT_MEMORY = {"all weights in 16 bits", "tensors on the host"}


def test_errors_of_fine_tuning_stay_within_their_targets() -> None:
    found = error_medians(predict_fine_tuning()).set_index("figure")
    # Few runs: 13, 34 and 19.
    for name, most in {"step, all weights": 10.0, "step, adapters": 15.0, "peak memory": 12.0}.items():
        assert found.loc[name, "median_error"] <= most, name
        assert found.loc[name, "runs"] >= 13


def test_every_run_that_ran_fits() -> None:
    found = predict_fine_tuning()
    known = found["predicted_gib"].notna()
    assert set(found.loc[~known, "reason"]) == WITHOUT_MEMORY
    ran = found["outcome"] == "ran"
    assert found.loc[ran & known, "fits"].all()
    # Logits of 65,536 tokens at once, and copies of as many tokens for eight experts each, do not fit.
    assert not found.loc[~ran, "fits"].any()


def test_memory_of_experts_has_what_their_backward_pass_holds() -> None:
    """prime-rl's own layers of experts: predicted within a tenth, at sequences of 16,384 and of 65,536 tokens."""
    runs, found = fine_tuning_runs(), predict_fine_tuning()
    routed = runs["model_key"].eq("qwen3-30B-A3B") & found["memory_error"].notna()
    assert routed.sum() >= 4
    assert runs.loc[routed, "seq_len"].nunique() == 2
    assert found.loc[routed, "memory_error"].abs().max() < 0.1


def test_every_run_has_a_source_and_a_licence() -> None:
    runs = fine_tuning_runs()
    assert runs["id"].is_unique
    assert runs["source"].str.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]+:\S+").all()
    assert runs["licence"].ne("").all()
    assert runs["step_s"].median() == pytest.approx(6.25, abs=1.0)


def test_intervals_of_adapters_are_of_their_own_runs() -> None:
    pd.testing.assert_frame_equal(current_residuals(), fine_tuning_residuals(), rtol=1e-4, check_dtype=False)
    plain = Scenario.of("llama-3-8B", "h100_80g_sxm", num_procs=8, max_batch_size=8, datatype="bfloat16")
    lora = Scenario.of(
        *(models.tuned(plain.model, {"adapter_rank": 16}), plain.system),
        num_procs=8,
        max_batch_size=8,
        datatype="bfloat16",
    )
    alone = Scenario.of(
        plain.model, plain.system, num_procs=8, max_batch_size=8, datatype="bfloat16", limits={"training": False}
    )
    whole, adapters = interval_of_kind(plain), interval_of_kind(lora)
    assert whole is not None
    assert adapters is not None
    assert adapters.high > whole.high
    assert adapters.described.startswith("adapters")
    # Four of five of the 31 runs of dense models lie inside.
    ratio = adapter_residuals().query("not experts")["ratio"]
    assert ratio.between(adapters.low, adapters.high).mean() >= 0.8
    assert interval_of_kind(alone) is None


def test_intervals_of_all_weights_hold_their_measured_runs() -> None:
    """Steps of fine-tuning are predicted less well than those of pre-training: the interval says so."""
    scenario = Scenario.of("llama-3-8B", "h100_80g_sxm", num_procs=8, max_batch_size=8, datatype="bfloat16")
    execution = best_of(scenario)
    usual, found = interval_of(scenario, execution), fine_tuning_interval_of(scenario, execution)
    assert usual is not None
    assert found is not None
    ratio = fine_tuning_residuals().query("method == 'full'")["ratio"]
    assert ratio.between(usual.low, usual.high).mean() < 0.6
    assert ratio.between(found.low, found.high).mean() >= 0.8
