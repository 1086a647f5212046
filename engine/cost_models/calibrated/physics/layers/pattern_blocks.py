"""Blocks of a pattern: the seconds of each kind of block from the statements of its layers.

Layers are distinguished by effect: attention over all tokens runs in a fused kernel, a layer with an activation is a
feed-forward layer, one with a routing exchanges tokens; every other layer states its work, its traffic and its
messages itself. The time of such layers is modelled: no measured run has them.

Source: the formulas of `block`, kind by kind; the roofline of scans and of chosen tokens, stated by us.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from engine.cost_models.calibrated.physics.communication.collectives import collective, network_tiers
from engine.cost_models.calibrated.physics.communication.context_parallel import ring
from engine.cost_models.calibrated.physics.communication.expert_exchange import exchange
from engine.cost_models.calibrated.physics.communication.networks import rate_over
from engine.cost_models.calibrated.physics.inputs import BY_MODULE, RECOMPUTES, Case, Floats
from engine.cost_models.calibrated.physics.layers.attention import (
    BACKWARD_PRODUCTS,
    Core,
    attention_core,
    kernel_rate,
)
from engine.cost_models.calibrated.physics.layers.block import BlockTimes, Common, Half, complete_block, tensor_exchange
from engine.cost_models.calibrated.physics.layers.elementwise import Traffic, activation, cast_products, norms
from engine.cost_models.calibrated.physics.layers.experts import permuted
from engine.cost_models.calibrated.physics.layers.gemm import KernelWork, Linear, LinearLayer, MatrixUnit
from engine.cost_models.calibrated.physics.layers.launch import (
    BACKWARD,
    block_launches,
    dense_factor,
    expert_launches,
)
from engine.cost_models.calibrated.physics.layers.modules_again import (
    ModulesAgain,
    dense_again,
    experts_again,
    mixers_again,
)
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.layers.recompute import recomputed
from engine.cost_models.calibrated.physics.layers.views import layer_cases
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.pipeline.stages import BlockKind
from models.layers import LayerKind, MixingWork

__all__ = [
    "LayerTimes",
    "cast_elements",
    "exposed_share",
    "inner_sum",
    "local_products",
    "mixing_core",
    "mixing_limit",
    "mixing_time",
    "mixing_works",
    "pattern_blocks",
    "routed_width",
    "scan_bandwidth",
    "sent_case",
    "time_layer",
]

MIXING_SHARE = 0.5
"""Matrix rate of scans and of attention to chosen tokens, relative to fused attention [dimensionless]: short products
of one chunk, between which states or choices wait. Source: stated by us; modelled, no measured run has such layers."""
SCAN_BANDWIDTH = 0.175
"""Share of the sustained memory bandwidth that the kernels of a scan over a sequence reach [dimensionless]: they are
bound by latency between the chunks of a sequence. Source: chosen on the seven published runs of Nemotron-H 56B on 32 to
2,048 H100 (NVIDIA DGX Cloud benchmarking 25.05), in steps of 0.025, with no other constant changed."""
MIXING_TRAFFIC_BACKWARD = 2.0
"""Memory traffic of the backward pass relative to the forward pass [dimensionless]. Source: each tensor is read again
and its gradient written; stated by us, modelled."""
VECTOR_LANES = 128.0
"""Single-precision results of one multiprocessor per clock [1/clock]. Source: CUDA programming guide, throughput of
arithmetic instructions, compute capability 9.0."""
VECTOR_BACKWARD = 2.0
"""Vector operations of the backward pass relative to the forward pass [dimensionless]. Source: stated by us,
modelled."""


def pattern_blocks(
    case: Case, rates: SustainedRates, p: Parameters, kinds: Iterable[BlockKind]
) -> dict[BlockKind, BlockTimes]:
    """Returns the seconds of a block of each of these kinds of a model with a pattern [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        kinds: kinds to compute, of `kinds_of`.
    """
    unit = MatrixUnit(rates.linear_of(case.layout), rates.memory, case.accelerator.multiprocessors, p)
    exchanged = tensor_exchange(case, rates, p) * exposed_share(case, p)
    times: dict[LayerKind, LayerTimes] = {}
    found = {}
    for kind in kinds:
        layers = layer_cases(case)[kind.position]
        for layer, view in layers:
            if layer not in times:
                times[layer] = time_layer(layer, view, rates, p, unit)
        found[kind] = _pattern_block(case, rates, p, layers, kind, times, unit, exchanged)
    return found


@dataclass(frozen=True, slots=True)
class LayerTimes:
    """Seconds of one layer and microbatch [s]: of its products; of its core, and the part of it that recomputation runs
    again; of exchanges between context-parallel ranks; of element-wise traffic; of tokens sent to experts in one pass;
    of sums inside the layer; its kernels, without the ones that any block has; and its repeated modules (None if no row
    names modules)."""

    products: Linear
    core: Core
    core_again: Floats
    context: tuple[Floats, Floats]
    traffic: Traffic
    exchange: Floats
    reduced: Floats
    launches: tuple[Floats, Floats]
    again: ModulesAgain | None


def exposed_share(case: Case, p: Parameters) -> Floats:
    """Returns the share of tensor-parallel exchanges that computation does not hide [rows] [dimensionless].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        p: parameters of a calibration.
    """
    return np.where(case.software.overlap_tensor > 0, 1.0 - p.overlap_tensor, 1.0)


def local_products(layer: LayerKind, case: Case) -> dict[str, LinearLayer]:
    """Returns the linear layers of a layer on one processor, by name, in the order that they run.

    Args:
        layer: of a pattern.
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    layout, low = case.layout, case.layout.linear_bits / 8.0
    t, found = layout.tensor_par, {}
    for product in layer.products(int(np.ravel(case.model.hidden)[0])):
        if product.negligible:
            continue
        if product.held == 1:
            n, k = (np.maximum(each, 1.0) for each in (product.local_outputs(t), product.local_inputs(t)))
            found[product.name] = LinearLayer(case.tokens, n, k, in_bytes=low)
            continue
        # Tokens that one expert processes; its columns are split over the expert-tensor-parallel group.
        local, part = product.held / layout.expert_par, layout.expert_tensor_par
        each = case.tokens * product.visited * part / t / local
        local = local * case.busiest_load
        n, k = product.local_outputs(part), np.asarray(product.local_inputs(part), np.float64)
        found[product.name] = LinearLayer(each, n, k, local, together=False, in_bytes=low)
    return found


def time_layer(layer: LayerKind, view: Case, rates: SustainedRates, p: Parameters, unit: MatrixUnit) -> LayerTimes:
    """Returns the seconds of one layer and microbatch on one processor [rows] [s].

    Args:
        layer: of a pattern.
        view: the case whose model has the sizes of this layer, of `layer_cases`.
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        unit: matrix unit that computes its products.
    """
    none: Floats = np.zeros(())
    products, own = Linear(none, none, none), local_products(layer, view)
    for each in own.values():
        products = products.and_then(each.time(unit))
    repeated: ModulesAgain | None = None
    traffic, sent, launches = Traffic(none, none), none, (none, none)
    core, again, context, reduced = Core(none, none), none, (none, none), none
    softmax, activated = layer.softmax(), layer.activation()
    if softmax is not None:
        core = attention_core(view, rates, p, windowed=softmax.window is not None)
        again = recomputed(view).attention * core.forward
        context = ring(view, rates, p, core.forward, core.backward)
        latent = own if {"query_up", "key_value_up"} <= own.keys() else None
        repeated = mixers_again(view, unit, none, latent)
    elif activated is not None:
        traffic = activation(view, routed_width(layer, view) / view.layout.tensor_par, view.tokens, rates, p)
        if layer.routing() is not None:
            # Tokens are permuted into groups of one expert and back, once per pass.
            there = sent_case(layer, view)
            moving = permuted(there) / rates.memory
            traffic = Traffic(traffic.forward + moving, traffic.backward + moving)
            sent, launches = 2.0 * exchange(there, rates, p), expert_launches(view)
            plain = block_launches(view)[0] * dense_factor(view, p)
            repeated = experts_again(view, products, traffic, own, unit, rates, p, (plain, launches[0]))
        else:
            launched = block_launches(view)[0] * dense_factor(view, p)
            repeated = dense_again(view, products, traffic, launched)
    else:
        core, launches = mixing_core(layer, view, rates, p)
        again = _redone_scans(view) * core.forward
        context = _context_exchange(layer, view, rates, p)
        reduced = inner_sum(layer, view, rates, p)
    return LayerTimes(products, core, again, context, traffic, sent, reduced, launches, repeated)


def routed_width(layer: LayerKind, view: Case) -> Floats:
    """Returns the outputs of the activation of a layer per token, on the busiest expert rank where it has experts
    [rows] [elements].

    Args:
        layer: of a pattern, with an activation.
        view: the case whose model has the sizes of this layer.
    """
    activated = layer.activation()
    assert activated is not None
    width = np.asarray(activated.width, np.float64)
    if layer.routing() is None:
        return width
    routed = view.model.experts_per_token * view.model.expert_feedforward
    return width + (view.busiest_load - 1.0) * routed


def sent_case(layer: LayerKind, view: Case) -> Case:
    """Returns the case whose model is as wide as the messages of a layer: experts on a latent receive the latent only.

    Args:
        layer: one with a routing.
        view: the case whose model has the sizes of this layer, of `layer_cases`.
    """
    routing = layer.routing()
    if routing is None or not routing.message_width:
        return view
    return replace(view, model=replace(view.model, hidden=np.asarray(float(routing.message_width))))


def mixing_core(
    layer: LayerKind, case: Case, rates: SustainedRates, p: Parameters
) -> tuple[Core, tuple[Floats, Floats]]:
    """Returns the seconds of the work between the products of a layer [rows] [s], and its kernels in either pass.

    The longer of matrix operations, vector operations and memory traffic: scans and choices stream their inputs while
    they compute.

    Args:
        layer: one that states its work itself.
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
    """
    hidden, tokens = int(np.ravel(case.model.hidden)[0]), float(np.ravel(case.model.seq_size)[0])
    work = layer.mixing(hidden, tokens, causal=True)
    start = work.kernels * p.kernel_start
    matrix, lanes, moved = _mixing_parts(work, case.tokens, case, rates, p, scan_bandwidth(layer))
    forward = np.maximum(np.maximum(matrix, lanes), moved) + start
    # Products of the backward pass as in fused attention, which computes its scores again.
    slow = np.maximum(BACKWARD_PRODUCTS * matrix, VECTOR_BACKWARD * lanes)
    backward = np.maximum(slow, MIXING_TRAFFIC_BACKWARD * moved) + BACKWARD * start
    return Core(forward, backward), (np.asarray(float(work.kernels)), np.asarray(BACKWARD * work.kernels))


def scan_bandwidth(layer: LayerKind) -> float:
    """Returns the share of the memory bandwidth that a layer's kernels reach over a whole sequence [dimensionless].

    Args:
        layer: one that states its work itself.
    """
    return SCAN_BANDWIDTH if layer.is_scan else 1.0


def mixing_time(
    work: MixingWork, tokens: Floats, case: Case, rates: SustainedRates, p: Parameters, bandwidth: float = 1.0
) -> Floats:
    """Returns the seconds of the work between the products of a layer, forward [rows] [s].

    Args:
        work: of one token on all tensor-parallel ranks together.
        tokens: tokens of the pass [rows].
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        bandwidth: share of the memory bandwidth that its kernels reach, of `scan_bandwidth` [dimensionless]; 1 for the
            steps of generation, which stream states.
    """
    matrix, lanes, moved = _mixing_parts(work, tokens, case, rates, p, bandwidth)
    return np.maximum(np.maximum(matrix, lanes), moved) + work.kernels * p.kernel_start


def mixing_limit(layer: LayerKind, case: Case, rates: SustainedRates, p: Parameters) -> str:
    """Returns the limit of the work between the products of a layer in a forward pass: compute, vector or memory.

    Args:
        layer: one that states its work itself.
        case: shapes, layouts, software and accelerators of one row.
        rates: sustained rates of the accelerator [FLOP/s, bytes/s].
        p: parameters of a calibration.
    """
    hidden, tokens = int(np.ravel(case.model.hidden)[0]), float(np.ravel(case.model.seq_size)[0])
    work = layer.mixing(hidden, tokens, causal=True)
    parts = _mixing_parts(work, case.tokens, case, rates, p, scan_bandwidth(layer))
    seconds = dict(zip(("compute", "vector", "memory"), (float(np.ravel(each)[0]) for each in parts), strict=True))
    return max(seconds, key=seconds.__getitem__)


def _mixing_parts(
    work: MixingWork, tokens: Floats, case: Case, rates: SustainedRates, p: Parameters, bandwidth: float
) -> tuple[Floats, Floats, Floats]:
    """Return the seconds of matrix operations, of vector operations and of memory traffic [rows] [s]."""
    vector = 2.0 * VECTOR_LANES * case.accelerator.multiprocessors * case.accelerator.clock
    t = case.layout.tensor_par
    return (
        tokens * work.local_matrix(t) / (MIXING_SHARE * kernel_rate(case, p)),
        tokens * work.vector / t / vector,
        tokens * work.local_moved(t) / (bandwidth * rates.memory),
    )


def mixing_works(layer: LayerKind, case: Case) -> tuple[KernelWork, KernelWork]:
    """Returns the work between the products of a layer, forward and backward [rows] [FLOP, bytes].

    Args:
        layer: one that states its work itself.
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    hidden, sequence = int(np.ravel(case.model.hidden)[0]), float(np.ravel(case.model.seq_size)[0])
    work = layer.mixing(hidden, sequence, causal=True)
    t, tokens = case.layout.tensor_par, case.tokens
    matrix, vector, moved = tokens * work.local_matrix(t), tokens * work.vector / t, tokens * work.local_moved(t)
    operations, again = matrix + vector, BACKWARD_PRODUCTS * matrix + VECTOR_BACKWARD * vector
    return KernelWork(operations, moved), KernelWork(again, MIXING_TRAFFIC_BACKWARD * moved)


def _redone_scans(case: Case) -> Floats:
    """Return the share of scans that recomputation runs again [rows] [dimensionless]: "selective" is about the scores
    of attention, which scans do not have."""
    selective = np.isin(case.layout.recompute, (RECOMPUTES.index("selective"), BY_MODULE))
    return np.where(selective, 0.0, recomputed(case).attention)


def _context_exchange(layer: LayerKind, case: Case, rates: SustainedRates, p: Parameters) -> tuple[Floats, Floats]:
    """Return the seconds of messages between context-parallel ranks, forward and backward [rows] [s]."""
    layout = case.layout
    sent = layer.context_exchange(int(np.ravel(case.model.hidden)[0]))
    c = layout.context_par
    t, tokens = layout.tensor_par, case.tokens
    # Of what a rank sends away for heads, its own part stays; what is gathered comes from c - 1 others.
    apart = np.where(sent.is_gathered, 1.0, c)
    each = tokens * sent.per_token / t * (c - 1.0) / apart
    each = each + tokens * sent.per_token_whole * (c - 1.0)
    states = layout.microbatch_size * (sent.per_sequence / t + sent.per_sequence_whole)
    each = each + np.where(c > 1, states, 0.0)
    rate = rate_over(t * c, case.accelerator, rates)
    start = np.where(c > 1, 2.0 * p.latency, 0.0)
    # Gradients take the same way back, besides what the backward pass asks for again.
    return each / rate + start, 2.0 * each / rate + start


def inner_sum(layer: LayerKind, case: Case, rates: SustainedRates, p: Parameters) -> Floats:
    """Returns the exposed seconds of a sum over tensor-parallel ranks inside a layer, in one pass [rows] [s].

    Args:
        layer: of a pattern.
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
    """
    width = layer.reduced(int(np.ravel(case.model.hidden)[0]))
    if not width:
        return np.zeros(())
    layout = case.layout
    tiers = network_tiers(layout.tensor_par, 1.0, case.accelerator, rates, layout.groups)
    return collective(width * case.tokens, tiers, p, passes=2.0) * exposed_share(case, p)


def _pattern_block(
    case: Case,
    rates: SustainedRates,
    p: Parameters,
    layers: tuple[tuple[LayerKind, Case], ...],
    kind: BlockKind,
    times: dict[LayerKind, LayerTimes],
    unit: MatrixUnit,
    exchanged: Floats,
) -> BlockTimes:
    pattern = case.model.pattern
    assert pattern is not None
    sublayers = float(pattern.blocks[kind.position].sublayers)
    each = [times[layer] for layer, _ in layers]
    none: Floats = np.zeros(())
    products = Linear(none, none, none)
    for one in each:
        products = products.and_then(one.products)
    attentions = [view for layer, view in layers if layer.softmax() is not None]
    entering, leaving = cast_elements(case, layers)
    cast = cast_products(case, sublayers, entering, leaving)
    traffic = Traffic(
        sum((one.traffic.forward for one in each), start=none) + cast.forward / rates.memory,
        sum((one.traffic.backward for one in each), start=none) + cast.backward / rates.memory,
    )
    core = Core(*(sum(passes, start=none) for passes in zip(*(one.core for one in each), strict=True)))
    context = tuple(sum(passes, start=none) for passes in zip(*(one.context for one in each), strict=True))
    tensor = sublayers * exchanged + sum((one.reduced for one in each), start=none)
    left = dense_factor(case, p)
    launches = tuple(
        whole * sublayers / 2.0 * left + sum((one.launches[way] for one in each), start=none)
        for way, whole in enumerate(block_launches(case))
    )
    around = norms(case, rates, p, sublayers, attentions)
    shared = Common(unit, products, core, exchanged, (context[0], context[1]), around)
    repeated = mixers_again(case, unit, around.forward, None)
    if repeated is not None:
        for one in each:
            repeated = repeated if one.again is None else repeated.and_then(one.again)
        # A layer has one of the block's exchanges, not one of two.
        repeated = repeated._replace(
            tensor=np.minimum(2.0 / sublayers * repeated.tensor, 1.0),
            experts=np.minimum(repeated.experts, 1.0),
            launches=np.minimum(repeated.launches, launches[0]),
        )
    sent = sum((one.exchange for one in each), start=none)
    half = Half(products, traffic, sent, (launches[0], launches[1]), repeated, routed=kind.experts)
    again = sum((one.core_again for one in each), start=none)
    return complete_block(case, p, shared, half, tensor, again, kind.size)


def cast_elements(case: Case, layers: tuple[tuple[LayerKind, Case], ...]) -> tuple[Floats, Floats]:
    """Returns the elements per token that enter products split by inputs and leave those split by outputs, on one
    tensor-parallel rank [rows] [elements]. They are cast to 8 or 4 bits as the residual stream is.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        layers: of the block, each with its case.
    """
    t = case.layout.tensor_par
    entering = leaving = np.zeros(())
    for product in (each for layer, _ in layers for each in layer.products(int(np.ravel(case.model.hidden)[0]))):
        if product.split == "inputs":
            entering = entering + product.visited * product.inputs / t
        elif product.split == "outputs":
            leaving = leaving + product.visited * product.local_outputs(t)
    return entering, leaving
