"""One block of the model as a list of layers: floating-point operations, bytes, stored tensors and flags.

A layer is built from element counts; bytes follow from its kind. Communication and processing time of a single layer
are here too, because overlapped matrix products weave the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .hardware import DATATYPE_BYTES, Machine, Tier

STAGES = ("fw", "ag", "wg", "opt")


@dataclass(frozen=True)
class Situation:
    """What every layer needs to know about the execution."""

    machine: Machine
    tier: Tier
    tp: int
    comm_type: str
    pipe: bool
    width: int  # [bytes per element]
    shards: int

    def split(self, edge: bool) -> bool:
        """Whether all-reduce is split into reduce-scatter and all-gather in this kind of block."""
        return self.comm_type == "rs_ag" or (self.comm_type == "p2p_rs_ag" and edge)


@dataclass
class Layer:
    name: str
    kind: str
    engine: str
    fw: float = 0
    ag: float = 0
    wg: float = 0
    inputs: int = 0
    outputs: int = 0
    act: int = 0
    grad: int = 0
    weights: int = 0
    users: int = 0
    conjugate: bool = False
    tiled: int = 1
    recompute: bool = False
    recomm: bool = False
    stored: bool = True
    output_stored: bool = True
    reused: bool = False

    def flops(self, stage: str, at: Situation) -> float:
        if stage == "opt":
            return self.weights / at.shards * 11
        return {"fw": self.fw, "ag": self.ag, "wg": self.wg}[stage]

    def size(self, stage: str, at: Situation) -> float:
        """Bytes moved to and from memory in one stage."""
        b = at.width
        if stage == "opt":
            return self.optimizer_space(at)
        if stage == "wg":
            return 0 if self.weights == 0 else (self.weights + self.act + self.grad) * b
        forward = (self.inputs + self.outputs + self.weights) * b
        backward = (self.weights + self.act + self.grad) * b
        if self.kind == "dropout":
            forward = backward = (self.inputs + self.outputs) * b + self.act
        elif self.kind in ("gelu", "softmax"):
            backward = forward
        elif self.kind == "fork":
            forward, backward = 0, self.act * b * (self.users + 1)
        elif self.kind == "comm" and at.comm_type != "rs_ag":
            if self.conjugate:
                backward = 0
            else:
                forward = 0
        return forward if stage == "fw" else backward

    def activation_space(self, at: Situation) -> float:
        if self.kind == "dropout":
            return self.act
        if self.kind == "comm":
            if at.comm_type == "rs_ag":
                return self.act * at.width / at.tp
            if not self.conjugate:
                return 0
        return self.act * at.width

    def gradient_space(self, at: Situation) -> float:
        if self.kind == "dropout":
            return self.grad
        if self.kind == "comm":
            if at.comm_type == "rs_ag":
                return self.act * at.width / at.tp
            if self.conjugate:
                return 0
        return self.grad * at.width

    def output_space(self, at: Situation) -> float:
        return self.outputs * at.width

    def weight_space(self, at: Situation) -> float:
        return self.weights * at.width

    def weight_gradient_space(self, at: Situation) -> float:
        return self.weights * at.width / at.shards

    def weight_gradient_space_unsharded(self) -> float:
        return 4 * self.weights

    def optimizer_space(self, at: Situation) -> float:
        master = 4 * self.weights if at.width < 4 else 0
        return (master + 8 * self.weights) / at.shards

    # --- time ---------------------------------------------------------------------------------------------------

    def compute_time(self, stage: str, at: Situation) -> float:
        return at.machine.compute_time(self.flops(stage, at), "vector" if stage == "opt" else self.engine)

    def memory_time(self, stage: str, at: Situation) -> float:
        return at.machine.memory_time(self.size(stage, at))

    def plain_time(self, stage: str, at: Situation) -> float:
        return at.machine.combine(self.compute_time(stage, at), self.memory_time(stage, at))

    def collective(self, stage: str, at: Situation, edge: bool) -> str | None:
        """Which collective a stage needs, if any; re-communication (stage "wg") repeats the forward one."""
        if self.kind not in ("comm", "overlapped") or at.tp == 1:
            return None
        if stage == "wg":
            return self.collective("fw", at, edge) if self.recomm else None
        if self.conjugate == (stage == "fw"):
            return "reduce_scatter" if at.split(edge) else "all_reduce"
        return "all_gather" if at.split(edge) else None

    def net_size(self, stage: str, at: Situation, edge: bool) -> float:
        if self.collective(stage, at, edge) is None:
            return 0
        if self.kind == "comm":
            return self.act * at.width
        return (self.outputs if self.conjugate else self.inputs) * at.width

    def net_time(self, stage: str, at: Situation, edge: bool) -> float:
        if self.kind not in ("comm", "overlapped") or at.tp == 1:
            return 0
        if stage == "wg" and not self.recomm:
            return 0
        operation = self.collective(stage, at, edge)
        size = self.net_size(stage, at, edge)
        network = at.tier.time(operation, size, at.tp) if operation else 0
        if self.kind == "comm":
            return network + self.plain_time(stage, at)
        if operation is None:
            return 0
        if stage != "wg" and self.conjugate == (stage == "fw"):
            network += at.machine.compute_time((size / at.width) * (at.tp - 1) / at.tp, "vector")
        return network

    def processing(self, stage: str, at: Situation) -> tuple[float, float]:
        """Processing time, and communication that tiling leaves exposed [s, s]."""
        if self.kind == "comm":
            return 0, 0
        plain = self.plain_time(stage, at)
        network = self.net_time(stage, at, False) if self.kind == "overlapped" and stage != "opt" else 0
        if network == 0:
            return plain, 0
        tp, usage = at.tp, at.tier.processor_usage
        slowed = self.compute_time(stage, at) / (1 - usage)
        slowed_all = at.machine.combine(slowed, self.memory_time(stage, at))
        gap = network / tp - slowed / tp
        if gap > 0:
            time = plain / tp + (tp - 1) * (slowed_all / tp)
            exposed = (tp - 1) * gap
        else:
            time = plain / tp + (tp - 1) * (plain / tp) + (tp - 1) * (network / tp) * usage
            exposed = 0
        if at.pipe:
            exposed += network / tp
            time += network / tp
        return time, exposed

    def exposed(self, stage: str, at: Situation, edge: bool) -> float:
        """Exposed communication of a stage as the block totals count it: re-communication takes the forward figure."""
        if self.kind == "comm":
            return self.net_time(stage, at, edge)
        return self.processing("fw" if stage == "wg" else stage, at)[1]

    def bandwidth_requirement(self, stage: str, at: Situation, edge: bool) -> float:
        """Network bandwidth that would hide this layer's communication [bytes/s]."""
        if self.kind != "overlapped":
            return 0
        tile = self.compute_time(stage, at) / (1 - at.tier.processor_usage) / at.tp
        return (self.net_size(stage, at, edge) / at.tp) / tile


def situation(system: Mapping[str, Any], execution: Mapping[str, Any]) -> Situation:
    machine = Machine(system, execution["datatype"])
    return Situation(
        machine=machine,
        tier=machine.tiers[execution["tensor_par_net"]],
        tp=execution["tensor_par"],
        comm_type=execution["tensor_par_comm_type"],
        pipe=execution["tensor_par_overlap"] == "pipe",
        width=DATATYPE_BYTES[execution["datatype"]],
        shards=execution["data_par"] if execution["optimizer_sharding"] else 1,
    )


def block_layers(model: Mapping[str, int], execution: Mapping[str, Any]) -> list[Layer]:
    """The layers of one block in order."""
    h, f, s = model["hidden"], model["feedforward"], model["seq_size"]
    a, d = model["attn_heads"], model["attn_size"]
    tp, mb = execution["tensor_par"], execution["microbatch_size"]
    comm_type = execution["tensor_par_comm_type"]
    recompute = execution["activation_recompute"]
    multiquery = execution["attention_type"] == "multiquery"
    overlapped = execution["tensor_par_overlap"] != "none"
    redo = execution["seq_par_ag_redo"]

    tokens = mb * s
    whole = tokens * h
    residual = (tokens // tp) * h if comm_type == "rs_ag" else whole
    scores = (a // tp) * s**2 * mb
    batch = (mb * a) // tp
    heads = (a * d) // tp
    middle = (f * tokens) // tp
    key = d if multiquery else heads
    reduction = whole * (tp - 1) / tp
    full = recompute == "full"
    attention = recompute in ("full", "attn_only")
    again_attention = attention or redo
    again_mlp = full or redo
    fused = execution["fused_activation"]

    def linear(name: str, m: int, n: int, k: int, **flags: bool) -> Layer:
        flops = 2 * m * n * k
        return Layer(
            name, "linear", "matrix", flops, flops, flops, m * n, m * k, m * n, m * k, n * k, recompute=full, **flags
        )

    def matmul(name: str, q: int, m: int, n: int, k: int, **flags: bool) -> Layer:
        flops = 2 * q * m * n * k
        operands, result = q * (m * n + n * k), q * m * k
        return Layer(name, "matmul", "matrix", flops, 2 * flops, 0, operands, result, operands, result, **flags)

    def norm(name: str, x: int) -> Layer:
        return Layer(
            name, "norm", "vector", 9 * x, 14 * x, 7 * x, x, x, x, x, 2 * h, recompute=full, stored=False, reused=True
        )

    def dropout(name: str, x: int, **flags: bool) -> Layer:
        return Layer(name, "dropout", "vector", x, x, 0, x, x, x, x, **flags)

    def residual_add(name: str, x: int) -> Layer:
        return Layer(name, "add", "vector", x, 2 * x, 0, 2 * x, x, 2 * x, x, recompute=full, stored=False, reused=True)

    def fork(name: str, x: int, users: int, **flags: bool) -> Layer:
        return Layer(name, "fork", "vector", 0, users * x, 0, x, 0, x, 0, users=users, **flags)

    def communicate(name: str, conjugate: bool, **flags: bool) -> Layer:
        if tp == 1:
            return Layer(name, "comm", "vector", conjugate=conjugate, **flags)
        return Layer(
            name,
            "comm",
            "vector",
            reduction if conjugate else 0,
            0 if conjugate else reduction,
            0,
            whole,
            whole,
            whole,
            whole,
            conjugate=conjugate,
            **flags,
        )

    def tiled(name: str, m: int, n: int, k: int, conjugate: bool, recomm: bool) -> Layer:
        if conjugate:
            n //= tp
        else:
            k //= tp
        flops = 2 * m * n * k
        if comm_type == "rs_ag":
            act, grad = (m * n, 2 * (m * k // tp)) if conjugate else (m * n // tp, m * k)
        else:
            act, grad = (0, 2 * m * k) if conjugate else (m * n, 0)
        return Layer(
            name,
            "overlapped",
            "matrix",
            flops,
            flops,
            flops,
            m * n,
            m * k,
            act,
            grad,
            n * k,
            conjugate=conjugate,
            tiled=tp,
            recompute=full,
            recomm=recomm,
        )

    def projection(name: str, k: int) -> Layer:
        return linear(name, tokens, h, k, stored=False, reused=True)

    block = [fork("AttnBlock_Fork", residual, 2, recompute=full), norm("AttnBlock_LayerNorm", residual)]
    if not overlapped:
        block += [
            communicate("AttnBlock_F", False, recomm=again_attention),
            fork("AttnBlock_Multihead_Fork", whole, 3, recompute=again_attention, stored=not again_attention),
            projection("AttnBlock_Query", heads),
            projection("AttnBlock_Key", key),
            projection("AttnBlock_Value", key),
        ]
    elif multiquery:
        block += [
            tiled("AttnBlock_Query_AG", tokens, h, a * d, False, again_attention),
            fork("AttnBlock_KV_Fork", whole, 2, recompute=again_attention, stored=not again_attention),
            projection("AttnBlock_Key", d),
            projection("AttnBlock_Value", d),
        ]
    else:
        block += [tiled("AttnBlock_QKV_AG", tokens, h, 3 * a * d, False, again_attention)]
    block += [
        matmul("AttnBlock_Multihead_Key_Query", batch, s, d, s, recompute=attention, output_stored=not attention),
        Layer(
            "AttnBlock_Multihead_SoftMax",
            "softmax",
            "vector",
            5 * scores,
            8 * scores,
            0,
            scores,
            scores,
            scores,
            scores,
            recompute=attention,
            output_stored=not attention,
        ),
        dropout("AttnBlock_Multihead_DropOut", scores, recompute=attention, stored=not attention),
        matmul("AttnBlock_Multihead_Attn", batch, s, s, d, recompute=full),
    ]
    if overlapped:
        block += [tiled("AttnBlock_MLP_RS", tokens, a * d, h, True, full)]
    else:
        block += [
            linear("AttnBlock_MLP", tokens, heads, h),
            communicate("AttnBlock_G", True, recomm=full, stored=False),
        ]
    block += [
        dropout("AttnBlock_DropOut", residual, recompute=full),
        residual_add("AttnBlock_Residual", residual),
        fork("MlpBlock_Fork", residual, 2, recompute=full),
        norm("MlpBlock_LayerNorm", residual),
    ]
    gelu = Layer(
        "MlpBlock_GeLU",
        "gelu",
        "vector",
        8 * middle,
        13 * middle,
        0,
        middle,
        middle,
        0 if fused else middle,
        0 if fused else middle,
        recompute=full,
    )
    if overlapped:
        block += [
            tiled("MlpBlock_Mlp1_AG", tokens, h, f, False, again_mlp),
            gelu,
            tiled("MlpBlock_Mlp2_RS", tokens, f, h, True, full),
        ]
    else:
        block += [
            communicate("MlpBlock_F", False, recomm=again_mlp),
            linear("MlpBlock_Mlp1", tokens, h, f // tp, stored=not again_mlp),
            gelu,
            linear("MlpBlock_Mlp2", tokens, f // tp, h),
            communicate("MlpBlock_G", True, recomm=full, stored=False),
        ]
    block += [dropout("MlpBlock_DropOut", residual, recompute=full), residual_add("MlpBlock_Residual", residual)]
    return block


def layer_figures(layer: Layer, at: Situation) -> dict[str, Any]:
    """Figures of one layer as Calculon prints them.

    Its exposed re-communication is that of the weight-gradient stage here, unlike the one counted in the block totals.
    """
    figures: dict[str, Any] = {"name": layer.name, "inputs_size": layer.inputs, "outputs_size": layer.outputs}
    for stage, label, network in (("fw", "fw", "fw_tp_comm"), ("ag", "agrad", "bw_tp_comm"), ("wg", "wgrad", "recomm")):
        flops, size = layer.flops(stage, at), layer.size(stage, at)
        figures[f"{label}_flops"] = flops
        figures[f"{label}_mem_accessed"] = size
        figures[f"{label}_arithmetic_intensity"] = flops / size if size else 0
        figures[f"{label}_processing_time"] = layer.processing(stage, at)[0]
        kinds = (("baseblock", False), ("edgeblock", True))
        moved = {prefix: layer.net_size(stage, at, edge) for prefix, edge in kinds}
        times = {prefix: layer.net_time(stage, at, edge) for prefix, edge in kinds}
        exposed = times if layer.kind == "comm" else dict.fromkeys(moved, layer.processing(stage, at)[1])
        tiles = {prefix: size / layer.tiled if layer.tiled > 1 else size for prefix, size in moved.items()}
        for suffix, values in (("tile", tiles), ("size", moved), ("time", times), ("time_exposed", exposed)):
            figures.update({f"{prefix}_{network}_{suffix}": value for prefix, value in values.items()})
    flops, size = layer.flops("opt", at), layer.size("opt", at)
    figures["optim_flops"] = flops
    figures["optim_mem_accessed"] = size
    figures["optim_arithmetic_intensity"] = flops / size if size else 0
    figures["optim_processing_time"] = layer.processing("opt", at)[0]
    figures["weight"] = layer.weight_space(at)
    figures["activation"] = layer.activation_space(at)
    figures["weight_grad"] = layer.weight_gradient_space(at)
    figures["activation_grad"] = layer.gradient_space(at)
    figures["optimizer"] = layer.optimizer_space(at)
    return figures
