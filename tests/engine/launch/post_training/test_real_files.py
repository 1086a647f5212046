"""Public recipes, as the keys that decide them (folders of paths are ours), against values read from them by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from engine.launch import LaunchError
from engine.launch.post_training import is_run_text, read_run_text
from engine.questions import answer

NEMO = "NVIDIA-NeMo/RL@81aa43dda476:examples/configs/recipes/llm/"
VERL = "volcengine/verl@b178a3cd56f5:"
SLIME = "THUDM/slime@a6272da0d:"
PROMPT = 110
"""Prompt length that the caller states [tokens]."""


@dataclass(frozen=True)
class Recipe:
    """Facts of a public file, and the run that they are."""

    source: str
    facts: Mapping[str, Any]
    settings: Mapping[str, Any]
    layout: Mapping[str, Any]
    missing: tuple[str, ...] = ()
    """Settings that it leaves open besides the mean response."""
    named: tuple[str, ...] = ()
    """Words of its lists."""
    parents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    program: str = ""


LAYOUT = dict.fromkeys(("tensor_par", "pipeline_par", "context_par", "expert_par"), 1)
MEGATRON = {"policy.dtensor_cfg.enabled": False, "policy.megatron_cfg.enabled": True}
BASE = "../../../grpo_math_1B.yaml"
QWEN_30B = {
    "defaults": BASE,
    "grpo.num_prompts_per_step": 64,
    "grpo.num_generations_per_prompt": 32,
    "loss_fn.force_on_policy_ratio": True,
    "policy.model_name": "Qwen/Qwen3-30B-A3B",
    "policy.train_global_batch_size": 2048,
    "policy.train_micro_batch_size": 1,
    "policy.max_total_sequence_length": 4096,
    **MEGATRON,
    "policy.megatron_cfg.tensor_model_parallel_size": 1,
    "policy.megatron_cfg.pipeline_model_parallel_size": 1,
    "policy.megatron_cfg.expert_model_parallel_size": 8,
    "policy.megatron_cfg.sequence_parallel": False,
    "policy.generation.vllm_cfg.tensor_parallel_size": 2,
    "cluster.gpus_per_node": 8,
    "cluster.num_nodes": 4,
}
QWEN_235B = {
    "defaults": BASE,
    "grpo.num_prompts_per_step": 16,
    "grpo.num_generations_per_prompt": 32,
    "grpo.max_num_steps": 500,
    "loss_fn.force_on_policy_ratio": True,
    "policy.model_name": "Qwen/Qwen3-235B-A22B",
    "policy.train_micro_batch_size": 1,
    "policy.max_total_sequence_length": 8192,
    **MEGATRON,
    "policy.megatron_cfg.tensor_model_parallel_size": 2,
    "policy.megatron_cfg.sequence_parallel": True,
    "policy.megatron_cfg.pipeline_model_parallel_size": 8,
    "policy.megatron_cfg.context_parallel_size": 2,
    "policy.megatron_cfg.expert_model_parallel_size": 16,
    "policy.megatron_cfg.activation_checkpointing": True,
    "policy.megatron_cfg.num_layers_in_first_pipeline_stage": 11,
    "policy.megatron_cfg.num_layers_in_last_pipeline_stage": 11,
    "policy.generation.vllm_cfg.tensor_parallel_size": 16,
    "cluster.gpus_per_node": 8,
    "cluster.num_nodes": 16,
}
OWN_SLOTS = ("rollout.max_sequences",)
NEMO_RECIPES = [
    Recipe(
        f"{NEMO}performance/grpo-qwen3-30ba3b-4n8g.yaml",
        QWEN_30B,
        {
            "model": "qwen3-30B-A3B",
            "num_procs": 32,
            "mode": "colocated",
            "prompts": 64,
            "group": 32,
            "response.cap": 4096 - PROMPT,
            "updates": 1,
            "reference": True,
            "old_log_probs": False,
            "rollout.tensor_par": [2],
            "rollout.memory_share": 0.6,
        },
        {**LAYOUT, "expert_par": 8, "data_par": 32, "zero_stage": 1, "activation_recompute": "none"},
        OWN_SLOTS,
    ),
    Recipe(
        f"{NEMO}performance/grpo-qwen3-30ba3b-24n8g-async-8off.yaml",
        {
            "defaults": "./grpo-qwen3-30ba3b-4n8g.yaml",
            "grpo.async_grpo.enabled": True,
            "grpo.async_grpo.max_trajectory_age_steps": 8,
            "grpo.async_grpo.in_flight_weight_updates": True,
            "loss_fn.force_on_policy_ratio": False,
            "policy.train_global_batch_size": 512,
            "policy.generation.colocated.enabled": False,
            "policy.generation.colocated.resources.num_nodes": 8,
            "policy.generation.colocated.resources.gpus_per_node": 8,
            "policy.generation.vllm_cfg.gpu_memory_utilization": 0.8,
            "cluster.num_nodes": 24,
        },
        {
            "num_procs": 192,
            "mode": "asynchronous",
            "staleness": 8,
            "split": [128, 64],
            "updates": 4,
            "old_log_probs": True,
            "rollout.memory_share": 0.8,
            "synchronisation": "broadcast",
        },
        {**LAYOUT, "expert_par": 8, "data_par": 128},
        OWN_SLOTS,
        parents={"grpo-qwen3-30ba3b-4n8g.yaml": QWEN_30B},
    ),
    Recipe(
        f"{NEMO}performance/grpo-qwen3-235b-16n8g.yaml",
        QWEN_235B,
        {"num_procs": 128, "mode": "colocated", "updates": 1, "steps": 500, "rollout.tensor_par": [16]},
        {
            **dict(zip(LAYOUT, (2, 8, 2, 16), strict=True)),
            "data_par": 4,
            "stage_layout": "first_11_last_11",
            "activation_recompute": "full",
            "tensor_par_comm_type": "rs_ag",
        },
        OWN_SLOTS,
    ),
    Recipe(
        f"{NEMO}performance/grpo-qwen3-235b-32n8g-async-1off.yaml",
        {
            "defaults": "./grpo-qwen3-235b-16n8g.yaml",
            "grpo.async_grpo.enabled": True,
            "grpo.async_grpo.max_trajectory_age_steps": 1,
            "policy.megatron_cfg.tensor_model_parallel_size": 4,
            "policy.megatron_cfg.context_parallel_size": 1,
            "policy.generation.colocated.enabled": False,
            "policy.generation.colocated.resources.num_nodes": 16,
            "policy.generation.colocated.resources.gpus_per_node": 8,
            "policy.generation.vllm_cfg.tensor_parallel_size": 8,
            "policy.generation.vllm_cfg.gpu_memory_utilization": 0.88,
            "cluster.num_nodes": 32,
        },
        {"mode": "one_step_off", "split": [128, 128], "num_procs": 256, "rollout.memory_share": 0.88},
        {**dict(zip(LAYOUT, (4, 8, 1, 16), strict=True)), "data_par": 4, "zero_stage": 1},
        OWN_SLOTS,
        parents={"grpo-qwen3-235b-16n8g.yaml": QWEN_235B},
    ),
    Recipe(
        f"{NEMO}grpo-gemma3-27b-it-8n8g-fsdp2tp8-actckpt-long.yaml",
        {
            "defaults": "../../grpo_math_1B.yaml",
            "grpo.num_prompts_per_step": 64,
            "grpo.num_generations_per_prompt": 32,
            "grpo.max_num_steps": 20,
            "policy.model_name": "google/gemma-3-27b-it",
            "policy.train_micro_batch_size": 1,
            "policy.max_total_sequence_length": 16384,
            "policy.dtensor_cfg.activation_checkpointing": True,
            "policy.dtensor_cfg.tensor_parallel_size": 8,
            "policy.sequence_packing.enabled": False,
            "policy.generation.max_new_tokens": 16384,
            "policy.generation.vllm_cfg.tensor_parallel_size": 4,
            "cluster.gpus_per_node": 8,
            "cluster.num_nodes": 8,
        },
        {"model": "gemma-3-27B", "num_procs": 64, "updates": 4, "response.cap": 16384 - PROMPT, "old_log_probs": True},
        {**LAYOUT, "tensor_par": 8, "data_par": 8, "zero_stage": 3, "activation_recompute": "full"},
        OWN_SLOTS,
        named=("padded",),
    ),
    Recipe(
        "NVIDIA-NeMo/RL@81aa43dda476:examples/configs/grpo_math_70B_megatron.yaml",
        {"defaults": "grpo_math_70B_megatron.yaml", "grpo.max_num_steps": 7},
        {"model": "llama-3.3-70B", "num_procs": 64, "prompts": 64, "updates": 4, "rollout.tensor_par": [8], "steps": 7},
        {**LAYOUT, "tensor_par": 4, "pipeline_par": 4, "data_par": 4},
        OWN_SLOTS,
    ),
]
_R = "actor_rollout_ref.rollout."
_A = "actor_rollout_ref.actor."
_M = f"{_A}megatron."
VERL_RECIPES = [
    Recipe(
        f"{VERL}examples/grpo_trainer/run_qwen2-7b.sh",
        {
            "algorithm.adv_estimator": "grpo",
            "data.train_batch_size": 1024,
            "data.max_prompt_length": 512,
            "data.max_response_length": 1024,
            "actor_rollout_ref.model.path": "Qwen/Qwen2-7B-Instruct",
            f"{_A}ppo_mini_batch_size": 256,
            f"{_A}ppo_micro_batch_size_per_gpu": 40,
            f"{_A}use_kl_loss": True,
            "actor_rollout_ref.model.enable_gradient_checkpointing": True,
            f"{_R}tensor_model_parallel_size": 2,
            f"{_R}gpu_memory_utilization": 0.6,
            f"{_R}n": 5,
            "trainer.n_gpus_per_node": 8,
            "trainer.nnodes": 1,
        },
        {
            "model": "qwen2-7B",
            "num_procs": 8,
            "mode": "colocated",
            "prompts": 1024,
            "group": 5,
            "response.cap": 1024,
            "updates": 4,
            "reference": True,
            "old_log_probs": True,
            "rollout.tensor_par": [2],
            "rollout.memory_share": 0.6,
            "rollout.max_sequences": 256,
        },
        {**LAYOUT, "data_par": 8, "zero_stage": 3, "activation_recompute": "full"},
        ("steps", "pack_to"),
        ("40 samples of each GPU",),
        program="-m verl.trainer.main_ppo",
    ),
    Recipe(
        f"{VERL}examples/grpo_trainer/run_qwen2_5-7b_math_megatron_diff_tp.sh",
        {
            "algorithm.adv_estimator": "grpo",
            "data.train_batch_size": 1024,
            "data.max_response_length": 1024,
            "actor_rollout_ref.model.path": "Qwen/Qwen2.5-7B-Instruct",
            f"{_A}ppo_mini_batch_size": 256,
            f"{_M}pipeline_model_parallel_size": 2,
            f"{_M}tensor_model_parallel_size": 2,
            f"{_A}use_kl_loss": True,
            f"{_R}tensor_model_parallel_size": 4,
            f"{_R}gpu_memory_utilization": 0.6,
            f"{_R}n": 5,
            "trainer.n_gpus_per_node": 8,
            "trainer.nnodes": 1,
        },
        {"model": "qwen2.5-7B", "num_procs": 8, "updates": 4, "rollout.tensor_par": [4]},
        {**LAYOUT, "tensor_par": 2, "pipeline_par": 2, "data_par": 2, "zero_stage": 1, "tensor_par_comm_type": "rs_ag"},
        ("steps", "pack_to"),
        ("optimizer stays on the GPU",),
        program="-m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml'",
    ),
    Recipe(
        f"{VERL}examples/grpo_trainer/run_moonlight16b_math_megatron.sh",
        {
            "algorithm.adv_estimator": "grpo",
            "data.train_batch_size": 192,
            "data.max_response_length": 2048,
            "actor_rollout_ref.model.path": "moonshotai/Moonlight-16B-A3B",
            f"{_A}ppo_mini_batch_size": 64,
            f"{_M}pipeline_model_parallel_size": 3,
            f"{_M}tensor_model_parallel_size": 4,
            f"{_M}expert_model_parallel_size": 4,
            f"{_M}expert_tensor_parallel_size": 1,
            f"{_A}use_kl_loss": True,
            f"{_R}tensor_model_parallel_size": 4,
            f"{_R}n": 5,
            "trainer.n_gpus_per_node": 8,
            "trainer.nnodes": 3,
        },
        {"num_procs": 24, "prompts": 192, "updates": 3, "response.cap": 2048},
        {**dict(zip(LAYOUT, (4, 3, 1, 4), strict=True)), "data_par": 2},
        ("model", "steps", "pack_to"),
        ("no model of the library",),
        program="-m verl.trainer.main_ppo --config-path=config --config-name='ppo_megatron_trainer.yaml'",
    ),
    Recipe(
        f"{VERL}verl/experimental/one_step_off_policy/shell/dapo_7b_math_megatron_4_12.sh",
        {
            "data.max_response_length": 8192,
            "data.train_batch_size": 512,
            f"{_R}n": 12,
            "algorithm.adv_estimator": "grpo",
            f"{_A}strategy": "megatron",
            f"{_A}use_kl_loss": False,
            "actor_rollout_ref.model.path": "/verl/models/Qwen2.5-Math-7B",
            f"{_A}ppo_mini_batch_size": 32,
            f"{_M}pipeline_model_parallel_size": 2,
            f"{_M}tensor_model_parallel_size": 2,
            f"{_R}gpu_memory_utilization": 0.80,
            f"{_R}tensor_model_parallel_size": 2,
            "trainer.total_training_steps": 100,
            "trainer.nnodes": 2,
            "trainer.n_gpus_per_node": 6,
            "rollout.nnodes": 2,
            "rollout.n_gpus_per_node": 2,
        },
        {
            "mode": "one_step_off",
            "split": [12, 4],
            "num_procs": 16,
            "updates": 16,
            "steps": 100,
            "reference": False,
            "old_log_probs": False,
            "synchronisation": "plain",
        },
        {**LAYOUT, "tensor_par": 2, "pipeline_par": 2, "data_par": 3},
        ("model", "pack_to"),
        program="-m verl.experimental.one_step_off_policy.main_ppo "
        "--config-name='one_step_off_ppo_megatron_trainer.yaml'",
    ),
    Recipe(
        f"{VERL}verl/experimental/fully_async_policy/shell/grpo_30b_a3b_base_math_megatron_96_32.sh",
        {
            "data.max_response_length": 8192,
            "data.train_batch_size": 0,
            f"{_R}n": 16,
            "algorithm.adv_estimator": "grpo",
            "actor_rollout_ref.model.path": "/verl/models/Qwen3-30B-A3B-Base",
            f"{_A}use_kl_loss": True,
            f"{_A}use_dynamic_bsz": True,
            f"{_A}ppo_mini_batch_size": 128,
            f"{_A}ppo_max_token_len_per_gpu": 10240,
            f"+{_A}optim.override_optimizer_config.optimizer_offload_fraction": 1.0,
            f"+{_A}optim.override_optimizer_config.use_precision_aware_optimizer": True,
            f"+{_A}optim.override_optimizer_config.optimizer_cpu_offload": True,
            f"{_M}tensor_model_parallel_size": 2,
            f"{_M}pipeline_model_parallel_size": 1,
            f"{_M}virtual_pipeline_model_parallel_size": "null",
            f"{_M}context_parallel_size": 2,
            f"{_M}expert_model_parallel_size": 8,
            f"{_M}expert_tensor_parallel_size": 1,
            f"+{_M}override_transformer_config.moe_token_dispatcher_type": "flex",
            f"+{_M}override_transformer_config.moe_enable_deepep": True,
            f"{_R}gpu_memory_utilization": 0.7,
            f"{_R}tensor_model_parallel_size": 4,
            f"{_R}enforce_eager": True,
            "trainer.nnodes": 4,
            "trainer.n_gpus_per_node": 8,
            "rollout.nnodes": 12,
            "rollout.n_gpus_per_node": 8,
            "rollout.total_rollout_steps": 204800,
            "async_training.staleness_threshold": 0.5,
            "async_training.trigger_parameter_sync_step": 4,
            "async_training.require_batches": 1,
            "async_training.use_rollout_log_probs": True,
        },
        {
            "model": "qwen3-30B-A3B",
            "mode": "asynchronous",
            "staleness": 1,
            "split": [32, 96],
            "prompts": 512,
            "updates": 4,
            "steps": 400,
            "pack_to": 20480,
            "old_log_probs": False,
            "rollout.tensor_par": [4],
            "synchronisation": "buckets",
        },
        {
            **dict(zip(LAYOUT, (2, 1, 2, 8), strict=True)),
            "data_par": 8,
            "optimizer_offload": True,
            "token_dispatcher": "deepep",
        },
        (),
        ("staleness_threshold 0.5: read as 1", "without CUDA graphs"),
        program="-m verl.experimental.fully_async_policy.fully_async_main "
        "--config-name='fully_async_ppo_megatron_trainer.yaml'",
    ),
    Recipe(
        f"{VERL}verl/experimental/fully_async_policy/shell/dapo_7b_math_fsdp2_64_64.sh",
        {
            "data.max_response_length": 28672,
            "data.train_batch_size": 0,
            f"{_R}n": 16,
            "algorithm.adv_estimator": "grpo",
            f"{_A}strategy": "fsdp2",
            f"{_A}use_kl_loss": False,
            f"{_A}use_dynamic_bsz": True,
            f"{_A}ppo_max_token_len_per_gpu": 61440,
            "actor_rollout_ref.model.path": "/verl/models/Qwen2.5-Math-7B",
            f"{_A}ppo_mini_batch_size": 32,
            f"{_A}ulysses_sequence_parallel_size": 4,
            f"{_R}gpu_memory_utilization": 0.80,
            f"{_R}tensor_model_parallel_size": 4,
            f"{_A}fsdp_config.fsdp_size": 8,
            "trainer.nnodes": 8,
            "trainer.n_gpus_per_node": 8,
            "rollout.nnodes": 8,
            "rollout.n_gpus_per_node": 8,
            "rollout.total_rollout_steps": 204800,
            "async_training.staleness_threshold": 0.5,
            "async_training.trigger_parameter_sync_step": 4,
            "async_training.require_batches": 4,
        },
        {"split": [64, 64], "prompts": 512, "updates": 16, "pack_to": 245760, "reference": False},
        {**LAYOUT, "context_par": 4, "data_par": 16, "zero_stage": 3, "context_par_comm": "a2a"},
        ("model",),
        ("some of the GPUs",),
        program="-m verl.experimental.fully_async_policy.fully_async_main",
    ),
]
RECOMPUTE = {"recompute-granularity": "full", "recompute-method": "uniform", "recompute-num-layers": 1}
SAMPLES = {"num-rollout": 3000, "rollout-batch-size": 32, "n-samples-per-prompt": 8, "rollout-max-response-len": 8192}
FILTERS = "slime.rollout.filter_hub.dynamic_sampling_filters"
DYNAMIC = {"use-dynamic-batch-size": True}
HOST = {"optimizer-cpu-offload": True, "overlap-cpu-optimizer-d2h-h2d": True, "use-precision-aware-optimizer": True}


def degrees(tensor: int, pipeline: int, context: int, expert: int) -> dict[str, Any]:
    return {
        "tensor-model-parallel-size": tensor,
        "sequence-parallel": True,
        "pipeline-model-parallel-size": pipeline,
        "context-parallel-size": context,
        "expert-model-parallel-size": expert,
        "expert-tensor-parallel-size": 1,
    }


SLIME_RECIPES = [
    Recipe(
        f"{SLIME}scripts/run-qwen3-30B-A3B.sh",
        {
            "actor-num-nodes": 1,
            "actor-num-gpus-per-node": 8,
            "colocate": True,
            "hf-checkpoint": "/checkpoints/Qwen3-30B-A3B",
            **SAMPLES,
            "global-batch-size": 256,
            **degrees(4, 1, 1, 8),
            **RECOMPUTE,
            **DYNAMIC,
            "max-tokens-per-gpu": 20480,
            "advantage-estimator": "grpo",
            "use-kl-loss": True,
            "kl-loss-coef": 0.00,
            **HOST,
            "rollout-num-gpus-per-engine": 8,
            "sglang-mem-fraction-static": 0.7,
        },
        {
            "model": "qwen3-30B-A3B",
            "num_procs": 8,
            "mode": "colocated",
            "prompts": 32,
            "group": 8,
            "response.cap": 8192,
            "updates": 1,
            "reference": True,
            "old_log_probs": False,
            "steps": 3000,
            "pack_to": 20480,
            "rollout.tensor_par": [8],
            "rollout.memory_share": 0.7,
            "rollout.max_sequences": 512,
        },
        {
            **dict(zip(LAYOUT, (4, 1, 1, 8), strict=True)),
            "data_par": 2,
            "optimizer_offload": True,
            "activation_recompute": "full",
            "zero_stage": 1,
        },
        program="train.py",
    ),
    Recipe(
        f"{SLIME}scripts/run-glm4-9B.sh",
        {
            "actor-num-nodes": 1,
            "actor-num-gpus-per-node": 4,
            "rollout-num-gpus": 4,
            "hf-checkpoint": "/checkpoints/GLM-Z1-9B-0414/",
            **SAMPLES,
            "global-batch-size": 256,
            **degrees(2, 1, 2, 1),
            **RECOMPUTE,
            **DYNAMIC,
            "max-tokens-per-gpu": 4608,
            "use-kl-loss": True,
            "rollout-num-gpus-per-engine": 2,
        },
        {"split": [4, 4], "num_procs": 8, "pack_to": 9216, "rollout.tensor_par": [2]},
        {**LAYOUT, "tensor_par": 2, "context_par": 2, "data_par": 1},
        ("model", "mode", "rollout.memory_share"),
        ("two pools that take turns",),
        program="train.py",
    ),
    Recipe(
        f"{SLIME}scripts/run-deepseek-r1.sh",
        {
            "actor-num-nodes": 16,
            "actor-num-gpus-per-node": 8,
            "colocate": True,
            "hf-checkpoint": "/DeepSeek-R1/",
            "num-rollout": 3000,
            "rollout-batch-size": 128,
            "n-samples-per-prompt": 8,
            "rollout-max-response-len": 32768,
            "over-sampling-batch-size": 256,
            "dynamic-sampling-filter-path": f"{FILTERS}.check_reward_nonzero_std",
            "num-steps-per-rollout": 4,
            **degrees(8, 4, 4, 32),
            "decoder-last-pipeline-num-layers": 13,
            **RECOMPUTE,
            **DYNAMIC,
            "max-tokens-per-gpu": 16384,
            "use-kl-loss": True,
            **HOST,
            "rollout-num-gpus-per-engine": 64,
            "sglang-mem-fraction-static": 0.7,
            "sglang-ep-size": 64,
            "sglang-enable-dp-attention": True,
            "sglang-server-concurrency": 1024,
        },
        {
            "model": "deepseek-v3",
            "method": "dapo",
            "num_procs": 128,
            "updates": 4,
            "old_log_probs": True,
            "pack_to": 65536,
            "rollout.tensor_par": [64],
            "rollout.max_sequences": 1024,
        },
        {**dict(zip(LAYOUT, (8, 4, 4, 32), strict=True)), "data_par": 1, "stage_layout": "last_13"},
        named=("more samples than are trained", "attention by replicas"),
        program="train.py",
    ),
    Recipe(
        f"{SLIME}scripts/run-qwen3-235B-A22B.sh",
        {
            "actor-num-nodes": 8,
            "actor-num-gpus-per-node": 8,
            "rollout-num-gpus": 64,
            "hf-checkpoint": "/Qwen3-235B-A22B-FP8",
            **SAMPLES,
            "rollout-batch-size": 8,
            "global-batch-size": 64,
            **degrees(4, 4, 2, 16),
            "decoder-last-pipeline-num-layers": 22,
            **RECOMPUTE,
            **DYNAMIC,
            "max-tokens-per-gpu": 16384,
            "advantage-estimator": "gspo",
            **HOST,
            "rollout-num-gpus-per-engine": 32,
            "sglang-mem-fraction-static": 0.7,
            "sglang-ep-size": 32,
        },
        {"split": [64, 64], "rollout.datatype": "float8", "reference": False, "old_log_probs": True, "updates": 1},
        {**dict(zip(LAYOUT, (4, 4, 2, 16), strict=True)), "data_par": 2, "stage_layout": "last_22"},
        ("mode",),
        ("gspo costs what GRPO costs",),
        program="train.py",
    ),
    Recipe(
        f"{SLIME}examples/fully_async/run-qwen3.5-9B-fully_async.sh",
        {
            "actor-num-nodes": 1,
            "actor-num-gpus-per-node": 4,
            "rollout-num-gpus": 4,
            "hf-checkpoint": "/checkpoints/models/Qwen3.5-9B",
            "rollout-function-path": "slime.rollout.fully_async_rollout.generate_rollout_fully_async",
            "num-rollout": 3,
            "rollout-batch-size": 8,
            "n-samples-per-prompt": 4,
            "rollout-max-response-len": 2048,
            "global-batch-size": 32,
            **degrees(2, 1, 1, 1),
            **DYNAMIC,
            "max-tokens-per-gpu": 4096,
            "use-kl-loss": True,
            "rollout-num-gpus-per-engine": 2,
            "sglang-mem-fraction-static": 0.7,
        },
        {"mode": "asynchronous", "split": [4, 4], "num_procs": 8, "synchronisation": "buckets", "steps": 3},
        {**LAYOUT, "tensor_par": 2, "data_par": 2},
        ("staleness", "model"),
        ("no bound of staleness",),
        program="train_async.py",
    ),
    Recipe(
        f"{SLIME}examples/retool/retool_qwen3_4b_rl.sh",
        {
            "actor-num-nodes": 1,
            "actor-num-gpus-per-node": 4,
            "colocate": True,
            "hf-checkpoint": "/checkpoints/font-info/qwen3-4b-sft",
            **SAMPLES,
            "global-batch-size": 256,
            **degrees(2, 1, 1, 1),
            **RECOMPUTE,
            **DYNAMIC,
            "max-tokens-per-gpu": 9216,
            "use-kl-loss": True,
            "rollout-num-gpus-per-engine": 2,
            "sglang-mem-fraction-static": 0.7,
            "custom-generate-function-path": "generate_with_retool.generate",
        },
        {"num_procs": 4, "mode": "colocated", "pack_to": 9216, "updates": 1},
        {**LAYOUT, "tensor_par": 2, "data_par": 2},
        ("model",),
        ("tool_s",),
        program="train.py",
    ),
]
PUBLISHED = [
    (NEMO_RECIPES[0], 3198.0, 94, 171.0),
    (NEMO_RECIPES[1], 3203.0, 108, 33.1),
    (NEMO_RECIPES[2], 5719.0, 126, 367.0),
]
"""Recipe, mean response, prompt length, and step [s] on H100: docs/about/performance-summary.md of NeMo-RL 0.7.0."""
RECIPES = [*NEMO_RECIPES, *VERL_RECIPES, *SLIME_RECIPES]


def nested(facts: Mapping[str, Any]) -> str:
    tree: dict[str, Any] = {}
    for key, value in facts.items():
        *tables, last = key.split(".")
        place = tree
        for name in () if key == "defaults" else tables:
            place = place.setdefault(name, {})
        place[last] = value
    return yaml.safe_dump(tree, sort_keys=False)


def text_of(recipe: Recipe) -> tuple[str, str]:
    """Return the name and the text of a file with the facts of a recipe."""
    if recipe.source.startswith("NVIDIA"):
        return "recipe.yaml", nested(recipe.facts)
    if recipe.source.startswith("volc"):
        words = " \\\n".join(f"    {key}={value}" for key, value in recipe.facts.items())
        return "run.sh", f"set -x\npython3 {recipe.program} \\\n{words} $@\n"
    words = "\n".join(f"   --{key}" + ("" if value is True else f" {value}") for key, value in recipe.facts.items())
    return "run.sh", f"ARGS=(\n{words}\n)\nray job submit -- python3 {recipe.program} ${{MODEL_ARGS[@]}} ${{ARGS[@]}}\n"


@pytest.mark.parametrize("recipe", RECIPES, ids=[each.source.rpartition("/")[2] for each in RECIPES])
def test_a_public_recipe_is_read_as_it_says(recipe: Recipe) -> None:
    name, text = text_of(recipe)
    assert is_run_text(text, name)
    files = {parent: nested(facts) for parent, facts in recipe.parents.items()}
    found = read_run_text(text, name, files=files, stated={"prompt_tokens": PROMPT})
    expected = {"method": "grpo", **recipe.settings}
    assert {path: found.settings.get(path) for path in expected} == expected
    assert {path: found.layout.get(path) for path in recipe.layout} == recipe.layout
    assert sorted(found.left) == sorted(("response.mean", *recipe.missing))
    assert not found.unread
    assert not found.refused
    told = " ".join((*found.not_modelled, *found.remarks))
    assert [word for word in recipe.named if word not in told] == []
    # Every value has a source, and none that is stated is without its key.
    assert all(found.origins[path].words for path in found.settings)


@pytest.mark.parametrize(("recipe", "mean", "prompt", "published"), PUBLISHED)
def test_the_plan_of_a_recipe_is_near_its_published_step(
    recipe: Recipe, mean: float, prompt: int, published: float
) -> None:
    files = {parent: nested(facts) for parent, facts in recipe.parents.items()}
    stated = {"mean": mean, "prompt_tokens": prompt}
    asked = {"text": nested(recipe.facts), "name": "recipe.yaml", "files": files, "stated": stated}
    found = answer("import_post_training", {**asked, "system": "h100_80g_sxm"})
    (best,) = found["plan"]["best"]
    assert best["step_s"]["low"] <= published <= best["step_s"]["high"]
    layout = {name: best["execution"][name] for name in ("tensor_par", "pipeline_par", "context_par", "expert_par")}
    assert layout == {name: recipe.layout[name] for name in layout}


def test_a_recipe_whose_parent_is_missing_takes_no_defaults() -> None:
    recipe = NEMO_RECIPES[1]
    found = read_run_text(nested(recipe.facts), "recipe.yaml")
    known = {"mode", "staleness", "rollout.memory_share", "synchronisation"}
    assert known <= set(found.settings)
    assert {"model", "prompts", "group", "updates", "response.cap", "num_procs"} <= set(found.left)
    assert "tensor_par" not in found.layout
    assert any("grpo-qwen3-30ba3b-4n8g.yaml" in each for each in found.remarks)
    assert "defaults ./grpo-qwen3-30ba3b-4n8g.yaml" in found.origins["prompts"].words
    # The caller may say that it sets nothing that is read.
    assumed = read_run_text(nested(recipe.facts), "recipe.yaml", takes_defaults=True)
    assert assumed.settings["prompts"] == 32
    assert assumed.origins["prompts"].kind == "default"


def test_values_from_outside_stay_open() -> None:
    script = "python3 -m verl.trainer.main_ppo data.train_batch_size=$BATCH actor_rollout_ref.rollout.n=${N:-8}\n"
    found = read_run_text(script, "run.sh")
    assert found.settings["group"] == 8
    assert found.origins["prompts"].words == "data.train_batch_size $BATCH"
    assert "prompts" in found.left
    assert "updates" in found.left
    stated = read_run_text(script, "run.sh", stated={"prompts": 256})
    assert (stated.settings["prompts"], stated.origins["prompts"].words) == (256, "--set")


def test_references_within_a_configuration_are_put_in() -> None:
    facts = {
        **QWEN_30B,
        "policy.max_total_sequence_length": 1024,
        "policy.generation.max_new_tokens": "${policy.max_total_sequence_length}",
        "policy.sequence_packing.train_mb_tokens": "${mul:${policy.max_total_sequence_length}, 3}",
    }
    found = read_run_text(nested(facts), "recipe.yaml", stated={"prompt_tokens": 24})
    assert found.settings["response.cap"] == 1000
    assert found.settings["pack_to"] == 3072


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("defaults: grpo_math_1B.yaml\ngrpo:\n  num_prompts_per_step: 0\n", "a.yaml", "whole number from 1"),
        ("model: x\n", "a.yaml", "no launch file of reinforcement learning"),
        ("a: &b 1\ngrpo: *b\npolicy: {}\n", "a.yaml", "anchor"),
        (
            "python3 train.py --loss-type sft_loss --rollout-batch-size 8 --hf-checkpoint x --n-samples-per-prompt 1",
            "a.sh",
            "supervised fine-tuning",
        ),
        ("python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.gpu_memory_utilization=1.4", "a.sh", "at most 1"),
    ],
)
def test_files_that_cannot_be_say_so_in_a_sentence(text: str, name: str, told: str) -> None:
    with pytest.raises(LaunchError, match=told):
        read_run_text(text, name)


def test_a_group_where_a_value_belongs_is_no_default() -> None:
    """The framework would refuse it: nothing may stand in for what the file tried to say."""
    recipe = NEMO_RECIPES[0]
    name, text = text_of(recipe)
    files = {parent: nested(facts) for parent, facts in recipe.parents.items()}
    assert read_run_text(text, name, files=files).settings["model"]
    broken = nested({**recipe.facts, "policy.model_name": {"a": 1}})
    assert "model" not in read_run_text(broken, name, files=files).settings
