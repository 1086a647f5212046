"""Settings of what is loaded besides the weights: what an engine cannot say, and what no flag tells."""

from __future__ import annotations

from typing import Any

import pytest

from engine import launch
from engine.launch import LaunchError

MIXTURE = "gpt-oss-120B"
DRAFT = {"draft_checkpoint": "a/draft", "draft_tokens": 3}
SHARED = {"tensor_par": 2, "expert_par": 8, "replicas": 4, "batch": 8}
"""Replicas of two GPUs that share their experts."""


def written(engine: str, settings: dict[str, Any], model: str = "llama-3-8B", **fields: Any) -> Any:
    return launch.write_deployment({"tensor_par": 2, "batch": 8, **fields}, model, to=engine, settings=settings)


def test_sglang_has_no_draft_model_with_attention_data_parallelism():
    with pytest.raises(LaunchError, match=r"no draft model where replicas share experts.*expert_par up to 2"):
        written("sglang", DRAFT, MIXTURE, **SHARED)
    flags = written("sglang", DRAFT, MIXTURE, **{**SHARED, "expert_par": 2}).flags["server"]
    assert flags["--speculative-algorithm"] == "STANDALONE"
    assert "--attn-dp-size" not in flags
    # The model's own prediction layers start with it.
    assert written("sglang", {"mtp_tokens": 1}, MIXTURE, **SHARED).flags["server"]["--attn-dp-size"] == 4


def test_sglang_says_that_host_memory_is_rounded():
    for gib, size, is_rounded in ((0.5, 1, True), (32.0, 34, True), (1e9 * 5 / 2**30, 5, False)):
        made = written("sglang", {"host_cache_gib": gib})
        assert made.flags["server"]["--hicache-size"] == size
        assert any(f"per GPU: {size} GB" in each for each in made.remarks) == is_rounded


@pytest.mark.parametrize("engine", list(launch.ENGINES))
def test_pools_of_vllm_have_no_host_cache(engine: str):
    deployment = {"tensor_par": 1, "batch": 8}
    settings = {"host_cache_gib": 8.0}
    made = launch.write_deployment(deployment, "llama-3-8B", to=engine, prefill=deployment, settings=settings)
    assert ("host_cache_gib" in made.unsaid) == (engine == "vllm")
    assert "--kv-offloading-size" not in str(made.flags)
    read = launch.read_engine_text("\n".join(each.text for each in made.files), "both.sh")
    assert (read.host_cache_gib is None) == (engine == "vllm")


def test_the_size_of_lmcache_is_no_host_cache_of_vllm():
    command = "vllm serve a/b --tensor-parallel-size 2 --kv-offloading-size 64"
    assert launch.read_engine_text(command, "serve.sh").host_cache_gib == 32
    read = launch.read_engine_text(f"{command} --kv-offloading-backend lmcache", "serve.sh")
    assert read.host_cache_gib is None
    assert read.not_modelled == ["--kv-offloading-backend lmcache"]


@pytest.mark.parametrize("engine", list(launch.ENGINES))
@pytest.mark.parametrize("settings", [DRAFT, {"mtp_tokens": 2}])
def test_no_figure_of_a_file_has_speculation_and_it_says_so(engine: str, settings: dict[str, Any]):
    made = written(engine, settings)
    read = launch.read_engine_text(made.files[0].text, made.files[0].name)
    drafted = read.mtp_tokens if "mtp_tokens" in settings else (read.speculation or {}).get("draft_tokens")
    assert drafted == settings.get("mtp_tokens", 3)
    assert sum("is in no figure" in each for each in read.remarks) == 1


def test_open_draft_tokens_are_no_silent_one():
    read = launch.read_engine_text('vllm serve a/b --speculative-config \'{"method": "mtp"}\'', "serve.sh")
    assert read.mtp_tokens == 1
    assert "num_speculative_tokens is not stated: the checkpoint decides; read as 1." in read.remarks


def test_a_chain_that_states_its_checked_tokens_drafts_one_less():
    flags = "--speculative-draft-model-path a/draft --speculative-num-draft-tokens 4"
    text = f"python3 -m sglang.launch_server --model-path a/b --speculative-algorithm STANDALONE {flags}"
    read = launch.read_engine_text(text, "serve.sh")
    assert read.speculation == {"kind": "standalone", "draft_tokens": 3}


def test_adapters_of_experts_are_named_where_an_engine_has_them():
    settings = {"lora_adapters": 2, "lora_rank": 16}
    dense, mixture = (written("vllm", settings, model, tensor_par=2) for model in ("llama-3-8B", MIXTURE))
    assert not any("routed experts" in each for each in dense.remarks)
    assert any("routed experts" in each for each in mixture.remarks)
    modules = [
        written("trtllm", settings, model).flags["server"]["lora_config"]["lora_target_modules"]
        for model in ("llama-3-8B", MIXTURE)
    ]
    assert {each for each in modules[1] if each not in modules[0]} == {
        "shared_expert_gate",
        "shared_expert_h_to_4h",
        "shared_expert_4h_to_h",
    }
