"""Laws of steps of reinforcement learning, their search against all splits, and measured runs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

import hardware
import models
from engine.post_training.constants import SYNCHRONISATIONS, library_constants
from engine.post_training.fitting import library_terms
from engine.post_training.iteration import MODES, IterationStep, IterationWork, RolloutSide, iteration_step
from engine.post_training.lengths import LengthLaw
from engine.post_training.measured import fitted_rows, measured_rows, nearest_rows, predict_sides
from engine.post_training.memory_phases import tightest_phase
from engine.post_training.rollout import DecodeSteps, rollout_rate
from engine.post_training.search import ExecutionChoices, PostTrainingGoal, find_post_training, split_unit
from engine.post_training.synchronisation import synchronisation_time
from engine.post_training.training_side import TrainingTimes
from hardware import GIB

LAW = LengthLaw.lognormal(3200.0, 3986.0, 1.0)
WORK = IterationWork(2048, 32, 110.0, LAW, 4, 2)
SIDE = RolloutSide(DecodeSteps(np.array([1.0, 256.0]), np.array([8e-3, 16e-3]), 3e-9, 1e-3), 16, 128)
TIMES = TrainingTimes(3.0, 1.0)
TERMS = library_constants().framework("nemo-rl")


def step(mode: str, work: IterationWork = WORK, staleness: int = 8, sync_s: float = 2.0) -> IterationStep:
    return iteration_step(mode, work, SIDE, TIMES, TERMS, weight_bytes=6e10, sync_s=sync_s, staleness=staleness)


def test_steps_keep_the_laws_of_their_modes() -> None:
    shared, split = step("colocated"), step("one_step_off")
    assert shared.seconds == pytest.approx(sum(each.seconds for each in shared.phases))
    assert all(shared.seconds >= each.seconds for each in (*shared.phases, *split.phases))
    assert split.seconds <= shared.seconds
    # One of both sides is never idle; every share is a share.
    assert min(split.idle_rollout, split.idle_training) == 0.0
    assert 0.0 <= max(split.idle_rollout, split.idle_training) < 1.0
    stale = [step("asynchronous", staleness=k).seconds for k in (1, 2, 4, 8, 64)]
    assert stale == sorted(stale, reverse=True)
    # Without a bound on staleness the slower of two rates decides.
    rate = rollout_rate(SIDE.steps, LAW, prompt=110.0, replicas=16, slots=128, group=32)
    train = (
        step("asynchronous").phase("update")
        + step("asynchronous").phase("log_probs")
        + TERMS.software * (TERMS.fixed_s + 2.0)
    )
    assert stale[-1] == pytest.approx(max(TERMS.software * TERMS.asynchronous * 2048 / rate, train))
    assert all(step(mode, sync_s=1.0).seconds <= step(mode, sync_s=4.0).seconds for mode in MODES)
    assert step("colocated", replace(WORK, has_critic=True)).phase("update") == pytest.approx(
        2 * shared.phase("update")
    )
    assert step("colocated", replace(WORK, rounds=1.5)).phase("rollout") == pytest.approx(1.5 * shared.phase("rollout"))


def goal(model: str, gpus: int, **more: object) -> PostTrainingGoal:
    system = hardware.load("h100_80g_sxm")
    return PostTrainingGoal(models.load(model), system, gpus, WORK, 4096, **more)  # type: ignore[arg-type]


def test_the_best_split_is_the_best_of_all_splits_and_bounds_are_bounds() -> None:
    asked = goal("llama-3.1-8B", 32)
    found = find_post_training(asked)
    alone = [
        find_post_training(replace(asked, modes=("one_step_off",), split=(train, 32 - train))).best["one_step_off"]
        for train in (8, 16, 24)
    ]
    assert found.best["one_step_off"].step.seconds == min(each.step.seconds for each in alone)
    sides = ExecutionChoices(asked, 0.0)
    for gpus in (8, 16):
        made = sides.best(gpus)
        assert made is not None
        assert sides.bound(gpus).update_s <= made[1].update_s
        assert sides.bound(gpus).forward_s <= made[1].forward_s
    for each in found.best.values():
        assert not tightest_phase(each.memory).is_over
        assert all(phase.needs == pytest.approx(sum(phase.parts.values())) for phase in each.memory)
        update = next(phase for phase in each.memory if phase.phase == "update")
        kept = 2 * GIB if each.step.mode == "colocated" else 0
        assert update.needs - kept == pytest.approx(each.execution["proc_mem_tier1_cap_req"])


def test_faster_memory_and_networks_are_never_slower() -> None:
    system = hardware.load("h100_80g_sxm")

    def best(memory: float, network: float) -> dict[str, float]:
        quick = {"bandwidth_gb_per_s": memory * system.mem1.bandwidth_gb_per_s}
        networks = [
            each.model_copy(update={"bandwidth_gb_per_s": network * each.bandwidth_gb_per_s})
            for each in system.networks
        ]
        faster = system.model_copy(update={"mem1": system.mem1.model_copy(update=quick), "networks": networks})
        found = find_post_training(replace(goal("llama-3.1-8B", 16), system=faster)).best
        return {mode: each.step.seconds for mode, each in found.items()}

    slow = best(0.7, 0.7)
    for factors in ((1.0, 0.7), (0.7, 1.0), (1.5, 1.5)):
        fast = best(*factors)
        assert all(fast[mode] <= slow[mode] * (1.0 + 1e-9) for mode in MODES)


def test_a_pruned_search_finds_the_same_as_a_whole_one() -> None:
    asked = goal("llama-3.1-8B", 64, modes=("asynchronous",))
    whole = find_post_training(asked)
    pruned = find_post_training(asked, evaluate_all=0)
    assert pruned.evaluated < whole.evaluated == whole.splits
    assert pruned.best["asynchronous"].step.seconds == whole.best["asynchronous"].step.seconds


def test_what_does_not_fit_says_the_smallest_change_that_does() -> None:
    asked = goal("llama-3.1-70B", 8, modes=("colocated",))
    found = find_post_training(asked)
    assert not found.best
    assert "GPUs" in found.reasons["colocated"]
    more = int(found.change.split()[1].replace(",", "")) if found.change.startswith("use") else 8
    assert found.change
    limits = {"optimizer_offload": True} if more == 8 else {}
    assert find_post_training(replace(asked, num_procs=more, training_limits=limits)).best


def test_measured_steps_are_met_by_the_library_constants() -> None:
    constants = library_constants()
    # Every second run is enough, and quick.
    steps = [predict_sides(row) for row in fitted_rows()[::2].to_dict("records")]
    terms = library_terms(constants)
    ratios = np.array([terms.predict(each) / each.seconds for each in steps])
    assert np.median(np.abs(ratios - 1.0)) < 0.12
    inside = [
        abs(np.log(ratio)) <= constants.value(f"interval.{each.mode}")
        for ratio, each in zip(ratios, steps, strict=True)
    ]
    assert np.mean(inside) >= 0.85
    # The stated errors of runs that had no part in a fit.
    errors = {each.described: each.median_absolute_percent for each in constants.calibration.errors}
    of_configurations = "step of reinforcement learning, every configuration left out in turn"
    for runs, most in (("all runs", 12.0), ("colocated", 10.0), ("split", 18.0)):
        assert (errors[f"{runs}: {of_configurations}"] or 100.0) <= most
    for left_out, most in (("every model left out in turn", 25.0), ("left out in turn, scaled by another run", 12.0)):
        assert all((error or 100.0) <= most for words, error in errors.items() if left_out in words)
        assert any(left_out in words for words in errors)
    # Of two runs of one model on one kind of GPU that differ by more than 20 %, the faster is named.
    named = []
    for one, first in zip(steps, ratios, strict=True):
        for other, second in zip(steps, ratios, strict=True):
            same = one.row["model_key"] == other.row["model_key"] and one.row["system"] == other.row["system"]
            if same and other.seconds > 1.2 * one.seconds:
                named.append(other.seconds * second > one.seconds * first)
    assert np.mean(named) >= 0.9


def test_the_share_of_rollout_of_one_size_follows_from_another() -> None:
    """verl publishes phases without lengths: mean and spread of one size are fitted, the other one is tested."""
    rows = measured_rows("phases")
    small, large = (rows[rows["id"] == f"verl-7b-sync-{gpus}"].iloc[0].to_dict() for gpus in (64, 128))
    terms = library_constants().framework("verl")

    def step_of(row: dict[str, Any], mean: float, cv: float) -> IterationStep:
        datatypes = {"precision_train": "bfloat16", "precision_rollout": "bfloat16"}
        side = predict_sides({**row, **datatypes, "mean_prompt": 200.0, "mean_response": mean}, cv)
        return iteration_step(
            "colocated", side.work, side.rollout, side.training, terms, weight_bytes=side.weight_bytes, sync_s=0.0
        )

    for fitted, other in ((small, large), (large, small)):
        trained = fitted["train_s"] + fitted["old_logprob_s"]

        def excess(mean: float, row: dict[str, Any] = fitted, seconds: float = trained) -> float:
            step = step_of(row, mean, 0.5)
            return step.phase("update") + step.phase("log_probs") - seconds

        mean = brentq(excess, 500.0, 8000.0, xtol=50.0)

        def longer(cv: float, row: dict[str, Any] = fitted, mean: float = mean) -> float:
            return step_of(row, mean, cv).phase("rollout") - row["rollout_s"]

        step = step_of(other, mean, brentq(longer, 0.1, 2.0, xtol=0.02))
        assert step.phase("rollout") / step.seconds == pytest.approx(other["rollout_s"] / other["step_s"], abs=0.08)


def test_steps_of_another_framework_and_model_are_met() -> None:
    """verl V1 with a model of linear attention: neither had a part in the fit but for the rate of helping GPUs."""
    rows = measured_rows("step").set_index("id", drop=False)
    terms = library_constants().framework("verl")
    for name, helpers in (("sync", 0), ("no-switch", 0), ("switch", 4)):
        row = rows.loc[f"verl-v1-35b-{name}"].to_dict()
        side = predict_sides({**row, "mean_prompt": 200.0, "reference_pass": False})
        step = iteration_step(
            side.mode,
            side.work,
            side.rollout,
            side.training,
            terms,
            weight_bytes=side.weight_bytes,
            sync_s=1.0,
            staleness=side.staleness,
            helpers=helpers,
        )
        assert step.seconds == pytest.approx(row["step_s"], rel=0.2)


def test_a_forward_pass_is_a_part_of_a_step() -> None:
    for made in (ExecutionChoices(goal("llama-3.1-8B", 32), 0.0).best(gpus) for gpus in (8, 32)):
        assert made is not None
        # Forward is one of three products, and sends what the backward pass sends.
        assert 0.2 < made.times.forward_s / made.times.update_s < 0.6
        assert sum(made.forward.memory.values()) < made.execution["proc_mem_tier1_cap_req"]


def test_synchronisations_are_within_a_factor_of_two_of_measured_ones() -> None:
    constants = library_constants()
    for row in measured_rows("sync").to_dict("records"):
        method = "plain" if str(row["id"]).endswith("plain") else "buckets"
        size = 2.0 * models.parameter_counts(models.load(row["model_key"])).total
        assert 0.5 < synchronisation_time(constants, method, size) / row["sync_s"] < 2.0
    times = [synchronisation_time(constants, each, 4e11, 16) for each in SYNCHRONISATIONS]
    assert all(before > after for before, after in pairwise(times))


def test_the_nearest_measured_run_of_a_measured_run_is_itself() -> None:
    rows = measured_rows("step")
    row = rows[rows["id"] == "nemo-rl-v0.7.0-qwen3-30ba3b-grpo-192H100-8off-bf16"].iloc[0]
    found = nearest_rows(
        parameters=30.5e9, system="h100_80g_sxm", gpus=192, is_colocated=False, response=3203, samples=2048
    )
    assert found[0]["step_s"] == row["step_s"]
    assert split_unit(hardware.load("gb200_186g_nvl72")) == 4
