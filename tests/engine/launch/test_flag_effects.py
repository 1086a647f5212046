"""Every flag that a framework knows is read, named as not modelled, or named as without effect on a prediction."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest

from engine import launch
from engine.launch.deepspeed.keys import KNOWN, ZERO_KEYS
from engine.launch.megatron.flag_effects import effect_groups, effect_of
from engine.launch.megatron.parser import Flag, flags_by_name
from engine.launch.megatron_bridge.keys import KEYS

COMMON: dict[str, Any] = {
    "--num-layers": 8,
    "--hidden-size": 256,
    "--num-attention-heads": 8,
    "--seq-length": 512,
    "--max-position-embeddings": 512,
    "--micro-batch-size": 1,
    "--global-batch-size": 64,
    "--bf16": True,
    "--tensor-model-parallel-size": 2,
    "--pipeline-model-parallel-size": 2,
    "--sequence-parallel": True,
    "--context-parallel-size": 2,
}
INDEXER = {"--dsa-indexer-n-heads": 4, "--dsa-indexer-head-dim": 32, "--dsa-indexer-topk": 256}
BASES: list[dict[str, Any]] = [
    COMMON,
    {
        **COMMON,
        "--num-experts": 8,
        "--expert-model-parallel-size": 2,
        "--num-virtual-stages-per-pipeline-rank": 2,
        "--use-distributed-optimizer": True,
        "--overlap-grad-reduce": True,
        "--overlap-param-gather": True,
        "--tp-comm-overlap": True,
        "--moe-token-dispatcher-type": "flex",
        "--group-query-attention": True,
    },
    {**COMMON, "--num-experts": 8, "--expert-model-parallel-size": 2},
    {
        **COMMON,
        "--num-experts": 8,
        "--expert-model-parallel-size": 2,
        "--moe-token-dispatcher-type": "flex",
        "--moe-flex-dispatcher-backend": "hybridep",
    },
    {
        name: value
        for name, value in COMMON.items()
        if name not in ("--sequence-parallel", "--micro-batch-size", "--tensor-model-parallel-size")
    },
    {**COMMON, "--multi-latent-attention": True, "--use-megatron-fsdp": True, "--pipeline-model-parallel-size": 1},
    {**COMMON, "--fp8-format": "hybrid", "--cpu-offloading-num-layers": 4, "--pipeline-model-parallel-size": 1},
    {**COMMON, "--use-torch-fsdp2": True, "--pipeline-model-parallel-size": 1, "--optimizer-cpu-offload": True},
    {
        **COMMON,
        "--attention-backend": "flash",
        "--cuda-graph-impl": "local",
        "--recompute-granularity": "selective",
        "--fp4-format": "e2m1",
        "--position-embedding-type": "rope",
        "--use-precision-aware-optimizer": True,
        "--fine-grained-activation-offloading": True,
    },
    {**COMMON, "--recompute-granularity": "full", "--recompute-method": "block"},
    {**COMMON, "--hybrid-layer-pattern": "MEG*|-EME", "--num-experts": 8, "--mamba-num-heads": 32},
    {**COMMON, "--hybrid-layer-pattern": "D-G-|D-G-", "--q-lora-rank": 64, **INDEXER},
    {
        **COMMON,
        "--transformer-impl": "local",
        "--no-bias-swiglu-fusion": True,
        "--no-bias-dropout-fusion": True,
        "--no-masked-softmax-fusion": True,
    },
    {**COMMON, "--transformer-impl": "local", "--no-bias-swiglu-fusion": True, "--no-bias-dropout-fusion": True},
    {**COMMON, "--transformer-impl": "local", "--no-bias-swiglu-fusion": True, "--no-masked-softmax-fusion": True},
    {**COMMON, "--transformer-impl": "local", "--no-masked-softmax-fusion": True, "--no-bias-dropout-fusion": True},
    {
        name: value
        for name, value in COMMON.items()
        if name not in ("--bf16", "--global-batch-size", "--num-layers", "--seq-length")
    },
    {"--fp16": True, **{name: value for name, value in COMMON.items() if name != "--bf16"}},
]
SPECIAL: dict[str, Any] = {
    "pipeline_model_parallel_layout": "Ettt|tttttL",
    "moe_layer_freq": 2,
    "cp_comm_type": "a2a",
    "recompute_modules": "mlp",
    "position_embedding_type": "rope",
    "rampup_batch_size": [8, 8, 100],
    "step_batch_size_schedule": "0:32 100:64",
    "hybrid_layer_pattern": "M*",
    "hybrid_override_pattern": "M*",
    "offload_modules": "attn_norm",
    "cuda_graph_modules": "attn",
    "cuda_graph_scope_deprecated": "attn",
}


def other_value(flag: Flag) -> Any:
    """A value of a flag that is not its default."""
    if flag.destination in SPECIAL:
        return SPECIAL[flag.destination]
    if flag.is_bare:
        return True
    if flag.choices:
        found = next((each for each in reversed(flag.choices) if each != str(flag.default)), flag.choices[0])
        return [found] if flag.kind in ("many", "three") else found
    value: Any = {"int": 8 if flag.default == 16 else 16, "float": 0.25}.get(
        flag.type, "true" if flag.type == "bool" else "other"
    )
    return [value] * 3 if flag.kind == "three" else [value] if flag.kind == "many" else value


def said(reading: launch.LaunchReading) -> tuple[Any, ...]:
    return (
        reading.execution,
        reading.model,
        reading.left,
        reading.remarks,
        reading.refused,
        reading.not_modelled,
        reading.unread,
    )


FLAGS = sorted({flag.destination: flag for flag in flags_by_name().values()}.values(), key=lambda flag: flag.name)


def test_no_flag_of_megatron_is_swallowed() -> None:
    """The parser's whole list, each flag at a value that is not its default."""
    swallowed = []
    before = [said(launch.read_flags("megatron", base, gpus=64)) for base in BASES]
    for flag in FLAGS:
        effect, read = effect_of(flag.destination), False
        for base, plain in zip(BASES, before, strict=True):
            found = launch.read_flags("megatron", {**base, flag.name: other_value(flag)}, gpus=64)
            assert not found.unread, (flag.name, found.unread)
            if effect.effect == "none":
                assert flag.name in found.without_effect
                assert said(found) == plain, flag.name
            elif effect.effect == "not modelled":
                assert any(each.split()[0] == flag.name for each in found.not_modelled), flag.name
            changed = said(found) != plain
            if effect.effect == "read in patterns" and not changed and base.get(flag.name) is None:
                swallowed.append(flag.name)
            read = read or changed
            if effect.effect not in ("read", "read in patterns") or (read and effect.effect == "read"):
                break
        if not read and effect.effect != "none":
            swallowed.append(flag.name)
    assert swallowed == []


def test_the_table_of_effects_has_every_argument_of_the_parser() -> None:
    assert [flag.name for flag in FLAGS if not effect_of(flag.destination).about] == []
    assert {effect.effect for effect, _ in effect_groups()} == {"read", "read in patterns", "not modelled", "none"}


def keys_of(framework: str) -> list[list[Any]]:
    text = (files("engine.launch") / framework / "parser_keys.json").read_text("utf-8")
    return json.loads(text)["keys"]


TITAN = {
    "parallelism.tensor_parallel_degree": 2,
    "parallelism.pipeline_parallel_degree": 2,
    "model.name": "llama3",
    "model.flavor": "8B",
    "compile.enable": True,
    "parallelism.pipeline_parallel_schedule": "DualPipeV",
    "parallelism.expert_parallel_degree": 2,
    "training.local_batch_size": 8,
    "activation_checkpoint.mode": "none",
    "parallelism.context_parallel_degree": 2,
}
MAXTEXT = {
    "base_emb_dim": 2048,
    "ici_fsdp_parallelism": 8,
    "dcn_data_parallelism": 1,
    "num_experts": 8,
    "per_device_batch_size": 8,
    "dcn_pipeline_parallelism": 2,
    "ici_tensor_parallelism": 1,
    "remat_policy": "custom",
}
BASES_OF = {
    "torchtitan": [
        TITAN,
        {},
        {"model.name": "deepseek_v3", "model.flavor": "671B"},
        {
            "module": "llama3",
            "config": "llama3_8b",
            "parallelism.tensor_parallel_degree": 2,
            "training.num_tokens_per_microbatch_per_dp_rank": 8192,
            "training.max_context_length": 8192,
        },
        {
            "parallelism.pipeline_parallel_degree": 2,
            "parallelism.pipeline_parallel_schedule": "Interleaved1F1B",
            "parallelism.pipeline_parallel_layers_per_stage": 4,
            "model.name": "llama3",
            "model.flavor": "8B",
        },
    ],
    "maxtext": [
        MAXTEXT,
        {"attention_type": "mla", "base_emb_dim": 2048, "ici_fsdp_parallelism": 8, "dcn_data_parallelism": 2},
        {
            "base_emb_dim": 2048,
            "ici_fsdp_parallelism": 1,
            "ici_tensor_parallelism": 2,
            "ici_expert_parallelism": 4,
            "dcn_data_parallelism": 2,
            "num_experts": 8,
        },
    ],
}


def value_for(type_: str, choices: list[str], default: Any) -> Any:
    """A value of a key that is not its default."""
    if choices:
        return next((each for each in choices if str(each) != str(default)), choices[0])
    if "bool" in type_:
        return not default
    if "int" in type_ or "float" in type_.lower():
        return 4 if default != 4 else 2
    return ["other"] if "list" in type_ else "other"


@pytest.mark.parametrize("framework", ["torchtitan", "maxtext"])
def test_no_known_key_is_swallowed(framework: str) -> None:
    plain = [said(launch.read_flags(framework, base, gpus=16)) for base in BASES_OF[framework]]
    swallowed = []
    for key, type_, choices, default, *_ in keys_of(framework):
        named = False
        for each, before in zip(BASES_OF[framework], plain, strict=True):
            try:
                found = launch.read_flags(framework, {**each, key: value_for(type_, choices, default)}, gpus=16)
            except launch.LaunchError:
                named = True  # refused with a sentence
                break
            if key in found.without_effect or any(key in one for one in (*found.not_modelled, *found.unread)):
                named = True
                break
            if said(found) != before:
                named = True
                break
        if not named:
            swallowed.append(key)
    assert swallowed == []


def test_no_known_key_of_deepspeed_or_megatron_bridge_is_swallowed() -> None:
    base: dict[str, Any] = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}
    plain = launch.read_flags("deepspeed", base, gpus=8)
    swallowed = []
    for key in KNOWN | {f"zero_optimization.{each}" for each in ZERO_KEYS}:
        room, _, inner = key.rpartition(".")
        for value in (2, True, {"enabled": True, "device": "cpu"}, "fp16"):
            document = (
                {**base, "zero_optimization": {**base["zero_optimization"], inner: value}}
                if room
                else {**base, key: value}
            )
            try:
                found = launch.read_flags("deepspeed", document, gpus=8)
            except launch.LaunchError:
                break
            if said(found) != said(plain) or key in found.without_effect:
                break
        else:
            swallowed.append(key)
    assert swallowed == []
    base = {
        "model.num_layers": 8,
        "model.hidden_size": 64,
        "model.num_attention_heads": 4,
        "model.num_moe_experts": 4,
        "train.micro_batch_size": 1,
        "model.tensor_model_parallel_size": 2,
    }
    by_destination = {flag.destination: flag for flag in FLAGS}
    plain = launch.read_flags("megatron-bridge", base, gpus=16)
    swallowed = []
    for name, key in KEYS.items():
        flag = by_destination.get(name)
        value = True if flag is None else not flag.default if flag.is_bare else other_value(flag)
        found = launch.read_flags("megatron-bridge", {**base, key: value}, gpus=16)
        known = effect_of(name).effect == "read"
        if said(found) == said(plain) and key not in found.without_effect and not known:
            swallowed.append(key)
    assert swallowed == []
