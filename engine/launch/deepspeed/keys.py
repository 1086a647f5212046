"""Keys of DeepSpeed's JSON, as version 0.19.8 has them.

From deepspeed/runtime/constants.py, runtime/config.py, runtime/zero/config.py, zero/offload_config.py and
docs/_pages/config-json.md (Apache-2.0). Unknown keys pass silently at the top and fail inside `zero_optimization`.
"""

from __future__ import annotations

from typing import Final

__all__ = ["KNOWN", "TELLING", "WITHOUT_EFFECT", "ZERO_KEYS", "ZERO_WITHOUT_EFFECT"]

TELLING: Final = frozenset(
    {
        "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "zero_optimization",
        "communication_data_type", "zero_allow_untested_optimizer", "expert_parallel", "tensor_parallel",
        "sequence_parallel_size", "activation_checkpointing",
    }
)  # fmt: skip
"""Keys by which a JSON file is known as DeepSpeed's."""
KNOWN: Final = TELLING | frozenset(
    {
        "data_parallel_size", "bf16", "bfloat16", "fp16", "amp", "torch_autocast", "data_types", "pipeline", "compile",
        "optimizer", "scheduler", "gradient_clipping", "prescale_gradients", "gradient_predivide_factor",
        "sparse_gradients", "steps_per_print", "wall_clock_breakdown", "dump_state", "memory_breakdown",
        "zero_force_ds_cpu_optimizer", "zero_allow_untested_optimizer", "aio", "tensorboard", "wandb", "csv_monitor",
        "comet", "comms_logger", "flops_profiler", "autotuning", "elasticity", "data_efficiency",
        "curriculum_learning", "compression_training", "checkpoint", "eigenvalue", "quantize_training", "moe",
        "progressive_layer_drop", "sparse_attention", "hybrid_engine", "use_node_local_storage", "seq_parallel_comm",
        "seq_parallel_communication_data_type", "disable_allgather", "fp32_allreduce", "load_universal_checkpoint",
        "graph_harvesting", "weight_quantization", "timers", "nebula", "zenflow", "super_offload", "sdma_allgather",
    }
)  # fmt: skip
"""Keys at the top of the file."""
ZERO_KEYS: Final = frozenset(
    {
        "stage", "contiguous_gradients", "reduce_scatter", "reduce_bucket_size", "use_multi_rank_bucket_allreduce",
        "allgather_partitions", "allgather_bucket_size", "overlap_comm", "load_from_fp32_weights",
        "elastic_checkpoint", "offload_param", "offload_optimizer", "zenflow", "sub_group_size", "cpu_offload_param",
        "cpu_offload_use_pin_memory", "cpu_offload", "stage3_prefetch_bucket_size",
        "stage3_param_persistence_threshold", "stage3_model_persistence_threshold", "stage3_max_live_parameters",
        "stage3_max_reuse_distance", "stage3_gather_16bit_weights_on_model_save",
        "stage3_gather_fp16_weights_on_model_save", "stage3_module_granularity_threshold",
        "stage3_use_all_reduce_for_fetch_params", "stage3_allgather_sequential", "stage3_partition_stream_chunk_size",
        "prefetch_bucket_size", "param_persistence_threshold", "model_persistence_threshold", "max_live_parameters",
        "max_reuse_distance", "gather_16bit_weights_on_model_save", "module_granularity_threshold",
        "use_all_reduce_for_fetch_params", "allgather_sequential", "partition_stream_chunk_size",
        "ignore_unused_parameters", "legacy_stage1", "round_robin_gradients", "zero_hpz_partition_size",
        "zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients",
        "zeropp_loco_param", "mics_shard_size", "mics_hierarchical_params_gather", "memory_efficient_linear",
        "pipeline_loading_checkpoint", "override_module_apply", "log_trace_cache_warnings", "enable_sanity_checks",
        "save_muon_momentum_buffer_in_memory", "leaf_module", "sdma_allgather", "super_offload",
    }
)  # fmt: skip
"""Keys of `zero_optimization`; others are refused."""
WITHOUT_EFFECT: Final = frozenset(
    {
        "optimizer", "scheduler", "gradient_clipping", "steps_per_print", "wall_clock_breakdown", "dump_state",
        "memory_breakdown", "zero_force_ds_cpu_optimizer", "zero_allow_untested_optimizer", "tensorboard", "wandb",
        "csv_monitor", "comet", "comms_logger", "flops_profiler", "checkpoint", "use_node_local_storage",
        "load_universal_checkpoint", "timers", "nebula", "gradient_predivide_factor", "prescale_gradients",
    }
)  # fmt: skip
"""Keys at the top that change nothing that is predicted."""
ZERO_WITHOUT_EFFECT: Final = frozenset(
    {
        "contiguous_gradients", "load_from_fp32_weights", "elastic_checkpoint", "ignore_unused_parameters",
        "legacy_stage1", "gather_16bit_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save",
        "stage3_gather_fp16_weights_on_model_save", "pipeline_loading_checkpoint", "log_trace_cache_warnings",
        "enable_sanity_checks", "cpu_offload_use_pin_memory",
    }
)  # fmt: skip
"""Keys of `zero_optimization` that change nothing that is predicted."""
