"""Every way an execution can be invalid or infeasible, as data.

`infeasible` is what the reference model rejects with its own error: a well-formed execution that this system
cannot run. `invalid` is an execution that is not well formed: the reference dies on it, or silently misreads it.

The position in `REASONS` is the order of checking: the first that applies is the one reported. It is also the
small integer that arrays carry (0 is "no reason": the execution is fine).

Source: order and wording of the checks in Calculon 0.1.0 (commit caa4b11), `Llm.Execution.__init__`, `Llm.compile`
and `Llm._check_mem_caps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from engine.executions.sentences import filled, pieces

__all__ = [
    "BY_CODE",
    "FITS",
    "REASONS",
    "Reason",
    "code_of",
    "number_of",
    "placeholders",
    "sentence",
]


@dataclass(frozen=True, slots=True)
class Reason:
    """One way of failing.

    `code` is stable and meant for programs. `label` is what a chart prints. `template` is the sentence for one
    execution: `{name}` is a number or word of that execution (a field, or one of the quantities that the check used).
    """

    code: str
    status: Literal["infeasible", "invalid"]
    label: str
    template: str


def _invalid_reason(code: str, label: str, template: str) -> Reason:
    return Reason(code, "invalid", label, template)


def _infeasible_reason(code: str, label: str, template: str) -> Reason:
    return Reason(code, "infeasible", label, template)


FITS = 0
"""Reason number of an execution that nothing is wrong with."""

REASONS: tuple[Reason, ...] = (
    # Malformed values: the reference does not look at types, so these are ours.
    _invalid_reason(
        "missing_value", "A field has no value", "{field} has no value; every one of the 23 fields needs one."
    ),
    _invalid_reason(
        "not_an_integer", "A field is not a whole number", "{field} is {value}; it must be a whole number."
    ),
    _invalid_reason("not_a_boolean", "A field is not true or false", "{field} is {value}; it must be true or false."),
    _invalid_reason("not_a_word", "A field is not a word", "{field} is {value}; it must be a text such as {accepted}."),
    _invalid_reason(
        "out_of_range", "A field is too large", "{field} is {value}; it must lie between 0 and {accepted}."
    ),
    # The constructor's assertions, in its order.
    _invalid_reason("num_procs_not_positive", "No processors", "num_procs is {num_procs}; it must be at least 1."),
    _invalid_reason(
        "parallelism_not_positive",
        "A parallel degree is below 1",
        "tensor_par {tensor_par}, pipeline_par {pipeline_par}, data_par {data_par}: each must be at least 1.",
    ),
    _invalid_reason(
        "parallelism_product",
        "Parallel degrees do not multiply to the processors",
        "tensor_par {tensor_par} x pipeline_par {pipeline_par} x data_par {data_par} is {product}, "
        "but num_procs is {num_procs}; they must be equal.",
    ),
    _invalid_reason(
        "batch_size_not_positive", "No samples in the batch", "batch_size is {batch_size}; it must be at least 1."
    ),
    _invalid_reason(
        "microbatch_size_not_positive",
        "No samples in the microbatch",
        "microbatch_size is {microbatch_size}; it must be at least 1.",
    ),
    _invalid_reason(
        "batch_not_divisible_by_data_par",
        "DP does not divide the batch",
        "batch_size {batch_size} is not a multiple of data_par {data_par}.",
    ),
    _invalid_reason(
        "local_batch_not_divisible_by_microbatch",
        "Microbatch does not divide the batch",
        "Each data-parallel replica has {local_batch} samples, which is not a multiple of "
        "microbatch_size {microbatch_size}.",
    ),
    _invalid_reason(
        "unknown_attention_type",
        "Unknown attention type",
        "attention_type is {attention_type}; it must be multihead or multiquery.",
    ),
    _invalid_reason(
        "unknown_recompute",
        "Unknown recomputation",
        "activation_recompute is {activation_recompute}; it must be full, attn_only or none.",
    ),
    _invalid_reason(
        "recompute_needs_training",
        "Recomputation outside training",
        "activation_recompute is {activation_recompute}, but training is false; inference has nothing to recompute, "
        "set it to none.",
    ),
    _invalid_reason(
        "interleaving_not_positive",
        "Interleaving is below 1",
        "pipeline_interleaving is {pipeline_interleaving}; it must be at least 1.",
    ),
    _invalid_reason(
        "interleaving_needs_pipeline",
        "Interleaving without a pipeline",
        "pipeline_interleaving is {pipeline_interleaving}, but pipeline_par is 1; without a pipeline it must be 1.",
    ),
    _invalid_reason(
        "sharding_needs_data_par",
        "Optimizer sharding without data parallelism",
        "optimizer_sharding is true, but data_par is 1; there is nobody to share the optimizer with.",
    ),
    _invalid_reason(
        "unknown_tensor_par_comm_type",
        "Unknown tensor-parallel communication",
        "tensor_par_comm_type is {tensor_par_comm_type}; it must be ar, p2p_rs_ag or rs_ag.",
    ),
    _invalid_reason(
        "unknown_tensor_par_overlap",
        "Unknown tensor-parallel overlap",
        "tensor_par_overlap is {tensor_par_overlap}; it must be none, ring or pipe.",
    ),
    _invalid_reason(
        "overlap_needs_tensor_par",
        "TP overlap without tensor parallelism",
        "tensor_par_overlap is {tensor_par_overlap}, but tensor_par is 1; there is nothing to overlap, set it to none.",
    ),
    _invalid_reason(
        "ag_redo_needs_rs_ag",
        "All-gather redone without RS+AG",
        "seq_par_ag_redo is true, but tensor_par_comm_type is {tensor_par_comm_type}; only rs_ag has an all-gather "
        "to redo.",
    ),
    _invalid_reason(
        "ag_redo_with_full_recompute",
        "All-gather redone under full recompute",
        "seq_par_ag_redo is true, but activation_recompute is full, which redoes it already; set one of the two.",
    ),
    _invalid_reason(
        "data_par_overlap_needs_training",
        "DP overlap outside training",
        "data_par_overlap is true, but training is false; inference exchanges no gradients.",
    ),
    _invalid_reason(
        "data_par_overlap_needs_data_par",
        "DP overlap without data parallelism",
        "data_par_overlap is true, but data_par is 1; there is no gradient exchange to overlap.",
    ),
    _invalid_reason(
        "optimizer_offload_needs_training",
        "Optimizer offload outside training",
        "optimizer_offload is true, but training is false; inference has no optimizer.",
    ),
    # Networks.
    _invalid_reason(
        "network_does_not_exist",
        "Network tier does not exist",
        "{field} is {value}; this system has network tiers 0 to {last_tier}.",
    ),
    _infeasible_reason(
        "network_too_small",
        "Network tier too small",
        "{network} connects {size} GPUs, but {used} would have to share it.",
    ),
    _infeasible_reason(
        "network_not_filled",
        "Network tier not filled evenly",
        "{network} connects {size} GPUs and must be filled, but {used} does not divide {size}.",
    ),
    _invalid_reason(
        "unknown_datatype",
        "Unknown datatype",
        "datatype is {datatype}; it must be float8, float16, bfloat16 or float32.",
    ),
    # Stages and blocks.
    _infeasible_reason(
        "interleaving_exceeds_blocks",
        "Interleaving exceeds the stage's blocks",
        "An interleaving of {pipeline_interleaving} exceeds the {blocks_per_proc} blocks of a stage.",
    ),
    _infeasible_reason(
        "interleaving_not_dividing_blocks",
        "Interleaving does not divide the stage",
        "An interleaving of {pipeline_interleaving} does not divide the {blocks_per_proc} blocks of a stage.",
    ),
    _infeasible_reason(
        "offload_needs_three_blocks",
        "Offload needs 3 blocks per GPU",
        "Offloading needs at least 3 blocks on each GPU; a pipeline of {pipeline_par} stages leaves {blocks_per_proc}.",
    ),
    # Divisibility of tensors over the tensor-parallel group.
    _invalid_reason(
        "sequence_not_divisible",
        "TP does not divide the sequence",
        "A microbatch has {batch_seq} tokens, which TP {tensor_par} does not divide; reduce-scatter and all-gather "
        "split them.",
    ),
    _invalid_reason(
        "hidden_not_divisible",
        "TP does not divide the hidden size",
        "TP {tensor_par} does not divide the hidden size {hidden}.",
    ),
    _invalid_reason(
        "feedforward_not_divisible",
        "TP does not divide the feedforward size",
        "TP {tensor_par} does not divide the feedforward size {feedforward}.",
    ),
    _invalid_reason(
        "heads_not_divisible",
        "TP does not divide the heads",
        "TP {tensor_par} does not divide the {attn_heads} attention heads.",
    ),
    _invalid_reason(
        "datatype_not_on_system",
        "Datatype not on this system",
        "This system has no rates for {datatype}; it has {accepted}.",
    ),
    # What only the calibrated cost model has or asks.
    _invalid_reason(
        "extension_not_positive", "A further parallel degree is below 1", "{field} is {value}; it must be at least 1."
    ),
    _invalid_reason("unknown_word", "Unknown choice", "{field} is {value}; it must be one of {accepted}."),
    _invalid_reason(
        "training_only",
        "Not a training step",
        "training is false; the calibrated cost model evaluates training steps. Serving has an evaluation of its own, "
        "and cost_model calculon evaluates a forward pass.",
    ),
    _invalid_reason(
        "parallelism_product_with_context",
        "Parallel degrees and CP do not multiply to the processors",
        "tensor_par {tensor_par} x pipeline_par {pipeline_par} x data_par {data_par} x context_par {context_par} is "
        "{product}, but num_procs is {num_procs}; they must be equal.",
    ),
    _invalid_reason("zero_stage_unknown", "Unknown ZeRO stage", "zero_stage is {zero_stage}; it must be 0, 1, 2 or 3."),
    _invalid_reason(
        "zero_stage_against_sharding",
        "ZeRO stage contradicts optimizer sharding",
        "zero_stage is {zero_stage}, but optimizer_sharding is {optimizer_sharding}; the optimizer is sharded from "
        "stage 1 on.",
    ),
    # Given by earlier versions; kept since stores refer to reasons by position.
    _invalid_reason(
        "sharding_needs_replicas",
        "Sharding without replicas",
        "zero_stage is {zero_stage}, but data_par x context_par is 1; there is nobody to share anything with.",
    ),
    _invalid_reason(
        "selective_needs_attn_only",
        "Selective recomputation of a full or absent one",
        "selective_recompute is {selective_recompute}, but activation_recompute is {activation_recompute}; only "
        "attn_only is selective, leave it at attention.",
    ),
    _invalid_reason(
        "attention_of_the_model",
        "Attention contradicts the model",
        "attention_type is multiquery, but this model has {key_value_heads} heads of keys and values; leave it at "
        "multihead, the calibrated cost model takes the heads from the model.",
    ),
    _infeasible_reason(
        "gradient_sharding_in_pipeline",
        "Gradient sharding in a pipeline",
        "ZeRO stage 2 shards gradients after every microbatch, which a pipeline of {pipeline_par} stages keeps until "
        "the last; use stage 1.",
    ),
    _invalid_reason(
        "context_not_dividing_sequence",
        "CP does not divide the sequence",
        "The sequence has {seq_size} tokens, which 2 × CP {context_par} does not divide; every rank takes two pieces.",
    ),
    _invalid_reason(
        "expert_par_without_experts",
        "Expert parallelism without experts",
        "expert_par is {expert_par} and expert_tensor_par {expert_tensor_par}, but this model has no experts; both "
        "must be 1.",
    ),
    _invalid_reason(
        "expert_par_not_dividing_experts",
        "EP does not divide the experts",
        "EP {expert_par} does not divide the {experts} experts of the model.",
    ),
    _invalid_reason(
        "expert_par_not_dividing_ranks",
        "EP does not divide the ranks",
        "TP × CP × DP is {expert_ranks}, which EP {expert_par} × expert TP {expert_tensor_par} does not divide.",
    ),
    _invalid_reason(
        "key_value_heads_not_divisible",
        "TP does not fit the heads of keys and values",
        "The model has {key_value_heads} heads of keys and values; TP {tensor_par} must divide them or be a multiple "
        "of them.",
    ),
    _infeasible_reason(
        "stages_not_even",
        "Interleaving of uneven stages",
        "PP {pipeline_par} × interleaving {pipeline_interleaving} divides neither the {num_blocks} blocks nor two "
        "more, which embedding and loss would be.",
    ),
    _infeasible_reason(
        "pipeline_exceeds_blocks",
        "More stages than blocks",
        "PP {pipeline_par} exceeds the {num_blocks} blocks of the model.",
    ),
    _invalid_reason(
        "schedule_needs_pipeline",
        "Schedule without a pipeline",
        "schedule is {schedule}, but pipeline_par is 1; without a pipeline it must be 1f1b.",
    ),
    _invalid_reason(
        "schedule_against_interleaving",
        "Schedule contradicts interleaving",
        "schedule is {schedule}, but pipeline_interleaving is {pipeline_interleaving}; it must be 1 for zb_h1 and "
        "dualpipe, 2 for zb_v and dualpipev, more than 1 for interleaved and combined_1f1b.",
    ),
    _infeasible_reason(
        "schedule_needs_microbatches",
        "Too few microbatches for the schedule",
        "{microbatches} microbatches are too few for {schedule} with {pipeline_par} stages: zb_h1 needs as many as "
        "stages, zb_v twice as many less one, dualpipe and dualpipev twice as many.",
    ),
    _infeasible_reason(
        "schedule_needs_even",
        "DualPipe with an odd number",
        "dualpipe needs even numbers of stages and of microbatches; there are {pipeline_par} and {microbatches}.",
    ),
    _infeasible_reason(
        "schedule_needs_whole_groups",
        "Combined 1F1B with a group that is not whole",
        "combined_1f1b takes microbatches in groups of {pipeline_par}, which do not divide the {microbatches} "
        "microbatches.",
    ),
    _infeasible_reason(
        "schedule_needs_experts",
        "Combined 1F1B without expert parallelism",
        "combined_1f1b overlaps the exchange of tokens between experts, but expert_par is {expert_par}; use "
        "interleaved.",
    ),
    _infeasible_reason(
        "schedule_against_recompute",
        "Combined 1F1B with full recomputation",
        "combined_1f1b does not run with full recomputation; recompute a selection, or use interleaved.",
    ),
    _invalid_reason(
        "layout_needs_pipeline",
        "Stage layout without a pipeline",
        "stage_layout is {stage_layout}, but pipeline_par is 1; without a pipeline it must be even.",
    ),
    _infeasible_reason(
        "layout_not_of_blocks",
        "Stage layout that does not fit",
        "stage_layout {stage_layout} does not cut {num_blocks} blocks into {pipeline_par} stages of "
        "{pipeline_interleaving} chunks: {layout_problem}.",
    ),
    # Capacities.
    _infeasible_reason(
        "memory_tier1",
        "Out of HBM",
        "Needs {need} of HBM, but a GPU has {have}: {short} too much.",
    ),
    _infeasible_reason(
        "memory_tier2",
        "Out of host memory",
        "Needs {need} of host memory, but a GPU has {have}: {short} too much.",
    ),
)

BY_CODE: Mapping[str, Reason] = {reason.code: reason for reason in REASONS}
_NUMBERS: Mapping[str, int] = {reason.code: position for position, reason in enumerate(REASONS, start=1)}


def number_of(code: str) -> int:
    """Return the number of a reason code in arrays; 0 means "nothing is wrong". Raises KeyError.

    Args:
        code: one of `REASONS`.
    """
    return _NUMBERS[code]


def code_of(number: int) -> str:
    """Returns the stable code of a reason number, "" for 0.

    Args:
        number: from an array.
    """
    return "" if number == FITS else REASONS[number - 1].code


def sentence(code: str, quantities: Mapping[str, Any], rows: int) -> pa.Array:
    """Returns the sentences of `rows` executions that share one reason; see `engine.executions.sentences.filled`.

    Args:
        code: one of `REASONS`.
        quantities: one value for all, or an array [rows], by placeholder.
        rows: how many executions [count].
    """
    return filled(BY_CODE[code].template, quantities, rows)


def placeholders(code: str) -> list[str]:
    """Returns what the sentence of a reason is filled with.

    Args:
        code: one of `REASONS`.
    """
    return [name for _, name in pieces(BY_CODE[code].template) if name is not None]
