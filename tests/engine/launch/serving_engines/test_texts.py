"""Files of serving engines as people have them: scripts, manifests, values, recipes, and broken ones."""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from engine import launch
from engine.launch import LaunchError

SCRIPT = """#!/usr/bin/env bash
export TP=8
CONC=${CONC:-64}
cat > config.yaml << EOF
no-enable-prefix-caching: true
max-num-batched-tokens: $((4 * 2048))
max-model-len: 10240
EOF
vllm serve openai/gpt-oss-120b --host 0.0.0.0 --port $PORT --config config.yaml \\
  --tensor-parallel-size $TP --max-num-seqs $CONC > server.log 2>&1 &
"""
GROUP = """apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: decode}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    workerTemplate:
      spec:
        containers:
        - name: vllm
          image: example.org/vllm
          command: [/bin/bash, -c]
          args:
          - |-
            START=$(( ${LWS_WORKER_INDEX:-0} * LOCAL ))
            exec vllm serve deepseek-ai/DeepSeek-R1-0528 \\
              --enable-expert-parallel --tensor-parallel-size $TP \\
              --data-parallel-size $((LWS_GROUP_SIZE * LOCAL)) --data-parallel-size-local $LOCAL \\
              --data-parallel-start-rank $START --data-parallel-address ${LWS_LEADER_ADDRESS}
          env:
          - {name: LOCAL, value: "8"}
          - {name: TP, value: "1"}
          resources: {limits: {nvidia.com/gpu: "8"}}
"""
GRAPH = """apiVersion: v1
kind: ConfigMap
metadata: {name: engine}
data:
  prefill.yaml: |
    tensor_parallel_size: 4
    moe_expert_parallel_size: 4
    enable_attention_dp: true
    cuda_graph_config: null
  decode.yaml: |
    tensor_parallel_size: 32
    moe_expert_parallel_size: 32
    enable_attention_dp: true
---
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: graph}
spec:
  envs:
  - {name: MODEL_PATH, value: /models/deepseek-r1-fp4}
  services:
    Frontend: {componentType: frontend, replicas: 1}
    PrefillWorker:
      componentType: worker
      subComponentType: prefill
      replicas: 1
      resources: {limits: {gpu: "4"}}
      extraPodSpec:
        mainContainer:
          command: [/bin/sh, -c]
          args: ["python3 -m dynamo.trtllm --model-path $MODEL_PATH --extra-engine-args /config/prefill.yaml"]
    DecodeWorker:
      componentType: worker
      subComponentType: decode
      replicas: 1
      multinode: {nodeCount: 8}
      resources: {limits: {gpu: "4"}}
      extraPodSpec:
        mainContainer:
          command: [python3, -m, dynamo.trtllm]
          args: [--model-path, $(MODEL_PATH), --extra-engine-args, /config/decode.yaml]
"""
VALUES = """modelArtifacts:
  uri: "hf://meta-llama/Llama-3.3-70B-Instruct"
decode:
  replicas: 1
  parallelism: {tensor: 4}
  containers:
  - name: vllm
    modelCommand: vllmServe
    args: ["--max-num-seqs", "64"]
prefill:
  replicas: 4
  parallelism: {tensor: 1}
  containers:
  - name: vllm
    modelCommand: vllmServe
    args: []
"""
RECIPE = """name: pair
model: {path: deepseek, container: image, precision: fp4}
resources: {gpu_type: gb200, prefill_nodes: 6, decode_nodes: 8, prefill_workers: 3, decode_workers: 1, gpus_per_node: 4}
backend:
  type: sglang
  sglang_config:
    prefill:
      tensor-parallel-size: 8
      attn-dp-size: 8
      expert-parallel-size: 8
      max-running-requests: 128
    decode:
      tensor-parallel-size: 32
      attn-dp-size: 32
      moe-a2a-backend: deepep
benchmark: {type: sa-bench, isl: 8192, osl: 1024}
"""


def test_a_script_is_read_with_its_variables_and_the_file_that_it_writes() -> None:
    found = launch.read_engine_text(SCRIPT, "serve.sh", environment={"CONC": "32"})
    assert found.deployment == {
        "tensor_par": 8,
        "pipeline_par": 1,
        "expert_par": 1,
        "replicas": 1,
        "batch": 32,
        "launch": "graphs",
    }
    assert (found.prefix_cache, found.max_length, found.model_name) == (False, 10_240, "gpt-oss-120B")
    twice = launch.read_engine_text(SCRIPT, "serve.sh", gpus=16)
    assert twice.deployment is not None
    assert (twice.deployment["replicas"], twice.deployment["batch"]) == (2, 64)


def test_a_file_that_a_script_writes_in_branches_has_the_parts_of_those_it_takes() -> None:
    script = """FILE=engine.yml
BATCH=$CONC
if [[ "$DP" == "true" ]]; then
    BATCH=$(( CONC / 4 ))
fi
cat > $FILE << EOF
enable_attention_dp: $DP
kv_cache_config: {dtype: fp8, enable_block_reuse: false}
EOF
if [[ "$DP" == "true" ]]; then
    cat << EOF >> $FILE
attention_dp_config: {enable_balance: true}
EOF
fi
if [[ "$GRAPHS" == "false" ]]; then
    cat << EOF >> $FILE
cuda_graph_config: null
EOF
fi
mpirun -n 1 trtllm-serve nvidia/DeepSeek-R1-0528-FP4 --tp_size=8 --ep_size=8 --max_batch_size=$BATCH \\
  --extra_llm_api_options=$FILE "${EMPTY[@]}"
"""
    variables = {"DP": "true", "CONC": "256", "GRAPHS": "true"}
    found = launch.read_engine_text(script, "serve.sh", environment=variables)
    assert found.deployment == {
        "tensor_par": 1,
        "pipeline_par": 1,
        "expert_par": 8,
        "replicas": 8,
        "batch": 64,
        "kv_bits": 8,
        "launch": "graphs",
    }
    assert (found.not_modelled, found.prefix_cache) == (["attention_dp_config"], False)
    eager = launch.read_engine_text(script, "serve.sh", environment=variables | {"GRAPHS": "false", "DP": "false"})
    assert eager.deployment is not None
    assert (eager.deployment["launch"], eager.deployment["tensor_par"], eager.not_modelled) == ("eager", 8, [])


def test_a_group_of_pods_counts_nodes_and_replicas() -> None:
    found = launch.read_engine_text(GROUP, "lws.yaml")
    assert found.deployment is not None
    assert found.gpus == 32
    assert (found.deployment["expert_par"], found.deployment["replicas"]) == (16, 32)


def test_a_graph_takes_the_engines_yaml_from_its_config_map() -> None:
    found = launch.read_engine_text(GRAPH, "deploy.yaml")
    assert found.pools is not None
    assert {role: (pool["replicas"], pool["launch"]) for role, pool in found.pools.items()} == {
        "prefill": (4, "eager"),
        "decode": (32, "graphs"),
    }
    assert (found.gpus, found.weight_bits_hint, found.model_name) == (36, 4, "deepseek-v3")
    assert not any("not at hand" in each for each in found.remarks)


def test_values_of_llm_d_and_a_recipe_of_srt_slurm_are_pools() -> None:
    values = launch.read_engine_text(VALUES, "values.yaml")
    assert values.pools is not None
    assert (values.pools["decode"]["tensor_par"], values.pools["prefill"]["replicas"], values.gpus) == (4, 4, 8)
    assert values.model_name == "llama-3.3-70B"
    recipe = launch.read_engine_text(RECIPE, "recipe.yaml")
    assert recipe.pools is not None
    assert (recipe.prompt, recipe.output, recipe.weight_bits_hint, recipe.gpus) == (8192, 1024, 4, 56)
    assert (recipe.pools["prefill"]["batch"], recipe.pools["decode"]["expert_par"]) == (16, 32)
    assert recipe.left == ["weight_bits", "kv_bits"]


def test_aliases_and_merged_tables_are_their_values() -> None:
    prefill = RECIPE.replace("    prefill:\n", "    prefill: &pool\n")
    start, _, end = prefill.partition("    decode:\n")
    tail = end[end.index("benchmark:") :]
    merged = launch.read_engine_text(
        f"{start}    decode:\n      <<: [*pool, {{tensor-parallel-size: 64, stream-interval: 2}}]\n"
        f"      max-running-requests: 2048\n{tail}",
        "recipe.yaml",
    )
    assert merged.pools is not None
    decode = merged.pools["decode"]
    assert (decode["expert_par"], decode["replicas"], decode["batch"]) == (8, 8, 256)
    assert merged.without_effect == ["stream-interval"]


def test_a_file_that_a_script_writes_has_its_arithmetic_and_leaves_other_expressions_open() -> None:
    script = """cat > engine.yml << EOF
max_num_tokens: $(( (MTP + 1) * 64 ))
max_seq_len: ${LENGTH:-4096}
cuda_graph_config: {batch_sizes: [${SIZES%, }], max_batch_size: 64}
kv_cache_config: {dtype: $(choose fp8), free_gpu_memory_fraction: $SHARE}
EOF
trtllm-serve openai/gpt-oss-120b --tp_size 4 --extra_llm_api_options engine.yml
"""
    found = launch.read_engine_text(script, "serve.sh", environment={"MTP": "3", "LENGTH": "8192"})
    assert (found.chunk, found.max_length, found.memory_fraction) == (256, 8192, None)
    assert found.deployment is not None
    assert "kv_bits" not in found.deployment
    assert any("$SHARE comes from outside" in each for each in found.remarks)
    stated = launch.read_engine("trtllm", yaml={"kv_cache_config": {"dtype": "$KIND"}}, environment={"KIND": "fp8"})
    assert stated.deployment is not None
    assert stated.deployment["kv_bits"] == 8


def test_the_commands_of_two_nodes_are_one_deployment_and_other_ports_are_copies() -> None:
    command = "vllm serve deepseek-ai/DeepSeek-R1 --data-parallel-size 16 -ep --data-parallel-size-local 8"
    nodes = f"{command}\n{command} --headless --data-parallel-start-rank 8\n"
    found = launch.read_engine_text(nodes, "serve.sh")
    assert (found.gpus, found.deployment and found.deployment["replicas"]) == (16, 16)
    copies = "".join(f"vllm serve Qwen/Qwen3-8B --port {8000 + number} &\n" for number in range(3))
    copied = launch.read_engine_text(copies, "serve.sh")
    assert (copied.gpus, copied.deployment and copied.deployment["replicas"]) == (3, 3)


HEAD = "apiVersion: v1\nkind: Pod\n"
BOMB = HEAD + "k0: &k0 [x, x]\n" + "".join(f"k{n}: &k{n} [*k{n - 1}, *k{n - 1}]\n" for n in range(1, 40))
CHAIN = HEAD + "k0: &k0 [x]\n" + "".join(f"k{n}: &k{n} [*k{n - 1}]\n" for n in range(1, 3_000))


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        (BOMB, "deploy.yaml", "once its aliases are put in"),
        (CHAIN, "deploy.yaml", "nested"),
        (HEAD + "spec: &x {containers: [*x]}\n", "deploy.yaml", "inside its own value"),
        (HEAD + "spec: {<<: 4}\n", "deploy.yaml", "merges what is no table"),
        (HEAD + "context_servers: {tensor_parallel_size: 2}\n", "deploy.yaml", "generation_servers must be a table"),
        ("apiVersion: v1\nkind: Pod\nkind: Pod\n", "deploy.yaml", "twice"),
        ("apiVersion: v1\nkind: Pod\nspec:\n\tcontainers: []\n", "deploy.yaml", "not YAML"),
        ("apiVersion: v1\nkind: Pod\nspec: {{ .Values.x }}\n", "deploy.yaml", "render it first"),
        ("apiVersion: v1\nkind: Pod\n", "deploy.yaml", "starts no server"),
        ("---\n" * 60 + "a: 1\n", "deploy.yaml", "no launch configuration|documents"),
        ("x: " + "[" * 5000, "deploy.yaml", "YAML|nested"),
        ("a: " + "b" * 400_000, "deploy.yaml", "characters"),
        ("echo hello\n", "serve.sh", "starts no server"),
        ("vllm serve m -tp 4\npython -m sglang.launch_server --tp 4\n", "serve.sh", "sglang and vllm"),
        ("vllm serve m --tensor-parallel-size=4.5\n", "serve.sh", "a whole number"),
        ("\0vllm serve\n", "serve.sh", "not text"),
        (b"\xff\xfe\x00vllm", "serve.sh", "no text"),
        ("vllm serve " + "x" * 3_000_000, "serve.sh", "too long"),
    ],
)
def test_a_broken_file_is_one_sentence(text: str | bytes, name: str, told: str) -> None:
    with pytest.raises(LaunchError, match=told) as raised:
        launch.read_engine_text(text, name)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 400


DISAGGREGATED = """model: m
context_servers: {num_instances: 2, tensor_parallel_size: 4, kv_cache_config: {dtype: fp8}}
generation_servers: {num_instances: 1, tensor_parallel_size: 8, speculative_config: {decoding_type: MTP}}
"""
WRONG: list[Any] = [
    *(None, True, 0, -1, 1.5, 10**30, float("inf"), float("nan"), "", "a b", "$X", "$(rm -rf /)", "`x`", "--tp"),
    *([], [None], {}, {"a": [{}]}, '{"a":', "9" * 400, "\u2028", [[[]]], "prefill"),
]


def list_places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every table or list within a value with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from list_places(value[key])


@pytest.mark.parametrize("text", [GROUP, GRAPH, VALUES, RECIPE, DISAGGREGATED])
def test_a_manifest_with_wrong_values_is_read_or_refused_in_one_sentence(text: str) -> None:
    drawn = random.Random(7)
    for _ in range(150):
        documents = list(yaml.safe_load_all(text))
        for _ in range(drawn.randint(1, 3)):
            table, key = drawn.choice(list(list_places(documents)) or [([0], 0)])
            if drawn.random() < 0.25:
                del table[key]
            else:
                table[key] = copy.deepcopy(drawn.choice(WRONG))
        try:
            launch.read_engine_text(yaml.safe_dump_all(documents), "a.yaml")
        except LaunchError as refused:
            told = str(refused)
        else:
            continue
        assert len(told) < 400
        assert "\n" not in told


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_are_read_or_refused_within_time(seed: int) -> None:
    drawn = random.Random(seed)
    pieces = [
        "$(",
        "`",
        "'",
        '"',
        "{{",
        "\t",
        "&x",
        "*x",
        "null",
        "-1",
        "9" * 400,
        "--tp",
        "<<EOF",
        "${A:-",
        ": ",
        "\n- ",
    ]
    for name, text in (("a.sh", SCRIPT), ("b.yaml", GROUP), ("c.yaml", GRAPH), ("d.yaml", VALUES), ("e.yaml", RECIPE)):
        for _ in range(25):
            changed = list(text)
            for _ in range(drawn.randint(1, 12)):
                place = drawn.randrange(len(changed))
                changed[place : place + drawn.randint(0, 8)] = drawn.choice(pieces)
            started = time.monotonic()
            try:
                launch.read_engine_text("".join(changed), name)
            except LaunchError as refused:
                told = str(refused)
                assert told, name
            assert time.monotonic() - started < 5
