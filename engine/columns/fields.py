"""The fields of one execution as data, in the order in which results are returned.

`engine.columns` turns these rows into `Column` objects; nothing else reads this file. The names of the 23 are
Calculon's; the extensions are what the calibrated cost model knows beyond them.
"""

from typing import Final, Literal

FieldRow = tuple[str, str, str, Literal["int64", "bool", "str"], str, tuple[str, ...], str]
"""name, label, short label, dtype, group, choices, description"""

_PARALLELISM = "Parallelism"
_NETWORK = "Networks"
_BATCH = "Batch"
_PRECISION = "Numbers and block"
_RECOMPUTE = "Recompute"
_OVERLAP = "Communication"
_OFFLOAD = "Offload"

FIELD_ROWS: Final[tuple[FieldRow, ...]] = (
    ("num_procs", "GPUs", "GPUs", "int64", _PARALLELISM, (),
     "Number of GPUs; the product of the tensor, pipeline and data parallel degrees."),
    ("tensor_par", "Tensor parallel", "TP", "int64", _PARALLELISM, (),
     "Number of GPUs that share the arithmetic of every block."),
    ("pipeline_par", "Pipeline parallel", "PP", "int64", _PARALLELISM, (),
     "Number of stages into which the blocks are divided."),
    ("data_par", "Data parallel", "DP", "int64", _PARALLELISM, (),
     "Number of replicas of the model, each working on its own share of the batch."),
    ("tensor_par_net", "TP network", "TP net", "int64", _NETWORK, (),
     "Index of the network tier that carries tensor-parallel collectives; 0 is the innermost tier."),
    ("pipeline_par_net", "PP network", "PP net", "int64", _NETWORK, (),
     "Index of the network tier that carries transfers between pipeline stages."),
    ("data_par_net", "DP network", "DP net", "int64", _NETWORK, (),
     "Index of the network tier that carries the exchange of gradients among replicas."),
    ("batch_size", "Batch", "batch", "int64", _BATCH, (),
     "Sequences per step over the whole system; a multiple of the data parallel degree."),
    ("microbatch_size", "Microbatch", "mb", "int64", _BATCH, (),
     "Sequences that pass through a stage together; divides the batch of one replica."),
    ("datatype", "Datatype", "dtype", "str", _PRECISION, (),
     "Number format of weights, activations and matrix arithmetic, such as float8, float16, bfloat16 or float32."),
    ("fused_activation", "Fused activation", "fused", "bool", _PRECISION, (),
     "Whether the MLP's activation function keeps no input of its own because it is fused with its neighbours."),
    ("attention_type", "Attention", "attn.", "str", _PRECISION, ("multihead", "multiquery"),
     "Whether every attention head has its own keys and values or all heads share one set."),
    ("activation_recompute", "Recompute", "recomp.", "str", _RECOMPUTE, ("full", "attn_only", "none"),
     "What is computed again in the backward pass instead of being kept: whole blocks, a selection (the attention "
     "core, unless Selective recompute names another), or nothing."),
    ("pipeline_interleaving", "Interleaving", "v", "int64", _PARALLELISM, (),
     "Number of chunks into which a stage is cut so that the pipeline fills sooner; divides the blocks of a stage."),
    ("optimizer_sharding", "Optimizer sharding", "shard", "bool", _PARALLELISM, (),
     "Whether replicas divide the optimizer state among themselves instead of each keeping all of it."),
    ("tensor_par_comm_type", "TP communication", "TP comm", "str", _OVERLAP, ("ar", "p2p_rs_ag", "rs_ag"),
     "Collectives between tensor-parallel GPUs: all-reduce; all-reduce with reduce-scatter and all-gather around "
     "pipeline transfers; or reduce-scatter and all-gather throughout (sequence parallelism)."),
    ("tensor_par_overlap", "TP overlap", "TP overlap", "str", _OVERLAP, ("none", "ring", "pipe"),
     "How tensor-parallel collectives hide behind matrix products: not at all, tile by tile around a ring, or "
     "pipelined."),
    ("seq_par_ag_redo", "Gather again", "AG redo", "bool", _RECOMPUTE, (),
     "Whether the backward pass repeats sequence-parallel all-gathers instead of keeping their results."),
    ("data_par_overlap", "DP overlap", "DP overlap", "bool", _OVERLAP, (),
     "Whether the exchange of gradients starts while the backward pass is still running."),
    ("weight_offload", "Offload weights", "offl. W", "bool", _OFFLOAD, (),
     "Whether weights live in host memory and are fetched block by block."),
    ("activations_offload", "Offload activations", "offl. act", "bool", _OFFLOAD, (),
     "Whether kept activations or checkpoints move to host memory until the backward pass."),
    ("optimizer_offload", "Offload optimizer", "offl. opt", "bool", _OFFLOAD, (),
     "Whether weight gradients and optimizer state live in host memory."),
    ("training", "Training", "train", "bool", _BATCH, (),
     "Whether a step is a training step with backward pass and optimizer, or a forward pass only."),
)  # fmt: skip

EXTENSION_ROWS: Final[tuple[FieldRow, ...]] = (
    ("context_par", "Context parallel", "CP", "int64", _PARALLELISM, (),
     "Number of GPUs that share the tokens of every sequence, exchanging keys and values around a ring."),
    ("expert_par", "Expert parallel", "EP", "int64", _PARALLELISM, (),
     "Number of groups over which the routed experts of a layer are spread; tokens travel to their experts."),
    ("expert_tensor_par", "Expert tensor parallel", "ETP", "int64", _PARALLELISM, (),
     "Number of GPUs that share the arithmetic of one expert."),
    ("zero_stage", "ZeRO stage", "ZeRO", "int64", _PARALLELISM, (),
     "What replicas divide among themselves: nothing (0), optimizer state (1), gradients too (2), weights too, "
     "gathered block by block (3, fully sharded data parallelism)."),
    ("selective_recompute", "Selective recompute", "sel. recomp.", "str", _RECOMPUTE,
     ("attention", "modules", "half", "operators", "save_projections", "save_dots"),
     "What the recomputation that is neither full nor none repeats: the attention core; norms and activation "
     "functions; every second block; every second matrix product; all but the query, key, value and output products; "
     "all but matrix products."),
    ("attention_kernel", "Attention kernel", "attn. kernel", "str", _PRECISION,
     ("unfused", "flash1", "flash2", "native"),
     "How attention is computed: scores kept in memory; FlashAttention 1; FlashAttention 2; a kernel written for the "
     "GPU's generation."),
    ("launch", "Launch mode", "launch", "str", _PRECISION, ("eager", "fused", "compiled", "graphs"),
     "How kernels reach the GPU: plain framework calls, fused kernels, compiled code, or replayed CUDA graphs."),
    ("gradient_datatype", "Gradient datatype", "grad. dtype", "str", _PRECISION, ("float32", "bfloat16"),
     "Number format in which gradients are exchanged among replicas."),
    ("optimizer_datatype", "Optimizer datatype", "opt. dtype", "str", _PRECISION, ("float32", "bfloat16"),
     "Number format of the optimizer's two moments; master weights stay in FP32."),
    ("expert_overlap", "Expert overlap", "EP overlap", "bool", _OVERLAP, (),
     "Whether tokens travel to their experts while another microbatch computes."),
    ("pipeline_overlap", "Pipeline overlap", "PP overlap", "bool", _OVERLAP, (),
     "Whether transfers between stages run beside computation without interleaving; with interleaving they do."),
)  # fmt: skip
"""Fields of the calibrated cost model beyond the 23."""

NEUTRAL: Final[dict[str, int | bool | str]] = {
    "context_par": 1,
    "expert_par": 1,
    "expert_tensor_par": 1,
    "zero_stage": 0,
    "selective_recompute": "attention",
    "attention_kernel": "unfused",
    "launch": "fused",
    "gradient_datatype": "float32",
    "optimizer_datatype": "float32",
    "expert_overlap": False,
    "pipeline_overlap": False,
}
"""What an extension is where an execution does not say: none of it, and what Calculon's block stands for."""

CHOICE_LABELS: Final[dict[str, dict[str, str]]] = {
    "datatype": {
        "float4": "FP4", "float8": "FP8", "float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64",
    },
    "attention_type": {"multihead": "multi-head", "multiquery": "multi-query"},
    "activation_recompute": {"full": "full", "attn_only": "selective", "none": "none"},
    "tensor_par_comm_type": {"ar": "AR", "p2p_rs_ag": "p2p RS+AG", "rs_ag": "RS+AG"},
    "tensor_par_overlap": {"none": "none", "ring": "ring", "pipe": "pipe"},
    "selective_recompute": {
        "attention": "attention", "modules": "norms, activations", "half": "every second block",
        "operators": "every second product", "save_projections": "all but projections",
        "save_dots": "all but products",
    },
    "attention_kernel": {
        "unfused": "unfused", "flash1": "FlashAttention 1", "flash2": "FlashAttention 2", "native": "native",
    },
    "launch": {"eager": "eager", "fused": "fused kernels", "compiled": "compiled", "graphs": "CUDA graphs"},
    "gradient_datatype": {"float32": "FP32", "bfloat16": "BF16"},
    "optimizer_datatype": {"float32": "FP32", "bfloat16": "BF16"},
}  # fmt: skip
"""What the interface shows for a stored choice: field name -> stored value -> text."""
