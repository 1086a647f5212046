"""verl: a shell script with Hydra's overrides of `verl.trainer.main_ppo` and its asynchronous siblings.

Source: volcengine/verl b178a3cd56f5 (0.8.0.dev): verl/trainer/config (keys and defaults),
verl/trainer/ppo/ray_trainer.py (passes that are skipped), verl/experimental/one_step_off_policy and
fully_async_policy (pools, staleness), verl/utils/megatron_utils.py (defaults of gradients). Until v0.7.0 the pools are
in the folder `recipe`, and `rollout.max_num_seqs` is 1,024 by default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from engine.launch.contract import FileContents, LaunchError, LaunchFile, LaunchInputs, UnknownValue, Written
from engine.launch.post_training.contract import RunFramework, RunOrder, RunReading
from engine.launch.post_training.layout_writing import (
    name_unwritten_arguments,
    refuse_if_not_started,
    written_arguments,
)
from engine.launch.post_training.run_settings import RunReader, check_share
from engine.launch.post_training.scripts import (
    command_lines,
    find_command,
    known_values,
    plain_value,
    quote_value,
    value_of_word,
)
from engine.launch.post_training.texts import header_lines
from engine.launch.report import LIST_TITLES, OPEN, Report

__all__ = ["VERL"]

NAME: Final = "verl"
TITLE: Final = "verl"
VERSION: Final = "0.8.0.dev"
PROGRAM: Final = re.compile(
    r"(verl|recipe)[./][\w./]{0,120}(main_ppo|main_dapo|fully_async_main|fully_async_policy\.main)(\.py)?"
)
"""Module or path of a program of verl."""
MODULES: Final[Mapping[str, str]] = {
    "colocated": "verl.trainer.main_ppo",
    "one_step_off": "verl.experimental.one_step_off_policy.main_ppo",
    "asynchronous": "verl.experimental.fully_async_policy.fully_async_main",
}
"""Programs by mode."""
DAPO: Final = "recipe.dapo.main_dapo"
CONFIGURATIONS: Final[Mapping[str, str]] = {
    "colocated": "ppo_megatron_trainer.yaml",
    "one_step_off": "one_step_off_ppo_megatron_trainer.yaml",
    "asynchronous": "fully_async_ppo_megatron_trainer.yaml",
}
_ACTOR: Final = "actor_rollout_ref.actor."
_ROLLOUT: Final = "actor_rollout_ref.rollout."
_MEGATRON: Final = f"{_ACTOR}megatron."
_TRANSFORMER: Final = f"{_MEGATRON}override_transformer_config."
_GRADIENTS: Final = f"{_MEGATRON}override_ddp_config."
_OPTIMIZER: Final = f"{_ACTOR}optim.override_optimizer_config."
_FSDP: Final = f"{_ACTOR}fsdp_config."
_ASYNC: Final = "async_training."

LAYOUT_KEYS: Final[Mapping[str, str]] = {
    "tensor_model_parallel_size": f"{_MEGATRON}tensor_model_parallel_size",
    "pipeline_model_parallel_size": f"{_MEGATRON}pipeline_model_parallel_size",
    "num_virtual_stages_per_pipeline_rank": f"{_MEGATRON}virtual_pipeline_model_parallel_size",
    "context_parallel_size": f"{_MEGATRON}context_parallel_size",
    "expert_model_parallel_size": f"{_MEGATRON}expert_model_parallel_size",
    "expert_tensor_parallel_size": f"{_MEGATRON}expert_tensor_parallel_size",
    "sequence_parallel": f"{_MEGATRON}sequence_parallel",
    "use_distributed_optimizer": f"{_MEGATRON}use_distributed_optimizer",
    "recompute_granularity": f"{_TRANSFORMER}recompute_granularity",
    "recompute_method": f"{_TRANSFORMER}recompute_method",
    "recompute_num_layers": f"{_TRANSFORMER}recompute_num_layers",
    "recompute_modules": f"{_TRANSFORMER}recompute_modules",
    "decoder_first_pipeline_num_layers": f"{_TRANSFORMER}num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": f"{_TRANSFORMER}num_layers_in_last_pipeline_stage",
    "account_for_embedding_in_pipeline_split": f"{_TRANSFORMER}account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split": f"{_TRANSFORMER}account_for_loss_in_pipeline_split",
    "pipeline_model_parallel_layout": f"{_TRANSFORMER}pipeline_model_parallel_layout",
    "moe_token_dispatcher_type": f"{_TRANSFORMER}moe_token_dispatcher_type",
    "moe_enable_deepep": f"{_TRANSFORMER}moe_enable_deepep",
    "cp_comm_type": f"{_TRANSFORMER}cp_comm_type",
    "overlap_grad_reduce": f"{_GRADIENTS}overlap_grad_reduce",
    "overlap_param_gather": f"{_GRADIENTS}overlap_param_gather",
    "accumulate_allreduce_grads_in_fp32": f"{_GRADIENTS}grad_reduce_in_fp32",
    "optimizer_cpu_offload": f"{_OPTIMIZER}optimizer_cpu_offload",
    "optimizer_offload_fraction": f"{_OPTIMIZER}optimizer_offload_fraction",
    "use_precision_aware_optimizer": f"{_OPTIMIZER}use_precision_aware_optimizer",
}
"""Keys of training on Megatron-Core by its argument, written and read."""
_OF_REFERENCE: Final = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "num_virtual_stages_per_pipeline_rank",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
)
"""Arguments of which the reference model has keys of its own."""
_DECLARED: Final = frozenset(
    {"recompute_granularity", "recompute_method", "recompute_num_layers", "recompute_modules", "attention_backend"}
)
"""Keys of `override_transformer_config` that the configuration has; others are added with a plus."""
_MEGATRON_DEFAULTS: Final[Mapping[str, Any]] = {
    "use_distributed_optimizer": True,
    "sequence_parallel": True,
    "overlap_grad_reduce": False,
    "accumulate_allreduce_grads_in_fp32": True,
    "attention_backend": "fused",
    "moe_token_dispatcher_type": "alltoall",
}
"""Behaviour of verl without a key, by Megatron's argument."""
DEFAULTS: Final[Mapping[str, Any]] = {
    "data.train_batch_size": 1024,
    "data.max_prompt_length": 512,
    "data.max_response_length": 512,
    "algorithm.adv_estimator": "gae",
    "algorithm.use_kl_in_reward": False,
    f"{_ACTOR}use_kl_loss": False,
    f"{_ACTOR}ppo_mini_batch_size": 256,
    f"{_ACTOR}ppo_epochs": 1,
    f"{_ACTOR}use_dynamic_bsz": False,
    f"{_ACTOR}ppo_max_token_len_per_gpu": 16_384,
    f"{_ACTOR}ulysses_sequence_parallel_size": 1,
    "actor_rollout_ref.model.enable_gradient_checkpointing": True,
    f"{_FSDP}reshard_after_forward": True,
    f"{_ROLLOUT}n": 1,
    f"{_ROLLOUT}dtype": "bfloat16",
    f"{_ROLLOUT}tensor_model_parallel_size": 2,
    f"{_ROLLOUT}pipeline_model_parallel_size": 1,
    f"{_ROLLOUT}data_parallel_size": 1,
    f"{_ROLLOUT}expert_parallel_size": 1,
    f"{_ROLLOUT}gpu_memory_utilization": 0.5,
    f"{_ROLLOUT}max_num_seqs": 256,
    "trainer.nnodes": 1,
    "trainer.n_gpus_per_node": 8,
    "rollout.nnodes": 1,
    "rollout.n_gpus_per_node": 8,
    f"{_ASYNC}staleness_threshold": 0.1,
    f"{_ASYNC}trigger_parameter_sync_step": 4,
    f"{_ASYNC}require_batches": 1,
    f"{_ASYNC}use_rollout_log_probs": True,
    f"{_ASYNC}compute_prox_log_prob": False,
    f"{_ASYNC}checkpoint_engine.enable": True,
}
"""Values of verl's configurations by key."""
NOT_MODELLED: Final[Mapping[str, str]] = {
    "actor_rollout_ref.model.lora_rank": "adapters; the plan trains all weights.",
    "actor_rollout_ref.model.lora.rank": "adapters; the plan trains all weights.",
    f"{_ROLLOUT}enforce_eager": "a rollout without CUDA graphs.",
    f"{_ROLLOUT}multi_turn.enable": "turns; give the time of tools as tool_s.",
    f"{_ROLLOUT}over_sample_rate": "more samples than are trained.",
    f"{_FSDP}fsdp_size": "weights sharded over some of the GPUs.",
    f"{_FSDP}offload_policy": "weights and optimizer in host memory.",
    "reward_model.enable": "a reward model; give its time as reward_s.",
    "actor_rollout_ref.model.mtp": "layers for multi-token prediction.",
}
"""Keys that change a step and have no setting here, by their beginning."""
WITHOUT_EFFECT: Final = (
    "data.",
    "algorithm.",
    "critic.",
    "reward",
    "custom_reward_function.",
    "trainer.",
    "ray_",
    "hydra.",
    "global_profiler.",
    "transfer_queue.",
    "rollout.total",
    "rollout.test_freq",
    "rollout.n",
    _ASYNC,
    "actor_rollout_ref.hybrid_engine",
    "actor_rollout_ref.nccl_timeout",
    "actor_rollout_ref.ref.",
    "actor_rollout_ref.model.",
    f"{_ACTOR}clip",
    f"{_ACTOR}kl_",
    f"{_ACTOR}entropy",
    f"{_ACTOR}loss_",
    f"{_ACTOR}policy_loss",
    f"{_ACTOR}optim.",
    f"{_ACTOR}grad_clip",
    f"{_ACTOR}checkpoint",
    f"{_ACTOR}profiler",
    f"{_ACTOR}ppo_m",
    f"{_ACTOR}use_",
    f"{_ACTOR}strategy",
    f"{_ACTOR}shuffle",
    f"{_ACTOR}calculate",
    f"{_ACTOR}router_replay",
    f"{_ACTOR}tau_",
    f"{_ACTOR}data_loader_seed",
    f"{_ACTOR}freeze",
    f"{_ACTOR}state_masking",
    _FSDP,
    _MEGATRON,
    f"{_ROLLOUT}name",
    f"{_ROLLOUT}mode",
    f"{_ROLLOUT}temperature",
    f"{_ROLLOUT}top_",
    f"{_ROLLOUT}val_kwargs",
    f"{_ROLLOUT}log_prob",
    f"{_ROLLOUT}calculate_log_probs",
    f"{_ROLLOUT}enable_",
    f"{_ROLLOUT}free_cache_engine",
    f"{_ROLLOUT}max_num_batched_tokens",
    f"{_ROLLOUT}max_model_len",
    f"{_ROLLOUT}load_format",
    f"{_ROLLOUT}layered_summon",
    f"{_ROLLOUT}engine_kwargs",
    f"{_ROLLOUT}multi_",
    f"{_ROLLOUT}agent",
    f"{_ROLLOUT}trace",
    f"{_ROLLOUT}do_sample",
    f"{_ROLLOUT}disable_log_stats",
    f"{_ROLLOUT}prompt_length",
    f"{_ROLLOUT}response_length",
    f"{_ROLLOUT}cudagraph_capture_sizes",
    f"{_ROLLOUT}ignore_eos",
    f"{_ROLLOUT}limit_images",
    f"{_ROLLOUT}checkpoint_engine",
    f"{_ROLLOUT}update_weights_bucket_megabytes",
    f"{_ROLLOUT}skip",
    f"{_ROLLOUT}prometheus",
    f"{_ROLLOUT}profiler",
)
"""Beginnings of keys that change no figure here."""
LIMITS: Final[Mapping[str, Any]] = {
    "framework": "megatron",
    "zero_stage": [0, 1],
    "schedule": ["1f1b", "interleaved"],
    "selective_recompute": ["attention", "layernorm", "moe_act+layernorm"],
    "tensor_par_overlap": ["none"],
    "expert_overlap": [False],
    "activations_offload": [False],
    "weight_offload": [False],
}
REPLACED: Final[Mapping[str, tuple[str, Any]]] = {
    "zero_stage": ("verl on Megatron-Core shards the optimizer's states only", 1),
    "schedule": ("verl runs 1F1B and interleaved 1F1B", "1f1b"),
    "tensor_par_overlap": ("verl has no key for it", "none"),
    "expert_overlap": ("verl has no key for it", False),
    "activations_offload": ("its time is not that of a step here", False),
    "weight_offload": ("its weights leave the GPU between phases only", False),
}
_FSDP_DEFAULTS: Final = dict.fromkeys(
    ("use_torch_fsdp2", "use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather"), True
)
"""Behaviour of verl with FSDP, by Megatron's argument."""
SYNCHRONISATION: Final[Mapping[str, str]] = {"one_step_off": "plain", "asynchronous": "buckets"}
"""Way in which weights reach the rollout by mode: tensor by tensor, or in buckets of the checkpoint engine."""


def write_script(order: RunOrder) -> Written:
    """Return the script of a run. Raises `LaunchError` where verl would refuse it.

    Args:
        order: run to write.
    """
    report = Report()
    report.not_expressible(*order.replaced)
    report.remark(*order.duties)
    settings, mode = order.settings, str(order.settings["mode"])
    if settings["prompts"] % settings["updates"]:
        raise LaunchError(
            f"verl counts mini-batches in prompts: {settings['updates']:,} updates do not divide "
            f"{settings['prompts']:,} prompts."
        )
    if order.layout.execution["datatype"] not in ("bfloat16", "float16"):
        raise LaunchError(f"verl trains in bfloat16 or float16, not in {order.layout.execution['datatype']}.")
    refuse_if_not_started(order, TITLE)
    is_dapo = settings["method"] == "dapo"
    module = DAPO if is_dapo and mode == "colocated" else MODULES[mode]
    if is_dapo and mode != "colocated":
        report.not_expressible("DAPO's resampling of groups: verl has it on shared GPUs only; groups are kept.")
    values: dict[str, Any] = {
        **_data_keys(order),
        **_actor_keys(order, report, is_dapo and mode == "colocated"),
        **_layout_keys(order, report),
        **_rollout_keys(order),
        **_pool_keys(order),
        **_mode_keys(order, report),
    }
    report.not_modelled("data, reward and optimizer: give TRAIN_FILES and VAL_FILES, and a reward of yours.")
    if settings["method"] == "ppo":
        report.remark("The critic has the actor's layout: give critic.megatron.* for another.")
    lists = {title: report.listed(which) for which, title in LIST_TITLES.items()}
    words = ['data.train_files="${TRAIN_FILES}"', 'data.val_files="${VAL_FILES}"']
    words += [f"{key}={quote_value(value)}" for key, value in values.items()]
    start = f"python3 -m {module} --config-path=config --config-name={CONFIGURATIONS[mode]}"
    lines = [
        "#!/usr/bin/env bash",
        *header_lines(TITLE, VERSION, order, lists, "bash run_verl.sh on the head of a Ray cluster"),
        "set -euo pipefail",
        "export CUDA_DEVICE_MAX_CONNECTIONS=1",
        'TRAIN_FILES="${TRAIN_FILES:?parquet files to train on}"',
        'VAL_FILES="${VAL_FILES:?parquet files to validate on}"',
        "",
        *command_lines(start, words),
    ]
    named = (report.listed(which) for which in ("not_expressible", "not_modelled", "remarks"))
    file = LaunchFile("run_verl.sh", "\n".join(lines) + "\n")
    return Written(NAME, TITLE, VERSION, (file,), {"module": module, **values}, *named)


def _data_keys(order: RunOrder) -> dict[str, Any]:
    settings = order.settings
    is_stream = settings["mode"] == "asynchronous"
    return {
        "data.train_batch_size": 0 if is_stream else settings["prompts"],
        **({"data.gen_batch_size": 1} if is_stream else {}),
        "data.max_prompt_length": settings["prompt_tokens"],
        "data.max_response_length": settings["response.cap"],
        "data.filter_overlong_prompts": True,
        "algorithm.adv_estimator": "gae" if settings["method"] == "ppo" else "grpo",
        "algorithm.use_kl_in_reward": False,
    }


def _actor_keys(order: RunOrder, report: Report, filters: bool) -> dict[str, Any]:
    settings = order.settings
    context = int(order.layout.execution["context_par"])
    found: dict[str, Any] = {"algorithm.filter_groups.enable": True} if filters else {}
    found |= {
        "actor_rollout_ref.model.path": order.checkpoint,
        f"{_ACTOR}use_kl_loss": bool(settings["reference"]),
        f"{_ACTOR}ppo_mini_batch_size": settings["prompts"] // settings["updates"],
        f"{_ACTOR}ppo_epochs": 1,
        f"{_ACTOR}ppo_micro_batch_size_per_gpu": 1,
        f"{_ACTOR}use_dynamic_bsz": True,
        # verl multiplies it by the context parallel degree (megatron_actor.py, `max_token_len`).
        f"{_ACTOR}ppo_max_token_len_per_gpu": -(-order.pack_to // context),
    }
    if order.pack_to % context:
        report.not_expressible(f"Packs of {order.pack_to:,} tokens: rounded up to a multiple of {context}.")
    if settings["mode"] != "asynchronous":
        key = "algorithm.rollout_correction.bypass_mode"
        found[key] = not settings["old_log_probs"]
    return found


def _layout_keys(order: RunOrder, report: Report) -> dict[str, Any]:
    arguments = written_arguments(order, report)
    datatype = "bfloat16" if arguments.pop("bf16", None) else "float16"
    arguments.pop("fp16", None)
    if arguments.pop("moe_flex_dispatcher_backend", None) == "deepep":
        arguments["moe_enable_deepep"] = True
    wide = arguments.pop("accumulate_allreduce_grads_in_fp32", False)
    arguments.pop("grad_reduce_in_bf16", None)
    arguments["accumulate_allreduce_grads_in_fp32"] = wide
    if "cp_comm_type" in arguments and isinstance(arguments["cp_comm_type"], list):
        arguments["cp_comm_type"] = arguments["cp_comm_type"][0]
    if order.layout.execution["pipeline_interleaving"] > 1:
        arguments["num_virtual_stages_per_pipeline_rank"] = order.layout.execution["pipeline_interleaving"]
    written = {name: key for name, key in LAYOUT_KEYS.items() if name in arguments}
    name_unwritten_arguments(arguments, written, TITLE, report, _MEGATRON_DEFAULTS)
    found = {_added(key): arguments[name] for name, key in written.items()}
    found[f"{_MEGATRON}dtype"] = datatype
    found |= dict.fromkeys(
        (f"{_MEGATRON}{name}_offload" for name in ("param", "grad", "optimizer")), order.is_colocated
    )
    if order.settings["reference"]:
        found |= {
            written[name].replace(_ACTOR, "actor_rollout_ref.ref."): arguments[name]
            for name in _OF_REFERENCE
            if name in written
        }
        found["actor_rollout_ref.ref.megatron.param_offload"] = True
    return found


def _added(key: str) -> str:
    """Return a key as Hydra takes it: with a plus where the configuration does not have it."""
    name = key.rpartition(".")[2]
    has_plus = key.startswith((_GRADIENTS, _OPTIMIZER)) or (key.startswith(_TRANSFORMER) and name not in _DECLARED)
    return f"+{key}" if has_plus else key


def _rollout_keys(order: RunOrder) -> dict[str, Any]:
    settings, replicas = order.settings, order.replicas
    found: dict[str, Any] = {
        f"{_ROLLOUT}name": "vllm",
        f"{_ROLLOUT}mode": "async",
        f"{_ROLLOUT}n": settings["group"],
        f"{_ROLLOUT}tensor_model_parallel_size": replicas["tensor_par"],
        f"{_ROLLOUT}pipeline_model_parallel_size": replicas["pipeline_par"],
        f"{_ROLLOUT}expert_parallel_size": replicas["expert_par"],
        f"{_ROLLOUT}gpu_memory_utilization": settings["rollout.memory_share"],
        f"{_ROLLOUT}max_num_seqs": settings["rollout.max_sequences"],
        f"{_ROLLOUT}max_model_len": order.longest,
    }
    if settings["rollout.datatype"] == "float8":
        found[f"{_ROLLOUT}quantization"] = "fp8"
    return found


def _pool_keys(order: RunOrder) -> dict[str, Any]:
    def pool(name: str, gpus: int) -> dict[str, Any]:
        nodes = order.nodes_of(gpus)
        return {f"{name}.nnodes": nodes, f"{name}.n_gpus_per_node": gpus // nodes}

    found = {**pool("trainer", order.gpus_train)}
    if order.is_colocated:
        return found
    return {**found, **pool("rollout", order.gpus_rollout), "actor_rollout_ref.hybrid_engine": False}


def _mode_keys(order: RunOrder, report: Report) -> dict[str, Any]:
    settings, mode = order.settings, str(order.settings["mode"])
    synchronisation = settings["synchronisation"]
    if mode == "one_step_off" and synchronisation != "plain":
        report.not_expressible(f"Weight synchronisation {synchronisation}: verl sends tensor by tensor there.")
    if mode != "asynchronous":
        return {"trainer.total_training_steps": settings["steps"]}
    if synchronisation not in ("plain", "buckets"):
        report.not_expressible(
            f"Weight synchronisation {synchronisation}: verl sends buckets of its checkpoint engine."
        )
    return {
        "rollout.total_rollout_steps": settings["prompts"] * settings["steps"],
        f"{_ASYNC}staleness_threshold": settings["staleness"],
        f"{_ASYNC}trigger_parameter_sync_step": settings["updates"],
        f"{_ASYNC}require_batches": 1,
        f"{_ASYNC}partial_rollout": True,
        f"{_ASYNC}use_rollout_log_probs": not settings["old_log_probs"],
        f"{_ASYNC}compute_prox_log_prob": bool(settings["old_log_probs"]),
        f"{_ASYNC}checkpoint_engine.enable": synchronisation != "plain",
    }


def find_script(text: str, name: str, files: Mapping[str, str]) -> FileContents | None:
    """Return the overrides of a script; None for one that starts no program of verl.

    Args:
        text: of the script.
        name: of the file.
        files: unused.
    """
    if "main_ppo" not in text and "main_dapo" not in text and "fully_async" not in text:
        return None
    command = find_command(text, name, lambda word: PROGRAM.fullmatch(word.lstrip("./")) is not None)
    if command is None:
        return None
    words = list(command.words)
    unread = []
    for place, word in enumerate(words):
        if command.hide(word):
            continue
        key, equals, value = word.text.lstrip("+~").partition("=")
        if word.text.startswith("--config-name"):
            told = value if equals else words[place + 1].text if place + 1 < len(words) else ""
            command.put("--config-name", told, word)
        elif word.text.startswith("--config-") or (
            place and words[place - 1].text in ("--config-name", "--config-path")
        ):
            continue
        elif equals and re.fullmatch(r"[\w@./-]{1,200}", key):
            command.put(key, value_of_word(word, value.strip("'\"")), word)
        else:
            unread.append(f"{word.text[:80]} is no override of a key.")
    command.flags["module"] = command.program.replace("/", ".").removesuffix(".py").lstrip(".")
    return FileContents(command.flags, unread=tuple(unread), remarks=tuple(command.remarks), origins=command.origins)


def read_keys(contents: FileContents, asked: LaunchInputs) -> RunReading:
    """Return the run of a script's overrides.

    Args:
        contents: of the script.
        asked: what the caller states.
    """
    flags = dict(contents.flags)
    module, configuration = str(flags.pop("module", "")), str(flags.pop("--config-name", ""))
    reader = RunReader(f"{TITLE} {VERSION}", flags, replace(asked, origins=contents.origins), DEFAULTS)
    reader.report.remark(*contents.remarks)
    reader.report.unread(*contents.unread)
    s, e, say = reader.settings, reader.report.execution, reader.say
    is_megatron = "megatron" in configuration or str(flags.get(f"{_ACTOR}strategy", "")) == "megatron"
    program = "asynchronous" if "fully_async" in module else "one_step_off" if "one_step_off" in module else "colocated"
    reader.read_model("actor_rollout_ref.model.path")
    say("method", partial(_read_method, reader, module))
    _read_mode(reader, program)
    if program == "asynchronous":
        mini, sync, batches = (
            f"{_ACTOR}ppo_mini_batch_size",
            f"{_ASYNC}trigger_parameter_sync_step",
            f"{_ASYNC}require_batches",
        )
        say("prompts", lambda: (s.whole(mini) or 1) * (s.whole(sync) or 1) * (s.whole(batches) or 1))
        s.asked.add("data.train_batch_size")
    else:
        say("prompts", lambda: s.whole("data.train_batch_size"))
    say("group", lambda: s.whole(f"{_ROLLOUT}n"))
    reader.read_updates(
        lambda: (s.whole(f"{_ACTOR}ppo_mini_batch_size") or 1) * int(e["group"]),
        f"{_ACTOR}ppo_mini_batch_size",
        lambda: s.whole(f"{_ACTOR}ppo_epochs") or 1,
    )
    say("steps", partial(_read_steps, reader, program))
    say("reference", lambda: s.truth(f"{_ACTOR}use_kl_loss") or s.truth("algorithm.use_kl_in_reward"))
    say("old_log_probs", partial(_has_old_log_probs, reader, program))
    reader.read_lengths(None, lambda: s.whole("data.max_response_length"))
    _read_rollout(reader)
    _read_training(reader, is_megatron)
    say("pack_to", partial(_read_packs, reader, is_megatron))
    reader.name_rest(NOT_MODELLED, WITHOUT_EFFECT, LAYOUT_KEYS.values())
    return reader.reading(NAME, TITLE, VERSION)


def _read_method(reader: RunReader, module: str) -> Any:
    s = reader.settings
    if s.truth("algorithm.filter_groups.enable"):
        return "dapo"
    word = s.word("algorithm.adv_estimator").lower()
    if s.has("critic.enable") and s.truth("critic.enable") and word != "gae":
        reader.report.not_modelled("critic.enable: a critic besides its own estimator.")
    if word == "gae":
        return "ppo"
    if not word.startswith("grpo"):
        reader.report.remark(f"algorithm.adv_estimator {word[:40]} costs what GRPO costs; it is read as that.")
    return "grpo"


def _read_mode(reader: RunReader, program: str) -> None:
    s = reader.settings

    def mode() -> Any:
        if program != "asynchronous":
            return program
        if not s.number(f"{_ASYNC}staleness_threshold"):
            reader.report.remark(
                f"{_ASYNC}staleness_threshold 0: two pools in turns on streamed samples, which no mode here does."
            )
            return OPEN
        return program

    def staleness() -> int:
        share = s.number(f"{_ASYNC}staleness_threshold") or 0.0
        if share != int(share):
            reader.report.remark(
                f"{_ASYNC}staleness_threshold {share:g}: read as {math.ceil(share)}; here staleness is whole steps."
            )
        return max(math.ceil(share), 1)

    def pool(name: str) -> int:
        each = s.whole(f"{name}.n_gpus_per_node") or 1
        if name == "trainer":
            reader.gpus_per_node = each
        return each * (s.whole(f"{name}.nnodes") or 1)

    reader.say("mode", mode, f"-m {program}" if program == "colocated" else "")
    if reader.known("mode") == "asynchronous":
        reader.say("staleness", staleness)
    if program == "colocated":
        reader.read_gpus(lambda: pool("trainer"), None)
        return
    reader.read_gpus(lambda: pool("trainer"), lambda: pool("rollout"))
    if program == "one_step_off":
        reader.say("synchronisation", lambda: "plain")
    else:
        engine = f"{_ASYNC}checkpoint_engine.enable"
        reader.say("synchronisation", lambda: "buckets" if s.truth(engine, True) else "plain")


def _read_steps(reader: RunReader, program: str) -> Any:
    s, e = reader.settings, reader.report.execution
    if program == "asynchronous":
        samples = s.whole("rollout.total_rollout_steps")
        return OPEN if samples is None else max(samples // int(e["prompts"]), 1)
    return s.whole("trainer.total_training_steps") or OPEN


def _has_old_log_probs(reader: RunReader, program: str) -> bool:
    s = reader.settings
    if program == "asynchronous":
        return not s.truth(f"{_ASYNC}use_rollout_log_probs", True) or s.truth(f"{_ASYNC}compute_prox_log_prob")
    return not s.truth("algorithm.rollout_correction.bypass_mode", program == "one_step_off")


def _read_rollout(reader: RunReader) -> None:
    s, say = reader.settings, reader.say
    engine = reader.value_of(lambda: s.word(f"{_ROLLOUT}name")) or "vllm"
    if engine != "vllm":
        reader.report.not_modelled(f"{_ROLLOUT}name {engine[:40]}: times of the rollout are those of vLLM.")
    say("rollout.datatype", lambda: "float8" if s.word(f"{_ROLLOUT}quantization").startswith("fp8") else "bfloat16")
    say("rollout.tensor_par", lambda: [s.whole(f"{_ROLLOUT}tensor_model_parallel_size")])
    share = f"{_ROLLOUT}gpu_memory_utilization"
    say("rollout.memory_share", lambda: check_share(s.number(share), share))
    say("rollout.max_sequences", lambda: s.whole(f"{_ROLLOUT}max_num_seqs"))
    data = reader.value_of(lambda: s.whole(f"{_ROLLOUT}data_parallel_size"))
    if data is not None and data > 1:
        reader.report.not_modelled(f"{_ROLLOUT}data_parallel_size {data}: replicas that share their experts.")
    reader.read_replicas(
        pipeline=lambda: s.whole(f"{_ROLLOUT}pipeline_model_parallel_size") or 1,
        expert=lambda: s.whole(f"{_ROLLOUT}expert_parallel_size") or 1,
        pipeline_key=f"{_ROLLOUT}pipeline_model_parallel_size",
    )


def _read_packs(reader: RunReader, is_megatron: bool) -> Any:
    s = reader.settings
    if not s.truth(f"{_ACTOR}use_dynamic_bsz"):
        size = s.whole(f"{_ACTOR}ppo_micro_batch_size_per_gpu")
        told = "" if size is None else f", {size:,} samples of each GPU at once"
        reader.report.not_modelled(f"{_ACTOR}use_dynamic_bsz off{told}: the plan packs samples.")
        return OPEN
    tokens = s.whole(f"{_ACTOR}ppo_max_token_len_per_gpu") or 1
    context = reader.layout.execution.known("context_par")
    return OPEN if context is None else tokens * int(context)


def _read_training(reader: RunReader, is_megatron: bool) -> None:
    s = reader.settings
    values, hidden = s.given, reader.hidden_value()
    names: dict[str, str] = dict(LAYOUT_KEYS)
    said: dict[str, Any] = {}
    if not is_megatron:
        keys = {
            "context_parallel_size": f"{_ACTOR}ulysses_sequence_parallel_size",
            "torch_fsdp2_reshard_after_forward": f"{_FSDP}reshard_after_forward",
        }
        names |= {**keys, "use_torch_fsdp2": f"{_ACTOR}strategy"}
        said |= known_values(values, keys, hidden, DEFAULTS)
        s.asked.update({*keys.values(), "actor_rollout_ref.model.enable_gradient_checkpointing"})
        kept = values.get("actor_rollout_ref.model.enable_gradient_checkpointing", hidden or True)
        names["recompute_granularity"] = "actor_rollout_ref.model.enable_gradient_checkpointing"
        if plain_value(kept) is True:
            said |= {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
        elif isinstance(kept, UnknownValue):
            said["recompute_granularity"] = kept
        if said.get("context_parallel_size") not in (None, 1, "1"):
            said["cp_comm_type"] = ["a2a"]
        reader.read_layout(said, _FSDP_DEFAULTS, names)
        return
    said |= known_values(values, LAYOUT_KEYS, hidden, {})
    if said.get("pipeline_model_parallel_layout") is not None:
        said.pop("num_virtual_stages_per_pipeline_rank", None)  # verl has the chunks of a layout twice
    if said.get("moe_enable_deepep") is True:
        said |= {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": "deepep"}
    wide = said.get("accumulate_allreduce_grads_in_fp32")
    if wide is False:
        said["grad_reduce_in_bf16"] = True
        names["grad_reduce_in_bf16"] = names["accumulate_allreduce_grads_in_fp32"]
    datatype = plain_value(values.get(f"{_MEGATRON}dtype"))
    s.asked.add(f"{_MEGATRON}dtype")
    if datatype == "float16":
        said["fp16"], names["fp16"] = True, f"{_MEGATRON}dtype"
    else:
        said["bf16"], names["bf16"] = True, f"{_MEGATRON}dtype"
    if said.get("recompute_granularity") != "selective":
        said.pop("recompute_modules", None)
    if said.get("tensor_model_parallel_size") in (None, 1, "1") and "sequence_parallel" not in said:
        said["sequence_parallel"] = False  # has no effect there, which needs no remark
        names["sequence_parallel"] = names["tensor_model_parallel_size"]
    reader.read_layout(said, _MEGATRON_DEFAULTS, names)
    kept = plain_value(values.get(f"{_MEGATRON}optimizer_offload", hidden or False))
    if reader.known("mode") == "colocated" and kept is False:
        reader.report.not_modelled(
            f"{_MEGATRON}optimizer_offload off: the optimizer stays on the GPU while the rollout runs."
        )


VERL: Final = RunFramework(
    name=NAME,
    title=TITLE,
    aliases=("volcengine-verl",),
    version=VERSION,
    source="volcengine/verl b178a3cd56f5, verl/trainer/config and verl/experimental",
    limits=LIMITS,
    replaced=REPLACED,
    synchronisation=SYNCHRONISATION,
    terms={
        "prompts": "data.train_batch_size",
        "group": "actor_rollout_ref.rollout.n",
        "response.cap": "data.max_response_length",
        "updates": "actor_rollout_ref.actor.ppo_mini_batch_size",
        "mode": "main_ppo, one_step_off_policy.main_ppo, fully_async_main",
        "staleness": "async_training.staleness_threshold",
        "split": "trainer.nnodes, rollout.nnodes",
        "rollout.tensor_par": "actor_rollout_ref.rollout.tensor_model_parallel_size",
        "rollout.memory_share": "actor_rollout_ref.rollout.gpu_memory_utilization",
    },
    write=write_script,
    find=find_script,
    read=read_keys,
)
"""verl on Megatron-Core with vLLM; training on FSDP is read, not written."""
