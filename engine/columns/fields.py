"""The fields of one execution as data, in the order in which results are returned.

`engine.columns` turns these rows into `Column` objects; nothing else reads this file. The names of the 23 are
Calculon's; the extensions are what the calibrated cost model knows beyond them.
"""

from typing import Final, Literal, NamedTuple

from engine.columns.rules import EXPERTS, SECOND_TIER, FieldCondition, among, more_than


class FieldRow(NamedTuple):
    """Declaration of a field; see `engine.columns.Column` for the items."""

    name: str
    label: str
    short: str
    dtype: Literal["int64", "bool", "str"]
    group: str
    choices: tuple[str, ...]
    description: str
    default: int | bool | str | None = None
    applies: tuple[FieldCondition, ...] = ()
    after: str = ""
    numbers: tuple[int, ...] = ()


SCENARIO: Final = "Scenario"
"""Group of the fields that are chosen for a whole scenario rather than tried."""
_PARALLELISM = "Parallelism"
_RECOMPUTE = "Recompute"
_BATCH = "Batch"
_COMMUNICATION = "Communication"
_BLOCK = "Block"
_SOFTWARE = "Software"
_OFFLOAD = "Offload to host memory"
NETWORKS: Final = "Networks"

GROUPS: Final = (
    SCENARIO,
    _PARALLELISM,
    _RECOMPUTE,
    _BATCH,
    _COMMUNICATION,
    _BLOCK,
    _SOFTWARE,
    _OFFLOAD,
    NETWORKS,
)
"""The groups of fields, in the order in which editors and choosers show them."""

_TENSOR = more_than(1, "tensor_par")
_PIPELINE = more_than(1, "pipeline_par")
_REPLICAS = more_than(1, "data_par", "context_par")
_EXPERTS = more_than(0, EXPERTS)
_HOST_MEMORY = more_than(0, SECOND_TIER)


FIELD_ROWS: Final[tuple[FieldRow, ...]] = (
    FieldRow(
        "num_procs",
        "GPUs",
        "GPUs",
        "int64",
        SCENARIO,
        (),
        "Number of GPUs; the product of the tensor, pipeline and data parallel degrees.",
    ),
    FieldRow(
        "tensor_par",
        "Tensor parallel",
        "TP",
        "int64",
        _PARALLELISM,
        (),
        "Number of GPUs that share the arithmetic of every block.",
    ),
    FieldRow(
        "pipeline_par",
        "Pipeline parallel",
        "PP",
        "int64",
        _PARALLELISM,
        (),
        "Number of stages into which the blocks are divided.",
    ),
    FieldRow(
        "data_par",
        "Data parallel",
        "DP",
        "int64",
        _PARALLELISM,
        (),
        "Number of replicas of the model, each working on its own share of the batch.",
    ),
    FieldRow(
        "tensor_par_net",
        "TP network",
        "TP net",
        "int64",
        NETWORKS,
        (),
        "Index of the network tier that carries tensor-parallel collectives; 0 is the innermost tier.",
        applies=(_TENSOR,),
    ),
    FieldRow(
        "pipeline_par_net",
        "PP network",
        "PP net",
        "int64",
        NETWORKS,
        (),
        "Index of the network tier that carries transfers between pipeline stages.",
        applies=(_PIPELINE,),
    ),
    FieldRow(
        "data_par_net",
        "DP network",
        "DP net",
        "int64",
        NETWORKS,
        (),
        "Index of the network tier that carries the exchange of gradients among replicas.",
        applies=(_REPLICAS,),
    ),
    FieldRow(
        "batch_size",
        "Batch",
        "batch",
        "int64",
        _BATCH,
        (),
        "Sequences per step over the whole system; a multiple of the data parallel degree.",
    ),
    FieldRow(
        "microbatch_size",
        "Microbatch",
        "mb",
        "int64",
        _BATCH,
        (),
        "Sequences that pass through a stage together; divides the batch of one replica.",
    ),
    FieldRow(
        "datatype",
        "Datatype",
        "dtype",
        "str",
        SCENARIO,
        (),
        "Number format of weights, activations and matrix arithmetic, such as float8, float16, bfloat16 or float32.",
    ),
    FieldRow(
        "fused_activation",
        "Fused activation",
        "fused",
        "bool",
        _BLOCK,
        (),
        "Whether the MLP's activation function keeps no input of its own because it is fused with its neighbours.",
        default=True,
    ),
    FieldRow(
        "attention_type",
        "Attention",
        "attn.",
        "str",
        _BLOCK,
        ("multihead", "multiquery"),
        "Whether every attention head has its own keys and values or all heads share one set.",
        default="multihead",
    ),
    FieldRow(
        "activation_recompute",
        "Recompute",
        "recomp.",
        "str",
        _RECOMPUTE,
        ("full", "attn_only", "none"),
        "What is computed again in the backward pass instead of being kept: whole blocks, a selection (the attention "
        "core, unless Selective recompute names another), or nothing.",
    ),
    FieldRow(
        "pipeline_interleaving",
        "Interleaving",
        "v",
        "int64",
        _PARALLELISM,
        (),
        "Number of chunks into which a stage is cut so that the pipeline fills sooner; divides the blocks of a stage.",
        applies=(_PIPELINE,),
    ),
    FieldRow(
        "optimizer_sharding",
        "Optimizer sharding",
        "shard",
        "bool",
        _PARALLELISM,
        (),
        "Whether replicas divide the optimizer state among themselves instead of each keeping all of it.",
        applies=(_REPLICAS,),
    ),
    FieldRow(
        "tensor_par_comm_type",
        "TP communication",
        "TP comm",
        "str",
        _COMMUNICATION,
        ("ar", "p2p_rs_ag", "rs_ag"),
        "Collectives between tensor-parallel GPUs: all-reduce; all-reduce with reduce-scatter and all-gather around "
        "pipeline transfers; or reduce-scatter and all-gather throughout (sequence parallelism).",
        applies=(_TENSOR,),
    ),
    FieldRow(
        "tensor_par_overlap",
        "TP overlap",
        "TP overlap",
        "str",
        _COMMUNICATION,
        ("none", "ring", "pipe"),
        "How tensor-parallel collectives hide behind matrix products: not at all, tile by tile around a ring, or "
        "pipelined.",
        applies=(_TENSOR,),
    ),
    FieldRow(
        "seq_par_ag_redo",
        "Repeat all-gather",
        "repeat AG",
        "bool",
        _RECOMPUTE,
        (),
        "Whether the backward pass repeats sequence-parallel all-gathers instead of keeping their results.",
        applies=(among("tensor_par_comm_type", "rs_ag"), among("activation_recompute", "attn_only", "none")),
    ),
    FieldRow(
        "data_par_overlap",
        "DP overlap",
        "DP overlap",
        "bool",
        _COMMUNICATION,
        (),
        "Whether the exchange of gradients starts while the backward pass is still running.",
        applies=(_REPLICAS,),
    ),
    FieldRow(
        "weight_offload",
        "Offload weights",
        "offl. W",
        "bool",
        _OFFLOAD,
        (),
        "Whether weights live in host memory and are fetched block by block.",
        applies=(_HOST_MEMORY,),
    ),
    FieldRow(
        "activations_offload",
        "Offload activations",
        "offl. act",
        "bool",
        _OFFLOAD,
        (),
        "Whether kept activations or checkpoints move to host memory until the backward pass.",
        applies=(_HOST_MEMORY,),
    ),
    FieldRow(
        "optimizer_offload",
        "Offload optimizer",
        "offl. opt",
        "bool",
        _OFFLOAD,
        (),
        "Whether weight gradients and optimizer state live in host memory.",
        applies=(_HOST_MEMORY,),
    ),
    FieldRow(
        "training",
        "Training",
        "train",
        "bool",
        _BATCH,
        (),
        "Whether a step is a training step with backward pass and optimizer, or a forward pass only.",
        default=True,
    ),
)

EXTENSION_ROWS: Final[tuple[FieldRow, ...]] = (
    FieldRow(
        "context_par",
        "Context parallel",
        "CP",
        "int64",
        _PARALLELISM,
        (),
        "Number of GPUs that share the tokens of every sequence, exchanging keys and values around a ring.",
        default=1,
        after="data_par",
    ),
    FieldRow(
        "expert_par",
        "Expert parallel",
        "EP",
        "int64",
        _PARALLELISM,
        (),
        "Number of groups over which the routed experts of a layer are spread; tokens travel to their experts.",
        default=1,
        applies=(_EXPERTS,),
        after="context_par",
    ),
    FieldRow(
        "expert_tensor_par",
        "Expert tensor parallel",
        "ETP",
        "int64",
        _PARALLELISM,
        (),
        "Number of GPUs that share the arithmetic of one expert.",
        default=1,
        applies=(_EXPERTS,),
        after="expert_par",
    ),
    FieldRow(
        "schedule",
        "Schedule",
        "schedule",
        "str",
        _PARALLELISM,
        ("1f1b", "interleaved", "zb_h1", "zb_v", "dualpipe", "dualpipev", "combined_1f1b"),
        "In which order stages work on microbatches: one forward, one backward, interleaved where stages have several "
        "chunks; gradients of weights later, where a stage would wait (ZB-H1, and ZB-V with chunks there and back); a "
        "forward and a backward together that hide each other's exchange of tokens, from both ends of two copies "
        "of the "
        "model (DualPipe), there and back (DualPipeV), or interleaved (combined 1F1B).",
        default="1f1b",
        applies=(_PIPELINE,),
        after="pipeline_interleaving",
    ),
    FieldRow(
        "stage_layout",
        "Stage layout",
        "layout",
        "str",
        _PARALLELISM,
        ("even", "embedding_counted", "loss_counted", "both_counted", "balanced"),
        "Which stage holds how many blocks: as even as they divide; with the embedding, the loss or both counted as a "
        "block of its stage; balanced by work, with what the head takes; the blocks of the first and the last "
        "stage, such "
        "as first_7_last_6; or Megatron's list of all stages, such as Et*3|(tt|)*29m|L.",
        default="even",
        applies=(_PIPELINE,),
        after="schedule",
    ),
    FieldRow(
        "zero_stage",
        "ZeRO stage",
        "ZeRO",
        "int64",
        _PARALLELISM,
        (),
        "What replicas divide among themselves: nothing (0), optimizer state (1), gradients too (2), weights too, "
        "gathered block by block (3, fully sharded data parallelism).",
        default=0,
        applies=(_REPLICAS,),
        after="optimizer_sharding",
        numbers=(0, 1, 2, 3),
    ),
    FieldRow(
        "selective_recompute",
        "Selective recompute",
        "sel. recomp.",
        "str",
        _RECOMPUTE,
        ("attention", "modules", "half", "operators", "save_projections", "save_dots"),
        "What the recomputation that is neither full nor none repeats: the attention core; norms and activation "
        "functions; every second block; every second matrix product; all but the query, key, value and output "
        "products; "
        "all but matrix products.",
        default="attention",
        applies=(among("activation_recompute", "attn_only"),),
        after="activation_recompute",
    ),
    FieldRow(
        "attention_kernel",
        "Attention kernel",
        "attn. kernel",
        "str",
        _SOFTWARE,
        ("unfused", "flash1", "flash2", "native"),
        "How attention is computed: scores kept in memory; FlashAttention 1; FlashAttention 2; a kernel written "
        "for the "
        "GPU's generation.",
        default="unfused",
    ),
    FieldRow(
        "launch",
        "Launch mode",
        "launch",
        "str",
        _SOFTWARE,
        ("eager", "fused", "compiled", "graphs"),
        "How kernels reach the GPU: plain framework calls, fused kernels, compiled code, or replayed CUDA graphs.",
        default="fused",
    ),
    FieldRow(
        "gradient_datatype",
        "Gradient datatype",
        "grad. dtype",
        "str",
        _COMMUNICATION,
        ("float32", "bfloat16"),
        "Number format in which gradients are exchanged among replicas.",
        default="float32",
        applies=(_REPLICAS,),
    ),
    FieldRow(
        "optimizer_datatype",
        "Optimizer datatype",
        "opt. dtype",
        "str",
        _SOFTWARE,
        ("float32", "bfloat16"),
        "Number format of the optimizer's two moments; master weights stay in FP32.",
        default="float32",
    ),
    FieldRow(
        "expert_overlap",
        "Expert overlap",
        "EP overlap",
        "bool",
        _COMMUNICATION,
        (),
        "Whether tokens travel to their experts while another microbatch computes.",
        default=False,
        applies=(_EXPERTS,),
    ),
    FieldRow(
        "pipeline_overlap",
        "Pipeline overlap",
        "PP overlap",
        "bool",
        _COMMUNICATION,
        (),
        "Whether transfers between stages run beside computation without interleaving; with interleaving they do.",
        default=False,
        applies=(_PIPELINE,),
    ),
)
"""Fields of the calibrated cost model beyond the 23."""

CHOICE_LABELS: Final[dict[str, dict[str, str]]] = {
    "datatype": {
        "float4": "FP4",
        "float8": "FP8",
        "float16": "FP16",
        "bfloat16": "BF16",
        "float32": "FP32",
        "float64": "FP64",
    },
    "attention_type": {"multihead": "multi-head", "multiquery": "multi-query"},
    "activation_recompute": {"full": "full", "attn_only": "selective", "none": "none"},
    "tensor_par_comm_type": {"ar": "AR", "p2p_rs_ag": "p2p RS+AG", "rs_ag": "RS+AG"},
    "tensor_par_overlap": {"none": "none", "ring": "ring", "pipe": "pipe"},
    "selective_recompute": {
        "attention": "attention",
        "modules": "norms, activations",
        "half": "every second block",
        "operators": "every second product",
        "save_projections": "all but projections",
        "save_dots": "all but products",
    },
    "schedule": {
        "1f1b": "1F1B",
        "interleaved": "interleaved",
        "zb_h1": "ZB-H1",
        "zb_v": "ZB-V",
        "dualpipe": "DualPipe",
        "dualpipev": "DualPipeV",
        "combined_1f1b": "combined 1F1B",
    },
    "stage_layout": {
        "even": "even",
        "embedding_counted": "embedding counted",
        "loss_counted": "loss counted",
        "both_counted": "both counted",
        "balanced": "balanced",
    },
    "attention_kernel": {
        "unfused": "unfused",
        "flash1": "FlashAttention 1",
        "flash2": "FlashAttention 2",
        "native": "native",
    },
    "launch": {"eager": "eager", "fused": "fused kernels", "compiled": "compiled", "graphs": "CUDA graphs"},
    "gradient_datatype": {"float32": "FP32", "bfloat16": "BF16"},
    "optimizer_datatype": {"float32": "FP32", "bfloat16": "BF16"},
}
"""Text shown on screen for a stored choice: field name -> stored value -> text."""
