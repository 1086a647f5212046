"""Keys of Megatron-Bridge's `ConfigContainer` and the arguments of Megatron-Core that they state.

Source: NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/config.py, comm_overlap.py, mixed_precision.py. Keys
of `model` are the fields of Megatron-Core's TransformerConfig, most of which have the name of their argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from engine.launch.key_lists import read_key_lists
from models import datatypes

__all__ = ["KEYS", "PRECISIONS", "SHORT", "TERMS"]

KEYS: Final[Mapping[str, str]] = read_key_lists("megatron_bridge")["keys by argument"]
"""Keys by the argument that they state."""

SHORT: Final[Mapping[str, str]] = {
    "-tp": "model.tensor_model_parallel_size",
    "-pp": "model.pipeline_model_parallel_size",
    "-cp": "model.context_parallel_size",
    "-vp": "model.virtual_pipeline_model_parallel_size",
    "-ep": "model.expert_model_parallel_size",
    "-etp": "model.expert_tensor_parallel_size",
    "-gb": "train.global_batch_size",
    "-mb": "train.micro_batch_size",
    "-sl": "model.seq_length",
}
"""Short forms of the program that runs recipes; a key written out counts more."""


def _list_precisions() -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield recipes of mixed precision by name, as Megatron's arguments."""
    for each in datatypes.for_products(program="megatron_bridge"):
        for name, word in zip(each.words["megatron_bridge"], each.words["megatron"], strict=True):
            if each.bits == 16:
                yield name, {word: True}
                continue
            narrow = {f"fp{each.bits}": each.encoding, f"fp{each.bits}_recipe": word}
            yield name, {"bf16": True, **narrow}
            if each.name == "float8":  # the only one that there is around FP16, too
                yield name.replace("bf16", "fp16", 1), {"fp16": True, **narrow}


PRECISIONS: Final[Mapping[str, Mapping[str, object]]] = dict(_list_precisions())
"""Recipes of mixed precision by name, as arguments."""

TERMS: Final[Mapping[str, str]] = {
    "num_procs": "torchrun --nproc_per_node x --nnodes",
    "tensor_par": "model.tensor_model_parallel_size",
    "pipeline_par": "model.pipeline_model_parallel_size",
    "data_par": "GPUs / (tensor x pipeline x context parallel)",
    "context_par": "model.context_parallel_size",
    "expert_par": "model.expert_model_parallel_size",
    "expert_tensor_par": "model.expert_tensor_parallel_size",
    "batch_size": "train.global_batch_size",
    "microbatch_size": "train.micro_batch_size",
    "pipeline_interleaving": "model.virtual_pipeline_model_parallel_size",
    "schedule": "model.virtual_pipeline_model_parallel_size, comm_overlap.overlap_moe_expert_parallel_comm",
    "stage_layout": "model.pipeline_model_parallel_layout, model.num_layers_in_first_pipeline_stage, "
    "model.account_for_embedding_in_pipeline_split",
    "datatype": "mixed_precision",
    "attention_type": "model.num_query_groups",
    "activation_recompute": "model.recompute_granularity",
    "selective_recompute": "model.recompute_modules",
    "recompute_blocks": "model.recompute_method, model.recompute_num_layers",
    "optimizer_sharding": "ddp.use_distributed_optimizer",
    "zero_stage": "ddp.use_distributed_optimizer, ddp.use_megatron_fsdp, ddp.data_parallel_sharding_strategy",
    "tensor_par_comm_type": "model.sequence_parallel",
    "seq_par_ag_redo": "model.sequence_parallel",
    "tensor_par_overlap": "comm_overlap.tp_comm_overlap",
    "data_par_overlap": "ddp.overlap_grad_reduce, comm_overlap.overlap_grad_reduce",
    "weight_offload": "model.cpu_offloading_weights",
    "activations_offload": "model.cpu_offloading_num_layers",
    "optimizer_offload": "optimizer.optimizer_cpu_offload",
    "training": "train.skip_train",
    "attention_kernel": "model.attention_backend",
    "launch": "model.cuda_graph_impl",
    "gradient_datatype": "mixed_precision.grad_reduce_in_fp32",
    "optimizer_datatype": "optimizer.exp_avg_dtype, optimizer.exp_avg_sq_dtype",
    "fp8_param_gather": "mixed_precision.fp8_param_gather",
    "expert_overlap": "comm_overlap.overlap_moe_expert_parallel_comm",
    "token_dispatcher": "model.moe_token_dispatcher_type, model.moe_flex_dispatcher_backend",
    "context_par_comm": "model.cp_comm_type",
}
"""Keys of Megatron-Bridge by field."""
