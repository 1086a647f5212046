"""Hits of the prefix cache in host memory: never slower than computing, bounded by the link, and every door to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hardware
from engine import launch, serving
from engine.cost_models.calibrated import parameters
from engine.questions import answer
from engine.serving import Assumptions, WorkloadError

ROW = {"tensor_par": 2, "pipeline_par": 1, "batch": 1, "prompt": 4096, "output": 256}
LATENCIES = ("prefill_time", "time_to_first_token", "request_latency")


def one(
    hits: float, share: float, *, system: Any = "h200_141g_sxm", host: float | None = None, **row: Any
) -> pd.Series:
    terms = Assumptions(prefix_hit_rate=hits, host_hit_share=share, host_cache_gib=host)
    return serving.evaluate(row.pop("model", "llama-3-8B"), system, {**ROW, **row}, assumptions=terms).iloc[0]


def link(rate: float, gib: float = 256.0) -> hardware.System:
    """An H200 with another link to its host [GB/s]."""
    found = hardware.load("h200_141g_sxm")
    memory = found.mem2.model_copy(update={"bandwidth_gb_per_s": rate, "capacity_gib": gib})
    return found.model_copy(update={"mem2": memory})


def test_without_hits_in_host_memory_no_figure_changes_by_a_bit():
    table = {**ROW, "tensor_par": [1, 2, 4], "batch": 8}
    for hits, told in ((0.0, {"host_hit_share": 1.0}), (0.5, {"host_cache_gib": 1.0})):
        usual = serving.evaluate("llama-3-8B", "h200_141g_sxm", table, assumptions=Assumptions(prefix_hit_rate=hits))
        other = serving.evaluate(
            "llama-3-8B", "h200_141g_sxm", table, assumptions=Assumptions(prefix_hit_rate=hits, **told)
        )
        pd.testing.assert_frame_equal(usual, other, check_exact=True)


def test_a_lone_prompt_waits_for_its_bytes_over_the_link():
    near, far = one(0.75, 0.0), one(0.75, 1.0)
    # 3,072 tokens of 128 KiB on two GPUs, at 78 % of 64 GB/s.
    seconds = 3072 * 131_072 / 2 / (64e9 * parameters().scale_out)
    assert far["time_to_first_token"] - near["time_to_first_token"] == pytest.approx(seconds, rel=1e-9)
    assert far["decode_step_time"] == near["decode_step_time"]
    assert far["memory_total"] == near["memory_total"]


@settings(max_examples=30, deadline=None)
@given(
    hits=st.floats(0.05, 1.0),
    share=st.floats(0.05, 1.0),
    rate=st.sampled_from((0.5, 2.0, 8.0, 64.0, 450.0)),
    tensor=st.sampled_from((1, 8)),
    pipeline=st.sampled_from((1, 2)),
)
def test_host_memory_is_never_worse_than_computing_nor_better_than_the_gpus_own(
    hits: float, share: float, rate: float, tensor: int, pipeline: int
):
    how = {"tensor_par": tensor, "pipeline_par": pipeline}
    own, host, none = (
        one(hits, 0.0, **how),
        one(hits, share, system=link(rate), **how),
        one(hits * (1 - share), 0, **how),
    )
    faster = one(hits, share, system=link(2 * rate), **how)
    for name in LATENCIES:
        assert own[name] <= faster[name] * (1 + 1e-12)
        assert faster[name] <= host[name] * (1 + 1e-12)
        assert host[name] <= none[name] * (1 + 1e-12)


def test_a_slow_link_is_not_used():
    slow, none = one(0.8, 1.0, system=link(0.1)), one(0.0, 0.0)
    for name in LATENCIES:
        assert slow[name] == none[name]


def test_host_memory_bounds_the_requests_whose_hits_it_holds():
    # A request's 4,096 tokens of 64 KiB on each of two GPUs are 256 MiB.
    assert one(1.0, 1.0, host=4.0)["largest_batch"] == 16
    assert one(1.0, 1.0, host=4.0, batch=16)["status"] == "ok"
    over = one(1.0, 1.0, host=4.0, batch=17)
    assert over["reason"] == "host_memory"
    assert "4.25 GiB of host memory per GPU, but there are 4.0 GiB" in over["reason_text"]
    assert pd.isna(over["tokens_per_s"])
    found = serving.explore(
        "llama-3-8B",
        "h200_141g_sxm",
        num_procs=2,
        prompt=4096,
        output=256,
        limits={"tensor_par": 2, "batch": [16, 32], "weight_bits": 16, "kv_bits": 16, "launch": "graphs"},
        assumptions=Assumptions(prefix_hit_rate=1.0, host_hit_share=1.0, host_cache_gib=4.0),
    )
    assert found.rejected["host_memory"] == 1
    assert found.best is not None
    assert found.best["batch"] == 16
    with pytest.raises(WorkloadError, match="has 256 GiB of host memory per GPU"):
        one(0.5, 0.5, host=300.0)
    with pytest.raises(WorkloadError, match="has no host memory; host_hit_share must be 0"):
        one(0.5, 0.5, system="trainium2_96g")
    with pytest.raises(ValueError, match="host_hit_share is 2; it must be a share from 0 to 1"):
        Assumptions(host_hit_share=2)
    with pytest.raises(ValueError, match="host_cache_gib is 0; it must be above 0"):
        Assumptions(host_cache_gib=0)


def test_services_and_pools_take_hits_in_host_memory():
    asked: dict[str, Any] = {"load": serving.ServiceLoad(request_rate=40.0), "prompt": 4096, "output": 256}
    limits = {"weight_bits": 16, "kv_bits": 16, "launch": "graphs", "tensor_par": [1, 2], "pipeline_par": 1}
    bounds: dict[str, Any] = {"limits": limits, "time_to_first_token": 1.0, "time_per_output_token": 0.05}
    for size in (serving.size_service, serving.size_pools):
        gpus = []
        for hits, share in ((0.9, 0.0), (0.9, 1.0), (0.0, 0.0)):
            terms = Assumptions(prefix_hit_rate=hits, host_hit_share=share)
            best = size("llama-3-8B", "h100_80g_sxm", **asked, **bounds, assumptions=terms).best  # type: ignore[operator]
            gpus.append(best.gpus if size is serving.size_pools else best["gpus"])
        assert gpus == sorted(gpus)


def test_every_door_and_engine_has_the_same_host_cache(shardscape: Callable[..., tuple[int, str, str]]):
    question = {"model": "llama-3-8B", "system": "h100_80g_sxm", "num_procs": 1, "prompt": 4096, "output": 128}
    limits = {"weight_bits": 8, "batch": [8, 64], "launch": "graphs"}
    terms = {"prefix_hit_rate": 0.5, "host_hit_share": 0.4, "host_cache_gib": 100.0}
    found = answer("find_deployments", {**question, "limits": limits, **terms})
    words = ("--num-procs", 1, "--prompt", 4096, "--output", 128, "--limit", "weight_bits=8", "--limit", "batch=8,64")
    more = ("--limit", "launch=graphs", "--prefix-hits", 0.5, "--host-hits", 0.4, "--host-cache", 100, "--json")
    code, out, _ = shardscape("inference", "llama-3-8B", "h100_80g_sxm", *words, *more)
    assert code == 0
    assert json.loads(out)["best"] == found["best"]
    python = serving.evaluate(
        "llama-3-8B", "h100_80g_sxm", pd.DataFrame([found["best"]]), assumptions=Assumptions(**terms)
    )
    assert python["time_to_first_token"][0] == found["best"]["time_to_first_token"]

    flags = {}
    for engine in launch.ENGINES:
        deployment = {"tensor_par": 4, "pipeline_par": 2, "batch": 16}
        made = launch.write_deployment(deployment, "llama-3-8B", to=engine, settings={"host_cache_gib": 32.0})
        flags[engine] = made.flags["server"]
        read = launch.read_engine_text(made.files[0].text, made.files[0].name)
        assert read.host_cache_gib == pytest.approx(32.0, rel=0.03)  # SGLang has whole gigabytes
        assert not read.not_modelled
        assert any("state which share" in each for each in read.remarks)
    assert flags["vllm"]["--kv-offloading-size"] == 256
    assert {"--enable-hierarchical-cache": True, "--hicache-size": 34}.items() <= flags["sglang"].items()
    assert flags["trtllm"]["kv_cache_config"]["host_cache_size"] == 32 * 2**30


def test_terms_that_change_nothing_are_named(shardscape: Any) -> None:
    words = ("llama-3-8B", "h100_80g_sxm", "--prompt", 1024, "--output", 128, "--host-cache", 16)
    sentence = "Host memory for the cache changes nothing: no hits in host memory are stated."
    for command in (("inference", *words, "--num-procs", 1), ("service", *words, "--rate", 2)):
        assert sentence in shardscape(*command)[1]
        assert json.loads(shardscape(*command, "--json")[1])["ineffective"] == [sentence]
        used = (*command, "--host-hits", 0.5, "--prefix-hits", 0.5)
        assert json.loads(shardscape(*used, "--json")[1])["ineffective"] == []
    asked = {"model": "llama-3-8B", "system": "h100_80g_sxm", "prompt": 1024, "output": 128, "host_hit_share": 0.5}
    (said,) = answer("plan_day", {**asked, "peak_rate": 2.0})["ineffective"]
    assert said == "Hits in host memory change nothing: no hits of the prefix cache are stated."
