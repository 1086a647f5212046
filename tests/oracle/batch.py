"""One whole batch: schedule, gradient exchange, offload, memory and totals, from the figures of one block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Any

from .block import Block
from .layers import Situation

PAIR = (0, 1)  # base block, edge block


@dataclass
class Memory:
    weight: float
    act: float
    checkpoint: float
    act_grad: float
    weight_grad: float
    optimizer: float
    weight_min: float
    act_min: float
    checkpoint_min: float | None
    act_grad_min: float
    weight_grad_min: float
    optimizer_min: float
    tier1: float
    tier2: float


@dataclass
class Counts:
    """Integers of the schedule."""

    blocks: int  # per processor
    hole: int
    chunk_blocks: int
    base: int
    microbatches: int

    @classmethod
    def of(cls, model: Mapping[str, int], e: Mapping[str, Any]) -> Counts:
        pp = e["pipeline_par"]
        blocks = ceil(model["num_blocks"] / pp)
        remainder = model["num_blocks"] % pp
        chunk_blocks = blocks // e["pipeline_interleaving"]
        return cls(
            blocks=blocks,
            hole=pp - remainder if remainder else 0,
            chunk_blocks=chunk_blocks,
            base=chunk_blocks - 1,
            microbatches=(e["batch_size"] // e["data_par"]) // e["microbatch_size"],
        )


def memory_needs(block: Block, counts: Counts, e: Mapping[str, Any]) -> Memory:
    training = e["training"]
    full = e["activation_recompute"] == "full"
    pp, v, blocks = e["pipeline_par"], e["pipeline_interleaving"], counts.blocks
    act, checkpoint, act_grad, weight_grad, optimizer = block.act_working, 0.0, 0.0, 0.0, 0.0
    if training:
        factor: float = min(counts.microbatches, pp)
        if v > 1:
            factor = factor * (1 + (pp - 1) / (v * pp))
        if full:
            checkpoint = blocks * block.checkpoint * factor
        else:
            act = block.act_working + block.act_storage * (blocks * factor - 1)
        act_grad = block.act_grad
        weight_grad = block.weight_grad_unsharded
        if blocks > 1:
            weight_grad = block.weight_grad_unsharded + block.weight_grad * (blocks - 1)
        optimizer = block.optimizer * blocks
    checkpoint_min: float | None = None
    if training:
        checkpoint_min = 2 * block.checkpoint if full else 0
    need = Memory(
        weight=block.weight * blocks,
        act=act,
        checkpoint=checkpoint,
        act_grad=act_grad,
        weight_grad=weight_grad,
        optimizer=optimizer,
        weight_min=2 * block.weight,
        act_min=block.act_working if full else block.act_working + block.act_storage,
        checkpoint_min=checkpoint_min,
        act_grad_min=block.act_grad,
        weight_grad_min=block.weight_grad_unsharded + block.weight_grad,
        optimizer_min=2 * block.optimizer,
        tier1=0,
        tier2=0,
    )
    if e["weight_offload"]:
        need.tier1 += need.weight_min
        need.tier2 += need.weight
    else:
        need.tier1 += need.weight
    if e["activations_offload"]:
        need.tier1 += need.act_min
        if full:
            assert need.checkpoint_min is not None
            need.tier1 += need.checkpoint_min
            need.tier2 += need.checkpoint
        else:
            need.tier2 += need.act
    else:
        need.tier1 += need.act
        need.tier1 += need.checkpoint
    if e["optimizer_offload"]:
        need.tier1 += need.weight_grad_min
        need.tier1 += need.optimizer_min
        need.tier2 += block.weight_grad * blocks
        need.tier2 += need.optimizer
    else:
        need.tier1 += need.weight_grad + need.optimizer
    need.tier1 += need.act_grad
    return need


@dataclass
class Exchange:
    """Data-parallel gradient exchange."""

    size: float = 0
    link: float = 0
    exposed: float = 0
    requirement_chunk: float = 0
    requirement_tail: float = 0


@dataclass
class Steps:
    """Time of a base and an edge block, forward and backward, with what offloading adds."""

    offload_fw: tuple[float, float]
    offload_bw: tuple[float, float]
    forward: tuple[float, float]
    backward: tuple[float, float]
    forward_plain: tuple[float, float]
    backward_plain: tuple[float, float]
    fw_offload_size: float
    bw_offload_size: float
    act_offload_size: float


def block_steps(block: Block, at: Situation, e: Mapping[str, Any], pf: float, pb: float) -> Steps:
    training = e["training"]
    act_offload = block.checkpoint if e["activation_recompute"] == "full" else block.act_storage
    weights = e["weight_offload"] * block.weight
    activations = e["activations_offload"] * act_offload
    fw_size = max(weights, activations)
    bw_size = weights + activations + e["optimizer_offload"] * block.optimizer if training else 0
    fw_time = at.machine.memory_time(fw_size, "mem2")
    bw_time = at.machine.memory_time(bw_size, "mem2") if training else 0
    f = (
        block.fw.time + block.fw_link.exposed[0],
        block.fw.time + block.fw_link.exposed[1] + pf,
    )
    b = (
        block.re.time + block.recomm.exposed[0] + block.ag.time + block.wg.time + block.ag_link.exposed[0],
        block.re.time + block.recomm.exposed[1] + block.ag.time + block.wg.time + block.ag_link.exposed[1] + pb,
    )
    over_fw = tuple(max(0, fw_time + block.fw.mem_time - f[i]) for i in PAIR)
    over_bw = tuple(max(0, bw_time + block.ag.mem_time + block.wg.mem_time - b[i]) for i in PAIR)
    return Steps(
        offload_fw=(over_fw[0], over_fw[1]),
        offload_bw=(over_bw[0], over_bw[1]),
        forward=(f[0] + over_fw[0], f[1] + over_fw[1]),
        backward=(b[0] + over_bw[0], b[1] + over_bw[1]),
        forward_plain=f,
        backward_plain=b,
        fw_offload_size=fw_size,
        bw_offload_size=bw_size,
        act_offload_size=act_offload,
    )


def gradient_exchange(
    block: Block, at: Situation, counts: Counts, e: Mapping[str, Any], steps: Steps, chunk_backward: float, pb: float
) -> Exchange:
    dp, pp, v = e["data_par"], e["pipeline_par"], e["pipeline_interleaving"]
    if dp == 1 or not e["training"]:
        return Exchange()
    sharded = e["optimizer_sharding"]
    tier = at.machine.tiers[e["data_par_net"]]
    weight = block.weight
    if sharded:
        one = tier.time("reduce_scatter", weight, dp) + tier.time("all_gather", weight, dp)
        scalar = tier.scalar("reduce_scatter") + tier.scalar("all_gather")
    else:
        one = tier.time("all_reduce", weight, dp)
        scalar = tier.scalar("all_reduce")
    link = counts.blocks * one
    if not e["data_par_overlap"]:
        return Exchange(weight, link, link)

    same_as_pipeline = e["data_par_net"] == e["pipeline_par_net"]
    memory = block.ag.mem_time + block.wg.mem_time + block.re.mem_time
    windows = [steps.backward[i] - memory for i in PAIR]
    compute = block.ag.flops_time + block.wg.flops_time + block.re.flops_time
    if not sharded:
        windows = [window + (block.opt.time - block.opt.mem_time) for window in windows]
        compute += block.opt.flops_time
    if e["data_par_net"] == e["tensor_par_net"]:
        windows = [windows[i] - (block.recomm.time[i] + block.ag_link.time[i]) for i in PAIR]
    chunk_window = counts.base * windows[0] + windows[1]
    window = pp * chunk_window
    overlapped_compute = pp * (counts.chunk_blocks * compute)
    chunk_time = counts.chunk_blocks * one
    usage = tier.processor_usage
    collisions = 0
    if same_as_pipeline:
        collisions = min(floor(chunk_time // chunk_backward), counts.microbatches % pp or pp)
    gap = chunk_time - (window - collisions * pb) + overlapped_compute * usage
    exposed_chunks = (v - 1) * gap if gap > 0 else (v - 1) * chunk_time * usage
    available = (window + overlapped_compute * usage - (pb if same_as_pipeline else 0)) * (v - 1)
    chunk_bytes = counts.chunk_blocks * weight
    requirement_chunk = chunk_bytes / available * scalar if available > 0 else 0

    tail_window: float = 0
    if counts.base > 0:
        tail_window = chunk_window - pb - (steps.backward[0] + steps.backward[1]) / 2
        if not sharded:
            tail_window += block.opt.time - block.opt.mem_time
    tail_gap = counts.base * one + (compute * usage - tail_window)
    exposed_tail = tail_gap if tail_gap > 0 else counts.base * one * usage
    available = tail_window + counts.base * one * usage
    requirement_tail = chunk_bytes / available * scalar if available > 0 else 0
    return Exchange(weight, link, one + (exposed_chunks + exposed_tail), requirement_chunk, requirement_tail)


def ratio(numerator: float, denominator: float) -> float:
    """A required bandwidth. With no time to hide in, it is infinite, whatever there is to move (0/0 included)."""
    return inf if denominator == 0 else numerator / denominator


def statistics(
    block: Block, at: Situation, counts: Counts, e: Mapping[str, Any], need: Memory
) -> dict[str, float | None]:
    """The 96 figures of a run, in Calculon's order."""
    training = e["training"]
    pp: int = e["pipeline_par"]
    v: int = e["pipeline_interleaving"]
    blocks, base, microbatches = counts.blocks, counts.base, counts.microbatches
    many = blocks * microbatches
    fw_time = many * block.fw.time
    recompute_time = many * block.re.time
    bw_time = many * block.ag.time + many * block.wg.time
    optim_time = blocks * block.opt.time
    chunks = microbatches * v

    def over_chunks(pair: list[float] | tuple[float, float]) -> float:
        return chunks * (base * pair[0] + pair[1])

    tp_link = over_chunks(block.fw_link.time) + over_chunks(block.ag_link.time)
    tp_exposed = over_chunks(block.fw_link.exposed) + over_chunks(block.ag_link.exposed)
    recomm_link = over_chunks(block.recomm.time)
    recomm_exposed = over_chunks(block.recomm.exposed)

    pipeline_tier = at.machine.tiers[e["pipeline_par_net"]]
    pf = pipeline_tier.time("p2p", block.pp_fw_size, 2)
    pb = pipeline_tier.time("p2p", block.pp_bw_size, 2)
    pp_time = microbatches * (v if pp > 1 else 0) * pf + microbatches * (v if pp > 1 and training else 0) * pb

    steps = block_steps(block, at, e, pf, pb)
    forward, backward = steps.forward, steps.backward
    chunk_forward = base * forward[0] + forward[1]
    chunk_backward = base * backward[0] + backward[1]
    chunk = chunk_forward + chunk_backward
    fw_offload = over_chunks(steps.offload_fw)
    bw_offload = over_chunks(steps.offload_bw) if training else 0

    if base > 0:
        reduction = counts.hole * (forward[0] + forward[1] + backward[0] + backward[1]) / 2
    else:
        reduction = counts.hole * (forward[1] + backward[1])
    extra = (v - 1) * (pp - microbatches % pp) if microbatches % pp else 0
    bubble = (pp - 1) * chunk + (extra * chunk - reduction)

    exchange = gradient_exchange(block, at, counts, e, steps, chunk_backward, pb)

    total = (
        fw_time
        + bw_time
        + optim_time
        + fw_offload
        + bw_offload
        + recompute_time
        + recomm_exposed
        + bubble
        + tp_exposed
        + pp_time
        + exchange.exposed
    )

    fw_spare = min(steps.forward_plain[i] - block.fw.mem_time for i in PAIR)
    bw_spare = min(steps.backward_plain[i] - (block.ag.mem_time + block.wg.mem_time) for i in PAIR)
    offload_requirement = ratio(steps.fw_offload_size, fw_spare)
    if training:
        offload_requirement = max(offload_requirement, ratio(steps.bw_offload_size, bw_spare))

    useful = block.fw.flops + block.backward_flops
    compute = fw_time + bw_time + optim_time
    perfect = blocks * microbatches * useful / at.machine.matrix_peak()

    return {
        **block_statistics(block, e, exchange),
        "weight_space_with_offload": need.weight_min,
        "act_space_with_offload": need.act_min,
        "act_checkpoint_size_with_offload": need.checkpoint_min,
        "act_grad_space_with_offload": need.act_grad_min,
        "weight_grad_space_with_offload": need.weight_grad_min,
        "optimizer_space_with_offload": need.optimizer_min,
        "weight_space": need.weight,
        "act_space": need.act,
        "act_checkpoint_size": need.checkpoint,
        "act_grad_space": need.act_grad,
        "weight_grad_space": need.weight_grad,
        "optimizer_space": need.optimizer,
        "fw_time": fw_time,
        "bw_time": bw_time,
        "optim_step_time": optim_time,
        "recompute_time": recompute_time,
        "recomm_link_time": recomm_link,
        "recomm_exposed_time": recomm_exposed,
        "bubble_time": bubble,
        "tp_comm_link_time": tp_link,
        "pp_comm_link_time": pp_time,
        "dp_comm_link_time": exchange.link,
        "tp_comm_exposed_time": tp_exposed,
        "pp_comm_exposed_time": pp_time,
        "dp_comm_exposed_time": exchange.exposed,
        "fw_offload_exposed_time": fw_offload,
        "bw_offload_exposed_time": bw_offload,
        "total_time": total,
        "act_offload_bw_req": ratio(steps.act_offload_size, fw_spare),
        "weight_offload_bw_req": ratio(block.weight, fw_spare),
        "optim_offload_bw_req": ratio(block.weight_grad + block.optimizer, bw_spare) if training else 0,
        "offload_mem_bw_req": offload_requirement,
        "proc_mem_tier1_cap_req": need.tier1,
        "proc_mem_tier2_cap_req": need.tier2,
        "useful_flops": useful,
        "compute_efficiency": perfect / compute,
        "system_efficiency": compute / total,
        "total_efficiency": perfect / total,
        "sample_rate": e["batch_size"] / total,
    }


def block_statistics(block: Block, e: Mapping[str, Any], exchange: Exchange) -> dict[str, float | None]:
    figures: dict[str, float | None] = {}

    def stage(label: str, link_label: str | None, of: str) -> None:
        total = getattr(block, of)
        figures[f"block_{label}_flops"] = total.flops
        figures[f"block_{label}_flops_time"] = total.flops_time
        figures[f"block_{label}_mem_accessed"] = total.mem
        figures[f"block_{label}_mem_time"] = total.mem_time
        figures[f"block_{label}_time"] = total.time
        if link_label:
            link = {"fw": block.fw_link, "ag": block.ag_link, "re": block.recomm}[of]
            for suffix, pair in (("", link.time), ("_exposed", link.exposed)):
                figures[f"baseblock_{link_label}_time{suffix}"] = pair[0]
                figures[f"edgeblock_{link_label}_time{suffix}"] = pair[1]

    stage("fw", "fw_tp", "fw")
    stage("re", "recomm", "re")
    stage("agrad", "agrad_tp", "ag")
    stage("wgrad", None, "wg")
    stage("optim", None, "opt")
    for label, link in (("fw_tp", block.fw_link), ("bw_tp", block.ag_link), ("recomm", block.recomm)):
        figures[f"baseblock_{label}_size"] = link.size[0]
        figures[f"edgeblock_{label}_size"] = link.size[1]
    figures.update(
        block_fw_pp_size=block.pp_fw_size,
        block_bw_pp_size=block.pp_bw_size,
        block_dp_size=exchange.size,
        tp_bw_overlap_req=block.bandwidth_requirement,
        dp_bw_overlap_req_chunk=exchange.requirement_chunk,
        dp_bw_overlap_req_tail=exchange.requirement_tail,
        block_weight_space=block.weight,
        block_act_working_space=block.act_working,
        block_act_storage_space=block.act_storage,
        block_act_checkpoint_size=block.checkpoint,
        block_weight_grad_space=block.weight_grad,
        block_weight_grad_space_no_sharding=block.weight_grad_unsharded,
        block_act_grad_space=block.act_grad,
        block_optimizer_space=block.optimizer,
    )
    return figures
