"""Stages cut from the order of a model's blocks, against the list of blocks cut by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardware
import models
from engine.cost_models.calibrated import block_level, case_of, memory_use, model_shapes, parameters
from engine.cost_models.calibrated.physics.inputs import Case
from engine.cost_models.calibrated.physics.memory import activation_bytes, in_flight
from engine.cost_models.calibrated.physics.pipeline.layouts import PLAIN_SIZES, BlockPattern
from engine.cost_models.calibrated.physics.pipeline.stage_times import pipeline_flow
from engine.cost_models.calibrated.physics.pipeline.stages import (
    PLAIN,
    BlockKind,
    blocks_by_kind,
    blocks_of_stages,
    fullest_stages,
    slowest_stages,
)
from engine.cost_models.calibrated.physics.weights import local_weights
from tests.engine.cost_models.calibrated.cases import DENSE, EXPERTS, case

P = parameters()


def kind_of(experts: bool, windowed: bool) -> BlockKind:
    return PLAIN[2 * experts + windowed]


def listed(pattern: BlockPattern) -> list[BlockKind]:
    """The kind of every block, from the first."""

    def multiple(number: int, step: int) -> bool:
        return step > 0 and number % step == 0

    return [
        kind_of(
            number > pattern.leading_dense and multiple(number, pattern.experts_every),
            not multiple(number, pattern.full_every),
        )
        for number in range(1, pattern.blocks + 1)
    ]


def cut(blocks: list[BlockKind], stages: int, chunks: int) -> list[list[BlockKind]]:
    """The blocks of every stage: chunks dealt out one by one."""
    slots = stages * chunks
    if len(blocks) % slots and (len(blocks) + 2) % slots == 0:
        padded: list[BlockKind | None] = [None, *blocks, None]
        each = len(padded) // slots
        parts = [[kind for kind in padded[i * each : (i + 1) * each] if kind is not None] for i in range(slots)]
    else:
        least, more = divmod(len(blocks), slots)
        sizes = [least + (slots - 1 - more <= slot < slots - 1) for slot in range(slots)]
        ends = np.cumsum([0, *sizes])
        parts = [blocks[ends[i] : ends[i + 1]] for i in range(slots)]
    return [[kind for part in parts[stage::stages] for kind in part] for stage in range(stages)]


patterns = st.builds(
    lambda blocks, leading, every, full: BlockPattern(blocks, min(leading, blocks), every, full),
    st.integers(1, 96),
    st.integers(0, 8),
    st.integers(0, 5),
    st.integers(0, 7),
)
layouts = st.tuples(st.integers(1, 40), st.integers(1, 6))


@given(patterns, layouts)
def test_stages_hold_the_blocks_that_are_dealt_to_them(pattern: BlockPattern, layout: tuple[int, int]) -> None:
    stages, chunks = layout
    found = blocks_of_stages(pattern, stages, chunks)
    expected = [[part.count(kind) for part in cut(listed(pattern), stages, chunks)] for kind in PLAIN]
    assert found.tolist() == expected
    assert found.sum() == pattern.blocks


def of_pattern(pattern: BlockPattern, layout: tuple[int, int], batch: int) -> Case:
    stages, chunks = layout
    return case(
        EXPERTS if pattern.experts_every else DENSE,
        num_blocks=pattern.blocks,
        leading_dense=pattern.leading_dense,
        experts_every=pattern.experts_every,
        window=0.0 if pattern.full_every == 1 else 512.0,
        full_attention_every=pattern.full_every,
        pipeline_par=stages,
        pipeline_interleaving=chunks,
        data_par=1.0,
        microbatch_size=1.0,
        batch_size=float(batch),
    )


@given(patterns, layouts, st.lists(st.integers(0, 9), min_size=4, max_size=4), st.integers(1, 64))
def test_the_slowest_and_the_fullest_stage_are_among_those_looked_at(
    pattern: BlockPattern, layout: tuple[int, int], each: list[int], batch: int
) -> None:
    """Whatever a block of each kind takes; a stage keeps activations of as many microbatches as it runs ahead."""
    one = of_pattern(pattern, layout, batch)
    assert [float(number) for number in blocks_by_kind(one.model)] == [listed(pattern).count(kind) for kind in PLAIN]
    held = blocks_of_stages(pattern, *layout)
    times = np.array(each) @ held
    looked_at = [sum(float(n) * t for n, t in zip(stage.blocks, each, strict=True)) for stage in slowest_stages(one)]
    assert max(looked_at) == times.max()
    # What does not depend on windows: state once, and activations per microbatch.
    state, kept = each[:2], each[2:]
    halves = np.array([held[0] + held[1], held[2] + held[3]])
    flying = np.array([float(in_flight(one, float(position))) for position in range(layout[0])])
    full = np.array(state) @ halves + flying * (np.array(kept) @ halves)
    looked_at = [
        float(stage.by_size(PLAIN_SIZES)[0]) * (state[0] + float(in_flight(one, stage.position)) * kept[0])
        + float(stage.by_size(PLAIN_SIZES)[1]) * (state[1] + float(in_flight(one, stage.position)) * kept[1])
        for stage in fullest_stages(one)
    ]
    assert max(looked_at) == pytest.approx(full.max())


def test_the_order_of_every_library_model_is_followed() -> None:
    for name in models.plain_names():
        architecture = models.load(name).architecture
        assert architecture is not None
        if architecture.sparse_attention is not None:  # a pattern of layers
            continue
        shapes = model_shapes(models.load(name))
        every = int(shapes.full_attention_every) if shapes.window > 0 else 1
        pattern = BlockPattern(architecture.layers, int(shapes.leading_dense), int(shapes.experts_every), every)
        windowed = [window is not None for window in architecture.windows]
        order = [kind_of(*each) for each in zip(architecture.expert_layers, windowed, strict=True)]
        assert listed(pattern) == order, name


def test_the_sum_of_all_stages_has_what_is_gathered_at_both_ends() -> None:
    """Two stages of sharded weights, whose ends both gather a vocabulary."""
    sharded = case(EXPERTS, pipeline_par=2.0, data_par=8.0, fully_sharded=1.0, zero_stage=3.0, overlap_pipeline=1.0)
    found = pipeline_flow(sharded, block_level(sharded, P), P)
    assert float(found.embedding_gather) > 0
    assert float(found.total.whole) == pytest.approx(sum(float(load.whole) for load in found.loads), rel=1e-12)


def test_the_remainder_goes_where_least_is_kept() -> None:
    """Rows of several layouts at once."""
    stages = [8.0, 8.0, 4.0, 12.0, 1.0, 2.0]
    one = case(
        num_blocks=np.array([96.0, 126.0, 61.0, 70.0, 32.0, 61.0]),
        pipeline_par=np.array(stages),
        pipeline_interleaving=np.array([1.0, 8.0, 1.0, 1.0, 1.0, 1.0]),
    )
    first, last, *others = slowest_stages(one)
    assert first.by_size(PLAIN_SIZES)[0].tolist() == [12, 15, 15, 5, 32, 31]
    assert last.by_size(PLAIN_SIZES)[0].tolist() == [12, 15, 15, 5, 32, 30]
    assert np.max([stage.by_size(PLAIN_SIZES)[0] for stage in others], axis=0).tolist() == [12, 16, 16, 6, 0, 0]


LAYOUTS = [
    {"pipeline_par": 16, "data_par": 128, "expert_par": 8, "expert_tensor_par": 1, "batch_size": 15360},
    {"pipeline_par": 16, "data_par": 128, "expert_par": 64, "expert_tensor_par": 1, "batch_size": 15360},
    {"pipeline_par": 4, "data_par": 16, "expert_par": 8, "expert_tensor_par": 1, "batch_size": 256},
    {"pipeline_par": 8, "data_par": 4, "tensor_par": 2, "expert_par": 4, "batch_size": 64, "zero_stage": 0},
    {"pipeline_par": 12, "data_par": 4, "expert_par": 4, "expert_tensor_par": 1, "batch_size": 96, "recompute": "full"},
    {"pipeline_par": 2, "data_par": 8, "expert_par": 8, "expert_tensor_par": 1, "batch_size": 64},
]
ORDERS = ["deepseek-v3", "llama-4-maverick", "gpt-oss-120B", "gemma-3-27B", "qwen3-235B-A22B", "llama-3-70B"]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: ",".join(map(str, layout.values())))
@pytest.mark.parametrize("name", ORDERS)
def test_memory_and_time_are_those_of_the_worst_of_all_stages(name: str, layout: dict[str, Any]) -> None:
    """Stage by stage in plain numbers, from the bytes and seconds of one block of each kind."""
    model = models.load(name)
    one = case_of(
        model, hardware.load("h100_80g_sxm"), {"tensor_par": 1, "microbatch_size": 1, "datatype": "bfloat16", **layout}
    )
    level, local, kept = block_level(one, P), local_weights(one), activation_bytes(one)
    stages, data = layout["pipeline_par"], layout["data_par"]
    assert model.architecture is not None
    windowed = [window is not None for window in model.architecture.windows]
    kinds = [kind_of(*each) for each in zip(model.architecture.expert_layers, windowed, strict=True)]
    microbatches = layout["batch_size"] // data
    tensor = layout.get("tensor_par", 1)
    own = data * tensor // (layout["expert_par"] * layout.get("expert_tensor_par", tensor))
    zero = layout.get("zero_stage", 1)
    peaks, seconds = [], []
    for stage, held in enumerate(cut(kinds, stages, 1)):
        end = stage in (0, stages - 1)
        outside = sum(float(local.blocks[kind.size]) for kind in held)
        outside += float(local.vocabulary) if end else 0.0
        inside = sum(float(local.experts[kind.size]) for kind in held if kind.experts)
        state = 6 * (outside + inside)
        state += 12 * (outside / data + inside / own) if zero else 12 * (outside + inside)
        flying = min(stages - stage, microbatches)
        activations = flying * sum(float(kept.kept[kind.size]) for kind in held)
        working = max(float(kept.working[kind.size]) for kind in held)
        logits = 8 * float(one.tokens * one.model.vocabulary) / tensor if stage == stages - 1 else 0.0
        largest = float(one.model.hidden * (1 + one.model.gated) * one.model.feedforward) / tensor
        largest += float(local.vocabulary) if end else 0.0
        again = working if layout.get("recompute") == "full" else 0.0
        peaks.append(state + activations + again + logits + 2 * largest)
        time = sum(float(level.kinds[kind].forward + level.kinds[kind].backward) for kind in held)
        seconds.append(time + float(level.ends.embedding if stage == 0 else level.ends.head if end else 0.0))
    assert float(memory_use(one).peak) == pytest.approx(max(peaks), rel=1e-12)
    # Without waiting for messages, so that stages differ by their blocks alone.
    quiet = case_of(
        model,
        hardware.load("h100_80g_sxm"),
        {"tensor_par": 1, "microbatch_size": 1, "datatype": "bfloat16", "overlap_pipeline": 1.0, **layout},
    )
    found = pipeline_flow(quiet, level, P)
    assert float(found.slowest) == pytest.approx(max(seconds), rel=1e-12)
    assert float(found.total.whole) == pytest.approx(sum(seconds), rel=1e-12)
