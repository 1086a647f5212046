"""Servers measured under load against the figures, and properties of the kernels behind them.

The servers are the package's: the half of InferenceX's results that constants were fitted to. Another half, which
nothing was fitted to, is not here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardware
import models
from engine import serving
from engine.cost_models.calibrated import Accelerators, accelerator_of
from engine.serving.constants import ENGINES, FORMATS, library_constants
from engine.serving.kernels import Device, ExpertRates, ExpertWork, KernelRates, multiply, run_experts
from engine.validation.serving.nearest_servers import library_servers
from engine.validation.serving.operations import kernel_tables
from engine.validation.serving.servers import log_errors


@pytest.fixture(scope="module")
def errors() -> pd.DataFrame:
    """Predicted over measured, less 1, with the GPU and engine of each server."""
    servers = library_servers()
    assert len(servers.rows) == 1_214
    return np.expm1(log_errors(servers)).join(servers.rows[["gpu", "engine", "model"]])


def test_measured_servers(errors: pd.DataFrame):
    medians = errors[["ttft", "tpot", "output"]].abs().median()
    assert medians["tpot"] < 0.11
    assert medians["output"] < 0.11
    assert medians["ttft"] < 0.3
    assert errors[["tpot", "output"]].median().abs().max() < 0.03


@pytest.mark.parametrize("engine", ENGINES[1:])
def test_no_engine_is_far_off(errors: pd.DataFrame, engine: str):
    some = errors[errors["engine"] == engine]
    assert len(some) > 20
    assert some["tpot"].abs().median() < 0.15
    assert some["output"].abs().median() < 0.15


def test_the_order_of_servers(errors: pd.DataFrame):
    """Rank correlation of predicted and measured time per output token."""
    measured = library_servers().rows["tpot_ms"]
    predicted = measured * (1.0 + errors["tpot"])
    assert predicted.corr(measured, method="spearman") > 0.95


def fields(**values: Any) -> dict[str, list[Any]]:
    row = {"tensor_par": 8, "pipeline_par": 1, "batch": 16, "prompt": 1024, "output": 512, **values}
    return {name: [value] for name, value in row.items()}


def test_an_unnamed_engine_is_the_mean_of_the_others():
    found = [library_constants().engine(name) for name in ENGINES]
    for place, term in enumerate(found[0]):
        assert term == pytest.approx(np.mean([each[place] for each in found[1:]]), rel=1e-3)


def test_a_burst_of_a_benchmark_is_part_of_the_first_token_only():
    """Half of the other requests' prefills are before one's own, once in ten rounds."""
    steady, burst = (
        serving.evaluate("llama-3-70B", "h200_141g_sxm", fields(engine="vllm"), requests_per_slot=number).iloc[0]
        for number in (None, 10)
    )
    assert burst["time_to_first_token"] > steady["time_to_first_token"]
    assert burst["time_per_output_token"] < steady["time_per_output_token"]
    assert burst["decode_step_time"] == steady["decode_step_time"]
    with pytest.raises(serving.WorkloadError, match="requests_per_slot is 0; it must be from 1"):
        serving.evaluate("llama-3-70B", "h200_141g_sxm", fields(), requests_per_slot=0)


def test_attention_in_more_bits_takes_memory_and_time():
    narrow, mixed = (
        serving.evaluate("deepseek-v3", "b200_180g_sxm", fields(weight_bits=4, attention_bits=bits)).iloc[0]
        for bits in (4, 16)
    )
    # DeepSeek-V3: 187 million weights around attention in each of 61 blocks, compressions on every rank.
    assert mixed["memory_weights"] > narrow["memory_weights"] + 61 * 187e6 / 8 * (2 - 4.25 / 8)
    assert mixed["decode_step_time"] > narrow["decode_step_time"]


def test_weights_alone_in_few_bits_compute_in_16():
    narrow, weights_only, wide = (
        serving.evaluate("llama-3-70B", "b200_180g_sxm", fields(prompt=8000, output=192, **bits)).iloc[0]
        for bits in ({"weight_bits": 4}, {"weight_bits": 4, "compute_bits": 16}, {"weight_bits": 16})
    )
    assert narrow["prefill_time"] < 0.8 * weights_only["prefill_time"]
    assert weights_only["prefill_time"] == pytest.approx(wide["prefill_time"], rel=0.1)
    refused = serving.evaluate("llama-3-70B", "b200_180g_sxm", fields(weight_bits=16, compute_bits=8)).iloc[0]
    assert refused["reason"] == "narrow_products"


def test_keys_of_chosen_blocks_are_divided_among_ranks():
    """MiniMax-M3: 4 key and value heads of 128 elements each, divided up to TP 4; its index keys are on every rank."""
    model = models.load("minimax-M3")
    assert model.layers is not None
    tokens, kv, index = 16 * (1024 + 512), 60 * 2 * 4 * 128 * 2, 57 * 128 * 2
    for t, share in ((1, 1), (2, 2), (4, 4), (8, 4)):
        found = serving.evaluate(model, "b200_180g_sxm", fields(tensor_par=t, weight_bits=4)).iloc[0]
        assert found["memory_kv_cache"] == pytest.approx(tokens * (kv / share + index))


def test_only_chosen_tokens_are_read():
    """GLM-5 attends to 2,048 tokens, DeepSeek-V3 to all: a context eight times as long costs it an indexer only."""
    growth = []
    for model in ("glm-5", "deepseek-v3"):
        table = fields(weight_bits=8, batch=16, output=256)
        short, long = (
            serving.evaluate(model, "b300_270g_sxm", {**table, "prompt": [prompt]}).iloc[0] for prompt in (4096, 32768)
        )
        growth.append(long["step_attention"] - short["step_attention"])
    assert 0 < growth[0] < 0.75 * growth[1]


RATES = st.sampled_from([(chip, name) for chip in ("ampere", "hopper", "blackwell") for name in FORMATS])
SIZES = st.sampled_from([128, 512, 1000, 2880, 7168, 28672])


@given(RATES, st.integers(1, 9000), st.integers(0, 9000), SIZES, SIZES, st.floats(1, 8))
def test_products_of_more_rows_are_never_faster(
    rates: tuple[str, str], rows: int, more: int, outputs: int, inputs: int, factor: float
):
    device = Device(np.asarray(1e15), np.asarray(3e12), np.asarray(132.0))
    found = KernelRates(**{k: np.asarray(v) for k, v in library_constants().rates("product", *rates).items()})

    def seconds(m: int, device: Device = device) -> float:
        return float(multiply(np.asarray(float(m)), np.asarray(outputs), np.asarray(inputs), 1.0, device, found))

    assert seconds(rows + more) >= seconds(rows) * (1 - 1e-12)
    assert seconds(rows, device._replace(memory=factor * device.memory)) <= seconds(rows) * (1 + 1e-12)


@given(RATES, st.integers(1, 9000), st.integers(0, 9000), st.sampled_from([1, 4, 8, 64]), st.floats(1, 8))
def test_experts_with_more_tokens_are_never_faster(
    rates: tuple[str, str], tokens: int, more: int, spread: int, factor: float
):
    device = Device(np.asarray(1e15), np.asarray(3e12), np.asarray(132.0))
    found = ExpertRates(**{k: np.asarray(v) for k, v in library_constants().rates("experts", *rates).items()})

    def seconds(number: int, device: Device = device) -> float:
        sizes = map(np.asarray, (float(number), 256.0, 8.0, float(spread), 7168.0, 2048.0))
        return float(run_experts(ExpertWork(*sizes), 1.0, device, found))

    assert seconds(tokens + more) >= seconds(tokens) * (1 - 1e-12)
    assert seconds(tokens, device._replace(memory=factor * device.memory)) <= seconds(tokens) * (1 + 1e-12)


def test_ranges_are_of_comparable_servers():
    row = serving.evaluate("deepseek-v3", "b200_180g_sxm", fields(weight_bits=8, engine="sglang")).iloc[0]
    ranges = serving.figure_ranges(models.load("deepseek-v3"), hardware.load("b200_180g_sxm"), dict(row))
    found = ranges["time_per_output_token"]
    assert found.low < 1 < found.high < 2
    assert found.models >= 2
    assert {"sglang", "experts"} <= set(found.described.split(", "))
    assert not serving.figure_ranges(models.load("llama-3-8B"), hardware.load("mi300x_192g"), dict(row))
    assert float(Accelerators.of(accelerator_of(hardware.load("mi300x_192g"))).generation) == 3


def test_kernels_that_no_engine_would_choose_are_left_out_of_the_fit(tmp_path: Path):
    """A kernel that is slow wherever others were measured counts nowhere, also where it is the only one."""
    rows = []
    for count in range(1, 61):
        row = {"gpu": "h100_sxm", "isl": 1, "kv_cache_dtype": "fp8", "batch_size": count, "num_heads": 16, "step": 1023}
        if count <= 40:
            rows.append({**row, "engine": "trtllm", "kernel_source": "default", "latency_us": 10.0 + count})
        if count > 10:
            rows.append({**row, "engine": "vllm", "kernel_source": "slow", "latency_us": 50.0 + 5.0 * count})
    for name in ("ops_gemm", "ops_moe", "ops_attention_decode"):
        pd.DataFrame({"gpu": pd.Series([], dtype=str)}).to_parquet(tmp_path / f"{name}.parquet")
    pd.DataFrame(rows).to_parquet(tmp_path / "ops_mla_decode.parquet")
    table = next(kernel_tables(tmp_path))
    assert (table.kind, table.name) == ("latent_decode", "float8")
    assert len(table.measured) == 40
    assert table.measured.max() == pytest.approx(50e-6)
