"""Published configurations of serving engines, and the deployments that they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine import launch
from engine.launch.contract import LaunchError

FOLDER = Path(__file__).parents[3] / "reference" / "serving_engines"
FIXTURES: list[dict[str, Any]] = json.loads((FOLDER / "fixtures.json").read_text("utf-8"))["fixtures"]
PARTS = ("flags", "yaml", "pools", "gpus", "environment")
READ = (
    "deployment",
    "pools",
    "engine",
    "prefix_cache",
    "chunk",
    "max_length",
    "memory_fraction",
    "mtp_tokens",
    "speculation",
    "weight_bits_hint",
    "rejected_by_us",
    "left",
    "not_modelled",
)


@pytest.mark.parametrize("fixture", [pytest.param(each, id=each["id"]) for each in FIXTURES])
def test_a_published_configuration_is_read_field_by_field(fixture: dict[str, Any]) -> None:
    found = launch.read_engine(fixture["engine"], **{name: fixture.get(name) for name in PARTS})
    expected = {"left": [], "not_modelled": []} | fixture["expected"]
    assert {name: getattr(found, name) for name in READ} == {name: expected.get(name) for name in READ}
    assert not found.unread
    assert found.gpus == fixture["gpus"]
    pools = [found.deployment] if found.pools is None else list(found.pools.values())
    counted = [pool["tensor_par"] * pool["pipeline_par"] * pool["replicas"] for pool in pools if pool is not None]
    assert sum(counted) == fixture["gpus"]


@pytest.mark.parametrize(
    ("engine", "parts", "told"),
    [
        ("vlm", {}, "did you mean 'vllm'"),
        ("vllm", {"flags": {"--tensor-parallel-size": "four"}}, "--tensor-parallel-size is 'four'"),
        ("vllm", {"flags": {"--gpu-memory-utilization": 90}}, "a share above 0"),
        ("vllm", {"flags": {"--speculative-config": "{broken"}}, "valid JSON"),
        ("vllm", {"flags": ["--tensor-parallel-size"]}, "flags must be a table"),
        ("vllm", {"pools": [{"role": "router"}]}, "must be prefill, decode or agg"),
        ("vllm", {"pools": []}, "a list of 1 to 8 servers"),
        ("sglang", {"flags": {"--tp": 8, "--attn-dp-size": 3}}, "does not divide the tensor parallel degree 8"),
        ("trtllm", {"yaml": {"tensor_parallel_size": 8, "moe_expert_parallel_size": 3}}, "does not divide"),
        ("trtllm", {"yaml": {"kv_cache_config": {"free_gpu_memory_fraction": 90}}}, "a share from 0 to 1"),
        ("vllm", {"gpus": "many"}, "The number of GPUs is 'many'"),
        ("vllm", {"environment": ["TP=8"]}, "must be a table"),
    ],
)
def test_an_impossible_configuration_is_one_sentence(engine: str, parts: dict[str, Any], told: str) -> None:
    with pytest.raises(LaunchError, match=told) as raised:
        launch.read_engine(engine, **parts)
    assert "\n" not in str(raised.value)


def test_an_unknown_flag_is_named_with_the_nearest_one() -> None:
    found = launch.read_engine("vllm", flags={"--tensor-parallel-sise": 4, "--block-size": 16, "-tp": 2})
    assert found.unread == [
        "--tensor-parallel-sise is not an argument of vLLM 0.33.0; did you mean --tensor-parallel-size?"
    ]
    assert found.without_effect == ["--block-size"]
    assert found.deployment is not None
    assert found.deployment["tensor_par"] == 2


def test_a_value_from_outside_stays_open() -> None:
    found = launch.read_engine("sglang", flags={"--model": "openai/gpt-oss-120b", "--tp": "$TP", "--ep": "${EP:-1}"})
    assert found.deployment is not None
    assert "tensor_par" not in found.deployment
    assert "tensor_par" in found.left
    assert any("$TP comes from outside" in each for each in found.remarks)


def test_experts_of_data_parallel_ranks_follow_the_kind_of_model() -> None:
    flags = {"--data-parallel-size": 4}
    dense = launch.read_engine("vllm", flags={"model": "meta-llama/Llama-3.1-8B-Instruct", **flags})
    assert dense.rejected_by_us is None
    assert dense.deployment is not None
    assert dense.deployment["replicas"] == 4
    mixture = launch.read_engine("vllm", flags={"model": "mistralai/Mixtral-8x7B-Instruct-v0.1", **flags})
    assert mixture.rejected_by_us is not None
    assert "sliced over 4 ranks" in mixture.rejected_by_us
