"""One block and one microbatch on one processor: seconds forward and backward, with their parts.

The attention half is common to all blocks; the feed-forward half is dense or made of experts. Block figures depend on
few fields of an execution, so a space evaluates them once per distinct key.

Sources: two all-reduces of activations per block and pass, Shoeybi et al. 2019 (Megatron-LM), which sequence
parallelism replaces at the same volume, Korthikanti et al. 2022; the sum of the parts and the host-bound floor, the
calibration study on 1,147 measured rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.cost_models.calibrated.physics.adapters import (
    LAUNCHES_BACKWARD,
    LAUNCHES_FORWARD,
    adapter_seconds,
    adapter_traffic,
)
from engine.cost_models.calibrated.physics.case_cache import once_per_case
from engine.cost_models.calibrated.physics.communication.collectives import collective, tiers_of
from engine.cost_models.calibrated.physics.communication.context_parallel import ring
from engine.cost_models.calibrated.physics.communication.expert_exchange import HIDDEN_EXCHANGE
from engine.cost_models.calibrated.physics.communication.networks import shared_by
from engine.cost_models.calibrated.physics.inputs import LAUNCHES, Case, Floats
from engine.cost_models.calibrated.physics.layers.attention import Core, attention_core
from engine.cost_models.calibrated.physics.layers.elementwise import Traffic, activation, casts, norms
from engine.cost_models.calibrated.physics.layers.experts import active_width, expert_layer, expert_layers
from engine.cost_models.calibrated.physics.layers.gemm import Linear, LinearLayer, MatrixUnit
from engine.cost_models.calibrated.physics.layers.launch import (
    block_launches,
    dense_factor,
    expert_launches,
    launch_time,
    size_wait,
)
from engine.cost_models.calibrated.physics.layers.modules_again import (
    ModulesAgain,
    dense_again,
    experts_again,
    mixers_again,
)
from engine.cost_models.calibrated.physics.layers.rates import SustainedRates
from engine.cost_models.calibrated.physics.layers.recompute import Recomputed, recomputed
from engine.cost_models.calibrated.physics.parameters import Parameters
from engine.cost_models.calibrated.physics.pipeline.stages import BlockKind

__all__ = [
    "BlockTimes",
    "Common",
    "Half",
    "attention_layers",
    "attention_projections",
    "block",
    "blocks",
    "common",
    "complete_block",
    "feedforward_layers",
    "latent_layers",
    "projection_layers",
    "tensor_exchange",
]


@dataclass(frozen=True, slots=True)
class BlockTimes:
    """Seconds of one block and microbatch [s], arrays [rows].

    `forward` and `backward` are complete (recomputation in `backward`) and not below the host-bound floor; the parts
    from `linear` on add up to them. `computing` is the forward pass without communication, `repeated_exposed` the
    tensor-parallel communication among `recompute`; what else is exchanged again counts with its own kind.
    `input_gradient` and `weight_gradient` are the two passes of a schedule that separates them, neither below its own
    host-bound floor, so that they may take longer than `backward` together. `paired` is the forward and the backward of
    two microbatches that run together, each of which hides the other's exchange of tokens between experts.
    """

    forward: Floats
    backward: Floats
    computing: Floats
    repeated_exposed: Floats
    linear: Floats
    attention: Floats
    elementwise: Floats
    recompute: Floats
    tensor_exposed: Floats
    context_exposed: Floats
    expert_exposed: Floats
    launch: Floats
    input_gradient: Floats
    weight_gradient: Floats
    paired: Floats

    def take(self, index: npt.NDArray[np.intp]) -> BlockTimes:
        """Returns the rows at `index`; numbers stay as they are [s].

        Args:
            index: positions of rows, or a truth for each [rows].
        """
        values = (getattr(self, name) for name in BLOCK_TIMES)
        return BlockTimes(*(value[index] if value.ndim else value for value in values))

    def together(self) -> BlockTimes:
        """Returns forward and backward as one in `forward`, overlapped ones in `paired`, and nothing else [s]."""
        none = np.zeros(())
        values = [self.forward + self.backward, *[none] * (len(BLOCK_TIMES) - 2), self.paired]
        return BlockTimes(*values)


BLOCK_TIMES = tuple(field.name for field in fields(BlockTimes))


@dataclass(frozen=True, slots=True)
class Common:
    """Figures shared by blocks of the same row with the same attention window."""

    unit: MatrixUnit
    projections: Linear
    core: Core
    exchange: Floats
    context: tuple[Floats, Floats]
    norms: Traffic


def attention_projections(case: Case, unit: MatrixUnit) -> Linear:
    """Returns the seconds of the linear layers around the attention core [rows] [s].

    They are the fused query-key-value and output projections, or the low-rank chain of multi-head latent attention
    (MLA).

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        unit: matrix unit that computes it, with its sustained rates [FLOP/s, bytes/s].
    """
    layers = projection_layers(case)
    out = layers["attention_output"].time(unit)
    plain = layers["query_key_value"].time(unit).and_then(out)
    latent = case.model.latent > 0
    if not np.any(latent):
        return plain
    found = {name: layer.time(unit) for name, layer in latent_layers(case).items() if name != "attention_output"}
    query = found["query_up"]
    if "query_down" in found:
        query = found["query_down"].where(case.model.query_rank > 0).and_then(query)
    key = found["key_value_down"].and_then(found["key_value_up"])
    chain = query.and_then(key).and_then(out)
    return Linear(*(np.where(latent, low, full) for low, full in zip(chain, plain, strict=True)))


def attention_layers(case: Case) -> Mapping[str, LinearLayer]:
    """Returns the linear layers around the attention core by name, in the order they run.

    Args:
        case: case with one model, whose attention decides which layers there are.
    """
    return latent_layers(case) if np.any(case.model.latent > 0) else projection_layers(case)


@once_per_case
def projection_layers(case: Case) -> Mapping[str, LinearLayer]:
    """Returns the linear layers around the attention core where queries, keys and values are projected in one, by name.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model, layout = case.model, case.layout
    t, tokens, low = layout.tensor_par, case.tokens, layout.linear_bits / 8.0
    keys = case.key_value_heads
    # Queries, keys and values in one product.
    columns = (model.attn_heads + keys) * model.attn_size + keys * model.value_size
    return {
        "query_key_value": LinearLayer(tokens, columns / t, model.hidden, in_bytes=low),
        "attention_output": LinearLayer(tokens, model.hidden, model.attn_heads * model.value_size / t, in_bytes=low),
    }


@once_per_case
def latent_layers(case: Case) -> Mapping[str, LinearLayer]:
    """Returns the linear layers around the core of multi-head latent attention, by name.

    `query_down` is among them only where queries have a rank.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model, layout = case.model, case.layout
    t, tokens, low = layout.tensor_par, case.tokens, layout.linear_bits / 8.0
    rank, key_rank = np.maximum(model.query_rank, 1.0), np.maximum(model.key_value_rank, 1.0)
    inputs = np.where(model.query_rank > 0, rank, model.hidden)
    key_columns = model.attn_heads * (model.attn_size - model.rope_size + model.value_size) / t
    down = {"query_down": LinearLayer(tokens, rank, model.hidden, in_bytes=low)} if np.any(model.query_rank > 0) else {}
    # DeepSeek-V2, section 2.1: c_Q = x W_DQ, q = c_Q [W_UQ, W_QR], (c_KV, k_R) = x [W_DKV, W_KR],
    # (k, v) = c_KV [W_UK, W_UV].
    return down | {
        "query_up": LinearLayer(tokens, model.attn_heads * model.attn_size / t, inputs, in_bytes=low),
        "key_value_down": LinearLayer(tokens, key_rank + model.rope_size, model.hidden, in_bytes=low),
        "key_value_up": LinearLayer(tokens, key_columns, key_rank, in_bytes=low),
        "attention_output": LinearLayer(tokens, model.hidden, model.attn_heads * model.value_size / t, in_bytes=low),
    }


@once_per_case
def feedforward_layers(case: Case) -> Mapping[str, LinearLayer]:
    """Returns the two linear layers of a plain or gated feed-forward layer, by name.

    The gate is among the outputs of the first.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
    """
    model, tokens, low = case.model, case.tokens, case.layout.linear_bits / 8.0
    width = model.feedforward / case.layout.tensor_par
    gated = (1.0 + model.gated) * model.feedforward / case.layout.tensor_par
    return {
        "feedforward_up": LinearLayer(tokens, gated, model.hidden, in_bytes=low),
        "feedforward_down": LinearLayer(tokens, model.hidden, width, in_bytes=low),
    }


@once_per_case
def _tensor_placed(case: Case) -> tuple[Floats, ...]:
    """Return the placement of the ranks of a tensor-parallel group, as from `shared_by` [ranks]."""
    return shared_by(case.layout.tensor_par, 1.0, case.accelerator.network_sizes, case.layout.groups)


def tensor_exchange(case: Case, rates: SustainedRates, p: Parameters) -> Floats:
    """Returns the seconds of one all-reduce of the tensor-parallel group over a microbatch's activations [rows] [s].

    Sequence parallelism replaces it by a reduce-scatter and an all-gather of the same volume.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
    """
    tiers = tiers_of(_tensor_placed(case), rates)
    # 2 T h bytes of 16-bit activations.
    return collective(2.0 * case.tokens * case.model.hidden, tiers, p, passes=2.0)


def common(case: Case, rates: SustainedRates, p: Parameters, *, windowed: bool = False) -> Common:
    """Return the figures that do not depend on the feed-forward half of a block [rows] [s].

    Its `exchange` is the exposed time of one tensor-parallel exchange.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        windowed: whether the block looks back over the model's window only.
    """
    core = attention_core(case, rates, p, windowed=windowed)
    exposed = np.where(case.software.overlap_tensor > 0, 1.0 - p.overlap_tensor, 1.0)
    unit = MatrixUnit(rates.linear_of(case.layout), rates.memory, case.accelerator.multiprocessors, p)
    return Common(
        unit,
        attention_projections(case, unit),
        core,
        tensor_exchange(case, rates, p) * exposed,
        ring(case, rates, p, core.forward, core.backward),
        norms(case, rates, p),
    )


def blocks(case: Case, rates: SustainedRates, p: Parameters, kinds: Iterable[BlockKind]) -> dict[BlockKind, BlockTimes]:
    """Return the seconds of a block of each of these kinds [rows] [s]; shared figures are computed once.

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        kinds: kinds to compute, of `KINDS`.
    """
    wanted = list(kinds)
    shared: dict[bool, Common] = {}
    halves: dict[bool, Half] = {}
    found = {}
    for kind in wanted:
        if kind.windowed not in shared:
            if shared:
                (other,) = shared.values()
                core = attention_core(case, rates, p, windowed=kind.windowed)
                context = ring(case, rates, p, core.forward, core.backward)
                shared[kind.windowed] = replace(other, core=core, context=context)
            else:
                shared[kind.windowed] = common(case, rates, p, windowed=kind.windowed)
        around = shared[kind.windowed]
        if kind.experts not in halves:
            halves[kind.experts] = (_expert_half if kind.experts else _dense_half)(case, rates, p, around)
        found[kind] = _assemble_block(case, p, around, halves[kind.experts])
    return found


def block(case: Case, rates: SustainedRates, p: Parameters, kind: BlockKind) -> BlockTimes:
    """Returns the seconds of a block of one kind [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        rates: sustained rates of the accelerators [FLOP/s, bytes/s] [rows].
        p: parameters of a calibration.
        kind: one of `KINDS`.
    """
    return blocks(case, rates, p, [kind])[kind]


class Half(NamedTuple):
    """The feed-forward half of a block, with the projections of the other half among its products [s]; the exchange of
    tokens between experts in one pass [s], kernels launched in either pass, what the block repeats by module (None if
    no row names modules), and whether it has experts."""

    products: Linear
    traffic: Traffic
    exchange: Floats
    launches: tuple[Floats, Floats]
    again: ModulesAgain | None = None
    routed: bool = False


def _dense_half(case: Case, rates: SustainedRates, p: Parameters, shared: Common) -> Half:
    """A plain or gated feed-forward layer."""
    model, t = case.model, case.layout.tensor_par
    products = shared.projections
    own = [layer.time(shared.unit) for layer in feedforward_layers(case).values()]
    for layer in own:
        products = products.and_then(layer)
    acted = activation(case, model.feedforward / t, case.tokens, rates, p)
    cast = casts(case, model.feedforward, rates)
    traffic = Traffic(acted.forward + cast.forward, acted.backward + cast.backward)
    left = dense_factor(case, p)
    forward, backward = block_launches(case)
    launches = (forward * left, backward * left)
    again = dense_again(case, own[0].and_then(own[1]), acted, launches[0])
    return Half(products, traffic, np.zeros(()), launches, again)


def _expert_half(case: Case, rates: SustainedRates, p: Parameters, shared: Common) -> Half:
    """A layer of experts."""
    found = expert_layer(case, rates, p)
    cast = casts(case, active_width(case), rates)
    traffic = Traffic(found.traffic.forward + cast.forward, found.traffic.backward + cast.backward)
    left = dense_factor(case, p)
    plain, of_experts = block_launches(case), expert_launches(case)
    forward, backward = (a * left + b for a, b in zip(plain, of_experts, strict=True))
    counted = plain[0] * left, of_experts[0]
    again = experts_again(case, found.products, found.traffic, expert_layers(case), shared.unit, rates, p, counted)
    products = shared.projections.and_then(found.products)
    return Half(products, traffic, 2.0 * found.exchange, (forward, backward), again, routed=True)


def _assemble_block(case: Case, p: Parameters, shared: Common, half: Half) -> BlockTimes:
    core = recomputed(case).attention * shared.core.forward
    if half.again is not None:
        latent = latent_layers(case) if np.any(case.model.latent > 0) else None
        around = mixers_again(case, shared.unit, shared.norms.forward, latent)
        half = half if around is None else half._replace(again=half.again.and_then(around))
    # One all-reduce after attention and one after the feed-forward half (Shoeybi et al. 2019, section 3).
    return complete_block(case, p, shared, half, 2.0 * shared.exchange, core, int(half.routed))


def _with_adapters(case: Case, p: Parameters, unit: MatrixUnit, half: Half, size: int) -> Half:
    """Return a half whose own weights are frozen, with the adapters of the block among its products and launches."""
    frozen = half.products
    traffic = adapter_traffic(case, size)
    forward, backward = adapter_seconds(traffic, unit.memory, p.kernel_start)
    products = Linear(frozen.forward + forward, frozen.backward - frozen.weight + backward, np.zeros(()))
    launches = (
        half.launches[0] + LAUNCHES_FORWARD * traffic.targets,
        half.launches[1] + LAUNCHES_BACKWARD * traffic.targets,
    )
    return half._replace(products=products, launches=launches)


def _forward_alone(
    alone: npt.NDArray[np.bool_], shared: Common, half: Half, again: Recomputed
) -> tuple[Common, Half, Recomputed]:
    """Return the parts of a block without a backward pass in some rows."""

    def off(seconds: Floats) -> Floats:
        return np.where(alone, 0.0, seconds)

    shared = replace(
        shared,
        core=Core(shared.core.forward, off(shared.core.backward)),
        context=(shared.context[0], off(shared.context[1])),
        norms=Traffic(shared.norms.forward, off(shared.norms.backward)),
    )
    half = half._replace(
        products=Linear(half.products.forward, off(half.products.backward), off(half.products.weight)),
        traffic=Traffic(half.traffic.forward, off(half.traffic.backward)),
        launches=(half.launches[0], off(half.launches[1])),
        again=None if half.again is None else ModulesAgain(*(off(each) for each in half.again)),
    )
    return shared, half, Recomputed(*(off(getattr(again, each.name)) for each in fields(Recomputed)))


def complete_block(
    case: Case, p: Parameters, shared: Common, half: Half, tensor: Floats, core_again: Floats, size: int
) -> BlockTimes:
    """Return the times of a block from its parts [rows] [s].

    Args:
        case: shapes, layouts, software and accelerators of the rows; arrays that broadcast to [rows].
        p: parameters of a calibration.
        shared: what its layers that mix tokens take.
        half: its products, traffic, exchange of tokens and launches.
        tensor: exposed seconds of its tensor-parallel exchanges in one pass [rows] [s].
        core_again: seconds of its cores that recomputation runs again [rows] [s].
        size: position of its size among the sizes of the model's blocks.
    """
    again, tensor_back, experts_back = recomputed(case), tensor, half.exchange
    if case.frozen is not None:
        half = _with_adapters(case, p, shared.unit, half, size)
    if (alone := case.forward_only) is not None:
        shared, half, again = _forward_alone(alone, shared, half, again)
        tensor_back, experts_back = np.where(alone, 0.0, tensor), np.where(alone, 0.0, half.exchange)
        core_again = np.where(alone, 0.0, core_again)
    products, traffic, experts, launches, modules, routed = half
    elementwise_forward = shared.norms.forward + traffic.forward
    # The backward pass runs these shares of the forward pass again (`recompute.SHARES`).
    redone = (
        again.linear * products.forward + core_again + again.elementwise * elementwise_forward + again.tensor * tensor
    )
    tensor_share, expert_share = again.tensor, again.experts
    if modules is not None:
        redone = redone + modules.seconds + modules.tensor * tensor
        tensor_share, expert_share = tensor_share + modules.tensor, expert_share + modules.experts
    # Attention that is recomputed asks for the keys and values of its ring again, hidden as in the forward pass.
    ring_again, sent_again = again.attention * shared.context[0], expert_share * experts
    forward = products.forward + shared.core.forward + elementwise_forward + tensor + shared.context[0] + experts
    backward = (
        products.backward
        + shared.core.backward
        + shared.norms.backward
        + traffic.backward
        + tensor_back
        + shared.context[1]
        + experts_back
        + redone
        + ring_again
        + sent_again
    )
    host = launch_time(case, p)
    # A block takes no less than its kernels need to be launched.
    floor_forward = launches[0] * host
    floor_backward = (launches[1] + again.linear * launches[0]) * host
    if modules is not None:
        floor_backward = floor_backward + modules.launches * host
    # Where every launch waits for the device, host time adds to device time instead of hiding behind it.
    blocking = case.software.launch == LAUNCHES.index("blocking")
    slow_forward = np.where(blocking, forward + floor_forward, np.maximum(forward, floor_forward))
    slow_backward = np.where(blocking, backward + floor_backward, np.maximum(backward, floor_backward))
    waited_forward, waited_backward = forward, backward
    if routed:
        # The forward pass, and a repeated one, waits for the sizes that the router finds: its launches add to it.
        waiting = size_wait(case, launches[0], p)
        waited_forward, waited_backward = forward + waiting, backward + again.experts * waiting
        slow_forward = np.maximum(slow_forward, waited_forward)
        slow_backward = np.maximum(slow_backward, waited_backward)
    late = slow_forward - forward + slow_backward - backward
    # A pass of its own for the gradients of weights has the launches that a backward pass has beyond a forward pass.
    floor_weights = np.maximum(launches[1] - launches[0], 0.0) * host
    floor_inputs, inputs = floor_backward - floor_weights, backward - products.weight
    slow_weights = np.where(blocking, products.weight + floor_weights, np.maximum(products.weight, floor_weights))
    slow_inputs = np.where(blocking, inputs + floor_inputs, np.maximum(inputs, floor_inputs))
    exchanged = experts + experts_back + sent_again
    together = slow_forward + slow_backward
    # A pair hides its exchanges behind the other microbatch, but takes no less than either pass, the exchanges or the
    # launches.
    if np.any(exchanged > 0):
        # What an overlap within one microbatch already hides is not hidden again.
        hidden = np.where(case.software.overlap_expert > 0, 0.0, 1.0 - HIDDEN_EXCHANGE) * exchanged
        least = np.maximum(exchanged, np.maximum(slow_forward, slow_backward))
        least = np.maximum(least, floor_forward + floor_backward)
        overlapped = np.maximum(waited_forward + waited_backward - hidden, least)
        # Without an exchange a pair hides nothing, whatever other rows do.
        together = np.where(blocking | (exchanged <= 0.0), together, overlapped)
    parts = (
        slow_forward,
        slow_backward,
        slow_forward - tensor - shared.context[0] - experts,
        tensor_share * tensor,
        products.forward + products.backward,
        shared.core.forward + shared.core.backward,
        elementwise_forward + shared.norms.backward + traffic.backward,
        redone,
        tensor + tensor_back,
        shared.context[0] + shared.context[1] + ring_again,
        exchanged,
        late,
        slow_inputs,
        slow_weights,
        together,
    )
    return BlockTimes(*np.broadcast_arrays(*parts))
