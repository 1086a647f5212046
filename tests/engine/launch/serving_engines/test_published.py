"""Published configurations of serving engines, and the deployments that they are."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

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


PROGRAMS = {"vllm": "vllm serve", "sglang": "python -m sglang.launch_server", "trtllm": "trtllm-serve"}
SERVERS = [each for each in FIXTURES if not each["form"].startswith("srt")]  # recipes: test_texts


def command_of(program: str, flags: dict[str, Any], file: str = "") -> str:
    """Return the command line of flags; variables stay for the shell."""
    words = [program]
    for name, value in flags.items():
        for each in value if isinstance(value, list) else [value]:
            text = json.dumps(each) if isinstance(each, dict) else str(each)
            quoted = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
            words += [quoted] if name == "model" else [name] if each is True else [name, quoted]
    return " ".join([*words, *([file] if file else [])])


def text_of(fixture: dict[str, Any]) -> str:
    """Return a fixture as a script, or its pools as a graph of Dynamo."""
    engine = fixture["engine"]
    if "pools" not in fixture:
        file = f"cat > engine.yaml <<EOF\n{yaml.safe_dump(fixture['yaml'])}EOF\n" if fixture.get("yaml") else ""
        option = "--config engine.yaml" if file else ""
        return file + command_of(PROGRAMS[engine], fixture.get("flags") or {}, option) + "\n"
    services, files = {}, {}
    for number, pool in enumerate(fixture["pools"]):
        name = f"engine{number}.yaml"
        if pool.get("yaml"):
            files[name] = yaml.safe_dump(pool["yaml"])
        has_worker = "dynamo" in str(pool.get("command"))
        program = f"python3 -m dynamo.{engine}" if has_worker else PROGRAMS[engine]
        option = "" if name not in files else f"{'--extra-engine-args' if has_worker else '--config'} /files/{name}"
        services[f"worker{number}"] = {
            "subComponentType": pool["role"],
            "replicas": pool.get("replicas", 1),
            "multinode": {"nodeCount": pool.get("nodes_per_replica", 1)},
            "resources": {"limits": {"gpu": str(pool.get("gpus_per_node", 8))}},
            "extraPodSpec": {
                "mainContainer": {"command": ["sh", "-c"], "args": [command_of(program, pool["flags"], option)]}
            },
        }
    graph = {"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoGraphDeployment", "spec": {"services": services}}
    return yaml.safe_dump_all([{"apiVersion": "v1", "kind": "ConfigMap", "data": files}, graph])


@pytest.mark.parametrize("fixture", [pytest.param(each, id=each["id"]) for each in SERVERS])
def test_a_published_configuration_as_text_is_the_same_deployment(fixture: dict[str, Any]) -> None:
    environment = fixture.get("environment")
    name = "deploy.yaml" if "pools" in fixture else "serve.sh"
    gpus = None if "pools" in fixture else fixture["gpus"]
    found = launch.read_engine_text(text_of(fixture), name, gpus=gpus, environment=environment)
    parts = launch.read_engine(fixture["engine"], **{part: fixture.get(part) for part in PARTS})
    assert {each: getattr(found, each) for each in READ} == {each: getattr(parts, each) for each in READ}
    assert not found.unread
    assert found.gpus == fixture["gpus"]


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


VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1e400, float("nan"), "", "nan", "1e999", "9" * 500, '{"a":' * 5000, [], [1], {}),
    *({"a": 1}, "$X", "$(rm -rf /)", "`x`", "\0", "8.0", "8k", "\xe9", "--tp", b"x", 2**80),
]
NAMES = {
    "vllm": "-tp --data-parallel-size -ep --max-num-seqs --kv-cache-dtype --quantization --compilation-config -cc.mode "
    "--speculative-config --attention-config --kv-transfer-config --max-model-len --gpu-memory-utilization -O model "
    "--enforce-eager --eplb-config --enable-eplb --unheard-of --no-enable-prefix-caching",
    "sglang": "--tp --dp --ep --attn-dp-size --enable-dp-attention --max-running-requests --speculative-algorithm "
    "--model --speculative-num-steps --cuda-graph-max-bs --chunked-prefill-size --moe-a2a-backend "
    "--ep-num-redundant-experts",
    "trtllm": "tensor_parallel_size enable_attention_dp moe_expert_parallel_size moe_tensor_parallel_size "
    "max_batch_size kv_cache_config cuda_graph_config speculative_config max_num_tokens moe_config "
    "torch_compile_config use_cuda_graph",
}


@pytest.mark.parametrize("engine", NAMES)
def test_any_value_is_read_or_refused_in_one_sentence(engine: str) -> None:
    drawn, names = random.Random(3), NAMES[engine].split()
    for _ in range(1500):
        given = {drawn.choice(names): drawn.choice(VALUES) for _ in range(drawn.randint(1, 6))}
        parts: dict[str, Any] = {"yaml" if engine == "trtllm" else "flags": given}
        if drawn.random() < 0.3:
            pool = {"role": "decode", "replicas": drawn.choice(VALUES), "gpus_per_node": drawn.choice(VALUES), **parts}
            parts = {"pools": [pool]}
        try:
            launch.read_engine(engine, **parts, gpus=drawn.choice((None, 8, 0)), environment={"X": "4"})
        except LaunchError as refused:
            told = str(refused)
        else:
            continue
        assert len(told) < 500
        assert "\n" not in told
