"""NeMo-RL: a YAML configuration of `examples/run_grpo.py`.

Source: NVIDIA-NeMo/RL v0.7.0 (81aa43dda476): examples/configs/grpo_math_1B.yaml (keys and defaults),
nemo_rl/algorithms/grpo.py (pools, ages, passes that are skipped), nemo_rl/models/megatron/setup.py (layout).
`force_on_policy_ratio` exists since v0.5.0, `recompute_granularity` since v0.7.0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from engine.launch.contract import (
    FileContents,
    LaunchError,
    LaunchFile,
    LaunchInputs,
    Origin,
    UnknownValue,
    Written,
)
from engine.launch.launchers import comment_text
from engine.launch.post_training.contract import RunFramework, RunOrder, RunReading
from engine.launch.post_training.layout_writing import (
    name_unwritten_arguments,
    refuse_if_not_started,
    written_arguments,
)
from engine.launch.post_training.run_settings import RunReader, check_share
from engine.launch.post_training.texts import header_lines
from engine.launch.report import LIST_TITLES, OPEN, Report
from engine.launch.yaml_files import flatten_table, read_yaml

__all__ = ["NEMO_RL"]

NAME: Final = "nemo-rl"
TITLE: Final = "NeMo-RL"
VERSION: Final = "0.7.0"
BASE: Final = "grpo_math_1B.yaml"
_MEGATRON: Final = "policy.megatron_cfg."
_DTENSOR: Final = "policy.dtensor_cfg."
_VLLM: Final = "policy.generation.vllm_cfg."
_COLOCATED: Final = "policy.generation.colocated."
_ASYNC: Final = "grpo.async_grpo."

LAYOUT_KEYS: Final[Mapping[str, str]] = {
    "tensor_model_parallel_size": f"{_MEGATRON}tensor_model_parallel_size",
    "pipeline_model_parallel_size": f"{_MEGATRON}pipeline_model_parallel_size",
    "context_parallel_size": f"{_MEGATRON}context_parallel_size",
    "expert_model_parallel_size": f"{_MEGATRON}expert_model_parallel_size",
    "expert_tensor_parallel_size": f"{_MEGATRON}expert_tensor_parallel_size",
    "sequence_parallel": f"{_MEGATRON}sequence_parallel",
    "decoder_first_pipeline_num_layers": f"{_MEGATRON}num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": f"{_MEGATRON}num_layers_in_last_pipeline_stage",
    "recompute_granularity": f"{_MEGATRON}recompute_granularity",
    "recompute_modules": f"{_MEGATRON}recompute_modules",
    "moe_token_dispatcher_type": f"{_MEGATRON}moe_token_dispatcher_type",
    "moe_enable_deepep": f"{_MEGATRON}moe_enable_deepep",
    "use_distributed_optimizer": f"{_MEGATRON}optimizer.use_distributed_optimizer",
    "optimizer_cpu_offload": f"{_MEGATRON}optimizer.optimizer_cpu_offload",
    "optimizer_offload_fraction": f"{_MEGATRON}optimizer.optimizer_offload_fraction",
    "use_precision_aware_optimizer": f"{_MEGATRON}optimizer.use_precision_aware_optimizer",
    "overlap_grad_reduce": f"{_MEGATRON}distributed_data_parallel_config.overlap_grad_reduce",
    "overlap_param_gather": f"{_MEGATRON}distributed_data_parallel_config.overlap_param_gather",
    "accumulate_allreduce_grads_in_fp32": f"{_MEGATRON}distributed_data_parallel_config.grad_reduce_in_fp32",
    "fine_grained_activation_offloading": f"{_MEGATRON}fine_grained_activation_offloading",
    "offload_modules": f"{_MEGATRON}offload_modules",
    "fp8": f"{_MEGATRON}fp8_cfg.fp8",
    "fp8_recipe": f"{_MEGATRON}fp8_cfg.fp8_recipe",
    "fp8_param_gather": f"{_MEGATRON}fp8_cfg.fp8_param",
}
"""Keys of training on Megatron-Core by its argument, written and read."""
_DTENSOR_KEYS: Final[Mapping[str, str]] = {
    "tensor_model_parallel_size": f"{_DTENSOR}tensor_parallel_size",
    "context_parallel_size": f"{_DTENSOR}context_parallel_size",
    "sequence_parallel": f"{_DTENSOR}sequence_parallel",
    "expert_model_parallel_size": f"{_DTENSOR}expert_parallel_size",
}
"""Keys of training on DTensor with FSDP2 by Megatron's argument, read only."""
_MEGATRON_DEFAULTS: Final[Mapping[str, Any]] = {
    "use_distributed_optimizer": True,
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
    "moe_token_dispatcher_type": "alltoall",
    "expert_tensor_parallel_size": 1,
    "grad_reduce_in_bf16": True,
    "attention_backend": "fused",
    "optimizer_offload_fraction": 0.0,
    "use_precision_aware_optimizer": True,
}
"""Behaviour of NeMo-RL without a key, by Megatron's argument."""
DEFAULTS: Final[Mapping[str, Any]] = {
    "grpo.num_prompts_per_step": 32,
    "grpo.num_generations_per_prompt": 16,
    "grpo.max_num_steps": 1_000_000,
    "grpo.use_dynamic_sampling": False,
    f"{_ASYNC}enabled": False,
    f"{_ASYNC}max_trajectory_age_steps": 1,
    f"{_ASYNC}in_flight_weight_updates": False,
    "loss_fn.reference_policy_kl_penalty": 0.01,
    "loss_fn.force_on_policy_ratio": False,
    "policy.model_name": "Qwen/Qwen2.5-1.5B",
    "policy.train_global_batch_size": 512,
    "policy.train_micro_batch_size": 4,
    "policy.max_total_sequence_length": 512,
    "policy.precision": "bfloat16",
    f"{_DTENSOR}enabled": True,
    f"{_MEGATRON}enabled": False,
    "policy.sequence_packing.enabled": True,
    "policy.dynamic_batching.enabled": False,
    "policy.generation.backend": "vllm",
    f"{_VLLM}precision": "bfloat16",
    f"{_VLLM}tensor_parallel_size": 1,
    f"{_VLLM}pipeline_parallel_size": 1,
    f"{_VLLM}expert_parallel_size": 1,
    f"{_VLLM}gpu_memory_utilization": 0.6,
    f"{_COLOCATED}enabled": True,
    "cluster.gpus_per_node": 1,
    "cluster.num_nodes": 1,
}
"""Values of `grpo_math_1B.yaml` at v0.7.0, which every recipe starts from."""
_WITH_MEGATRON: Final = {f"{_DTENSOR}enabled": False, f"{_MEGATRON}enabled": True}
_OF_8B: Final = {
    "grpo.num_prompts_per_step": 64,
    "grpo.num_generations_per_prompt": 32,
    "policy.model_name": "meta-llama/Llama-3.1-8B-Instruct",
    "policy.train_micro_batch_size": 1,
    "policy.max_total_sequence_length": 4096,
    "cluster.gpus_per_node": 8,
}
BASES: Final[Mapping[str, Mapping[str, Any]]] = {
    BASE: {},
    "grpo_math_1B_megatron.yaml": _WITH_MEGATRON,
    "grpo_math_8B.yaml": _OF_8B,
    "grpo_math_8B_megatron.yaml": {
        **_WITH_MEGATRON,
        **_OF_8B,
        f"{_MEGATRON}pipeline_model_parallel_size": 2,
    },
    "grpo_math_70B_megatron.yaml": {
        **_WITH_MEGATRON,
        **_OF_8B,
        "policy.model_name": "meta-llama/Llama-3.3-70B-Instruct",
        f"{_MEGATRON}tensor_model_parallel_size": 4,
        f"{_MEGATRON}pipeline_model_parallel_size": 4,
        f"{_VLLM}tensor_parallel_size": 8,
        "cluster.num_nodes": 8,
    },
    "grpo_math_qwen30ba3b_megatron.yaml": {
        **_WITH_MEGATRON,
        **_OF_8B,
        "policy.model_name": "Qwen/Qwen3-30B-A3B",
        "policy.sequence_packing.enabled": False,
        f"{_MEGATRON}tensor_model_parallel_size": 2,
        f"{_MEGATRON}expert_model_parallel_size": 8,
        f"{_MEGATRON}sequence_parallel": True,
        f"{_VLLM}tensor_parallel_size": 4,
        f"{_VLLM}gpu_memory_utilization": 0.7,
        "cluster.num_nodes": 8,
    },
}
"""Changes of the configurations that recipes name in `defaults`, at v0.7.0."""
NOT_MODELLED: Final[Mapping[str, str]] = {
    f"{_MEGATRON}peft.enabled": "adapters; the plan trains all weights.",
    f"{_DTENSOR}lora_cfg.enabled": "adapters; the plan trains all weights.",
    f"{_DTENSOR}cpu_offload": "weights and optimizer in host memory.",
    "policy.draft.enabled": "a draft model that is trained along.",
    "policy.generation.vllm_kwargs.speculative_config": "drafts of tokens in the rollout.",
    f"{_VLLM}enforce_eager": "a rollout without CUDA graphs.",
    f"{_MEGATRON}mtp_num_layers": "layers for multi-token prediction that are trained.",
    f"{_MEGATRON}moe_shared_expert_overlap": "shared experts next to the exchange of tokens.",
    "grpo.batch_multiplier": "more prompts than are trained, for dynamic sampling.",
    "grpo.max_rollout_turns": "turns; give the time of tools as tool_s.",
    "env.should_use_nemo_gym": "environments with tools; give their time as tool_s.",
    "on_policy_distillation": "a teacher.",
    "policy.quant_cfg": "weights that are quantised while training.",
    "policy.generation.quant_cfg": "a quantised rollout.",
    "policy.generation.real_quant": "a quantised rollout.",
    "reward_model": "a reward model on GPUs of its own.",
}
"""Keys that change a step and have no setting here, by their beginning."""
WITHOUT_EFFECT: Final = (
    "defaults",
    "grpo.",
    "loss_fn.",
    "checkpointing.",
    "logger.",
    "data.",
    "env.",
    "policy.tokenizer.",
    "policy.hf_config_overrides",
    "policy.optimizer",
    "policy.scheduler",
    "policy.logprob_batch_size",
    "policy.train_global_batch_size",
    "policy.activation_checkpointing_enabled",
    "policy.refit_buffer_size_gb",
    "policy.train_micro_batch_size",
    "policy.generation_batch_size",
    "policy.make_sequence_length_divisible_by",
    "policy.max_grad_norm",
    "policy.offload_optimizer_for_logprob",
    "policy.logprob_chunk_size",
    "policy.dynamic_batching.",
    "policy.sequence_packing.",
    "policy.draft.",
    "policy.router_replay.",
    "policy.generation.temperature",
    "policy.generation.top_",
    "policy.generation.stop_",
    "policy.generation.val_",
    "policy.generation.mcore_generation_config.",
    "policy.generation.refit_",
    "policy.generation.bad_words",
    "policy.generation.use_async_rollouts",
    "policy.generation.sglang_cfg.",
    "policy.generation.trtllm_cfg.",
    "policy.generation.port_",
    "policy.generation.vllm_kwargs.",
    f"{_VLLM}async_engine",
    f"{_VLLM}env_vars.",
    f"{_VLLM}skip_tokenizer_init",
    f"{_VLLM}limit_mm_per_prompt",
    f"{_VLLM}reasoning_parser",
    f"{_VLLM}http_",
    f"{_VLLM}max_model_len",
    f"{_VLLM}use_",
    f"{_VLLM}load_format",
    f"{_VLLM}num_",
    f"{_VLLM}is_mx",
    f"{_VLLM}quantization_ignored_layer_kws",
    f"{_VLLM}enable_",
    f"{_VLLM}vllm_",
    f"{_VLLM}kv_cache_dtype",
    f"{_VLLM}logprobs_mode",
    f"{_DTENSOR}",
    f"{_MEGATRON}",
    "reward_penalties",
    "data_plane",
    f"{_COLOCATED}resources.",
    "cluster.",
)
"""Beginnings of keys that change no figure here."""

LIMITS: Final[Mapping[str, Any]] = {
    "framework": "megatron",
    "zero_stage": [0, 1],
    "pipeline_interleaving": [1],
    "schedule": ["1f1b"],
    "stage_layout": ["even"],
    "selective_recompute": ["attention", "layernorm", "moe_act+layernorm"],
    "tensor_par_overlap": ["none"],
    "expert_overlap": [False],
    "activations_offload": [False],
    "weight_offload": [False],
}
REPLACED: Final[Mapping[str, tuple[str, Any]]] = {
    "zero_stage": ("NeMo-RL shards the optimizer's states only", 1),
    "pipeline_interleaving": ("NeMo-RL runs one chunk of layers per stage", 1),
    "schedule": ("NeMo-RL runs 1F1B", "1f1b"),
    "stage_layout": ("NeMo-RL sets the layers of the first and last stage only", "even"),
    "tensor_par_overlap": ("NeMo-RL has no key for it", "none"),
    "expert_overlap": ("NeMo-RL has no key for it", False),
    "activations_offload": ("its time is not that of a step here", False),
    "weight_offload": ("NeMo-RL has no key for it", False),
}
_KL: Final = 0.01
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][\w.]{0,150})\}")
_CALL: Final = re.compile(r"\$\{(mul|div|max|min):(.+)\}", re.DOTALL)
_OWN_TABLE: Final = re.compile(r"^(grpo|policy|defaults)\s*:", re.MULTILINE)
_UNSET: Final = object()


def write_yaml(order: RunOrder) -> Written:
    """Return the configuration of a run. Raises `LaunchError` where NeMo-RL would refuse it.

    Args:
        order: run to write.
    """
    report = Report()
    report.not_expressible(*order.replaced)
    report.remark(*order.duties)
    settings = order.settings
    if settings["method"] == "ppo":
        raise LaunchError(f"{TITLE} {VERSION} trains GRPO and DAPO; it has no critic for PPO.")
    refuse_if_not_started(order, TITLE)
    values: dict[str, Any] = {
        "grpo.num_prompts_per_step": settings["prompts"],
        "grpo.num_generations_per_prompt": settings["group"],
        "grpo.max_num_steps": settings["steps"],
        "grpo.use_dynamic_sampling": settings["method"] == "dapo",
        **_mode_keys(order, report),
        **_pass_keys(order, report),
        "policy.model_name": order.checkpoint,
        "policy.train_global_batch_size": order.samples // int(settings["updates"]),
        "policy.train_micro_batch_size": 1,
        "policy.max_total_sequence_length": order.longest,
        "policy.precision": "bfloat16",
        f"{_DTENSOR}enabled": False,
        f"{_MEGATRON}enabled": True,
        **_layout_keys(order, report),
        "policy.sequence_packing.enabled": True,
        "policy.sequence_packing.train_mb_tokens": order.pack_to,
        "policy.sequence_packing.logprob_mb_tokens": order.pack_to,
        **_rollout_keys(order, report),
        "cluster.gpus_per_node": order.gpus_per_node,
        "cluster.num_nodes": order.nodes_of(
            order.gpus_train if order.is_colocated else order.gpus_train + order.gpus_rollout
        ),
    }
    if not order.is_colocated and settings["synchronisation"] != "broadcast":
        report.not_expressible(f"Weight synchronisation {settings['synchronisation']}: {TITLE} broadcasts over NCCL.")
    report.not_modelled("data, env, optimizer and logger: as in grpo_math_1B.yaml; replace them by yours.")
    report.remark("Prompts and responses of more tokens than max_total_sequence_length are cut.")
    lists = {title: report.listed(which) for which, title in LIST_TITLES.items()}
    start = "put it into examples/configs, uv run examples/run_grpo.py --config examples/configs/grpo_shardscape.yaml"
    text = "\n".join([*header_lines(TITLE, VERSION, order, lists, start), f"defaults: {BASE}", *_yaml_lines(values)])
    file = LaunchFile("grpo_shardscape.yaml", text + "\n", "yaml")
    named = (report.listed(which) for which in ("not_expressible", "not_modelled", "remarks"))
    return Written(NAME, TITLE, VERSION, (file,), {"defaults": BASE, **values}, *named)


def _mode_keys(order: RunOrder, report: Report) -> dict[str, Any]:
    settings = order.settings
    if order.is_colocated:
        return {f"{_ASYNC}enabled": False, f"{_COLOCATED}enabled": True}
    age = 1 if settings["mode"] == "one_step_off" else int(settings["staleness"])
    if settings["mode"] == "asynchronous" and age == 1:
        report.not_expressible("Asynchronous with staleness 1: NeMo-RL runs it as one step off.")
    one_node = order.gpus_train + order.gpus_rollout <= order.gpus_per_node
    return {
        f"{_ASYNC}enabled": True,
        f"{_ASYNC}max_trajectory_age_steps": age,
        # Without it samples that are older change nothing: nemo_rl/algorithms/grpo.py, `async_grpo_train`.
        f"{_ASYNC}in_flight_weight_updates": True,
        "loss_fn.use_importance_sampling_correction": True,
        f"{_COLOCATED}enabled": False,
        f"{_COLOCATED}resources.gpus_per_node": order.gpus_rollout if one_node else order.gpus_per_node,
        f"{_COLOCATED}resources.num_nodes": None if one_node else order.nodes_of(order.gpus_rollout),
        f"{_VLLM}async_engine": True,
    }


def _pass_keys(order: RunOrder, report: Report) -> dict[str, Any]:
    settings = order.settings
    is_forced = not settings["old_log_probs"] and settings["updates"] == 1
    if not settings["old_log_probs"] and not is_forced:
        report.not_expressible("No old log-probabilities: NeMo-RL leaves them out with one update per step only.")
    return {
        "loss_fn.reference_policy_kl_penalty": _KL if settings["reference"] else 0,
        "loss_fn.force_on_policy_ratio": is_forced,
    }


def _layout_keys(order: RunOrder, report: Report) -> dict[str, Any]:
    arguments = written_arguments(order, report)
    if any(arguments.get(name) is not None for name in _CUTS) and (ends := _end_stages(order.layout.cut.blocks)):
        arguments = {**{name: value for name, value in arguments.items() if name not in _CUTS}, **ends}
    granularity = arguments.get("recompute_granularity")
    found: dict[str, Any] = {f"{_MEGATRON}activation_checkpointing": granularity is not None}
    if arguments.pop("recompute_method", "uniform") == "block":
        report.not_expressible("Recomputation of some blocks only: NeMo-RL recomputes all.")
    arguments.pop("recompute_num_layers", None)
    if arguments.pop("moe_flex_dispatcher_backend", None) == "deepep":
        arguments["moe_enable_deepep"] = True
    if arguments.pop("bf16", None) is None:
        found["policy.precision"] = order.layout.execution["datatype"]
    arguments.pop("fp16", None)
    wide = arguments.pop("accumulate_allreduce_grads_in_fp32", False)
    arguments.pop("grad_reduce_in_bf16", None)
    arguments["accumulate_allreduce_grads_in_fp32"] = wide
    if arguments.get("fp8"):
        found[f"{_MEGATRON}fp8_cfg.enabled"] = True
    written = {name: LAYOUT_KEYS[name] for name in arguments if name in LAYOUT_KEYS}
    name_unwritten_arguments(arguments, written, TITLE, report, _MEGATRON_DEFAULTS)
    return found | {key: arguments[name] for name, key in written.items()}


_CUTS: Final = (
    "pipeline_model_parallel_layout",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)
"""Arguments that cut a model into stages and have no key in NeMo-RL."""


def _end_stages(blocks: Sequence[int]) -> dict[str, int] | None:
    """Return the layers of the first and last stage; None where stages between them differ."""
    if len(blocks) > 2 and len(set(blocks[1:-1])) > 1:
        return None
    return {"decoder_first_pipeline_num_layers": blocks[0], "decoder_last_pipeline_num_layers": blocks[-1]}


def _rollout_keys(order: RunOrder, report: Report) -> dict[str, Any]:
    settings, replicas = order.settings, order.replicas
    found: dict[str, Any] = {
        "policy.generation.backend": "vllm",
        "policy.generation.max_new_tokens": settings["response.cap"],
        f"{_VLLM}precision": "fp8" if settings["rollout.datatype"] == "float8" else "bfloat16",
        f"{_VLLM}tensor_parallel_size": replicas["tensor_par"],
        f"{_VLLM}pipeline_parallel_size": replicas["pipeline_par"],
        f"{_VLLM}expert_parallel_size": replicas["expert_par"],
        f"{_VLLM}gpu_memory_utilization": settings["rollout.memory_share"],
        f"{_VLLM}max_model_len": order.longest,
        "policy.generation.vllm_kwargs.max_num_seqs": settings["rollout.max_sequences"],
    }
    if settings["rollout.datatype"] == "float8":
        found |= {f"{_VLLM}num_first_layers_in_bf16": 0, f"{_VLLM}num_last_layers_in_bf16": 0}
    return found


def _yaml_lines(values: Mapping[str, Any]) -> list[str]:
    """Return nested lines of flat keys; tables in the order of their first key."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *tables, last = key.split(".")
        place = tree
        for name in tables:
            place = place.setdefault(name, {})
        place[last] = value
    return _table_lines(tree, 0)


def _table_lines(table: Mapping[str, Any], depth: int) -> list[str]:
    lines = []
    for key, value in table.items():
        if isinstance(value, dict):
            lines += [f"{'  ' * depth}{key}:", *_table_lines(value, depth + 1)]
        else:
            lines.append(f"{'  ' * depth}{key}: {_yaml_value(value)}")
    return lines


def _yaml_value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_yaml_value(each) for each in value) + "]"
    if isinstance(value, str):
        return '"' + comment_text(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"{value:g}" if isinstance(value, float) else str(value)


def find_yaml(text: str, name: str, files: Mapping[str, str]) -> FileContents | None:
    """Return the keys of a configuration, and of the configurations that it starts from; None for a file
    of another program.

    Args:
        text: of the file.
        name: of the file.
        files: texts of files beside it, by name.
    """
    if not name.lower().endswith((".yaml", ".yml")) or not re.search(
        r"^(grpo|policy|defaults)\s*:", text, re.MULTILINE
    ):
        return None
    document = read_yaml(text, name)
    base = document.values.get("defaults")
    is_recipe = isinstance(base, str) and "grpo" in base.rpartition("/")[2]
    own = {"grpo", "policy"} & {*document.values}
    if not (is_recipe or len(own) == 2):
        return None
    flags: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    remarks: list[str] = []
    chain = [document]
    while isinstance(base, str) and (parent := base.rpartition("/")[2]) not in BASES:
        if parent not in files or len(chain) > 8:
            flags[f"defaults {base[:150]}"] = UnknownValue(f"defaults {base[:150]}", 0, name)
            remarks.append(f"{base[:150]}, from which it starts, is not at hand: what only it says is open.")
            break
        chain.append(read_yaml(files[parent], parent))
        base = chain[-1].values.get("defaults")
    if isinstance(base, str) and base.rpartition("/")[2] in BASES:
        flags["defaults"] = base.rpartition("/")[2]
    elif "defaults" not in document.values:
        flags["defaults"] = ""  # all keys are its own, as in grpo_math_1B.yaml
    for each in reversed(chain):
        for path, value in flatten_table({key: item for key, item in each.values.items() if key != "defaults"}):
            key = ".".join(path)
            # A table that is set to nothing leaves out what it had.
            for inner in [known for known in flags if known.startswith(f"{key}.")]:
                del flags[inner]
            flags[key] = value
            origins[key] = each.origin(*path)
    return FileContents(flags, remarks=tuple(remarks), origins=origins)


def _resolve(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in which references to other keys, and products of them, are put in."""

    def find(text: str, depth: int) -> Any:
        text = text.strip()
        if depth > 8:
            return _UNSET
        if found := _REFERENCE.fullmatch(text):
            value = values.get(found[1], defaults.get(found[1], _UNSET))
            return find(value.expression, depth + 1) if isinstance(value, UnknownValue) else value
        if found := _CALL.fullmatch(text):
            one, _, other = found[2].rpartition(",")
            parts = [find(part, depth + 1) for part in (one, other)]
            if not all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts):
                return _UNSET
            return _calculate(found[1], *parts)
        try:
            return int(text) if len(text) < 20 else _UNSET
        except ValueError:
            return _UNSET

    found = {}
    for key, value in values.items():
        if isinstance(value, UnknownValue) and key != value.expression:
            known = find(value.expression, 0)
            found[key] = value if known is _UNSET else known
        else:
            found[key] = value
    return found


def _calculate(name: str, one: Any, other: Any) -> Any:
    if name == "mul":
        return one * other
    if name == "div":
        return one // other if other else _UNSET
    return max(one, other) if name == "max" else min(one, other)


def read_keys(contents: FileContents, asked: LaunchInputs) -> RunReading:
    """Return the run of a configuration's keys.

    Args:
        contents: of the file.
        asked: what the caller states.
    """
    flags = dict(contents.flags)
    base = str(flags.pop("defaults", "") or BASE)
    defaults = {**DEFAULTS, **BASES.get(base, {})}
    title = f"{TITLE} {VERSION}" if base == BASE else f"{TITLE}'s {base}"
    inputs = LaunchInputs(
        asked.gpus, asked.gpus_origin, contents.origins, asked.stated, asked.model, asked.takes_defaults
    )
    reader = RunReader(title, _resolve(flags, defaults), inputs, defaults)
    reader.report.remark(*contents.remarks)
    s, say = reader.settings, reader.say
    reader.read_model("policy.model_name")
    say("method", lambda: "dapo" if s.truth("grpo.use_dynamic_sampling") else "grpo")
    say("prompts", lambda: s.whole("grpo.num_prompts_per_step"))
    say("group", lambda: s.whole("grpo.num_generations_per_prompt"))
    say("steps", lambda: s.whole("grpo.max_num_steps"))
    _read_mode(reader)
    reader.read_updates(lambda: s.whole("policy.train_global_batch_size") or 1, "policy.train_global_batch_size")
    say("reference", partial(_has_reference, reader))
    say(
        "old_log_probs",
        lambda: (
            not s.truth("loss_fn.force_on_policy_ratio") or s.number("grpo.seq_logprob_error_threshold") is not None
        ),
    )
    reader.read_lengths(
        lambda: s.whole("policy.max_total_sequence_length") or 1,
        lambda: s.whole("policy.generation.max_new_tokens"),
    )
    say("pack_to", partial(_read_packs, reader))
    _read_rollout(reader)
    _read_training(reader)
    reader.name_rest(NOT_MODELLED, WITHOUT_EFFECT, _TRAINED)
    return reader.reading(NAME, TITLE, VERSION)


_TRAINED: Final = frozenset({*LAYOUT_KEYS.values(), *_DTENSOR_KEYS.values(), f"{_MEGATRON}fp8_cfg.enabled"})


def _read_mode(reader: RunReader) -> None:
    s = reader.settings

    def mode() -> Any:
        is_async = s.truth(f"{_ASYNC}enabled")
        if s.truth(f"{_COLOCATED}enabled"):
            if is_async:
                reader.report.remark("Asynchronous on shared GPUs: no mode here does it.")
                return OPEN
            return "colocated"
        if not is_async:
            reader.report.remark(
                f"{_COLOCATED}enabled false without async_grpo: two pools that take turns, which no mode here does."
            )
            return OPEN
        return "one_step_off" if s.whole(f"{_ASYNC}max_trajectory_age_steps") == 1 else "asynchronous"

    reader.say("mode", mode)
    if reader.known("mode") == "asynchronous":
        reader.say("staleness", lambda: s.whole(f"{_ASYNC}max_trajectory_age_steps"))

    def machines() -> tuple[int, int]:
        reader.gpus_per_node = s.whole("cluster.gpus_per_node")
        return reader.gpus_per_node or 1, s.whole("cluster.num_nodes") or 1

    def rollout() -> int:
        each, nodes = machines()
        own = s.whole(f"{_COLOCATED}resources.gpus_per_node")
        if nodes == 1:
            if own is None or own >= each:
                reader.report.refuse(f"{_COLOCATED}resources.gpus_per_node must leave GPUs to training on one node")
                raise LaunchError(f"{_COLOCATED}resources.gpus_per_node must be below {each}, the GPUs of the node.")
            return own
        count = s.whole(f"{_COLOCATED}resources.num_nodes")
        if count is None or count >= nodes:
            raise LaunchError(f"{_COLOCATED}resources.num_nodes must be below {nodes}, the nodes of the cluster.")
        return (own or each) * count

    def whole() -> int:
        each, nodes = machines()
        return each * nodes

    is_shared = reader.value_of(lambda: s.truth(f"{_COLOCATED}enabled"))
    if is_shared is False:
        reader.read_gpus(lambda: whole() - rollout(), rollout)
        reader.say("synchronisation", lambda: "broadcast")
    else:
        reader.read_gpus(whole, None)


def _has_reference(reader: RunReader) -> bool:
    s = reader.settings
    if s.truth("grpo.skip_reference_policy_logprobs_calculation"):
        return False
    return (s.number("loss_fn.reference_policy_kl_penalty") or 0) > 0


def _read_packs(reader: RunReader) -> Any:
    s = reader.settings
    longest = s.whole("policy.max_total_sequence_length") or 1
    for table in ("policy.sequence_packing", "policy.dynamic_batching"):
        if s.truth(f"{table}.enabled"):
            tokens = s.whole(f"{table}.train_mb_tokens")
            return tokens or longest * (s.whole("policy.train_micro_batch_size") or 1)
    reader.report.not_modelled("policy.sequence_packing.enabled false: padded sequences; the plan packs them.")
    return longest


def _read_rollout(reader: RunReader) -> None:
    s, say = reader.settings, reader.say
    backend = s.word("policy.generation.backend") if s.is_stated("policy.generation.backend") else "vllm"
    if backend != "vllm":
        reader.report.not_modelled(
            f"policy.generation.backend {backend[:40]}: times of the rollout are vLLM's; its replicas are open."
        )
        return
    say("rollout.datatype", lambda: "float8" if s.word(f"{_VLLM}precision") == "fp8" else "bfloat16")
    say("rollout.tensor_par", lambda: [s.whole(f"{_VLLM}tensor_parallel_size")])
    say(
        "rollout.memory_share",
        lambda: check_share(s.number(f"{_VLLM}gpu_memory_utilization"), f"{_VLLM}gpu_memory_utilization"),
    )
    say("rollout.max_sequences", lambda: s.whole("policy.generation.vllm_kwargs.max_num_seqs") or OPEN)
    reader.read_replicas(
        pipeline=lambda: s.whole(f"{_VLLM}pipeline_parallel_size") or 1,
        expert=lambda: s.whole(f"{_VLLM}expert_parallel_size") or 1,
        pipeline_key=f"{_VLLM}pipeline_parallel_size",
    )


def _read_training(reader: RunReader) -> None:
    s = reader.settings
    values = s.given
    names = dict(LAYOUT_KEYS)
    said: dict[str, Any] = {}
    defaults = dict(_MEGATRON_DEFAULTS)
    hidden = reader.hidden_value()
    is_megatron = values.get(f"{_MEGATRON}enabled", hidden or s.defaults[f"{_MEGATRON}enabled"])
    if isinstance(is_megatron, UnknownValue):
        # Either backend's keys say that it is the one.
        is_megatron = any(key.startswith(_MEGATRON) for key in values)
    s.asked.update({f"{_MEGATRON}enabled", f"{_DTENSOR}enabled", f"{_MEGATRON}activation_checkpointing"})
    checkpointing = f"{_MEGATRON if is_megatron else _DTENSOR}activation_checkpointing"
    s.asked.add(checkpointing)
    recomputes = values.get(checkpointing, hidden or False)
    for name, key in (LAYOUT_KEYS if is_megatron else _DTENSOR_KEYS).items():
        value = values.get(key, hidden or s.defaults.get(key))
        if value is not None:
            said[name] = value
    if is_megatron:
        if said.get("moe_enable_deepep") is True:
            said |= {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "deepep"}
        if values.get(f"{_MEGATRON}fp8_cfg.enabled") is not True:
            for name in ("fp8", "fp8_recipe", "fp8_param_gather"):
                said.pop(name, None)
        wide = said.get("accumulate_allreduce_grads_in_fp32")
        if wide is not None and not isinstance(wide, UnknownValue):
            said["grad_reduce_in_bf16"] = not wide
            names["grad_reduce_in_bf16"] = LAYOUT_KEYS["accumulate_allreduce_grads_in_fp32"]
        if recomputes is not True:
            said.pop("recompute_modules", None)
        if said.get("overlap_grad_reduce") is False:
            said["overlap_param_gather"] = False
    else:
        names |= _DTENSOR_KEYS
        defaults |= {"use_torch_fsdp2": True, "overlap_grad_reduce": True, "grad_reduce_in_bf16": False}
        names["use_torch_fsdp2"] = f"{_DTENSOR}enabled"
    if isinstance(recomputes, UnknownValue):
        said["recompute_granularity"] = recomputes
    elif recomputes is True:
        kind = said.get("recompute_granularity") or "full"
        said["recompute_granularity"] = kind
        if kind == "full":
            said |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    else:
        said.pop("recompute_granularity", None)
    names["recompute_granularity"] = checkpointing
    precision = values.get("policy.precision", hidden or "bfloat16")
    s.asked.add("policy.precision")
    if precision in ("bfloat16", "float16"):
        said["bf16" if precision == "bfloat16" else "fp16"] = True
    else:
        said["bf16"] = (
            precision if isinstance(precision, UnknownValue) else UnknownValue(f"policy.precision {precision}"[:80])
        )
    names |= {"bf16": "policy.precision", "fp16": "policy.precision"}
    reader.read_layout(said, defaults, names)


NEMO_RL: Final = RunFramework(
    name=NAME,
    title=TITLE,
    aliases=("nemorl", "nemo", "nemo-rl"),
    version=VERSION,
    source="NVIDIA-NeMo/RL v0.7.0, examples/configs/grpo_math_1B.yaml and nemo_rl/algorithms/grpo.py",
    limits=LIMITS,
    replaced=REPLACED,
    synchronisation=dict.fromkeys(("one_step_off", "asynchronous"), "broadcast"),
    terms={
        "prompts": "grpo.num_prompts_per_step",
        "group": "grpo.num_generations_per_prompt",
        "response.cap": "policy.max_total_sequence_length, policy.generation.max_new_tokens",
        "updates": "policy.train_global_batch_size",
        "mode": "policy.generation.colocated.enabled, grpo.async_grpo.enabled",
        "staleness": "grpo.async_grpo.max_trajectory_age_steps",
        "split": "cluster, policy.generation.colocated.resources",
        "rollout.tensor_par": "policy.generation.vllm_cfg.tensor_parallel_size",
        "rollout.memory_share": "policy.generation.vllm_cfg.gpu_memory_utilization",
    },
    write=write_yaml,
    find=find_yaml,
    read=read_keys,
)
"""NeMo-RL on Megatron-Core with vLLM; training on DTensor is read, not written."""
