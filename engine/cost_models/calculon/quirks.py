"""Behaviours of the reference model that change results materially, in one place, by number.

The `calculon` cost model reproduces every one of them: results are those of Calculon 0.1.0 (commit caa4b11), bit for
bit but for the last digit of `useful_flops`. The code that does so carries the number (Q1, Q2, ...) in a comment or
docstring at the place. Corrected physics can become a named switch per entry, never a silent change.

Numbers follow the list of quirks that the reference figures were made with; entries without effect on results are left
out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["QUIRKS", "Quirk"]


@dataclass(frozen=True, slots=True)
class Quirk:
    """One behaviour: what the reference does, which results it reaches, and the module that reproduces it."""

    number: int
    summary: str
    reaches: tuple[str, ...]
    module: str


QUIRKS: Mapping[int, Quirk] = {
    quirk.number: quirk
    for quirk in (
        Quirk(
            1,
            "Recomputed operations and bytes add up running totals of the block instead of each layer's own; the "
            "window behind which gradients are exchanged shrinks by them and can become negative.",
            ("block_re_flops", "block_re_mem_accessed", "block_re_mem_time", "dp_comm_exposed_time", "total_time"),
            "engine.cost_models.calculon.block",
        ),
        Quirk(
            2,
            "Redoing the all-gather marks the attention's fork as recomputed, which adds another running total.",
            ("block_re_flops", "block_re_mem_accessed", "dp_comm_exposed_time"),
            "engine.cost_models.calculon.layers",
        ),
        Quirk(
            3,
            "Pipelined overlap counts its uncovered tile as processing time and as exposed communication.",
            ("block_fw_time", "tp_comm_exposed_time", "total_time"),
            "engine.cost_models.calculon.tensor_parallel",
        ),
        Quirk(
            4,
            "Edge blocks are charged the base block's exposed communication, and the repeated collective the forward "
            "pass's.",
            ("edgeblock_fw_tp_time_exposed", "recomm_exposed_time", "tp_comm_exposed_time"),
            "engine.cost_models.calculon.tensor_parallel",
        ),
        Quirk(
            5,
            "The weight-gradient stage of an overlapped layer hides the repeated collective, which is charged a second "
            "time from the forward stage.",
            ("block_wgrad_time", "bw_time", "recomm_exposed_time"),
            "engine.cost_models.calculon.tensor_parallel",
        ),
        Quirk(
            6,
            "A transfer between stages costs the network's latency even where there is no pipeline, and backward in "
            "inference.",
            ("bubble_time", "dp_comm_exposed_time", "fw_offload_exposed_time"),
            "engine.cost_models.calculon.batch",
        ),
        Quirk(
            7,
            "Useful operations count the optimizer once per microbatch, vector operations and reductions included, "
            "against the matrix peak: the efficiencies are not a model-FLOP utilisation.",
            ("useful_flops", "compute_efficiency", "total_efficiency"),
            "engine.cost_models.calculon.batch",
        ),
        Quirk(
            8,
            "With an unsharded optimizer its step widens the window of every block and, once more, that of the last "
            "chunk.",
            ("dp_comm_exposed_time", "dp_bw_overlap_req_chunk"),
            "engine.cost_models.calculon.data_parallel",
        ),
        Quirk(
            9,
            "The overlap of the gradient exchange: the window always spans as many microbatches as stages, collisions "
            "with the pipeline are a floor division, required bandwidths leave offsets out, the payload has the "
            "weights' width, one block's exchange is always exposed.",
            ("dp_comm_exposed_time", "dp_bw_overlap_req_chunk", "dp_bw_overlap_req_tail", "block_dp_size"),
            "engine.cost_models.calculon.data_parallel",
        ),
        Quirk(
            10,
            "Attention-only recomputation drops the attention's input from storage although nothing restores it.",
            ("block_act_storage_space", "act_space", "proc_mem_tier1_cap_req"),
            "engine.cost_models.calculon.layers",
        ),
        Quirk(
            11,
            "Attention-only recomputation repeats the attention's all-gather even where redoing it was not asked for.",
            ("baseblock_recomm_time", "recomm_exposed_time"),
            "engine.cost_models.calculon.block",
        ),
        Quirk(
            12,
            "The additions of a collective that is a layer of its own count as network time, but also in the block's "
            "compute and memory times.",
            ("tp_comm_exposed_time", "block_fw_flops_time", "block_fw_mem_time"),
            "engine.cost_models.calculon.tensor_parallel",
        ),
        Quirk(
            13,
            "Forward offload moves the larger of weights and activations, backward their sum; it hides behind compute "
            "and exposed communication, not behind memory time.",
            ("fw_offload_exposed_time", "bw_offload_exposed_time", "offload_mem_bw_req"),
            "engine.cost_models.calculon.offload",
        ),
        Quirk(
            14,
            "Bandwidths that would hide offloading divide by a time that can be zero: infinite here, an error there.",
            ("act_offload_bw_req", "weight_offload_bw_req", "optim_offload_bw_req", "offload_mem_bw_req"),
            "engine.cost_models.calculon.batch",
        ),
        Quirk(
            15,
            "Checkpoints hold the whole activation even where sequence parallelism splits it.",
            ("block_act_checkpoint_size", "act_checkpoint_size"),
            "engine.cost_models.calculon.block",
        ),
        Quirk(
            16,
            "Inference holds one block's activations and no key/value cache; offloading them needs more than holding "
            "them.",
            ("act_space", "proc_mem_tier1_cap_req"),
            "engine.cost_models.calculon.memory",
        ),
        Quirk(
            17,
            "In inference the checkpoint's part in tier 1 under offload has no value.",
            ("act_checkpoint_size_with_offload",),
            "engine.cost_models.calculon.statistics",
        ),
        Quirk(
            18,
            "Where the pipeline does not divide the blocks every stage counts as the largest one; the bubble shrinks "
            "by what is missing.",
            ("bubble_time", "fw_time", "weight_space"),
            "engine.cost_models.calculon.pipeline",
        ),
        Quirk(
            19,
            "A microbatch count that is no multiple of the stages costs an interleaved schedule further chunks.",
            ("bubble_time",),
            "engine.cost_models.calculon.pipeline",
        ),
        Quirk(
            20,
            "Embeddings, the LM head, biases and the last norm are in neither time nor memory.",
            ("total_time", "weight_space"),
            "engine.cost_models.calculon.layers",
        ),
        Quirk(
            21,
            "Multi-query keys and values are whole on every processor, and attention still reads them per head.",
            ("block_weight_space", "block_fw_mem_accessed"),
            "engine.cost_models.calculon.layers",
        ),
        Quirk(
            22,
            "Overlap fuses query, key and value projections into one matrix multiplication, which reaches other "
            "efficiencies and holds other activations than without.",
            ("block_fw_time", "block_act_storage_space", "block_optim_time"),
            "engine.cost_models.calculon.layers",
        ),
        Quirk(
            23,
            "Activations and gradients of overlapped layers look mislabelled, and drive memory traffic too.",
            ("block_act_storage_space", "block_act_grad_space", "block_agrad_mem_time"),
            "engine.cost_models.calculon.layers",
        ),
        Quirk(
            24,
            "Dropout keeps one byte per element; fusing an activation saves memory but no time.",
            ("block_act_storage_space", "block_fw_time"),
            "engine.cost_models.calculon.layers",
        ),
        Quirk(
            25,
            "The optimizer runs on the vector engine and moves its state once, without weights or gradients.",
            ("block_optim_time", "optim_step_time"),
            "engine.cost_models.calculon.optimizer",
        ),
        Quirk(
            26,
            "Efficiency is a step function of the size of a single operation.",
            ("block_fw_time", "total_time"),
            "engine.cost_models.calculon.rates",
        ),
        Quirk(
            27,
            "A collective runs on one tier, with the tier's factors; there are no hierarchical collectives.",
            ("tp_comm_link_time", "dp_comm_link_time"),
            "engine.cost_models.calculon.rates",
        ),
        Quirk(
            28,
            "A tier that must be filled accepts any group that divides its size: four of eight count as filled.",
            ("status",),
            "engine.cost_models.calculon.feasibility",
        ),
    )
}
