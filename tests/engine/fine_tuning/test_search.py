"""Plans of fine-tuning against draws of samples, and laws that hold for any plan."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import hardware
import models
from engine.fine_tuning import DataSet, FineTuningGoal, find_fine_tuning, plan_method
from engine.post_training.lengths import LengthLaw


def goal_of(mean: float = 600.0, cap: int = 4096, cv: float = 1.0, model: str = "llama-3.1-8B") -> FineTuningGoal:
    data = DataSet(20_000, LengthLaw.lognormal(mean, cap, cv))
    return FineTuningGoal(models.load(model), hardware.load("h100_80g_sxm"), 8, data, 4096)


@pytest.mark.parametrize(("mean", "cv"), [(600.0, 1.0), (3300.0, 0.2), (1500.0, 0.3), (1700.0, 0.1)])
def test_packs_are_as_many_as_drawn_samples_fill(mean: float, cv: float) -> None:
    """Samples drawn at random, packed one after the other, the longest first."""
    goal = goal_of(mean, 4096, cv)
    sigma = np.sqrt(np.log1p(cv * cv))
    draws = np.exp(np.random.default_rng(0).normal(0.0, sigma, 4_000))
    # The median with which the mean of capped lengths is the one asked for.
    low, high = 1.0, 1e6
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if np.minimum(middle * draws, 4096).mean() < mean else (low, middle)
    room: list[int] = []
    for length in sorted(np.rint(np.minimum(low * draws, 4096)).astype(int), reverse=True):
        place = next((number for number, left in enumerate(room) if left >= length), None)
        if place is None:
            room.append(4096 - length)
        else:
            room[place] -= length
    assert goal.packs == pytest.approx(len(room) * 20_000 / 4_000, rel=0.015)


def test_time_grows_with_epochs_and_memory_with_rank() -> None:
    goal = goal_of()
    once, twice = (plan_method(replace(goal, epochs=epochs), "lora", 8) for epochs in (1.0, 2.0))
    assert once.seconds is not None
    assert twice.seconds == pytest.approx(2.0 * once.seconds)
    assert twice.row["id"] == once.row["id"]
    # One layout for all: memory follows from the method alone.
    fixed = {"tensor_par": 8, "pipeline_par": 1, "microbatch_size": 1, "activation_recompute": "full"}
    plans = [
        plan_method(replace(goal, adapter_rank=rank, limits=fixed), method, 8)
        for method, rank in (("qlora", 16), ("lora", 16), ("lora", 256), ("full", 16))
    ]
    needs = [plan.memory_gib or 0.0 for plan in plans]
    assert needs == sorted(needs)
    assert needs[0] > 0.0
    # 18 bytes per weight of an adapter: 2 of weights, 4 of gradients and 12 of the optimizer. It has r for every input
    # and output of query, key and value, output, gate and up, and down; eight processors divide one side of each.
    shape = models.load("llama-3.1-8B").architecture_or_assumed()
    hidden, ffn, heads = shape.hidden, shape.ffn, (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    block = (3 * hidden + heads / 8) + (hidden / 8 + hidden) + 2 * (hidden + ffn / 8) + (ffn / 8 + hidden)
    assert needs[2] - needs[1] == pytest.approx(18.0 * (256 - 16) * shape.layers * block / 2**30, rel=0.01)


def test_the_fewest_gpus_are_those_below_which_nothing_fits() -> None:
    goal = replace(goal_of(model="llama-3-70B"), methods=("lora",))
    plan = find_fine_tuning(goal).methods["lora"]
    assert plan.fewest is not None
    assert plan_method(goal, "lora", plan.fewest).fits
    less = plan_method(goal, "lora", plan.fewest // 2)
    assert not less.fits
    assert less.memory_gib is not None
    assert less.memory_gib > less.capacity_gib


def test_a_model_that_is_already_tuned_is_planned_like_the_plain_one() -> None:
    goal = goal_of()
    tuned = models.tuned(goal.model, {"adapter_rank": 64, "frozen_weight_bits": 4, "loss_chunk": 1024})
    for method in ("full", "lora"):
        assert plan_method(replace(goal, model=tuned), method, 8).seconds == plan_method(goal, method, 8).seconds
