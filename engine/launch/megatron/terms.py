"""Flags that set each field of an execution, as pages and guide show them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["CONTEXT_EXCHANGES", "DISPATCHERS", "TERMS"]

TERMS: Final[Mapping[str, str]] = {
    "num_procs": "torchrun --nproc_per_node x --nnodes",
    "tensor_par": "--tensor-model-parallel-size",
    "pipeline_par": "--pipeline-model-parallel-size",
    "data_par": "GPUs / (tensor x pipeline x context parallel)",
    "context_par": "--context-parallel-size",
    "expert_par": "--expert-model-parallel-size",
    "expert_tensor_par": "--expert-tensor-parallel-size",
    "batch_size": "--global-batch-size",
    "microbatch_size": "--micro-batch-size",
    "pipeline_interleaving": "--num-virtual-stages-per-pipeline-rank",
    "schedule": "--num-virtual-stages-per-pipeline-rank, --overlap-moe-expert-parallel-comm",
    "stage_layout": "--pipeline-model-parallel-layout, --decoder-first-pipeline-num-layers, "
    "--account-for-embedding-in-pipeline-split, --hybrid-layer-pattern",
    "datatype": "--bf16, --fp16, --fp8-format, --fp4-format",
    "attention_type": "--group-query-attention --num-query-groups",
    "activation_recompute": "--recompute-granularity",
    "selective_recompute": "--recompute-modules",
    "recompute_blocks": "--recompute-method, --recompute-num-layers",
    "optimizer_sharding": "--use-distributed-optimizer",
    "zero_stage": "--use-distributed-optimizer, --use-megatron-fsdp --data-parallel-sharding-strategy",
    "tensor_par_comm_type": "--sequence-parallel",
    "seq_par_ag_redo": "--sequence-parallel",
    "tensor_par_overlap": "--tp-comm-overlap",
    "data_par_overlap": "--overlap-grad-reduce --overlap-param-gather",
    "activations_offload": "--cpu-offloading-num-layers, --fine-grained-activation-offloading",
    "optimizer_offload": "--optimizer-cpu-offload",
    "training": "--skip-train",
    "attention_kernel": "--attention-backend",
    "launch": "--cuda-graph-impl, --cuda-graph-modules, --transformer-impl",
    "gradient_datatype": "--grad-reduce-in-bf16",
    "optimizer_datatype": "--exp-avg-dtype, --exp-avg-sq-dtype",
    "fp8_param_gather": "--fp8-param-gather",
    "expert_overlap": "--overlap-moe-expert-parallel-comm",
    "token_dispatcher": "--moe-token-dispatcher-type, --moe-flex-dispatcher-backend",
    "context_par_comm": "--cp-comm-type",
}
"""Flags of Megatron-LM by field."""

DISPATCHERS: Final[Mapping[str, tuple[str, str | None]]] = {
    "all_to_all": ("alltoall", None),
    "all_gather": ("allgather", None),
    "deepep": ("flex", "deepep"),
    "hybridep": ("flex", "hybridep"),
}
"""Token dispatchers in Megatron's words: --moe-token-dispatcher-type, --moe-flex-dispatcher-backend."""
CONTEXT_EXCHANGES: Final[Mapping[str, str]] = {
    "p2p": "p2p",
    "all_gather": "allgather",
    "a2a": "a2a",
    "hierarchical": "a2a+p2p",
}
"""Exchanges between context-parallel ranks in Megatron's words: --cp-comm-type."""
