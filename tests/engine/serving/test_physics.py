"""Figures that can be worked out by hand or are published, and properties that hold for every deployment."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardware
import models
from engine import serving
from engine.cost_models.calibrated import parameters
from engine.serving import MEMORY_PARTS, STEP_PARTS, Assumptions

GIB = 2.0**30


def one(
    model: Any = "llama-3-70B", system: Any = "h100_80g_sxm", assumptions: Assumptions | None = None, **fields: Any
) -> pd.Series:
    row = {"tensor_par": 8, "pipeline_par": 1, "batch": 1, "prompt": 1024, "output": 256, **fields}
    table = {name: [value] for name, value in row.items()}
    return serving.evaluate(model, system, table, assumptions=assumptions).iloc[0]


def faster(system: str, **factors: float) -> hardware.System:
    """A system with other bandwidths."""
    found = hardware.load(system)
    networks = tuple(
        network.model_copy(update={"bandwidth_gb_per_s": network.bandwidth_gb_per_s * factors.get("network", 1.0)})
        for network in found.networks
    )
    memory = found.mem1.model_copy(
        update={"bandwidth_gb_per_s": found.mem1.bandwidth_gb_per_s * factors.get("memory", 1.0)}
    )
    return found.model_copy(update={"mem1": memory, "networks": networks})


def test_reading_the_weights_bounds_the_decode_step():
    """Llama 3 70B in 16 bits on 8 H100: 141 GB / 8 at 82 % of 3,350 GB/s take 6.42 ms; one token takes little more."""
    found = one()
    bound = 70.55e9 * 2 / 8 / (0.82 * 3350e9)
    assert bound == pytest.approx(6.42e-3, rel=1e-3)
    assert found["step_linear"] + found["step_ends"] > 0.97 * bound  # the embedding is not read whole
    assert bound < found["decode_step_time"] - found["step_host"] < 1.8 * bound
    assert found["time_per_output_token"] == found["decode_step_time"]
    assert found["memory_weights"] == pytest.approx(70.55e9 * 2 / 8, rel=0.001)


def test_a_large_prompt_is_bound_by_the_matrix_rate():
    """2 x parameters x tokens at the rate of measured products on an H100, 96 % of 989 TFLOP/s; the rest on top.

    One prompt passes the stages one after the other.
    """
    found = one(tensor_par=1, pipeline_par=4, prompt=8000, output=100)
    bound = 2 * 68.5e9 * 8000 / (989e12 * 0.96)
    assert bound < found["time_to_first_token"] < 1.4 * bound


@pytest.mark.parametrize(
    ("model", "bits", "published"),
    [
        ("llama-3-70B", 16, 2 * 80 * 8 * 128 * 2),
        ("llama-3-70B", 8, 80 * 2 * 8 * 128),
        ("deepseek-v3", 16, 61 * (512 + 64) * 2),
        ("llama-2-7B", 16, 2 * 32 * 32 * 128 * 2),
        ("llama-3-8B", 16, 131_072),
        ("gpt-oss-120B", 16, 2 * 36 * 8 * 64 * 2),
    ],
)
def test_cache_per_token(model: str, bits: int, published: int):
    found = one(model, tensor_par=1, pipeline_par=4, kv_bits=bits, prompt=100, output=20)
    assert found["kv_bytes_per_token"] == published


def test_the_published_sizes():
    assert one()["kv_bytes_per_token"] == 327_680
    assert one("deepseek-v3", tensor_par=1, pipeline_par=16)["kv_bytes_per_token"] == 70_272


def test_cache_of_a_replica():
    """Tensor parallelism splits heads down to one per processor; latent caches are held by every processor."""
    tokens = 16 * (1024 + 256)
    for t, share in ((1, 1), (4, 4), (8, 8), (16, 8), (64, 8)):
        found = one(tensor_par=t, pipeline_par=4, batch=16)
        assert found["memory_kv_cache"] == pytest.approx(tokens * 327_680 / 4 / share)
    for t in (1, 8):
        found = one("deepseek-v3", tensor_par=t, pipeline_par=1, batch=16)
        assert found["memory_kv_cache"] == tokens * 70_272


def test_windows_bound_the_cache_of_their_layers():
    """gpt-oss: every second layer looks back 128 tokens."""
    found = one("gpt-oss-120B", tensor_par=1, pipeline_par=1, batch=10, prompt=5000, output=1000)
    per_layer = 2 * 8 * 64 * 2
    assert found["memory_kv_cache"] == 10 * per_layer * (18 * 6000 + 18 * 128)


def test_weights_of_all_processors_are_those_of_the_model():
    for name, t in (("llama-3-70B", 8), ("llama-3-8B", 4), ("falcon-180B", 8), ("deepseek-v3", 1)):
        found = one(name, tensor_par=t)
        whole = models.load(name).parameters
        assert whole is not None
        assert found["memory_weights"] * t == pytest.approx(2 * whole, rel=0.01)


def test_experts_are_spread_over_replicas():
    """EP beyond TP: every processor holds 1/EP of the routed experts, whatever its TP."""
    fields = {"tensor_par": 2, "replicas": 32, "batch": 8}
    few, many = one("deepseek-v3", expert_par=2, **fields), one("deepseek-v3", expert_par=64, **fields)
    routed = 58 * 256 * 3 * 7168 * 2048
    saved = routed * 2 * (1 / 2 - 1 / 64)
    assert few["memory_weights"] - many["memory_weights"] == pytest.approx(saved)
    assert few["reason"] == "memory"
    assert many["step_experts"] > 0


def test_one_token_reads_as_many_experts_as_it_visits():
    """Mixtral-like: the step of batch 1 reads 2 of 8 experts; of batch 64 all, so more than three times as much."""
    small = one("deepseek-v3", "gb200_186g_nvl72", tensor_par=8, expert_par=1, batch=1, weight_bits=8)
    large = one("deepseek-v3", "gb200_186g_nvl72", tensor_par=8, expert_par=1, batch=512, weight_bits=8)
    routed = 58 * 3 * 7168 * 2048 / 8
    bandwidth = hardware.load("gb200_186g_nvl72").mem1.bandwidth_gb_per_s * 1e9 * 0.82
    assert large["step_linear"] - small["step_linear"] > 0.9 * (256 - 8) * routed / bandwidth


def test_quantised_weights_and_cache():
    wide, narrow = one(batch=512), one(batch=512, weight_bits=8, kv_bits=8)
    assert narrow["memory_kv_cache"] == wide["memory_kv_cache"] / 2
    few, fewer = one(batch=64), one(batch=64, weight_bits=8)
    # Half the bytes, in kernels that start later.
    assert fewer["step_linear"] < 0.7 * few["step_linear"]
    # Kernels for caches of 8 bits reach a smaller share of the bandwidth.
    assert narrow["step_attention"] < 0.7 * wide["step_attention"]
    four = one(batch=512, weight_bits=4)
    blocks = 80 * (2 * 8192 * 128 * 72 + 3 * 8192 * 28672) / 8
    assert wide["memory_weights"] - four["memory_weights"] == pytest.approx(blocks * (2 - 4.25 / 8))


def test_weights_alone_in_few_bits_do_not_speed_up_products():
    """A100 has no 8-bit float products: a long prompt takes as long, a decode step less."""
    wide, narrow = (one(system="a100_80g_sxm", weight_bits=bits, prompt=4000) for bits in (16, 8))
    assert narrow["time_to_first_token"] == pytest.approx(wide["time_to_first_token"], rel=0.02)
    assert narrow["decode_step_time"] < 0.75 * wide["decode_step_time"]


def test_graphs_take_memory_and_save_launches():
    eager, graphs = one(launch="eager"), one(launch="graphs")
    assert eager["step_launch"] > graphs["step_launch"] == 0
    # 80 blocks of 20 kernels and 7 peers, host time for each
    assert eager["decode_step_time"] - eager["step_host"] == pytest.approx(80 * 27 * parameters().launch, rel=0.02)
    assert graphs["memory_reserve"] - eager["memory_reserve"] == pytest.approx(2 * GIB)


def test_pipelines_decode_microbatches_in_turn():
    """4 stages: a token still passes all blocks; four microbatches share the stages, so a full pipeline does 4x."""
    alone = one(tensor_par=1, pipeline_par=4, batch=1)
    full = one(tensor_par=1, pipeline_par=4, batch=4)
    assert full["decode_step_time"] == pytest.approx(alone["decode_step_time"], rel=0.05)
    deeper = one(tensor_par=1, pipeline_par=8, batch=1)
    assert deeper["decode_step_time"] > alone["decode_step_time"]


def test_limits_are_reasons():
    table = {"tensor_par": [8], "pipeline_par": [1], "batch": [64], "prompt": [1024], "output": [256]}
    found = serving.evaluate("llama-3-70B", "h100_80g_sxm", table, time_to_first_token=0.01).iloc[0]
    assert (found["status"], found["reason"]) == ("infeasible", "time_to_first_token")
    assert found["reason_text"].startswith("The first token takes 3")
    assert found["reason_text"].endswith("ms, more than the limit of 10 ms.")
    found = serving.evaluate("llama-3-70B", "h100_80g_sxm", table, time_per_output_token=0.01).iloc[0]
    assert found["reason"] == "time_per_output_token"
    assert np.isfinite(found["tokens_per_s"])


@pytest.mark.parametrize(
    ("model", "fields", "code"),
    [
        ("llama-3-70B", {"batch": 0}, "not_positive"),
        ("llama-3-70B", {"weight_bits": 7}, "unknown_bits"),
        ("llama-3-70B", {"launch": "magic"}, "unknown_launch"),
        ("llama-3-70B", {"tensor_par": 3}, "heads_not_divisible"),
        ("falcon-180B", {"tensor_par": 29}, "kv_heads_not_divisible"),
        ("llama-3-70B", {"pipeline_par": 81}, "pipeline_exceeds_blocks"),
        ("llama-3-70B", {"expert_par": 2}, "no_experts"),
        ("deepseek-v3", {"expert_par": 3, "tensor_par": 1, "replicas": 3}, "experts_not_divisible"),
        ("deepseek-v3", {"expert_par": 16, "replicas": 1}, "expert_layout"),
        ("llama-3-70B", {"prompt": 8000}, "context_too_long"),
        ("llama-3-70B", {"tensor_par": 1}, "memory"),
    ],
)
def test_every_rule_has_a_sentence(model: str, fields: dict[str, Any], code: str):
    found = one(model, **fields)
    assert found["reason"] == code
    assert found["reason_text"].endswith(".")
    assert "{" not in found["reason_text"]
    assert np.isnan(found["tokens_per_s"])


def test_tables_that_are_none():
    with pytest.raises(serving.DeploymentTableError, match="no column 'batch'"):
        serving.evaluate("llama-3-8B", "h100_80g_sxm", {"tensor_par": [1], "pipeline_par": [1]})
    table = {"tensor_par": [1, 1], "pipeline_par": [1, 1], "batch": [1, 1.5], "prompt": [8, 8], "output": [8, 8]}
    with pytest.raises(serving.DeploymentTableError, match=r"Row 2 of the deployments has batch 1\.5"):
        serving.evaluate("llama-3-8B", "h100_80g_sxm", table)
    with pytest.raises(serving.WorkloadError, match="above 0"):
        serving.evaluate("llama-3-8B", "h100_80g_sxm", {}, time_to_first_token=-1.0)


SHAPES = st.fixed_dictionaries(
    {
        "tensor_par": st.sampled_from([1, 2, 4, 8, 16]),
        "pipeline_par": st.sampled_from([1, 2, 3, 5, 8]),
        "replicas": st.sampled_from([1, 2, 4]),
        "batch": st.integers(1, 3000),
        "weight_bits": st.sampled_from([16, 8, 4]),
        "kv_bits": st.sampled_from([16, 8, 4]),
        "launch": st.sampled_from(["eager", "compiled", "graphs"]),
        "prompt": st.integers(1, 6000),
        "output": st.integers(1, 2000),
    }
)
CASES = st.tuples(
    st.sampled_from(["llama-3.1-70B", "deepseek-v3", "gpt-oss-120B", "gemma-3-27B"]),
    st.sampled_from(["h100_80g_sxm", "b200_180g_sxm", "a100_80g_sxm", "mi300x_192g"]),
    SHAPES,
)


def rows(model: str, system: Any, tables: list[dict[str, Any]]) -> pd.DataFrame:
    """Deployments that do not fit count too: memory is no limit here."""
    found = hardware.load(system) if isinstance(system, str) else system
    endless = found.model_copy(update={"mem1": found.mem1.model_copy(update={"capacity_gib": 1e9})})
    return serving.evaluate(model, endless, pd.DataFrame(tables))


@given(CASES)
def test_parts_add_up(case: tuple[str, str, dict[str, Any]]):
    model, system, fields = case
    found = rows(model, system, [fields]).iloc[0]
    if found["status"] != "ok":
        assert found["reason"] in (
            "kv_heads_not_divisible",
            "heads_not_divisible",
            "feedforward_not_divisible",
            "expert_width_not_divisible",
        )
        return
    assert sum(found[name] for name in MEMORY_PARTS) == pytest.approx(found["memory_total"])
    assert sum(found[name] for name in STEP_PARTS) == pytest.approx(found["decode_step_time"])
    assert all(found[name] >= -1e-12 for name in (*STEP_PARTS, *MEMORY_PARTS))
    processors = fields["tensor_par"] * fields["pipeline_par"] * fields["replicas"]
    assert found["tokens_per_s"] == pytest.approx(found["tokens_per_s_per_processor"] * processors)
    assert found["requests_per_s"] * fields["output"] == pytest.approx(found["tokens_per_s"])
    latency = found["time_to_first_token"] + (fields["output"] - 1) * found["time_per_output_token"]
    assert found["request_latency"] == pytest.approx(latency)
    assert found["kv_bytes_per_token"] > 0


@given(CASES, st.integers(1, 2000))
def test_a_longer_prompt_is_never_faster(case: tuple[str, str, dict[str, Any]], more: int):
    model, system, fields = case
    found = rows(model, system, [fields, {**fields, "prompt": fields["prompt"] + more}])
    if (found["status"] == "ok").all():
        for name in ("time_to_first_token", "request_latency", "decode_step_time", "memory_total"):
            assert found[name].iloc[1] >= found[name].iloc[0] * (1 - 1e-9), name


@given(CASES, st.floats(1.0, 8.0), st.sampled_from(["memory", "network"]))
def test_more_bandwidth_is_never_slower(case: tuple[str, str, dict[str, Any]], factor: float, which: str):
    model, system, fields = case
    before = rows(model, system, [fields]).iloc[0]
    after = rows(model, faster(system, **{which: factor}), [fields]).iloc[0]
    if before["status"] == "ok":
        for name in ("time_to_first_token", "decode_step_time", "time_per_output_token", "prefill_time"):
            assert after[name] <= before[name] * (1 + 1e-9), name
        assert after["tokens_per_s"] >= before["tokens_per_s"] * (1 - 1e-9)


@given(CASES, st.integers(1, 2000))
def test_a_larger_batch_never_makes_less_without_a_pipeline(case: tuple[str, str, dict[str, Any]], more: int):
    model, system, fields = case
    fields = {**fields, "pipeline_par": 1}
    found = rows(model, system, [fields, {**fields, "batch": fields["batch"] + more}])
    if (found["status"] == "ok").all():
        assert found["tokens_per_s"].iloc[1] >= found["tokens_per_s"].iloc[0] * (1 - 1e-9)
        assert found["time_per_output_token"].iloc[1] >= found["time_per_output_token"].iloc[0] * (1 - 1e-9)


@given(CASES)
def test_the_largest_batch_is_the_largest_that_fits(case: tuple[str, str, dict[str, Any]]):
    model, system, fields = case
    found = one(model, system, **fields)
    if found["status"] == "invalid" or found["reason"] == "context_too_long":
        return
    largest = int(found["largest_batch"])
    capacity = found["memory_capacity"]
    if largest:
        assert one(model, system, **{**fields, "batch": largest})["memory_total"] <= capacity
    assert one(model, system, **{**fields, "batch": largest + 1})["memory_total"] > capacity
