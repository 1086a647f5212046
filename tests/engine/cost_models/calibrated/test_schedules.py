"""Schedules in closed form against replays of their lists of actions, and what executions make of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
from engine.cost_models.calibrated.physics.inputs import Case
from engine.cost_models.calibrated.physics.parameters import parameters
from engine.cost_models.calibrated.physics.pipeline.schedules import (
    PAIRED,
    SCHEDULES,
    SPLIT,
    activations_in_flight,
    hops,
    makespan,
    messages,
    refusals,
)
from engine.cost_models.calibrated.physics.pipeline.stage_times import block_level, pipeline_flow
from engine.cost_models.calibrated.physics.pipeline.unequal_stages import Load, critical_path
from engine.simulate import Replay, replay
from engine.simulate.schedule import schedule as picture
from tests.engine.cost_models.calibrated.cases import EXPERTS, case

P = parameters()
NAMES = {"zb_h1": "zb-h1", "zb_v": "zbv", "combined_1f1b": "interleaved-ep-overlap"}
"""What replays call schedules, where that is another name."""


def numbers(name: str, random: np.random.Generator) -> tuple[int, int, int]:
    """Stages, microbatches and chunks that a schedule runs with, at random."""
    stages, more = int(random.integers(2, 8)), int(random.integers(0, 9))
    if name == "dualpipe":
        stages += stages % 2
    groups = stages * (1 + more % 3)
    several = int(random.integers(2, 4))
    return {
        "1f1b": (stages, 1 + more, 1),
        "interleaved": (stages, groups, several),
        "zb_h1": (stages, stages + more, 1),
        "zb_v": (stages, 2 * stages - 1 + more, 2),
        "dualpipe": (stages, 2 * stages + 2 * more, 1),
        "dualpipev": (stages, 2 * stages + more, 2),
        "combined_1f1b": (stages, groups, several),
    }[name]


def replayed(
    name: str, stages: int, microbatches: int, chunks: int, times: dict[str, Any], send: float = 0.0
) -> Replay:
    sends = {"mode": "overlap", "c": send} if send else None
    return replay(
        NAMES.get(name, name), stages=stages, microbatches=microbatches, chunks=chunks, times=times, sends=sends
    )


@pytest.mark.parametrize("name", SCHEDULES)
def test_closed_forms_are_what_a_replay_takes(name: str) -> None:
    random, number = np.random.default_rng(1), SCHEDULES.index(name)
    for _ in range(25):
        shape = numbers(name, random)
        assert not any(np.any(flags) for flags in refusals(number, *shape).values())
        f, b, w = 1.0, random.uniform(0.7, 1.8), random.uniform(0.3, 1.2)
        whole = f + b + w
        pair = whole - random.uniform(0.0, 0.8) * min(f, b + w) if number in PAIRED else whole
        found = replayed(name, *shape, {"F": f, "B": b, "W": w, "FB": pair})
        expected = makespan(number, *shape, forward=f, inputs=b, weights=w, pair=pair)
        assert float(expected) == pytest.approx(found.makespan, rel=1e-9)
        ranks = np.arange(shape[0])
        assert activations_in_flight(number, shape[0], ranks, *shape[1:]).tolist() == found.peak_activations
        assert float(messages(number, *shape)) == sum(found.messages_sent)


@pytest.mark.parametrize("name", SCHEDULES)
def test_short_messages_show_as_often_as_in_a_replay(name: str) -> None:
    random, number = np.random.default_rng(2), SCHEDULES.index(name)
    times = {"F": 1.0, "B": 1.0, "W": 1.0, "FB": 3.0}
    for _ in range(12):
        stages, microbatches, chunks = numbers(name, random)
        stages = max(stages, 4)
        microbatches = stages * max(2, microbatches // stages) + (3 if name == "1f1b" else 0)
        shape = stages, microbatches, chunks
        more = replayed(name, *shape, times, 0.01).makespan - replayed(name, *shape, times).makespan
        assert more / 0.01 == pytest.approx(float(hops(number, *shape)), rel=1e-6)


def running(name: str, c: Case) -> Case:
    """The case under a schedule."""
    return replace(c, layout=replace(c.layout, schedule=np.asarray(float(SCHEDULES.index(name)))))


def load(times: Any, stage: int) -> Load:
    forward, inputs, weights = times
    whole, none = forward + inputs + weights, np.zeros(())
    before = (np.asarray(each[:stage].sum()) for each in (whole, forward, weights))
    return Load(whole[stage], forward[stage], weights[stage], none, *before)


@pytest.mark.parametrize("name", ["1f1b", "zb_h1"])
@pytest.mark.parametrize("uneven", ["first", "last", "all"])
def test_unequal_stages_take_no_more_than_a_replay_and_hardly_less(name: str, uneven: str) -> None:
    """The longest path through any stage; to take the slowest for the last is far too long where it is the first."""
    random, errors, usual = np.random.default_rng(3), [], []
    for _ in range(40):
        stages = int(random.integers(2, 8))
        microbatches = stages * int(random.integers(1, 5))
        share = np.ones(stages)
        share[{"first": slice(0, 1), "last": slice(stages - 1, stages), "all": slice(None)}[uneven]] *= random.uniform(
            0.8, 1.4, stages if uneven == "all" else 1
        )
        times = np.array([[1.0], [random.uniform(0.9, 1.3)], [random.uniform(0.6, 1.0)]]) * share
        whole = times.sum(axis=0)
        order = [0, stages - 1, *range(1, stages - 1)]
        c = running(
            name, case(pipeline_par=float(stages), data_par=1.0, microbatch_size=1.0, batch_size=float(microbatches))
        )
        total = Load(whole.sum(), times[0].sum(), times[2].sum(), np.zeros(()), np.zeros(()))
        places = [np.asarray(float(stage)) for stage in order]
        path = critical_path(c, [load(times, stage) for stage in order], total, places, np.zeros(()))
        found = replayed(name, stages, microbatches, 1, dict(zip("FBW", times.tolist(), strict=True))).makespan
        errors.append(float(path.seconds) / found - 1)
        usual.append(((microbatches - 1) * whole.max() + whole.sum()) / found - 1)
    assert max(errors) <= 1e-9
    assert min(errors) > {"1f1b": -0.015, "zb_h1": -0.035}[name]
    assert np.mean(np.abs(errors)) < 0.004
    if name == "1f1b" and uneven == "first":
        assert max(np.abs(errors)) < 1e-9
        assert max(usual) > 0.03


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_pipeline_of_equal_stages_runs_as_long_as_a_replay_of_its_blocks(name: str) -> None:
    """Without embedding, head and messages, from the seconds of a block; pairs hide exchange between experts."""
    random, split = np.random.default_rng(4), SCHEDULES.index(name) in SPLIT
    for _ in range(6):
        stages, microbatches, chunks = numbers(name, random)
        c = case(
            {**EXPERTS, "leading_dense": 0.0, "vocabulary": 1.0},
            num_blocks=float(stages * 6),
            data_par=8.0,
            pipeline_par=float(stages),
            pipeline_interleaving=float(chunks),
            expert_par=8.0,
            microbatch_size=1.0,
            batch_size=float(microbatches * 8),
            overlap_pipeline=1.0,
        )
        c = running(name, c)
        level = block_level(c, P)
        level = type(level)(level.kinds, type(level.ends)(np.zeros(()), np.zeros(())))
        flow, block = pipeline_flow(c, level, P), level.kinds[level.heaviest]
        held = 6 / chunks
        times = {
            "F": held * float(block.forward),
            "B": held * float(block.input_gradient if split else block.backward - block.weight_gradient),
            "W": held * float(block.weight_gradient),
            "FB": held * float(block.paired),
        }
        assert times["FB"] < times["F"] + times["B"] + times["W"]
        found = replayed(name, stages, microbatches, chunks, times).makespan
        assert float(flow.path.seconds - flow.path.late) == pytest.approx(found, rel=1e-9)


def executions(name: str) -> pd.DataFrame:
    scenario = engine.Scenario.of(
        "mixtral-8x7B",
        "h100_80g_sxm",
        num_procs=64,
        max_batch_size=64,
        datatype="bfloat16",
        cost_model="calibrated",
        limits={"schedule": name, "activation_recompute": "none", "expert_par": [4, 8], "pipeline_par": [2, 4, 8]},
    )
    found = engine.explore_scenario(scenario)
    assert found.best is not None
    assert found.best["schedule"] == name
    return scenario.evaluate(scenario.space.table([found.best["id"]]))


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_limit_tries_a_schedule_and_its_picture_is_its_replay(name: str) -> None:
    row = executions(name).iloc[0]
    assert row["status"] == "ok"
    drawn = picture(row, 32)
    assert drawn.stages == row["pipeline_par"]
    assert drawn.tasks["end"].max() <= row["total_time"] * (1 + 1e-9)


def test_what_a_framework_offers_is_tried_unasked() -> None:
    limits = {"activation_recompute": "none", "pipeline_par": [1, 4], "tensor_par": 2}
    for model, tried in (
        ("mixtral-8x7B", {"1f1b", "interleaved", "combined_1f1b"}),
        ("llama-3-8B", {"1f1b", "interleaved"}),
    ):
        space = engine.Scenario.of(
            model,
            "h100_80g_sxm",
            num_procs=32,
            max_batch_size=64,
            datatype="bfloat16",
            cost_model="calibrated",
            limits=limits,
        ).space
        table = space.table(np.arange(space.total))
        assert set(table["schedule"]) == tried
        assert (table["schedule"].eq("1f1b") == table["pipeline_interleaving"].eq(1)).all()
        combined = table[table["schedule"] == "combined_1f1b"]
        assert (combined["expert_par"] > 1).all()


def test_two_copies_of_the_parameters_take_twice_the_memory() -> None:
    """DualPipe holds each stage twice and shards its optimizer over both; ZB-V holds each once, and both ends first."""
    row = {
        "tensor_par": 1,
        "pipeline_par": 4,
        "data_par": 2,
        "num_procs": 8,
        "batch_size": 16,
        "microbatch_size": 1,
        "pipeline_interleaving": 1,
        "zero_stage": 0,
        "optimizer_sharding": False,
        "data_par_overlap": False,
        "tensor_par_comm_type": "ar",
        "activation_recompute": "none",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": False,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "fused_activation": True,
        "attention_type": "multihead",
        "training": True,
        "datatype": "bfloat16",
        "tensor_par_net": 0,
        "pipeline_par_net": 0,
        "data_par_net": 0,
    }
    table = pd.DataFrame(
        [
            {**row, "schedule": "1f1b"},
            {**row, "schedule": "dualpipe"},
            {**row, "schedule": "dualpipe", "zero_stage": 1, "optimizer_sharding": True},
            {**row, "schedule": "zb_v", "pipeline_interleaving": 2},
        ]
    )
    once, twice, sharded, turned = (
        each for _, each in engine.evaluate("llama-3-8B", "b200_180g_sxm", table, cost_model="calibrated").iterrows()
    )
    assert twice["weight_space"] / once["weight_space"] == pytest.approx(2.0, rel=0.2)
    assert sharded["optimizer_space"] == pytest.approx(twice["optimizer_space"] / 4)
    vocabulary = 128256 * 4096 * 2
    assert turned["weight_space"] - once["weight_space"] == pytest.approx(vocabulary)
