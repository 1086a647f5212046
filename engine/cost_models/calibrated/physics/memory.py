"""Memory of one processor: weights, gradients, optimizer state, activations, logits, temporaries; per stage.

The fullest stage determines the peak: the first keeps the activations of most microbatches, the last holds the logits,
and one between them may hold more blocks, or larger ones. Counts of bytes assume mixed-precision training with Adam:
weights in 16 bits, gradients in the datatype of their exchange, master weights and two moments in 32 bits.

Source: activations, Korthikanti et al. 2022 (unfused attention) and the tensors that Megatron's and PyTorch's fused
kernels keep; microbatches in flight, Narayanan et al. 2021 (arXiv:2104.04473).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated.physics.adapters import BYTES, has_adapter
from engine.cost_models.calibrated.physics.formats import COPIES, COPIES_BLACKWELL
from engine.cost_models.calibrated.physics.inputs import (
    ATTENTION_KERNELS,
    BY_MODULE,
    GENERATIONS,
    LAUNCHES,
    RECOMPUTES,
    Case,
    Floats,
    TunedShapes,
)
from engine.cost_models.calibrated.physics.layers.recompute import repeated_modules
from engine.cost_models.calibrated.physics.layers.views import layer_cases
from engine.cost_models.calibrated.physics.pipeline.layouts import sizes_of
from engine.cost_models.calibrated.physics.pipeline.residence import has_unlike_chunks, kept_blocks
from engine.cost_models.calibrated.physics.pipeline.schedules import activations_in_flight
from engine.cost_models.calibrated.physics.pipeline.stages import ENDS, StageBlocks, fullest_stages
from engine.cost_models.calibrated.physics.weights import (
    HeldParameters,
    LocalWeights,
    heads,
    held_on,
    local_weights,
    replicas_of,
    trained_on,
)
from models import LayerPattern

__all__ = [
    "LOGIT",
    "Activations",
    "ProcessorMemory",
    "StageMemory",
    "activation_bytes",
    "block_weight_bytes",
    "in_flight",
    "memory_use",
    "of_largest",
    "stage_memories",
    "stage_memory",
]

WEIGHT = 2.0
"""Bytes of a 16-bit weight [bytes]. Source: mixed-precision training, Micikevicius et al. 2018."""
SHARDED_GRADIENT = 4.0
"""Bytes of a gradient of PyTorch's fully sharded training, which has the datatype of the 32-bit weights [bytes].
Source: as for `SHARDED_WEIGHT`."""
MASTER = 4.0
"""Bytes of a 32-bit master weight [bytes]. Source: mixed-precision training, Micikevicius et al. 2018."""
MOMENTS = 2.0
"""Moments of Adam per parameter [dimensionless]. Source: Kingma and Ba 2015."""
SHARDED_WEIGHT = 4.0
"""Bytes per parameter of PyTorch's fully sharded training, whose 32-bit weights are the master copy [bytes]. Source:
the 16 bytes per parameter of weight, gradient and moments in 32 bits."""
GATHERED_BLOCKS = 2.0
"""Blocks whose gathered weights are held at once [blocks]. Source: the calibration study on 1,147 measured rows, peak
memory of torchtitan."""
LOGIT = 8.0
"""Bytes per logit [bytes]: 2 of the logits, 4 of a copy that becomes softmax and gradient in place, 2 of the 16-bit
gradient. Source: Megatron-LM, `cross_entropy.py`; peak memory of SimuMax's runs in the calibration study on 1,147
measured rows."""
LOGIT_PYTORCH = 14.0
"""The same where PyTorch keeps further 32-bit copies [bytes]. Source: as for `LOGIT`, chosen on eight runs of
torchtitan."""
LOGIT_GRADIENT = 2.0
"""Bytes of the gradient among them, which a forward pass alone does not have [bytes]. Source: as for `LOGIT`."""
LOGIT_GRADIENT_PYTORCH = 4.0
"""The same where PyTorch keeps it in 32 bits [bytes]. Source: as for `LOGIT`."""
ROUTED_BACKWARD = 16.0
"""Bytes per element of the outputs of routed experts that PyTorch's own layers hold besides the 16 bits kept, when the
backward pass is at them [bytes]: 2 more of the copy in 32 bits by which scores are weighted, 2 of the gradient, 4 of
the same in 32 bits, 4 each of its products with scores and with outputs. Source: a count for `_run_routed_experts`,
prime-rl, `trainer/models/layers/moe.py` at 559b44772e47."""
UNFUSED_ACTIVATION = 2.0
"""Bytes per element of an activation function's output that PyTorch keeps apart from its product with the other branch
[bytes]. Source: `F.silu(h1) * h3` in the same file."""
OPERATOR_SHARES = (0.5, 0.6, 0.5)
"""Shares of the activations of norms, attention and feed-forward that torchtitan's per-operator checkpointing stores
[dimensionless]. Source: the calibration study on 1,147 measured rows, peak memory of torchtitan."""
RESIDENT_BLOCKS = 2.0
"""Blocks of offloaded data that stay in the first memory tier [blocks]: the one in use and the one in transit. Source:
Calculon 0.1.0, its rule for offloading."""


_BY_BLOCK = (RECOMPUTES.index("full"), RECOMPUTES.index("half"), BY_MODULE)
"""Kinds of recomputation that bring activations back block by block."""
_BLACKWELL = GENERATIONS.index("blackwell")


@dataclass(frozen=True, slots=True)
class ProcessorMemory:
    """Bytes on the processor that holds most, arrays [rows]; the parts add up to `peak` [bytes]."""

    peak: Floats
    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    logits: Floats
    temporaries: Floats


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes that one microbatch leaves in a block of every size [bytes]: kept for the backward pass, and all of them at
    work."""

    kept: tuple[Floats, ...]
    working: tuple[Floats, ...]


class KeptParts(NamedTuple):
    """Activations of one block and microbatch by the layer that they belong to [bytes]: norms, `normed` of them their
    outputs; mixers, of which the backward pass can make `expanded` again; a dense feed-forward layer; experts, of which
    `acted` are the inputs of the second product of routed ones and `shared` belong to shared ones. `widths` are the
    outputs of the projections [elements per token], `branches` the inputs of the activation [elements per token].
    `again` are outputs of norms and activations where fewer are kept than products read; None where all are."""

    norms: Floats
    normed: Floats
    mixers: Floats
    expanded: Floats
    dense: Floats
    experts: Floats
    acted: Floats
    shared: Floats
    widths: Floats
    branches: Floats
    again: Floats | None = None


def activation_bytes(case: Case) -> Activations:
    """Returns the activations of one block and microbatch on one processor [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    case = case.with_full_packs
    if case.model.pattern is not None:
        parts = pattern_kept(case, case.model.pattern)
    else:
        # 16-bit inputs of two norms, and their outputs, from which products start; T h each, divided by t under
        # sequence parallelism. The router of a layer of experts keeps its input in 16 bits.
        low, of_norms = _product_bytes(case), case.split_tokens * case.model.hidden
        attention, expanded, widths = attention_kept(case)
        branches = np.where(case.model.gated > 0, 2.0, 1.0) * case.model.feedforward
        # What products and activation functions keep, in the datatype that they keep it in.
        none: Floats = np.zeros(())
        around = KeptParts(none, none, attention, expanded, none, none, none, none, widths, branches)
        dense = around._replace(norms=(4.0 + 2.0 * low) * of_norms, normed=2.0 * low * of_norms, dense=dense_kept(case))
        sparse = around._replace(
            norms=(6.0 + low) * of_norms,
            normed=(2.0 + low) * of_norms,
            experts=experts_kept(case),
            acted=activation_kept(case),
            shared=shared_kept(case),
        )
        parts = dense, sparse
    if case.frozen is not None:
        parts = tuple(_frozen_norms(case, case.frozen, size, each) for size, each in enumerate(parts))
    found = [_kept_by_recomputation(case, each) for each in parts]
    return Activations(tuple(kept for kept, _ in found), tuple(everything for _, everything in found))


def attention_kept(case: Case) -> tuple[Floats, Floats, Floats]:
    """Return the activations of attention, those among them that can be made again from latents [rows] [bytes], and
    the outputs of its projections [rows] [elements per token].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model, t, tokens = case.model, case.layout.tensor_par, case.tokens
    latent = model.latent > 0
    keys = case.key_value_heads
    widths = (model.attn_heads + keys) * model.attn_size + (keys + model.attn_heads) * model.value_size
    # 16-bit queries, keys, values and outputs, and one 32-bit log-sum-exp per head and token.
    attention = 2.0 * tokens * widths / t + 4.0 * tokens * model.attn_heads / t
    # The output projection keeps a copy of its input in a narrower datatype; at 16 bits it is the output of attention.
    low = _product_bytes(case) if case.frozen is None else np.zeros(())
    attention = attention + np.where(low < 2.0, low, 0.0) * tokens * model.attn_heads * model.value_size / t
    ranks = model.query_rank + model.key_value_rank + model.rope_size + 2.0 * model.key_value_rank
    # Values are a view of the expanded latent, keys a copy of its other part.
    up = 2.0 * tokens * (model.attn_size - model.rope_size) * model.attn_heads / t
    attention = attention + np.where(latent, 2.0 * tokens * ranks + up, 0.0)
    # Queries, keys and values, which are made again from the latents; those and the output of attention stay
    # (DeepSeek-V3, arXiv:2412.19437, section 3.2.3).
    expanded = 2.0 * tokens * (2.0 * model.attn_size + model.value_size) * model.attn_heads / t + up
    return attention, np.where(latent, expanded, 0.0), widths


def _frozen_norms(case: Case, tuning: TunedShapes, size: int, parts: KeptParts) -> KeptParts:
    """Return the parts of a block whose norms keep their outputs only as inputs of adapters, with the inner vectors of
    these [rows] [bytes]."""
    model, products = case.model, tuning.products[size]
    sublayers = 2 if model.pattern is None else model.pattern.blocks[size].sublayers
    # All products of one half read one output of its norm. The narrow product of a rank reads all tokens: under
    # sequence parallelism the gathered ones stay, too (Megatron-Bridge, pull request 4581).
    normed = BYTES * tuning.adapted_norms[size] * case.tokens * model.hidden
    inner = BYTES * tuning.rank * case.tokens * sum(each.visited * each.matrices for each in products)
    dense = _input_bytes(case, size, "feedforward_down") * case.tokens * model.feedforward / case.layout.tensor_par
    return parts._replace(
        norms=2.0 * sublayers * case.split_tokens * model.hidden + normed + inner,
        normed=normed,
        again=normed + np.minimum(dense, parts.dense) + parts.acted,
    )


def _input_bytes(case: Case, size: int, *names: str) -> Floats:
    """Return the bytes per element in which the input of a product of a block is kept [rows] [bytes]: none where its
    weights are frozen, 16 bits of an adapter."""
    tuning = case.frozen
    if tuning is None:
        return _product_bytes(case)
    return np.asarray(BYTES if has_adapter(tuning.products[size], *names) else 0.0)


def dense_kept(case: Case, size: int = 0) -> Floats:
    """Return the activations of a dense feed-forward layer [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        size: position of the block's size among the sizes of the model's blocks.
    """
    model = case.model
    # Inputs of the activation (two if gated), and its output, which is the input of a product: T F / t each.
    inputs = np.where(model.gated > 0, 2.0, 1.0) * case.software.kept_bytes
    each = case.tokens * model.feedforward / case.layout.tensor_par
    return (inputs + _input_bytes(case, size, "feedforward_down")) * each


def experts_kept(case: Case, size: int = 1) -> Floats:
    """Return the activations of a layer of experts [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        size: position of the block's size among the sizes of the model's blocks.
    """
    model = case.model
    # The router keeps 8 bytes per token and expert.
    router = 4.0 * case.software.kept_bytes * case.split_tokens * model.experts
    return routed_kept(case, size) + activation_kept(case, size) + shared_kept(case, size) + router


def routed_kept(case: Case, size: int = 1) -> Floats:
    """Return the activations of routed experts but for the input of their second product [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        size: position of the block's size among the sizes of the model's blocks.
    """
    model, t, kept = case.model, case.layout.tensor_par, case.software.kept_bytes
    split = case.layout.expert_tensor_par / t
    # k copies of a token: h for its input, which is the input of a product, and for its output; F_e for gate and up.
    copies = case.tokens * model.experts_per_token * case.busiest_load
    ends = (_input_bytes(case, size, "experts_up") + kept) * model.hidden * split
    return copies * (ends + 2.0 * kept * model.expert_feedforward / t)


def routed_backward(case: Case) -> Floats:
    """Return the bytes of routed experts that PyTorch's own layers hold during their backward pass, besides the
    activations kept [rows] [bytes]; none in other software.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model, t = case.model, case.layout.tensor_par
    copies = case.tokens * model.experts_per_token * case.busiest_load
    outputs = ROUTED_BACKWARD * model.hidden * case.layout.expert_tensor_par / t
    held = copies * (outputs + UNFUSED_ACTIVATION * model.expert_feedforward / t)
    return np.where((case.software.pytorch_native > 0) & (model.experts > 0), held, 0.0)


def activation_kept(case: Case, size: int = 1) -> Floats:
    """Return the inputs of the second product of routed experts [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        size: position of the block's size among the sizes of the model's blocks.
    """
    model = case.model
    copies = case.tokens * model.experts_per_token * case.busiest_load
    return _input_bytes(case, size, "experts_down") * copies * model.expert_feedforward / case.layout.tensor_par


def shared_kept(case: Case, size: int = 1) -> Floats:
    """Return the activations of shared experts [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        size: position of the block's size among the sizes of the model's blocks.
    """
    model = case.model
    width = model.shared_experts * model.expert_feedforward / case.layout.tensor_par
    return (2.0 * case.software.kept_bytes + _input_bytes(case, size, "shared_down")) * case.tokens * width


def _product_bytes(case: Case) -> Floats:
    """Return the bytes per element in which products keep their inputs for the backward pass [rows] [bytes].

    Transformer Engine keeps the copy that the product read, with its scales, `stored_bits` of the datatype. PyTorch's
    8-bit layers keep 16 bits. Source: TransformerEngine, `module/linear.py`; torchao, `float8_linear.py`.
    """
    low = np.minimum(case.layout.linear_bits / 8.0, 2.0)
    return np.minimum(np.where(case.software.pytorch_native > 0, 2.0, low), case.software.kept_bytes)


def pattern_kept(case: Case, pattern: LayerPattern) -> tuple[KeptParts, ...]:
    """Return the activations of every kind of block of a pattern [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        pattern: of the model's blocks.
    """
    t, tokens, hidden = case.layout.tensor_par, case.tokens, pattern.hidden
    none: Floats = np.zeros(())
    found = []
    for place, block in enumerate(pattern.blocks):
        mixers = expanded = dense = experts = acted = shared = widths = branches = none
        for layer, view in layer_cases(case)[place]:
            if layer.softmax() is not None:
                kept, again, width = attention_kept(view)
                mixers, expanded, widths = mixers + kept, expanded + again, widths + width
                continue
            activated = layer.activation()
            if activated is not None:
                if layer.routing() is None:
                    dense = dense + dense_kept(view, place)
                else:
                    experts = experts + experts_kept(view, place)
                    acted, shared = acted + activation_kept(view, place), shared + shared_kept(view, place)
                branches = branches + (2.0 if activated.gated else 1.0) * activated.width
                continue
            kept_bytes = layer.kept(hidden)
            mixers = mixers + tokens * (kept_bytes.split / t + kept_bytes.whole)
            widths = widths + sum(product.outputs for product in layer.products(hidden) if product.split == "outputs")
        # Inputs of norms in 16 bits; their outputs are inputs of products, and of routers, which keep 16 bits.
        routers = sum(layer.routing() is not None for layer, _ in layer_cases(case)[place])
        low = 2.0 * routers + _product_bytes(case) * (block.sublayers - routers)
        of_norms = case.split_tokens * hidden
        norms = (2.0 * block.sublayers + low) * of_norms, low * of_norms
        found.append(KeptParts(*norms, mixers, expanded, dense, experts, acted, shared, widths, branches))
    return tuple(found)


def _kept_by_recomputation(case: Case, parts: KeptParts) -> tuple[Floats, Floats]:
    """Return the activations of a block that recomputation leaves, and all of them [rows] [bytes]."""
    model, layout = case.model, case.layout
    t, tokens = layout.tensor_par, case.tokens
    norm, attention, feed = parts.norms, parts.mixers, parts.dense + parts.experts
    kept_bytes = case.software.kept_bytes
    unfused = case.software.attention_kernel == ATTENTION_KERNELS.index("unfused")
    # Korthikanti et al. 2022, table 2: s b h (10 + 24/t + 5 a s/(h t)), with sequence parallelism 10/t; selective
    # recomputation drops the last term, full recomputation leaves 2 s b h.
    scores = 5.0 * model.attn_heads * model.seq_size * case.tokens / t
    old = case.split_tokens * model.hidden * 10.0 + 24.0 * tokens * model.hidden / t
    kind = layout.recompute.astype(int)

    def is_kind(*names: str) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = np.logical_or.reduce([kind == RECOMPUTES.index(name) for name in names])
        return found

    # PyTorch keeps the gathered inputs of both halves; Megatron gathers them again.
    pytorch = case.software.pytorch_native > 0
    gathered = np.where(pytorch & (layout.sequence_par > 0), 2.0 * 2.0 * tokens * model.hidden * (1.0 - 1.0 / t), 0.0)
    if case.frozen is not None:  # counted with the inputs of adapters
        gathered = np.zeros(())

    everything = np.where(unfused, old + scores, norm + attention + feed + gathered)
    without_scores = np.where(unfused, old, everything)
    # Outputs of norms and of the activation are computed again: half of 8 T h, one of three tensors of T F.
    modules = norm / 2.0 + attention + feed * 2.0 / 3.0
    if parts.again is not None:
        modules = norm + attention + feed - parts.again
    # PyTorch's compiler does so without being asked, inside the kernels that read them: torch/_functorch/
    # partitioners.py, `min_cut_rematerialization_partition`.
    compiled = pytorch & (case.software.launch == LAUNCHES.index("compiled")) & ~unfused
    stored = np.where(compiled, modules + gathered, everything)
    # The 16-bit input of the block, of which everything can be computed again.
    boundary = 2.0 * case.split_tokens * model.hidden
    operators = OPERATOR_SHARES[0] * norm + OPERATOR_SHARES[1] * attention + OPERATOR_SHARES[2] * feed
    projections = boundary + 2.0 * tokens * parts.widths / t
    value = np.select(
        [
            is_kind("full"),
            is_kind("selective"),
            is_kind("half"),
            is_kind("operators"),
            is_kind("save_projections"),
            is_kind("save_dots"),
            is_kind("modules"),
        ],
        [
            boundary,
            np.minimum(without_scores, stored),
            (stored + boundary) / 2.0,
            operators,
            projections,
            projections + kept_bytes * tokens * parts.branches / t,
            modules,
        ],
        stored,
    )
    # The sources of unfused attention and of modules count differently; less is never kept without recomputation.
    value = np.minimum(value, everything)
    share = layout.recompute_share
    kept = share * value + (1.0 - share) * stored
    if not (modules_of := repeated_modules(case)):
        return kept, everything
    # What checkpointed modules and discarded outputs take is there for one block at a time.
    chosen = kind == BY_MODULE
    core = np.where(unfused & (modules_of["core_attn"] > 0), scores, 0.0)
    left = np.minimum(np.maximum(everything - core - _dropped(parts, modules_of), boundary), stored)
    return np.where(chosen, left, kept), np.where(chosen, everything - left, everything)


def _dropped(parts: KeptParts, modules: Mapping[str, Floats]) -> Floats:
    """Return the activations of a block that recomputation by module leaves out, but for scores [rows] [bytes]."""
    moe = modules["moe"]
    of_experts = np.maximum(moe * parts.experts, modules["moe_act"] * parts.acted)
    # The whole layer of experts has the shared ones in it.
    shared = (1.0 - moe) * modules["shared_experts"] * parts.shared
    return (
        modules["layernorm"] * parts.normed
        + modules["mla_up_proj"] * parts.expanded
        + modules["mlp"] * parts.dense
        + of_experts
        + shared
    )


def in_flight(case: Case, position: Floats | float) -> Floats:
    """Return the number of microbatches whose activations a stage keeps at once [rows] [microbatches of a whole stage].

    See `schedules.activations_in_flight`. All chunks of a stage count equally, except for layouts with unlike chunks
    (`residence`).

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        position: position of the stage in the pipeline, from 0 [rows].
    """
    p, v = case.layout.pipeline_par, case.layout.pipeline_interleaving
    # In whole stages: chunks kept over chunks per stage.
    return activations_in_flight(case.layout.schedule, p, position, case.microbatches, v) / v


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of one stage on a processor by kind, arrays [rows] [bytes].

    `activations` are kept for the backward pass, `working` is the working memory of the current block. `block_weights`
    are `weights` without the vocabulary. `movable` and `movable_kept` are the shares of weights or state, and of kept
    activations, outside the two largest blocks: offloading moves only these.
    """

    weights: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    working: Floats
    logits: Floats
    temporaries: Floats
    block_weights: Floats
    movable: Floats
    movable_kept: Floats

    def peak(self) -> Floats:
        """Returns the sum of all kinds [rows] [bytes]."""
        return self.state() + self.weights + self.activations + self.working + self.logits + self.temporaries

    def state(self) -> Floats:
        """Returns gradients and optimizer state [rows] [bytes]."""
        return self.gradients + self.optimizer


def memory_use(case: Case) -> ProcessorMemory:
    """Returns the peak memory per processor of every row, that of the fullest stage [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    stages = stage_memories(case)
    peaks = [stage.peak() for stage in stages]

    def of(*names: str) -> Floats:
        values = [sum((getattr(stage, name) for name in names), start=np.zeros(())) for stage in stages]
        return of_largest(peaks, values)

    plain = ("weights", "gradients", "optimizer", "logits", "temporaries")
    return ProcessorMemory(
        peak=of_largest(peaks, peaks), activations=of("activations", "working"), **{name: of(name) for name in plain}
    )


def of_largest(sizes: Sequence[Floats], values: Sequence[Floats]) -> Floats:
    """Return each row's value at the largest of `sizes`, the first of equals [rows].

    Args:
        sizes: sizes to compare, one array [rows] per candidate.
        values: values to return, one array [rows] per candidate in the same order.
    """
    most, found = sizes[0], values[0]
    for size, value in zip(sizes[1:], values[1:], strict=True):
        found, most = np.where(size > most, value, found), np.maximum(most, size)
    return found


def block_weight_bytes(case: Case) -> tuple[Floats, ...]:
    """Returns the bytes of the weights of a block of every size, on one processor [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    local, held = local_weights(case), _Held.of(case)
    return tuple(held.weights(*pair) for pair in zip(local.blocks, local.experts, strict=True))


@dataclass(frozen=True, slots=True)
class _Held:
    """Bytes of a processor per parameter: outside experts and inside, for each kind of state; `narrow` what weights of
    blocks take besides where products read them in fewer than 16 bits."""

    weight: tuple[Floats, Floats]
    narrow: Floats
    gradient: tuple[Floats, Floats]
    optimizer: tuple[Floats, Floats]
    frozen: tuple[Floats, Floats] | None = None
    """Shares of frozen weights outside and inside experts [dimensionless]; None where all are trained."""
    frozen_width: float = WEIGHT
    """Bytes of a frozen weight of a block [bytes]."""

    def trained_weights(self, outside: Floats, inside: Floats) -> Floats:
        """Return the bytes of adapters outside and inside experts [bytes]."""
        return self.weight[0] * outside + self.weight[1] * inside

    @classmethod
    def of(cls, case: Case) -> _Held:
        layout = case.layout
        replicas, expert_replicas = replicas_of(case)
        sharded = layout.fully_sharded > 0

        def each(plain: Floats | float, full: Floats | float, stage: float) -> tuple[Floats, Floats]:
            on = layout.zero_stage >= stage
            # Rajbhandari et al. 2020, section 5: stage 1 divides the optimizer state, 2 also gradients, 3 also weights.
            outside, inside = (
                np.where(sharded, full / by, plain / np.where(on, by, 1.0)) for by in (replicas, expert_replicas)
            )
            return outside, inside

        moments = MOMENTS * case.software.moment_bytes
        tuning, alone = case.frozen, case.forward_only
        trained = 1.0 if alone is None else np.where(alone, 0.0, 1.0)
        return cls(
            each(WEIGHT, SHARDED_WEIGHT, 3.0),
            _narrow_copies(case),
            # Main gradients have the datatype of their exchange: Megatron-Core, `param_and_grad_buffer.py`.
            each(trained * case.software.gradient_bytes, trained * SHARDED_GRADIENT, 2.0),
            each(trained * (MASTER + moments), trained * moments, 1.0),
            # Frozen weights have one copy, of the width that the tuning states.
            None if tuning is None else each(1.0, 1.0, 3.0),
            WEIGHT if tuning is None else tuning.frozen_bits / 8.0,
        )

    def weights(self, outside: Floats, inside: Floats, vocabulary: Floats | float = 0.0) -> Floats:
        """Return the bytes of the weights of blocks outside and inside experts, and of vocabulary matrices, which stay
        in 16 bits [bytes]."""
        if self.frozen is not None:
            (plain, routed), width = self.frozen, self.frozen_width
            found = width * (plain * outside + routed * inside) + max(width, WEIGHT) * plain * vocabulary
            return found + self.narrow * (outside + inside) if np.any(self.narrow) else found
        wide = self.weight[0] * (outside + vocabulary) + self.weight[1] * inside
        return wide + self.narrow * (outside + inside) if np.any(self.narrow) else wide


def _narrow_copies(case: Case) -> Floats:
    """Return the bytes per weight of a block besides 16-bit ones, for products in fewer bits [rows] [bytes].

    Parameters held in 8 bits are the copies themselves. PyTorch casts again for every product, and so does fully
    sharded training after every gather.
    """
    layout, software = case.layout, case.software
    low = layout.linear_bits / 8.0
    plain = (layout.linear_format <= 0) & (low == 1.0) & (case.accelerator.generation == _BLACKWELL)
    number = np.where(plain, COPIES_BLACKWELL, COPIES)
    copies = np.where((low < 2.0) & (layout.fully_sharded <= 0) & (software.pytorch_native <= 0), number * low, 0.0)
    return np.where((software.fp8_parameters > 0) & (low >= 1.0) & (copies > 0), copies - WEIGHT, copies)


def stage_memories(case: Case) -> tuple[StageMemory, ...]:
    """Returns what a processor holds at its peak, on the first stage, the last, and others that may be the fullest
    [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    case = case.with_full_packs
    common = _Common(local_weights(case), _Held.of(case), activation_bytes(case))
    return tuple(_stage_memory(case, common, stage, number) for number, stage in enumerate(fullest_stages(case)))


def stage_memory(case: Case, stage: StageBlocks, number: int) -> StageMemory:
    """Returns what a processor of one stage holds at its peak [rows] [bytes].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        stage: position and blocks of the stage.
        number: 0 for the first stage, 1 for the last, more for those between them.
    """
    case = case.with_full_packs
    return _stage_memory(case, _Common(local_weights(case), _Held.of(case), activation_bytes(case)), stage, number)


class _Common(NamedTuple):
    """Figures shared by all stages of the same row."""

    local: LocalWeights
    held: _Held
    kept: Activations


def _stage_memory(case: Case, common: _Common, stage: StageBlocks, number: int) -> StageMemory:
    model, layout, software, t = case.model, case.layout, case.software, case.layout.tensor_par
    local, held, kept = common
    end = number < ENDS
    blocks, experts, vocabulary = held_on(case, local, stage, number)
    plain = blocks + vocabulary
    weights = held.weights(blocks, experts, vocabulary)
    if case.frozen is None:
        gradients = held.gradient[0] * plain + held.gradient[1] * experts
        optimizer = held.optimizer[0] * plain + held.optimizer[1] * experts
    else:
        own, routed, _ = trained_on(case, HeldParameters(blocks, experts, vocabulary), stage)
        weights = weights + held.trained_weights(own, routed)
        gradients = held.gradient[0] * own + held.gradient[1] * routed
        optimizer = held.optimizer[0] * own + held.optimizer[1] * routed

    # A stage keeps its blocks' activations of every microbatch in flight; see `in_flight`.
    flying = in_flight(case, stage.position)
    copies = stage.by_size(sizes_of(case.model))
    activations = _sum_of(copies, kept.kept)
    full = np.isin(layout.recompute, _BY_BLOCK)
    # Recomputation brings one block at a time back in full.

    pytorch = software.pytorch_native > 0
    logits: Floats = np.zeros(())
    if end:
        per_logit: Floats = np.where(pytorch, LOGIT_PYTORCH, LOGIT)
        if case.forward_only is not None:
            less = np.where(pytorch, LOGIT_GRADIENT_PYTORCH, LOGIT_GRADIENT)
            per_logit = np.where(case.forward_only, per_logit - less, per_logit)
        tokens = case.tokens
        if model.tuning is not None and model.tuning.loss_chunk:
            # Loss and gradient of a chunk are complete before the logits of the next.
            tokens = np.minimum(tokens, model.tuning.loss_chunk)
        logits = per_logit * tokens * model.vocabulary / t
        # The head's gathered input and its gradient.
        logits = logits + np.where(
            pytorch & (layout.sequence_par > 0), 2.0 * 2.0 * case.tokens * model.hidden * (1.0 - 1.0 / t), 0.0
        )
        # Those of prediction layers are kept beside them.
        logits = logits * heads(case, number) * (1.0 + model.prediction_layers)
    # Weight gradients of the two largest matrices before they are added to the 32-bit ones.
    largest = model.hidden * (1.0 + model.gated) * model.feedforward / t
    whole = local.whole()
    gathered = GATHERED_BLOCKS * WEIGHT * _of_largest_block(copies, whole)
    edge = local.vocabulary if end else np.zeros(())
    unsharded = WEIGHT * (largest + edge)
    if case.frozen is not None:
        # No gradients of weights; the largest matrix widened to 16 bits where it is held in fewer.
        unsharded = WEIGHT * largest * float(case.frozen.frozen_bits < 16.0)
    if case.forward_only is not None:
        unsharded = np.where(case.forward_only, 0.0 if case.frozen is None else unsharded, unsharded)
    temporaries = np.where(layout.fully_sharded > 0, gathered + WEIGHT * edge, unsharded)

    kept_copies = tuple(number * flying for number in copies)
    everything = blocks + experts
    largest_blocks = _two_largest(copies, whole)
    activations = flying * activations
    unlike = has_unlike_chunks(case)
    if unlike.any():
        there = kept_blocks(case, stage)
        kept_copies = tuple(np.where(unlike, number, other) for number, other in zip(there, kept_copies, strict=True))
        activations = np.where(unlike, _sum_of(there, kept.kept), activations)
    working: Floats = np.zeros(())
    if np.any(full):
        # What comes back was not kept: with few blocks in flight it is less than the largest block, input included.
        # Of modules, `working` is what they leave out already.
        kept_too = np.where(layout.recompute == BY_MODULE, 0.0, activations)
        left_out = _sum_of(kept_copies, kept.working) - kept_too
        working = np.where(full, np.minimum(_of_largest_block(copies, kept.working), left_out), 0.0)
        working = working + np.where(full, routed_backward(case), 0.0)
    kept_largest = _two_largest(kept_copies, kept.kept)
    if case.forward_only is not None:
        # One block at a time, whose tensors go as soon as the next one has its input; at most what a step keeps.
        block = np.minimum(_of_largest_block(copies, kept.working), activations + working)
        working = np.where(case.forward_only, block, working)
        activations = np.where(case.forward_only, 0.0, activations)
        kept_largest = np.where(case.forward_only, 0.0, kept_largest)
    return StageMemory(
        weights,
        gradients,
        optimizer,
        activations,
        working,
        logits,
        temporaries,
        held.weights(blocks, experts),
        1.0 - largest_blocks / np.maximum(everything, 1.0),
        1.0 - kept_largest / np.maximum(activations, 1.0),
    )


def _sum_of(copies: Sequence[Floats], each: Sequence[Floats]) -> Floats:
    """Return the sum over sizes of number of blocks times a figure of the size [rows]."""
    found: Floats = np.zeros(())
    for number, figure in zip(copies, each, strict=True):
        if np.any(number):
            found = found + number * figure
    return found


def _of_largest_block(copies: Sequence[Floats], each: Sequence[Floats]) -> Floats:
    """Return the largest figure of the sizes of block that the stage holds [rows]."""
    found: Floats = np.zeros(())
    for number, figure in zip(copies, each, strict=True):
        if np.any(number):
            found = np.maximum(found, np.where(number > 0, figure, 0.0))
    return found


def _two_largest(copies: Sequence[Floats], sizes: Sequence[Floats]) -> Floats:
    """Return the sum of the `RESIDENT_BLOCKS` largest among copies of some sizes [rows]."""
    present = [pair for pair in zip(copies, sizes, strict=True) if np.any(pair[0])] or [(copies[0], sizes[0])]
    if len(present) > 2:
        return _some_largest(present)
    if len(present) == 1:
        ((number, size),) = present
        return np.asarray(np.minimum(number, RESIDENT_BLOCKS) * size)
    (few, small_size), (many, large_size) = present
    second = large_size >= small_size
    more, fewer = np.where(second, many, few), np.where(second, few, many)
    large, small = np.maximum(small_size, large_size), np.minimum(small_size, large_size)
    first = np.minimum(more, RESIDENT_BLOCKS)
    return np.asarray(first * large + np.minimum(RESIDENT_BLOCKS - first, fewer) * small)


def _some_largest(present: Sequence[tuple[Floats, Floats]]) -> Floats:
    """Return the same for any number of sizes: the largest first, until enough copies are counted."""
    several = np.broadcast_arrays(*(side for pair in present for side in pair))
    copies, sizes = np.stack(several[::2], axis=-1), np.stack(several[1::2], axis=-1)
    order = np.argsort(-sizes, axis=-1, kind="stable")
    copies, sizes = np.take_along_axis(copies, order, -1), np.take_along_axis(sizes, order, -1)
    before = np.cumsum(copies, axis=-1) - copies
    taken = np.clip(RESIDENT_BLOCKS - before, 0.0, copies)
    return np.asarray((taken * sizes).sum(axis=-1))
