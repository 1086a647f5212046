"""The operations of a block: what each does by hand, and that together they are the block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

import hardware
import models
from engine.cost_models.calibrated import parameters
from engine.cost_models.calibrated.case_building import case_of, model_shapes
from engine.cost_models.calibrated.physics.inputs import ATTENTION_KERNELS
from engine.cost_models.calibrated.physics.layers.block import block
from engine.cost_models.calibrated.physics.layers.operations import STAGES, block_operations, blocks_of, limits
from engine.cost_models.calibrated.physics.layers.rates import sustained_rates
from engine.cost_models.calibrated.physics.pipeline.stages import PLAIN, kinds_of
from engine.cost_models.calibrated.physics.step import block_level, step_times
from tests.engine.cost_models.calibrated.cases import A100, DENSE, EXPERTS, case

P = parameters()
LATENT = {
    **EXPERTS,
    "latent": 1.0,
    "query_rank": 1536.0,
    "key_value_rank": 512.0,
    "rope_size": 64.0,
    "attn_size": 192.0,
}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dense": (DENSE, {}),
    "gated, grouped queries, split": (
        {**DENSE, "gated": 1.0, "key_value_heads": 8.0},
        {"tensor_par": 8.0, "sequence_par": 1.0, "context_par": 4.0},
    ),
    "8 bits, plain operators": (DENSE, {"linear_bits": 8.0, "unfused_elementwise": 1.0}),
    "scores in memory": (DENSE, {"attention_kernel": 0.0, "attn_size": 100.0}),
    "sizes that are not aligned": ({**DENSE, "feedforward": 16001.0}, {"tensor_par": 2.0, "overlap_tensor": 1.0}),
    "experts": (EXPERTS, {"expert_par": 8.0, "tensor_par": 2.0}),
    "windowed attention": ({**DENSE, "window": 512.0}, {"context_par": 2.0}),
    "experts, none shared": ({**EXPERTS, "shared_experts": 0.0}, {"expert_par": 4.0, "overlap_expert": 1.0}),
    "latent attention": (LATENT, {"expert_par": 8.0}),
    "latent attention, plain queries": ({**LATENT, "query_rank": 0.0}, {"expert_par": 8.0, "expert_tensor_par": 1.0}),
}


def arrays_of(found: Any) -> list[Any]:
    """All arrays within tuples, mappings and dataclasses, with their names in front."""
    if isinstance(found, np.ndarray | np.generic | float | int):
        return [np.asarray(found)]
    if is_dataclass(found):
        found = {each.name: getattr(found, each.name) for each in fields(found) if each.name != "known"}
    parts = found.items() if isinstance(found, Mapping) else enumerate(found)
    return [each for name, part in parts for each in (str(name), *arrays_of(part))]


@pytest.mark.parametrize("name", CASES)
def test_what_a_case_remembers_stays_as_it_was(name: str) -> None:
    base, changes = CASES[name]
    one = case(base, **changes)
    kept = one.remembering()
    step_times(kept, P)
    for kind in blocks_of(kept.model):
        block_operations(kept, P, kind)
    assert kept.known
    for compute, found in kept.known.items():
        np.testing.assert_equal(arrays_of(found), arrays_of(compute(one)), compute.__name__)


@pytest.mark.parametrize("name", CASES)
def test_together_they_are_the_block(name: str) -> None:
    base, changes = CASES[name]
    one = case(base, **changes)
    rates = sustained_rates(one.accelerator, one.software.age_years, P)
    kind = PLAIN[2 * (base["experts"] > 0) + int(one.model.window > 0)]
    made = block(one, rates, P, kind)
    found = block_operations(one, P, blocks_of(one.model)[0])
    seconds = found[[f"{stage}_processing_time" for stage in STAGES]].sum(axis=1)
    core = found["name"] == "attention_core"
    parts = {
        "linear": (found["engine"] == "matrix") & ~core,
        "attention": core,
        "elementwise": found["engine"] == "memory",
        "tensor_exposed": found["name"] == "tensor_exchange",
        "context_exposed": found["name"] == "context_ring",
        "expert_exposed": found["name"] == "expert_exchange",
    }
    for part, rows in parts.items():
        assert seconds[rows].sum() == pytest.approx(float(getattr(made, part)), rel=1e-12), part
    assert sum(rows.sum() for rows in parts.values()) == len(found)
    recomputed_and_late = float(made.recompute + made.launch)
    assert seconds.sum() == pytest.approx(float(made.forward + made.backward) - recomputed_and_late, rel=1e-12)


@pytest.mark.parametrize(
    "name", [name for name in models.names() if model_shapes(models.load(name)).pattern is not None]
)
def test_together_they_are_the_block_of_a_pattern(name: str) -> None:
    """Sums inside layers, messages and layers without a product included, on two tensor-parallel ranks."""
    layout = {"tensor_par": 2, "pipeline_par": 1, "data_par": 4, "microbatch_size": 1, "batch_size": 8}
    one = case_of(models.load(name), hardware.load("h100_80g_sxm"), {**layout, "sequence_par": 1})
    level = block_level(one, P)
    for kind, title in zip(kinds_of(one.model), blocks_of(one.model), strict=True):
        made = level.kinds[kind]
        found = block_operations(one, P, title)
        seconds = found[[f"{stage}_processing_time" for stage in STAGES]].sum(axis=1)
        assert seconds.sum() == pytest.approx(float(made.forward + made.backward - made.recompute - made.launch))


def test_work_by_hand() -> None:
    """4,096 tokens through a block of width 4,096 with four times as many elements in between."""
    found = block_operations(case(), P, "dense").set_index("name")
    tokens = h = 4096
    qkv = found.loc["query_key_value"]
    assert qkv["fw_flops"] == qkv["agrad_flops"] == qkv["wgrad_flops"] == 2 * tokens * h * 3 * h
    assert qkv["fw_mem_accessed"] == 2 * (tokens * h + 3 * h * h + tokens * 3 * h)
    assert qkv["agrad_mem_accessed"] == qkv["fw_mem_accessed"]
    # Of the weights' gradients, 4 bytes are read and 4 written.
    assert qkv["wgrad_mem_accessed"] == 2 * (tokens * 3 * h + tokens * h) + 8 * 3 * h * h
    core = found.loc["attention_core"]
    scores = 2 * 32 * 2048**2 / 2  # causal: half of all, of 2 sequences and 32 heads
    assert core["fw_flops"] == scores * (128 + 128) * 2
    assert core["agrad_flops"] == 2.5 * core["fw_flops"]
    linear = found[(found["engine"] == "matrix") & (found.index != "attention_core")]
    assert linear["fw_flops"].sum() == 24 * tokens * h * h
    assert found.loc["activation", "fw_mem_accessed"] == 4 * tokens * 4 * h
    assert list(found.index) == [
        "norms",
        "query_key_value",
        "attention_core",
        "attention_output",
        "feedforward_up",
        "activation",
        "feedforward_down",
    ]


def test_unfused_attention_moves_its_scores_and_computes_masked_ones() -> None:
    kernel = float(ATTENTION_KERNELS.index("unfused"))
    core = block_operations(case(attention_kernel=kernel), P, "dense").set_index("name").loc["attention_core"]
    rows, heads, size = 2048, 64, 128
    assert core["fw_flops"] == 2 * 2 * rows * rows * size * heads
    # Queries and keys in, scores out; scores and values in, results out: 2 bytes each. Then softmax and dropout.
    assert core["fw_mem_accessed"] == heads * (2 * (4 * rows * size + 2 * rows**2) + 9 * rows**2)


def test_limits_are_those_of_the_precision() -> None:
    assert limits(case(), P).peak == 989e12
    eight = limits(case(linear_bits=8.0), P)
    assert eight.peak == 1979e12
    assert eight.sustained == pytest.approx(2 * limits(case(), P).sustained * P.eight_bit, rel=1e-3)
    assert limits(case(A100 | DENSE, linear_bits=8.0), P).peak == 312e12  # it has no peak in 8 bits
    assert limits(case(), P).memory_peak == 3350e9
    assert np.isfinite(limits(case(), P).memory_sustained)
