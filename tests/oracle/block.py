"""Totals of one block and one microbatch, added up layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .layers import Layer, Situation


@dataclass
class Stage:
    """One stage's totals: operations, their time, bytes, their time, processing time."""

    flops: float = 0
    flops_time: float = 0
    mem: float = 0
    mem_time: float = 0
    time: float = 0

    def add(self, layer: Layer, stage: str, at: Situation) -> None:
        self.flops += layer.flops(stage, at)
        self.flops_time += layer.compute_time(stage, at)
        self.mem += layer.size(stage, at)
        self.mem_time += layer.memory_time(stage, at)
        self.time += layer.processing(stage, at)[0]


@dataclass
class Link:
    """Tensor-parallel communication of a stage in [base, edge] blocks."""

    size: list[float] = field(default_factory=lambda: [0, 0])
    time: list[float] = field(default_factory=lambda: [0, 0])
    exposed: list[float] = field(default_factory=lambda: [0, 0])

    def add(self, layer: Layer, stage: str, at: Situation) -> None:
        for edge in (False, True):
            self.size[edge] += layer.net_size(stage, at, edge)
            self.time[edge] += layer.net_time(stage, at, edge)
            self.exposed[edge] += layer.exposed(stage, at, edge)


@dataclass
class Block:
    fw: Stage = field(default_factory=Stage)
    re: Stage = field(default_factory=Stage)
    ag: Stage = field(default_factory=Stage)
    wg: Stage = field(default_factory=Stage)
    opt: Stage = field(default_factory=Stage)
    fw_link: Link = field(default_factory=Link)
    ag_link: Link = field(default_factory=Link)
    recomm: Link = field(default_factory=Link)
    bandwidth_requirement: float = 0
    weight: float = 0
    act_working: float = 0
    act_storage: float = 0
    checkpoint: float = 0
    weight_grad: float = 0
    weight_grad_unsharded: float = 0
    act_grad: float = 0
    optimizer: float = 0
    pp_fw_size: float = 0
    pp_bw_size: float = 0
    backward_flops: float = 0


def block_totals(
    layers: Sequence[Layer], at: Situation, model: Mapping[str, int], execution: Mapping[str, Any]
) -> Block:
    training = execution["training"]
    full = execution["activation_recompute"] == "full"
    total = Block()
    for layer in layers:
        total.fw.add(layer, "fw", at)
        total.fw_link.add(layer, "fw", at)
        stages = ("fw", "ag") if training else ("fw",)
        for stage in stages:
            for edge in (False, True):
                total.bandwidth_requirement = max(
                    total.bandwidth_requirement, layer.bandwidth_requirement(stage, at, edge)
                )
        if training:
            if layer.recompute:
                # running totals, not this layer's own figures: only the time is the layer's own
                total.re.flops += total.fw.flops
                total.re.flops_time += total.fw.flops_time
                total.re.mem += total.fw.mem
                total.re.mem_time += total.fw.mem_time
                total.re.time += layer.processing("fw", at)[0]
            if layer.recomm:
                total.recomm.add(layer, "wg", at)
            total.ag.add(layer, "ag", at)
            total.ag_link.add(layer, "ag", at)
            total.wg.add(layer, "wg", at)
            total.opt.add(layer, "opt", at)
            total.backward_flops += layer.flops("ag", at) + layer.flops("wg", at) + layer.flops("opt", at)
        total.weight += layer.weight_space(at)
        if not layer.reused:
            total.act_working += layer.activation_space(at)
        total.act_storage += layer.activation_space(at)
        if training:
            if not layer.output_stored:
                total.act_storage -= layer.output_space(at)
            if not layer.stored:
                total.act_storage -= layer.activation_space(at)
            total.weight_grad += layer.weight_gradient_space(at)
            total.weight_grad_unsharded += layer.weight_gradient_space_unsharded()
            total.act_grad += layer.gradient_space(at)
            total.optimizer += layer.optimizer_space(at)
    tokens = execution["microbatch_size"] * model["seq_size"]
    whole = tokens * model["hidden"]
    if full:
        total.act_storage = 0
        if training:
            total.checkpoint = whole * at.width
    if execution["pipeline_par"] > 1:
        sequence = (tokens // at.tp) * model["hidden"]
        total.pp_fw_size = (sequence if at.comm_type != "ar" else whole) * at.width
        if training:
            total.pp_bw_size = total.pp_fw_size
    return total
