"""The 96 statistics of one execution as data: one row each, in the order in which results are returned.

The names are Calculon's, so that its result files can be read beside ours; the meaning of each was read off the
formulas in the modules that compute it. `engine.columns` turns these rows into `Column` objects; nothing else reads
this file.

Words used below. A *block* is one transformer layer; a *stage* is the group of blocks that one GPU holds; with
interleaving a stage is cut into *chunks*. Within a chunk every block but the last is a *base block*; the last is the
*edge block*, whose output leaves for the next stage. *Exposed* is the part of a transfer that no arithmetic hides.
"""

from typing import Final, Literal

StatisticRow = tuple[str, str, str, str, str, Literal["higher", "lower"] | None, str]
"""name, label, short label, unit, group, which direction is better, description"""

_FORWARD = "Per block, forward"
_RECOMPUTE = "Per block, recompute"
_ACTIVATION_GRADIENT = "Per block, activation gradients"
_WEIGHT_GRADIENT = "Per block, weight gradients"
_OPTIMIZER = "Per block, optimizer"
_TRAFFIC = "Per block, communication"
_BLOCK_MEMORY = "Per block, memory"
_RESIDENT = "Memory kept with offload"
_MEMORY = "Memory"
_TIME = "Time"
_LINK_TIME = "Time on the links"
_BANDWIDTH = "Bandwidth needed"
_RESULT = "Result"

STATISTIC_ROWS: Final[tuple[StatisticRow, ...]] = (
    # Per block and microbatch: forward
    ("block_fw_flops", "Forward operations", "fw FLOP", "FLOP", _FORWARD, None,
     "Arithmetic that one GPU does to take one microbatch forward through one block."),
    ("block_fw_flops_time", "Forward arithmetic time", "fw arith.", "s", _FORWARD, "lower",
     "Time of the forward arithmetic of one block if memory were infinitely fast, at the efficiency of each layer's "
     "size."),
    ("block_fw_mem_accessed", "Forward memory traffic", "fw bytes", "bytes", _FORWARD, "lower",
     "Bytes read from and written to the GPU's own memory while one microbatch goes forward through one block."),
    ("block_fw_mem_time", "Forward memory time", "fw memory", "s", _FORWARD, "lower",
     "Time of the forward memory traffic of one block if arithmetic were free."),
    ("block_fw_time", "Forward time of a block", "fw block", "s", _FORWARD, "lower",
     "Time of one microbatch forward through one block: arithmetic and memory combined layer by layer, "
     "without communication that is not overlapped."),
    ("baseblock_fw_tp_time", "Forward TP communication, base block", "fw TP base", "s", _FORWARD, "lower",
     "Time on the tensor-parallel links for the forward collectives of a base block, hidden or not."),
    ("edgeblock_fw_tp_time", "Forward TP communication, edge block", "fw TP edge", "s", _FORWARD, "lower",
     "Time on the tensor-parallel links for the forward collectives of an edge block, hidden or not."),
    ("baseblock_fw_tp_time_exposed", "Forward TP communication exposed, base block", "fw TP exp. base", "s", _FORWARD,
     "lower", "The part of a base block's forward tensor-parallel communication that no arithmetic hides."),
    ("edgeblock_fw_tp_time_exposed", "Forward TP communication exposed, edge block", "fw TP exp. edge", "s", _FORWARD,
     "lower", "The part of an edge block's forward tensor-parallel communication that no arithmetic hides."),
    # Recompute
    ("block_re_flops", "Recompute operations", "re FLOP", "FLOP", _RECOMPUTE, "lower",
     "Arithmetic repeated in the backward pass. Calculon adds the running total up to each repeated layer rather than "
     "the layer's own share, so this can exceed the forward arithmetic many times."),
    ("block_re_flops_time", "Recompute arithmetic time", "re arith.", "s", _RECOMPUTE, "lower",
     "Arithmetic time attributed to recompute, summed over running totals like the recompute operations; it enters the "
     "window in which data-parallel communication can hide."),
    ("block_re_mem_accessed", "Recompute memory traffic", "re bytes", "bytes", _RECOMPUTE, "lower",
     "Memory traffic attributed to recompute, summed over running totals like the recompute operations."),
    ("block_re_mem_time", "Recompute memory time", "re memory", "s", _RECOMPUTE, "lower",
     "Time of the memory traffic attributed to recompute; it enters the window in which data-parallel communication "
     "can hide."),
    ("block_re_time", "Recompute time of a block", "re block", "s", _RECOMPUTE, "lower",
     "Time to repeat the forward layers of one block whose results were not kept. Each layer counts once."),
    ("baseblock_recomm_time", "Repeated TP communication, base block", "recomm base", "s", _RECOMPUTE, "lower",
     "Time on the links for the forward collectives that a base block has to run again in the backward pass."),
    ("edgeblock_recomm_time", "Repeated TP communication, edge block", "recomm edge", "s", _RECOMPUTE, "lower",
     "Time on the links for the forward collectives that an edge block has to run again in the backward pass."),
    ("baseblock_recomm_time_exposed", "Repeated TP communication exposed, base block", "recomm exp. base", "s",
     _RECOMPUTE, "lower", "The part of a base block's repeated collectives that no arithmetic hides."),
    ("edgeblock_recomm_time_exposed", "Repeated TP communication exposed, edge block", "recomm exp. edge", "s",
     _RECOMPUTE, "lower", "The part of an edge block's repeated collectives that no arithmetic hides."),
    # Backward, gradients of the activations
    ("block_agrad_flops", "Activation gradient operations", "ag FLOP", "FLOP", _ACTIVATION_GRADIENT, None,
     "Arithmetic of one block's backward pass that yields the gradients of its inputs, for one microbatch."),
    ("block_agrad_flops_time", "Activation gradient arithmetic time", "ag arith.", "s", _ACTIVATION_GRADIENT, "lower",
     "Time of the activation gradient arithmetic of one block if memory were infinitely fast."),
    ("block_agrad_mem_accessed", "Activation gradient memory traffic", "ag bytes", "bytes", _ACTIVATION_GRADIENT,
     "lower", "Bytes moved to and from GPU memory while one block computes the gradients of its inputs."),
    ("block_agrad_mem_time", "Activation gradient memory time", "ag memory", "s", _ACTIVATION_GRADIENT, "lower",
     "Time of the activation gradient memory traffic of one block if arithmetic were free."),
    ("block_agrad_time", "Activation gradient time of a block", "ag block", "s", _ACTIVATION_GRADIENT, "lower",
     "Time to compute the gradients of one block's inputs for one microbatch, arithmetic and memory combined."),
    ("baseblock_agrad_tp_time", "Backward TP communication, base block", "ag TP base", "s", _ACTIVATION_GRADIENT,
     "lower", "Time on the tensor-parallel links for the backward collectives of a base block, hidden or not."),
    ("edgeblock_agrad_tp_time", "Backward TP communication, edge block", "ag TP edge", "s", _ACTIVATION_GRADIENT,
     "lower", "Time on the tensor-parallel links for the backward collectives of an edge block, hidden or not."),
    ("baseblock_agrad_tp_time_exposed", "Backward TP communication exposed, base block", "ag TP exp. base", "s",
     _ACTIVATION_GRADIENT, "lower",
     "The part of a base block's backward tensor-parallel communication that no arithmetic hides."),
    ("edgeblock_agrad_tp_time_exposed", "Backward TP communication exposed, edge block", "ag TP exp. edge", "s",
     _ACTIVATION_GRADIENT, "lower",
     "The part of an edge block's backward tensor-parallel communication that no arithmetic hides."),
    # Backward, gradients of the weights
    ("block_wgrad_flops", "Weight gradient operations", "wg FLOP", "FLOP", _WEIGHT_GRADIENT, None,
     "Arithmetic of one block's backward pass that yields the gradients of its weights, for one microbatch."),
    ("block_wgrad_flops_time", "Weight gradient arithmetic time", "wg arith.", "s", _WEIGHT_GRADIENT, "lower",
     "Time of the weight gradient arithmetic of one block if memory were infinitely fast."),
    ("block_wgrad_mem_accessed", "Weight gradient memory traffic", "wg bytes", "bytes", _WEIGHT_GRADIENT, "lower",
     "Bytes moved to and from GPU memory while one block computes the gradients of its weights."),
    ("block_wgrad_mem_time", "Weight gradient memory time", "wg memory", "s", _WEIGHT_GRADIENT, "lower",
     "Time of the weight gradient memory traffic of one block if arithmetic were free."),
    ("block_wgrad_time", "Weight gradient time of a block", "wg block", "s", _WEIGHT_GRADIENT, "lower",
     "Time to compute the gradients of one block's weights for one microbatch; with tensor-parallel overlap it "
     "includes the slow-down caused by collectives that are repeated meanwhile."),
    # Optimizer
    ("block_optim_flops", "Optimizer operations", "opt FLOP", "FLOP", _OPTIMIZER, None,
     "Arithmetic of the Adam update of one block's weights, once per step; divided among the data-parallel ranks when "
     "the optimizer is sharded."),
    ("block_optim_flops_time", "Optimizer arithmetic time", "opt arith.", "s", _OPTIMIZER, "lower",
     "Time of one block's weight update on the vector units if memory were infinitely fast."),
    ("block_optim_mem_accessed", "Optimizer memory traffic", "opt bytes", "bytes", _OPTIMIZER, "lower",
     "Bytes of weights, moments and master copies that one block's weight update touches."),
    ("block_optim_mem_time", "Optimizer memory time", "opt memory", "s", _OPTIMIZER, "lower",
     "Time of one block's weight update memory traffic if arithmetic were free."),
    ("block_optim_time", "Optimizer time of a block", "opt block", "s", _OPTIMIZER, "lower",
     "Time to update the weights of one block, once per step, arithmetic and memory combined."),
    # What one block sends
    ("baseblock_fw_tp_size", "Forward TP bytes, base block", "fw TP B base", "bytes", _TRAFFIC, "lower",
     "Payload of the tensor-parallel collectives in the forward pass of a base block, for one microbatch."),
    ("edgeblock_fw_tp_size", "Forward TP bytes, edge block", "fw TP B edge", "bytes", _TRAFFIC, "lower",
     "Payload of the tensor-parallel collectives in the forward pass of an edge block, for one microbatch."),
    ("baseblock_bw_tp_size", "Backward TP bytes, base block", "bw TP B base", "bytes", _TRAFFIC, "lower",
     "Payload of the tensor-parallel collectives in the backward pass of a base block, for one microbatch."),
    ("edgeblock_bw_tp_size", "Backward TP bytes, edge block", "bw TP B edge", "bytes", _TRAFFIC, "lower",
     "Payload of the tensor-parallel collectives in the backward pass of an edge block, for one microbatch."),
    ("baseblock_recomm_size", "Repeated TP bytes, base block", "recomm B base", "bytes", _TRAFFIC, "lower",
     "Payload of the forward collectives that a base block runs a second time during the backward pass."),
    ("edgeblock_recomm_size", "Repeated TP bytes, edge block", "recomm B edge", "bytes", _TRAFFIC, "lower",
     "Payload of the forward collectives that an edge block runs a second time during the backward pass."),
    ("block_fw_pp_size", "Forward PP bytes", "fw PP B", "bytes", _TRAFFIC, "lower",
     "Activations handed to the next pipeline stage per microbatch; zero with a single stage."),
    ("block_bw_pp_size", "Backward PP bytes", "bw PP B", "bytes", _TRAFFIC, "lower",
     "Activation gradients handed to the previous pipeline stage per microbatch; zero with a single stage."),
    ("block_dp_size", "DP bytes of a block", "DP B", "bytes", _TRAFFIC, "lower",
     "Payload of the data-parallel exchange of one block, counted as its weights at the datatype's width; zero with "
     "one replica."),
    # Bandwidth that overlap needs
    ("tp_bw_overlap_req", "TP bandwidth to hide communication", "TP bw need", "bytes/s", _BANDWIDTH, "lower",
     "Link bandwidth at which every overlapped tensor-parallel transfer would vanish behind its arithmetic."),
    ("dp_bw_overlap_req_chunk", "DP bandwidth to hide chunks", "DP bw chunk", "bytes/s", _BANDWIDTH, "lower",
     "Link bandwidth at which the gradient exchange of every chunk but the last would fit in its window; zero without "
     "interleaving."),
    ("dp_bw_overlap_req_tail", "DP bandwidth to hide the tail", "DP bw tail", "bytes/s", _BANDWIDTH, "lower",
     "Link bandwidth at which the gradient exchange of the last chunk would fit in what is left of the backward pass."),
    # What one block occupies
    ("block_weight_space", "Weights of a block", "W block", "bytes", _BLOCK_MEMORY, "lower",
     "Space of one block's weights on one GPU, at the datatype's width."),
    ("block_act_working_space", "Working activations of a block", "act work", "bytes", _BLOCK_MEMORY, "lower",
     "Space of all activations that are alive while one microbatch passes through one block."),
    ("block_act_storage_space", "Kept activations of a block", "act keep", "bytes", _BLOCK_MEMORY, "lower",
     "Space of the activations of one block that stay until the backward pass of their microbatch; zero with full "
     "recompute."),
    ("block_act_checkpoint_size", "Checkpoint of a block", "ckpt block", "bytes", _BLOCK_MEMORY, "lower",
     "Space of the block input that full recompute keeps per microbatch; zero in the other modes."),
    ("block_weight_grad_space", "Weight gradients of a block", "WG block", "bytes", _BLOCK_MEMORY, "lower",
     "Space of one block's weight gradients at the datatype's width, after sharding."),
    ("block_weight_grad_space_no_sharding", "Weight gradients of a block, 32-bit whole", "WG32 block", "bytes",
     _BLOCK_MEMORY, "lower", "Space of the unsharded 32-bit copy of one block's weight gradients."),
    ("block_act_grad_space", "Activation gradients of a block", "AG block", "bytes", _BLOCK_MEMORY, "lower",
     "Space of the activation gradients that are alive during the backward pass of one block."),
    ("block_optimizer_space", "Optimizer state of a block", "opt state block", "bytes", _BLOCK_MEMORY, "lower",
     "Space of Adam's two moments, and of the 32-bit master weights for narrower datatypes, for one block after "
     "sharding."),
    # What stays in GPU memory when the rest is offloaded
    ("weight_space_with_offload", "Weights kept if offloaded", "W kept", "bytes", _RESIDENT, "lower",
     "GPU memory that weights still need when they live in host memory: the block in use and the one being fetched."),
    ("act_space_with_offload", "Activations kept if offloaded", "act kept", "bytes", _RESIDENT, "lower",
     "GPU memory that activations still need when those of finished blocks move to host memory."),
    ("act_checkpoint_size_with_offload", "Checkpoints kept if offloaded", "ckpt kept", "bytes", _RESIDENT, "lower",
     "GPU memory for two checkpoints in transit when checkpoints move to host memory; absent for inference."),
    ("act_grad_space_with_offload", "Activation gradients kept if offloaded", "AG kept", "bytes", _RESIDENT, "lower",
     "GPU memory for activation gradients when other data is offloaded; they always stay on the GPU."),
    ("weight_grad_space_with_offload", "Weight gradients kept if offloaded", "WG kept", "bytes", _RESIDENT, "lower",
     "GPU memory that weight gradients still need when the optimizer is offloaded: one 32-bit block and one in "
     "transit."),
    ("optimizer_space_with_offload", "Optimizer state kept if offloaded", "opt kept", "bytes", _RESIDENT, "lower",
     "GPU memory that the optimizer still needs when its state lives in host memory: the state of two blocks."),
    # Memory by kind
    ("weight_space", "Weights", "weights", "bytes", _MEMORY, "lower",
     "Space of the weights of all blocks on one GPU, in whichever tier they live."),
    ("act_space", "Activations", "activations", "bytes", _MEMORY, "lower",
     "Peak space of activations over all microbatches in flight on one GPU, in whichever tier they live."),
    ("act_checkpoint_size", "Checkpoints", "checkpoints", "bytes", _MEMORY, "lower",
     "Peak space of the block inputs kept for full recompute, over all blocks and microbatches in flight."),
    ("act_grad_space", "Activation gradients", "act. grads", "bytes", _MEMORY, "lower",
     "Space of the activation gradients of the one block that is in its backward pass."),
    ("weight_grad_space", "Weight gradients", "weight grads", "bytes", _MEMORY, "lower",
     "Space of the weight gradients of all blocks: one block whole in 32 bits, the others at the datatype's width "
     "after sharding."),
    ("optimizer_space", "Optimizer state", "optimizer", "bytes", _MEMORY, "lower",
     "Space of the optimizer state of all blocks on one GPU, after sharding."),
    # Where the step goes
    ("fw_time", "Forward", "fw", "s", _TIME, "lower",
     "Time of one step that a GPU spends on forward arithmetic and memory, over all its blocks and microbatches."),
    ("bw_time", "Backward", "bw", "s", _TIME, "lower",
     "Time of one step spent on activation and weight gradients, without recompute."),
    ("optim_step_time", "Optimizer step", "optim.", "s", _TIME, "lower",
     "Time of one step spent on updating the weights of all blocks that a GPU holds."),
    ("recompute_time", "Recompute", "recomp.", "s", _TIME, "lower",
     "Time of one step spent on repeating forward work whose results were not kept."),
    ("recomm_link_time", "Repeated TP communication on the links", "recomm link", "s", _LINK_TIME, "lower",
     "Time of one step during which links carry forward collectives a second time for the backward pass, hidden or "
     "not."),
    ("recomm_exposed_time", "Repeated TP comm., exposed", "recomm exp.", "s", _TIME, "lower",
     "Time of one step lost to repeated forward collectives that no arithmetic hides."),
    ("bubble_time", "Pipeline bubble", "bubble", "s", _TIME, "lower",
     "Time of one step in which a stage waits for the pipeline to fill or to drain."),
    ("tp_comm_link_time", "TP communication on the links", "TP link", "s", _LINK_TIME, "lower",
     "Time of one step during which tensor-parallel collectives occupy their links, hidden or not."),
    ("pp_comm_link_time", "PP communication on the links", "PP link", "s", _LINK_TIME, "lower",
     "Time of one step during which transfers between pipeline stages occupy their links."),
    ("dp_comm_link_time", "DP communication on the links", "DP link", "s", _LINK_TIME, "lower",
     "Time of one step during which the exchange of gradients among replicas occupies its links, hidden or not."),
    ("tp_comm_exposed_time", "TP comm., exposed", "TP exp.", "s", _TIME, "lower",
     "Time of one step lost to tensor-parallel collectives that no arithmetic hides."),
    ("pp_comm_exposed_time", "PP comm., exposed", "PP exp.", "s", _TIME, "lower",
     "Time of one step lost to handing activations and gradients between pipeline stages."),
    ("dp_comm_exposed_time", "DP comm., exposed", "DP exp.", "s", _TIME, "lower",
     "Time of one step lost to the exchange of gradients among replicas beyond what the backward pass hides."),
    ("fw_offload_exposed_time", "Forward offload, exposed", "fw offl.", "s", _TIME, "lower",
     "Time of one step in which the forward pass waits for transfers to or from host memory."),
    ("bw_offload_exposed_time", "Backward offload, exposed", "bw offl.", "s", _TIME, "lower",
     "Time of one step in which the backward pass waits for transfers to or from host memory."),
    ("total_time", "Step time", "step", "s", _RESULT, "lower",
     "Time of one training step (one whole batch): the sum of compute, recompute, bubble and everything exposed."),
    # Bandwidth to host memory
    ("act_offload_bw_req", "Host bandwidth for activations", "act bw need", "bytes/s", _BANDWIDTH, "lower",
     "Bandwidth to host memory at which moving a block's kept activations hides behind its forward pass."),
    ("weight_offload_bw_req", "Host bandwidth for weights", "W bw need", "bytes/s", _BANDWIDTH, "lower",
     "Bandwidth to host memory at which fetching a block's weights hides behind its forward pass."),
    ("optim_offload_bw_req", "Host bandwidth for the optimizer", "opt bw need", "bytes/s", _BANDWIDTH, "lower",
     "Bandwidth to host memory at which moving a block's gradients and optimizer state hides behind its backward "
     "pass."),
    ("offload_mem_bw_req", "Host bandwidth needed", "host bw need", "bytes/s", _BANDWIDTH, "lower",
     "Bandwidth to host memory at which everything this execution offloads would be hidden, the larger of forward and "
     "backward; infinite where no time is left to hide it."),
    # Results
    ("proc_mem_tier1_cap_req", "HBM needed", "HBM", "bytes", _RESULT, "lower",
     "Peak memory that one GPU needs in its own memory, HBM."),
    ("proc_mem_tier2_cap_req", "Host memory needed", "host", "bytes", _RESULT, "lower",
     "Peak memory that one GPU needs in the second tier, usually host memory; zero without offload."),
    ("useful_flops", "Useful operations of a block", "useful FLOP", "FLOP", _RESULT, None,
     "Arithmetic of forward, backward and optimizer of one block and microbatch, without recompute: the numerator of "
     "the efficiencies."),
    ("compute_efficiency", "Compute efficiency", "compute eff.", "fraction", _RESULT, "higher",
     "Time that the useful arithmetic would take at the matrix peak, divided by the time spent on forward, backward "
     "and optimizer."),
    ("system_efficiency", "System efficiency", "system eff.", "fraction", _RESULT, "higher",
     "Share of the step spent on forward, backward and optimizer; the rest is recompute, bubble and exposed "
     "transfers."),
    ("total_efficiency", "Total efficiency", "total eff.", "fraction", _RESULT, "higher",
     "Time that the useful arithmetic would take at the matrix peak, divided by the step time. It counts vector work "
     "and the optimizer for every microbatch, so it lies a little above the usual MFU."),
    ("sample_rate", "Throughput", "samples/s", "samples/s", _RESULT, "higher",
     "Sequences that the whole system trains on per second: the batch divided by the step time."),
)  # fmt: skip

EXTENSION_STATISTIC_ROWS: Final[tuple[StatisticRow, ...]] = (
    ("cp_comm_exposed_time", "CP comm., exposed", "CP exp.", "s", _TIME, "lower",
     "Time of one step lost to passing keys and values around the context-parallel ring."),
    ("ep_comm_exposed_time", "EP comm., exposed", "EP exp.", "s", _TIME, "lower",
     "Time of one step lost to sending tokens to their experts and back."),
    ("overhead_time", "Host and stragglers", "overhead", "s", _TIME, "lower",
     "Time of one step lost to the host's work between steps and to waiting for the slowest of many GPUs."),
    ("logit_space", "Logits", "logits", "bytes", _MEMORY, "lower",
     "Space of the logits of one microbatch, their 32-bit copy and its gradient, on the last stage."),
    ("temporary_space", "Temporaries", "temp.", "bytes", _MEMORY, "lower",
     "Space of weight gradients before they are added up, or of gathered blocks of sharded weights."),
    ("reserve_space", "Reserve", "reserve", "bytes", _MEMORY, "lower",
     "Memory of a GPU that is not for tensors: driver context and buffers of collectives. Stated, not computed."),
)  # fmt: skip
"""Results of the calibrated cost model beyond the 96; 0 in the other. Those in seconds are stored for every row."""

_EXPOSED: Final = (
    "tp_comm_exposed_time", "recomm_exposed_time", "pp_comm_exposed_time", "dp_comm_exposed_time",
    "cp_comm_exposed_time", "ep_comm_exposed_time",
)  # fmt: skip

SHARE_ROWS: Final[tuple[tuple[str, str, str, tuple[str, ...], str], ...]] = (
    ("bubble_share", "Bubble share", "bubble share", ("bubble_time",),
     "Share of a step in which a stage waits for the pipeline to fill or to drain: pipeline bubble ÷ step time."),
    ("comm_exposed_share", "Exposed communication share", "comm. share", _EXPOSED,
     "Share of a step lost to communication that no arithmetic hides, of tensor, pipeline, data, context and expert "
     "parallelism together: their exposed times ÷ step time."),
)  # fmt: skip
"""(name, label, short, the stored times whose sum is divided by the step time, description)."""

HEADLINE_NAMES: Final[frozenset[str]] = frozenset((
    "sample_rate", "total_time", "total_efficiency", "compute_efficiency", "system_efficiency", "fw_time",
    "bw_time", "optim_step_time", "recompute_time", "recomm_exposed_time", "bubble_time", "tp_comm_exposed_time",
    "pp_comm_exposed_time", "dp_comm_exposed_time", "fw_offload_exposed_time", "bw_offload_exposed_time",
    "offload_mem_bw_req", "proc_mem_tier1_cap_req", "proc_mem_tier2_cap_req",
))  # fmt: skip
"""The statistics of the 96 that are kept for every feasible execution; others are recomputed for the rows in view."""

OF_LAYERS: Final[frozenset[str]] = frozenset((
    "block_fw_flops", "block_fw_flops_time", "block_fw_mem_accessed", "block_fw_mem_time", "baseblock_fw_tp_time",
    "edgeblock_fw_tp_time", "baseblock_fw_tp_time_exposed", "edgeblock_fw_tp_time_exposed", "block_re_flops",
    "block_re_flops_time", "block_re_mem_accessed", "block_re_mem_time", "block_re_time", "baseblock_recomm_time",
    "edgeblock_recomm_time", "baseblock_recomm_time_exposed", "edgeblock_recomm_time_exposed", "block_agrad_flops",
    "block_agrad_flops_time", "block_agrad_mem_accessed", "block_agrad_mem_time", "block_agrad_time",
    "baseblock_agrad_tp_time", "edgeblock_agrad_tp_time", "baseblock_agrad_tp_time_exposed",
    "edgeblock_agrad_tp_time_exposed", "block_wgrad_flops", "block_wgrad_flops_time", "block_wgrad_mem_accessed",
    "block_wgrad_mem_time", "block_wgrad_time", "block_optim_flops", "block_optim_flops_time",
    "block_optim_mem_accessed", "block_optim_mem_time", "block_optim_time", "baseblock_fw_tp_size",
    "edgeblock_fw_tp_size", "baseblock_bw_tp_size", "edgeblock_bw_tp_size", "baseblock_recomm_size",
    "edgeblock_recomm_size", "block_fw_pp_size", "block_bw_pp_size", "block_dp_size", "tp_bw_overlap_req",
    "dp_bw_overlap_req_chunk", "dp_bw_overlap_req_tail", "block_act_working_space", "block_act_checkpoint_size",
    "block_weight_grad_space", "block_weight_grad_space_no_sharding", "block_act_grad_space", "block_optimizer_space",
    "act_grad_space_with_offload", "recomm_link_time", "tp_comm_link_time", "pp_comm_link_time",
    "optim_offload_bw_req",
))  # fmt: skip
"""Statistics that describe layers as Calculon does: not a number in the other cost model."""
