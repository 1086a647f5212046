"""The layers of one transformer block, as data.

A recipe lists the layers of a block in order. Each layer names its kind, the sizes it works on and how it behaves
under recomputation; `quantities` turns a recipe into arrays [layers, keys] of operation counts and sizes. Nothing
here knows a rate: seconds are the business of `engine.cost_models.calculon.physics.rates` and
`engine.cost_models.calculon.physics.block`.

All counts are float64. They are whole numbers, exact below 2^53; above that they carry a relative error of 1e-16.

Source: Calculon 0.1.0 (commit caa4b11), `llm.py` `_build_attn_block*`/`_build_mlp_block*` and `layers.py`. What
Calculon counts is kept where it departs from the arithmetic of a transformer:

- Embeddings, the output projection, biases and the last norm are in neither time nor memory.
- Redoing the all-gather marks the attention's fork as recomputed, which adds a running total of the block again.
- Keys and values of multi-query attention are whole on every processor, and attention still reads them per head.
- Fusing an activation saves memory and no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from engine.executions.arrays import Floats
from models import Model

__all__ = ["LayerSpec", "Quantities", "Sizes", "quantities", "recipe", "sizes"]


Kind = Literal["linear", "batch_matmul", "norm", "dropout", "gelu", "softmax", "add", "fork", "comm", "overlapped"]
When = Literal[
    "never",
    "always",
    "full",
    "attention",
    "redo_attention",
    "redo_mlp",
    "not_attention",
    "not_redo_attention",
    "not_redo_mlp",
]
"""Under which recomputation choice something holds: see `engine.cost_models.calculon.physics.block.recompute_flags`."""


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """One layer of a recipe.

    `sizes` name entries of `Sizes`, in the order that the layer's kind expects. `gathers` is true for the
    communication that gathers before a computation (an identity or all-gather forward), false for the one that
    reduces after it. `users` is how many layers read a fork's output.
    """

    name: str
    kind: Kind
    sizes: tuple[str, ...]
    recomputed: When = "never"
    recommunicated: When = "never"
    stored: When = "always"
    output_stored: When = "always"
    reused: bool = False
    gathers: bool = False
    users: int = 0


def _attention_projection(name: str, width: str) -> LayerSpec:
    """A projection of the attention's input, which the fork before it stores once for all of them."""
    return LayerSpec(name, "linear", ("tokens", "hidden", width), recomputed="full", stored="never", reused=True)


def recipe(attention_type: str, overlapped: bool) -> tuple[LayerSpec, ...]:
    """Returns the layers of one block in order.

    Overlapping communication with its GEMM fuses communication, query, key and value projections into single layers and
    so changes tiers of efficiency and memory, not only time.

    Args:
        attention_type: "multihead" or "multiquery".
        overlapped: whether tensor-parallel communication is overlapped with its GEMM.
    """
    multiquery = attention_type == "multiquery"
    key_value = "attention_dim" if multiquery else "local_attention_width"
    # Norms, residuals and dropout run on each rank's part of the sequence under sequence parallelism ("residual").
    head = (
        LayerSpec("AttnBlock_Fork", "fork", ("residual",), recomputed="full", users=2),
        LayerSpec("AttnBlock_LayerNorm", "norm", ("residual",), recomputed="full", stored="never", reused=True),
    )
    attention = (
        LayerSpec(
            "AttnBlock_Multihead_Key_Query",
            "batch_matmul",
            ("local_batch_heads", "sequence", "attention_dim", "sequence"),
            recomputed="attention",
            output_stored="not_attention",
        ),
        LayerSpec(
            "AttnBlock_Multihead_SoftMax", "softmax", ("scores",), recomputed="attention", output_stored="not_attention"
        ),
        LayerSpec(
            "AttnBlock_Multihead_DropOut", "dropout", ("scores",), recomputed="attention", stored="not_attention"
        ),
        LayerSpec(
            "AttnBlock_Multihead_Attn",
            "batch_matmul",
            ("local_batch_heads", "sequence", "sequence", "attention_dim"),
            recomputed="full",
        ),
    )
    tail_attention = (
        LayerSpec("AttnBlock_DropOut", "dropout", ("residual",), recomputed="full"),
        LayerSpec("AttnBlock_Residual", "add", ("residual",), recomputed="full", stored="never", reused=True),
        LayerSpec("MlpBlock_Fork", "fork", ("residual",), recomputed="full", users=2),
        LayerSpec("MlpBlock_LayerNorm", "norm", ("residual",), recomputed="full", stored="never", reused=True),
    )
    tail_mlp = (
        LayerSpec("MlpBlock_DropOut", "dropout", ("residual",), recomputed="full"),
        LayerSpec("MlpBlock_Residual", "add", ("residual",), recomputed="full", stored="never", reused=True),
    )
    gelu = LayerSpec("MlpBlock_GeLU", "gelu", ("local_feedforward_activation",), recomputed="full")
    if overlapped:
        if multiquery:
            # Keys and values of multi-query attention are gathered with the query's input, but projected apart.
            projections: tuple[LayerSpec, ...] = (
                LayerSpec(
                    "AttnBlock_Query_AG",
                    "overlapped",
                    ("tokens", "hidden", "attention_width"),
                    recomputed="full",
                    recommunicated="redo_attention",
                    gathers=True,
                ),
                LayerSpec(
                    "AttnBlock_KV_Fork",
                    "fork",
                    ("activation",),
                    recomputed="redo_attention",
                    stored="not_redo_attention",
                    users=2,
                ),
                _attention_projection("AttnBlock_Key", "attention_dim"),
                _attention_projection("AttnBlock_Value", "attention_dim"),
            )
        else:
            projections = (
                LayerSpec(
                    "AttnBlock_QKV_AG",
                    "overlapped",
                    ("tokens", "hidden", "attention_width_3"),
                    recomputed="full",
                    recommunicated="redo_attention",
                    gathers=True,
                ),
            )
        return (
            *head,
            *projections,
            *attention,
            LayerSpec(
                "AttnBlock_MLP_RS",
                "overlapped",
                ("tokens", "attention_width", "hidden"),
                recomputed="full",
                recommunicated="full",
            ),
            *tail_attention,
            LayerSpec(
                "MlpBlock_Mlp1_AG",
                "overlapped",
                ("tokens", "hidden", "feedforward"),
                recomputed="full",
                recommunicated="redo_mlp",
                gathers=True,
            ),
            gelu,
            LayerSpec(
                "MlpBlock_Mlp2_RS",
                "overlapped",
                ("tokens", "feedforward", "hidden"),
                recomputed="full",
                recommunicated="full",
            ),
            *tail_mlp,
        )
    return (
        *head,
        # f and g are the conjugate communications of Megatron-LM (Shoeybi et al. 2019, figure 3).
        LayerSpec("AttnBlock_F", "comm", (), recommunicated="redo_attention", gathers=True),
        LayerSpec(
            "AttnBlock_Multihead_Fork",
            "fork",
            ("activation",),
            recomputed="redo_attention",
            stored="not_redo_attention",
            users=3,
        ),
        _attention_projection("AttnBlock_Query", "local_attention_width"),
        _attention_projection("AttnBlock_Key", key_value),
        _attention_projection("AttnBlock_Value", key_value),
        *attention,
        LayerSpec("AttnBlock_MLP", "linear", ("tokens", "local_attention_width", "hidden"), recomputed="full"),
        LayerSpec("AttnBlock_G", "comm", (), recommunicated="full", stored="never"),
        *tail_attention,
        LayerSpec("MlpBlock_F", "comm", (), recommunicated="redo_mlp", gathers=True),
        LayerSpec(
            "MlpBlock_Mlp1",
            "linear",
            ("tokens", "hidden", "local_feedforward"),
            recomputed="full",
            stored="not_redo_mlp",
        ),
        gelu,
        LayerSpec("MlpBlock_Mlp2", "linear", ("tokens", "local_feedforward", "hidden"), recomputed="full"),
        LayerSpec("MlpBlock_G", "comm", (), recommunicated="full", stored="never"),
        *tail_mlp,
    )


@dataclass(slots=True)
class Sizes:
    """The sizes that layers are made of, each an array [keys] of whole numbers in float64.

    tokens = microbatch x sequence; activation = tokens x hidden; residual is its part on one processor (split along
    the sequence under sequence parallelism); scores = attention probabilities on one processor.
    """

    values: Mapping[str, Floats]
    tensor_par: Floats
    sequence_parallel: npt.NDArray[np.bool_]
    fused_activation: npt.NDArray[np.bool_]
    element_bytes: int


def sizes(
    model: Model,
    *,
    tensor_par: Floats,
    microbatch_size: Floats,
    sequence_parallel: npt.NDArray[np.bool_],
    fused_activation: npt.NDArray[np.bool_],
    element_bytes: int,
) -> Sizes:
    """Returns the sizes of a model's layers on one processor of a tensor-parallel group, for arrays of keys [keys].

    Args:
        model: the model.
        tensor_par: processors of the group [keys].
        microbatch_size: samples of a microbatch [keys].
        sequence_parallel: whether activations between the layers are split over the group [keys].
        fused_activation: whether the activation function keeps no copy of its input [keys].
        element_bytes: size of an element of the datatype [bytes].
    """
    h, f, s = float(model.hidden), float(model.feedforward), float(model.seq_size)
    a, d = float(model.attn_heads), float(model.attn_size)
    t = tensor_par
    tokens = microbatch_size * s
    activation = tokens * h
    sequence_part = np.floor(tokens / t) * h
    one = np.ones_like(t)
    values = {
        "tokens": tokens,
        "activation": activation,
        "residual": np.where(sequence_parallel, sequence_part, activation),
        "sequence_part": sequence_part,
        # Attention probabilities: a/t heads, s x s each.
        "scores": np.floor(a / t) * (s * s) * microbatch_size,
        "local_batch_heads": np.floor(microbatch_size * a / t),
        "local_attention_width": np.floor(a * d / t),
        "local_feedforward": np.floor(f / t),
        "local_feedforward_activation": np.floor(f * tokens / t),
        "hidden": h * one,
        "feedforward": f * one,
        "sequence": s * one,
        "attention_dim": d * one,
        "attention_width": a * d * one,
        "attention_width_3": 3.0 * a * d * one,
        # Additions in a reduction over the group, spread over its members.
        "reduction": activation * (t - 1.0) / t,
    }
    return Sizes(values, tensor_par, sequence_parallel, fused_activation, element_bytes)


@dataclass(slots=True)
class Quantities:
    """Operations and bytes of the layers of a block, each array [layers, keys].

    Operation counts [FLOP] of the three stages, bytes moved to and from memory by the stages and the optimizer
    (unsharded), elements read and written, stored bytes, and for communicating layers the payload of the
    collective on the gathering and on the reducing side [bytes].
    """

    fw_flops: Floats
    agrad_flops: Floats
    wgrad_flops: Floats
    fw_bytes: Floats
    agrad_bytes: Floats
    wgrad_bytes: Floats
    optim_bytes: Floats
    weights: Floats
    weight_bytes: Floats
    act_bytes: Floats
    output_bytes: Floats
    inputs: Floats
    outputs: Floats
    act_grad_bytes: Floats
    input_payload: Floats
    output_payload: Floats


@dataclass(slots=True)
class _LayerCounts:
    """Element counts of one layer, each [keys] or a plain number."""

    fw: Floats | float = 0.0
    agrad: Floats | float = 0.0
    wgrad: Floats | float = 0.0
    inputs: Floats | float = 0.0
    outputs: Floats | float = 0.0
    act: Floats | float = 0.0
    grad: Floats | float = 0.0
    weights: Floats | float = 0.0
    overrides: Mapping[str, Floats | float] = field(default_factory=dict)


def quantities(specs: tuple[LayerSpec, ...], z: Sizes) -> Quantities:
    """Returns the counts and bytes of every layer of a recipe for every key; arrays [layers, keys].

    Args:
        specs: the layers of the recipe.
        z: their sizes [keys].
    """
    names = list(Quantities.__dataclass_fields__)
    keys = len(z.tensor_par)
    arrays = {name: np.zeros((len(specs), keys)) for name in names}
    b = float(z.element_bytes)
    # 8 bytes of first and second moments per parameter, and a 4-byte master copy below 32-bit training.
    state = 8.0 + (4.0 if z.element_bytes < 4 else 0.0)
    for row, spec in enumerate(specs):
        layer = _layer_work(spec, z)
        derived: dict[str, Floats | float] = {
            "fw_flops": layer.fw,
            "agrad_flops": layer.agrad,
            "wgrad_flops": layer.wgrad,
            "fw_bytes": (layer.inputs + layer.outputs + layer.weights) * b,
            "agrad_bytes": (layer.weights + layer.act + layer.grad) * b,
            # Layers without weights have no weight gradient to read activations for.
            "wgrad_bytes": (layer.weights + layer.act + layer.grad) * b * np.sign(layer.weights),
            "optim_bytes": state * layer.weights,
            "weights": layer.weights,
            "weight_bytes": layer.weights * b,
            "act_bytes": layer.act * b,
            "output_bytes": layer.outputs * b,
            "inputs": layer.inputs,
            "outputs": layer.outputs,
            "act_grad_bytes": layer.grad * b,
            "input_payload": layer.inputs * b if spec.kind == "overlapped" else 0.0,
            "output_payload": layer.outputs * b if spec.kind == "overlapped" else 0.0,
        }
        derived |= layer.overrides
        for name, value in derived.items():
            arrays[name][row] = value
    return Quantities(**arrays)


def _layer_work(spec: LayerSpec, z: Sizes) -> _LayerCounts:
    b = float(z.element_bytes)
    v = z.values
    if spec.kind in ("linear", "batch_matmul", "overlapped"):
        return _matmul_work(spec, z)
    if spec.kind == "comm":
        return _collective_work(spec, z)
    x = v[spec.sizes[0]]
    match spec.kind:
        case "norm":
            # layers.py LayerNorm: 9 FLOP per element forward, 14 and 7 backward; scale and shift are 2 h weights.
            return _LayerCounts(9 * x, 14 * x, 7 * x, x, x, x, x, 2 * v["hidden"])
        case "dropout":
            # The mask is one byte per element, whatever the datatype; so is what is kept and its gradient.
            moved = (x + x) * b + x
            kept = {"fw_bytes": moved, "agrad_bytes": moved, "act_bytes": x, "act_grad_bytes": x}
            return _LayerCounts(x, x, 0.0, x, x, x, x, overrides=kept)
        case "gelu":
            # layers.py GeLU: 8 FLOP per element forward, 13 backward; fused, its input is computed again.
            kept_x = np.where(z.fused_activation, 0.0, x)
            return _LayerCounts(8 * x, 13 * x, 0.0, x, x, kept_x, kept_x, overrides={"agrad_bytes": (x + x) * b})
        case "softmax":
            # layers.py SoftMax: 5 FLOP per element forward, 8 backward.
            return _LayerCounts(5 * x, 8 * x, 0.0, x, x, x, x, overrides={"agrad_bytes": (x + x) * b})
        case "add":
            # layers.py ElementWise: two operands, whose gradients are the same.
            return _LayerCounts(x, 2 * x, 0.0, 2 * x, x, 2 * x, x)
        case "fork":
            # layers.py Fork: forward is free; backward adds up the gradients of all users.
            moves: dict[str, Floats | float] = {"fw_bytes": 0.0, "agrad_bytes": x * b * (spec.users + 1.0)}
            return _LayerCounts(0.0, spec.users * x, 0.0, x, 0.0, x, 0.0, overrides=moves)
    raise AssertionError(f"no layer of kind {spec.kind}")


def _matmul_work(spec: LayerSpec, z: Sizes) -> _LayerCounts:
    if spec.kind == "batch_matmul":
        q, m, n, k = (z.values[name] for name in spec.sizes)
        # q products of [m, n] x [n, k], 2 m n k FLOP each; both factors have a gradient, so backward is twice that.
        flops = 2 * q * m * n * k
        kept = q * (m * n + n * k)
        return _LayerCounts(flops, 2 * flops, 0.0, kept, q * m * k, kept, q * m * k)
    m, n, k = (z.values[name] for name in spec.sizes)
    if spec.kind == "linear":
        # [m, n] x [n, k]: 2 m n k FLOP, and the same for the gradient of the input and of the weight.
        flops = 2 * m * n * k
        return _LayerCounts(flops, flops, flops, m * n, m * k, m * n, m * k, n * k)
    # Overlapped: the group's part of the weight, and activations that look mislabelled but drive memory.
    t, split = z.tensor_par, z.sequence_parallel
    if spec.gathers:
        k = np.floor(k / t)
        act, grad = np.where(split, np.floor(m * n / t), m * n), np.where(split, m * k, 0.0)
    else:
        n = np.floor(n / t)
        act = np.where(split, m * n, 0.0)
        grad = np.where(split, 2 * np.floor(m * k / t), 2 * m * k)
    flops = 2 * m * n * k
    return _LayerCounts(flops, flops, flops, m * n, m * k, act, grad, n * k)


def _collective_work(spec: LayerSpec, z: Sizes) -> _LayerCounts:
    """Return a tensor-parallel collective as a layer: an identity in one direction, a reduction in the other."""
    b = float(z.element_bytes)
    t, split = z.tensor_par, z.sequence_parallel
    # A reduction over t ranks adds (t - 1)/t of the activation on each of them.
    x = np.where(t > 1, z.values["activation"], 0.0)
    reduction = np.where(t > 1, z.values["reduction"], 0.0)
    part = x * b / t
    whole = x * b
    if spec.gathers:
        overrides = {
            "act_bytes": np.where(split, part, 0.0),
            "act_grad_bytes": np.where(split, part, whole),
            "fw_bytes": np.where(split, 2 * whole, 0.0),
        }
        layer = _LayerCounts(0.0, reduction, 0.0, x, x, x, x, overrides=overrides)
    else:
        overrides = {
            "act_bytes": np.where(split, part, whole),
            "act_grad_bytes": np.where(split, part, 0.0),
            "agrad_bytes": np.where(split, 2 * whole, 0.0),
        }
        layer = _LayerCounts(reduction, 0.0, 0.0, x, x, x, x, overrides=overrides)
    layer.overrides = {**layer.overrides, "input_payload": whole, "output_payload": whole}
    return layer
