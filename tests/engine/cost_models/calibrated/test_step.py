"""Whole steps: parts add up, laws that need no figures, and scalars equal arrays."""

from __future__ import annotations

import numpy as np
import pytest

from engine.cost_models.calibrated import Case, batch_level, block_level, parameters, step_times
from engine.cost_models.calibrated.physics.inputs import LAUNCHES, RECOMPUTES
from engine.cost_models.calibrated.physics.pipeline.stage_times import pipeline_flow
from engine.cost_models.calibrated.physics.step import StepTimes
from tests.engine.cost_models.calibrated.cases import DENSE, EXPERTS, case

P = parameters()
PARTS = [name for name in StepTimes.__dataclass_fields__ if name != "step"]

LAYOUTS = [
    {},
    {"tensor_par": 8.0, "sequence_par": 1.0},
    {"pipeline_par": 4.0},
    {"pipeline_par": 2.0},
    {"pipeline_par": 8.0, "pipeline_interleaving": 4.0, "overlap_pipeline": 1.0},
    {"context_par": 4.0},
    {"fully_sharded": 1.0, "zero_stage": 3.0, "overlap_data": 1.0},
    {"recompute": float(RECOMPUTES.index("full")), "linear_bits": 8.0},
    {"launch": float(LAUNCHES.index("graphs"))},
]


@pytest.mark.parametrize("base", [DENSE, EXPERTS], ids=["dense", "experts"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: ",".join(layout) or "plain")
def test_parts_add_up_to_the_step(base: dict[str, float], layout: dict[str, float]) -> None:
    found = step_times(case(base, **layout), P)
    assert sum(getattr(found, name) for name in PARTS) == pytest.approx(float(found.step), rel=1e-9)
    assert all(getattr(found, name) >= 0 for name in PARTS)


def test_scalars_equal_arrays_and_mixed_rows_equal_single_ones() -> None:
    mixed = {
        name: np.array(
            [
                {
                    **DENSE,
                }[name],
                EXPERTS[name],
                DENSE[name],
            ]
        )
        for name in DENSE
    }
    found = step_times(case(mixed, tensor_par=np.array([1.0, 2.0, 4.0])), P)
    for row, (base, tensor) in enumerate(((DENSE, 1.0), (EXPERTS, 2.0), (DENSE, 4.0))):
        alone = step_times(case(base, tensor_par=tensor), P)
        for name in StepTimes.__dataclass_fields__:
            assert getattr(found, name)[row] == pytest.approx(float(getattr(alone, name)), rel=1e-12)


def test_block_tables_gather() -> None:
    keys = case(tensor_par=np.array([1.0, 2.0, 4.0]))
    level = block_level(keys, P)
    index = np.array([2, 0, 1, 1, 2])
    rows = case(tensor_par=np.array([4.0, 1.0, 2.0, 2.0, 4.0]), data_par=np.array([1.0, 2.0, 4.0, 8.0, 16.0]))
    gathered = batch_level(rows, level.take(index), P)
    assert gathered.step == pytest.approx(step_times(rows, P).step)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("num_blocks", [8.0, 16.0, 64.0]),
        ("hidden", [1024.0, 4096.0, 8192.0]),
        ("batch_size", [64.0, 128.0, 512.0]),
        ("seq_size", [1024.0, 4096.0, 32768.0]),
        ("vocabulary", [1024.0, 51200.0, 256000.0]),
        ("gradient_bytes", [2.0, 4.0]),
        ("unfused_elementwise", [0.0, 1.0, 2.0]),
        ("messages", [2.0, 4.0]),
    ],
)
def test_more_work_takes_longer(field: str, values: list[float]) -> None:
    found = step_times(case(pipeline_par=4.0, **{field: np.array(values)}), P).step
    assert (np.diff(found) > 0).all()


@pytest.mark.parametrize("fact", ["overlap_data", "overlap_tensor", "overlap_expert", "overlap_pipeline"])
def test_overlap_never_hurts(fact: str) -> None:
    layout = {"tensor_par": 4.0, "pipeline_par": 4.0, "data_par": 16.0, "expert_par": 8.0, "expert_tensor_par": 4.0}
    slow, fast = (step_times(case(EXPERTS, **layout, **{fact: value}), P).step for value in (0.0, 1.0))
    assert fast < slow


def test_interleaving_shrinks_the_bubble() -> None:
    found = step_times(case(pipeline_par=8.0, pipeline_interleaving=np.array([1.0, 2.0, 4.0])), P)
    assert (np.diff(found.bubble) < 0).all()


def test_the_head_of_a_large_vocabulary_is_in_the_steady_state() -> None:
    small, large = (step_times(case(pipeline_par=8.0, vocabulary=v), P) for v in (1e3, 1e6))
    micro = float(case(pipeline_par=8.0).microbatches)
    head = float(large.ends) / micro
    assert float(large.step - small.step) > 0.9 * (micro - 1) * (head - float(small.ends) / micro) * 0.5
    assert large.ends > small.ends


def test_a_job_spread_wider_has_stragglers() -> None:
    assert step_times(case(), P).straggler == 0
    assert step_times(case(data_par=64.0, batch_size=512.0), P).straggler > 0


def test_chunks_that_are_left_hide_an_exchange_of_gradients() -> None:
    """Megatron reduces a chunk's gradients while the chunks before it end, p microbatches each: more chunks hide more.
    All of an exchange that fits into that window is hidden up to the share that measured runs show."""
    layout = {"pipeline_par": 4.0, "data_par": 64.0, "batch_size": 2048.0, "overlap_data": 1.0}
    chunks = np.array([1.0, 2.0, 4.0, 8.0])
    slow = {"network_bandwidths": (300e9, 2e9)}
    found = step_times(case(**layout, **slow, pipeline_interleaving=chunks), P)
    alone = step_times(case(**{**layout, "overlap_data": 0.0}, **slow, pipeline_interleaving=chunks), P)
    assert (np.diff(found.data_exposed) < 0).all()
    full, stage = float(alone.data_exposed[1]), _slowest(case(**layout, **slow, pipeline_interleaving=2.0))
    window = stage * (1.0 / 2.0 + 1.0 / 2.0 * 4.0)
    assert full > window
    assert found.data_exposed[1] == pytest.approx(full - P.overlap_data * window)
    # Two microbatches fill two of the places of a group.
    few = {**layout, "batch_size": 256.0}
    short = step_times(case(**few, **slow, pipeline_interleaving=2.0), P).data_exposed
    assert float(short) == pytest.approx(full - P.overlap_data * stage * (1.0 / 2.0 + 1.0 / 2.0 * 2.0))


def _slowest(rows: Case) -> float:
    """Seconds per microbatch of the slowest stage."""
    return float(pipeline_flow(rows, block_level(rows, P), P).slowest)
