"""Layers at their shapes, and the tensor-parallel collectives between them: standing alone or overlapped with a GEMM.

Source: Calculon 0.1.0 (commit caa4b11), `layers.py` `TPComm`, `LinearOverlapped`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.columns import by_name
from engine.cost_models.calculon.physics.block_keys import BlockKeys
from engine.cost_models.calculon.physics.layers import LayerSpec, Quantities, quantities, recipe, sizes
from engine.cost_models.calculon.physics.rates import SystemRates
from engine.executions.arrays import Flags, Floats
from engine.executions.codes import P2P_RS_AG, PIPE, RS_AG
from models import Model

__all__ = [
    "CommunicatingLayer",
    "LayerCollective",
    "Shapes",
    "TensorCollectives",
    "on_matrix",
    "shape_layers",
    "shaped",
    "timed",
]


@dataclass(slots=True)
class Shapes:
    """Layers of one recipe at distinct shapes: quantities, and times [s] as arrays [layers, shapes]."""

    specs: tuple[LayerSpec, ...]
    quantities: Quantities
    element_bytes: int
    fw_flops_time: Floats
    fw_mem_time: Floats
    fw_time: Floats
    agrad_flops_time: Floats
    agrad_mem_time: Floats
    agrad_time: Floats
    wgrad_flops_time: Floats
    wgrad_mem_time: Floats
    wgrad_time: Floats


def on_matrix(specs: tuple[LayerSpec, ...]) -> Flags:
    """Return which layers run on the matrix engine; the others run on the vector engine [layers].

    Args:
        specs: the layers of a recipe.
    """
    return np.array([spec.kind in ("linear", "batch_matmul", "overlapped") for spec in specs])


def shape_layers(model: Model, rates: SystemRates, keys: BlockKeys, element_bytes: int, overlapped: bool) -> Shapes:
    """Returns the layers of the recipe that all `keys` share, at the keys' shapes [keys].

    Args:
        model: whose layers they are.
        rates: of the system.
        keys: fields that the figures depend on, all of one recipe.
        element_bytes: size of an element of the datatype [bytes].
        overlapped: whether tensor-parallel communication is overlapped with its GEMM.
    """
    return timed(*shaped(model, keys, element_bytes, overlapped), element_bytes, rates)


def shaped(
    model: Model, keys: BlockKeys, element_bytes: int, overlapped: bool
) -> tuple[tuple[LayerSpec, ...], Quantities]:
    """Return the recipe that all `keys` share, and the operations and bytes of its layers at the keys' shapes.

    Args:
        model: the model.
        keys: fields that the figures depend on, all of one recipe.
        element_bytes: size of an element of the datatype [bytes].
        overlapped: whether tensor-parallel communication is overlapped with its GEMM.
    """
    attention = by_name("attention_type").choices[int(keys.attention_type[0])]
    specs = recipe(attention, overlapped)
    z = sizes(
        model,
        tensor_par=keys.tensor_par.astype(np.float64),
        microbatch_size=keys.microbatch_size.astype(np.float64),
        sequence_parallel=keys.tensor_par_comm_type == RS_AG,
        fused_activation=keys.fused_activation,
        element_bytes=element_bytes,
    )
    return specs, quantities(specs, z)


def timed(specs: tuple[LayerSpec, ...], q: Quantities, element_bytes: int, rates: SystemRates) -> Shapes:
    """Return the layers with their times on the engines and the memory of a system.

    Args:
        specs: the layers of a recipe.
        q: operations and bytes of the layers [layers, shapes].
        element_bytes: size of an element of the datatype [bytes].
        rates: rates of the system.
    """
    matrix = on_matrix(specs)

    def times(flops: Floats, moved: Floats) -> tuple[Floats, Floats, Floats]:
        compute = np.empty_like(flops)
        compute[matrix] = rates.matrix.seconds(flops[matrix])
        compute[~matrix] = rates.vector.seconds(flops[~matrix])
        memory = rates.memory.seconds(moved)
        return compute, memory, rates.processing(compute, memory)

    return Shapes(
        specs,
        q,
        element_bytes,
        *times(q.fw_flops, q.fw_bytes),
        *times(q.agrad_flops, q.agrad_bytes),
        *times(q.wgrad_flops, q.wgrad_bytes),
    )


@dataclass(slots=True)
class LayerCollective:
    """Tensor-parallel communication of one layer in one stage, base and edge block, each [keys].

    Payload of the collective [bytes], its link time [s] and the part of it that nothing hides [s].
    """

    base_size: Floats
    edge_size: Floats
    base_time: Floats
    edge_time: Floats
    base_exposed: Floats
    edge_exposed: Floats


@dataclass(slots=True)
class CommunicatingLayer:
    """Times of a layer that communicates, at communication keys [keys].

    `fw`, `agrad`: processing time [s] of the stages. `wgrad`, `wgrad_again`: that of the weight gradient, without and
    with the forward collective done again beside it. `again_exposed_by_layer`: what a table of single layers shows
    as exposed of the repeated collective [s], which is not what a block is charged.
    """

    fw: Floats
    agrad: Floats
    wgrad: Floats
    wgrad_again: Floats
    fw_exchange: LayerCollective
    agrad_exchange: LayerCollective
    again_exchange: LayerCollective
    again_exposed_by_layer: Floats
    fw_overlap_req: Floats
    tp_bw_overlap_req: Floats


class TensorCollectives:
    """Tensor-parallel collectives at communication keys: who communicates, over which tier, split or not."""

    def __init__(self, shapes: Shapes, rates: SystemRates, keys: BlockKeys, shape_of: npt.NDArray[np.intp]) -> None:
        self.shapes = shapes
        self.rates = rates
        self.shape_of = shape_of
        self.members = keys.tensor_par.astype(np.float64)
        self.tier = keys.tensor_par_net
        self.communicates = keys.tensor_par > 1
        # Reduce-scatter and all-gather replace the all-reduce: everywhere, or only at the edges of a chunk.
        base_split = keys.tensor_par_comm_type == RS_AG
        self.splits = (base_split, base_split | (keys.tensor_par_comm_type == P2P_RS_AG))
        self.pipe = keys.tensor_par_overlap == PIPE
        self.busy = rates.networks.busy[self.tier]
        self.zero = np.zeros(len(self.members))

    def layer(self, row: int) -> CommunicatingLayer:
        """Returns the layer at `row` of the recipe, which must be of a communicating kind."""
        spec = self.shapes.specs[row]
        return self._overlapped(row, spec) if spec.kind == "overlapped" else self._standalone(row, spec)

    def _at(self, name: str, row: int) -> Floats:
        result: Floats = getattr(self.shapes, name)[row][self.shape_of]
        return result

    def _collective(self, split: Flags, reduces: bool, payload: Floats) -> tuple[Floats, Floats]:
        """(payload [bytes], time [s]). The reducing side always communicates: reduce-scatter if split, else
        all-reduce. The gathering side does so only if split."""
        net, tier, members = self.rates.networks, self.tier, self.members
        if reduces:
            active = self.communicates
            scattered = net.seconds(tier, "reduce_scatter", payload, members)
            seconds = np.where(split, scattered, net.seconds(tier, "all_reduce", payload, members))
        else:
            active = self.communicates & split
            seconds = net.seconds(tier, "all_gather", payload, members)
        return np.where(active, payload, 0.0), np.where(active, seconds, 0.0)

    def _exchange(self, reduces: bool, payload: Floats, work: Floats) -> LayerCollective:
        """A collective with `work` [s] of additions added to it, all exposed."""
        (base_size, base), (edge_size, edge) = (self._collective(split, reduces, payload) for split in self.splits)
        base = np.where(self.communicates, base + work, 0.0)
        edge = np.where(self.communicates, edge + work, 0.0)
        return LayerCollective(base_size, edge_size, base, edge, base, edge)

    def _standalone(self, row: int, spec: LayerSpec) -> CommunicatingLayer:
        """Return communication as a separate layer: all of it is exposed, with its additions."""
        payload = self.shapes.quantities.output_payload[row][self.shape_of]
        forward_reduces = not spec.gathers
        fw = self._exchange(forward_reduces, payload, self._at("fw_time", row))
        agrad = self._exchange(spec.gathers, payload, self._at("agrad_time", row))
        again = self._exchange(forward_reduces, payload, self.zero)
        return CommunicatingLayer(
            self.zero, self.zero, self.zero, self.zero, fw, agrad, again, again.base_exposed, self.zero, self.zero
        )

    def _overlapped(self, row: int, spec: LayerSpec) -> CommunicatingLayer:
        """Return a GEMM of one tile per member of the group, each overlapped with one tile of the collective."""
        q, b = self.shapes.quantities, float(self.shapes.element_bytes)
        inputs, outputs = q.input_payload[row][self.shape_of], q.output_payload[row][self.shape_of]
        forward_reduces = not spec.gathers
        payload = outputs if forward_reduces else inputs
        # (t - 1)/t additions per element of the reduced payload, on the vector engine.
        additions = self.rates.vector.seconds(payload / b * (self.members - 1.0) / self.members)
        fw = self._exchange(forward_reduces, payload, additions if forward_reduces else self.zero)
        agrad = self._exchange(spec.gathers, payload, additions if spec.gathers else self.zero)
        again = self._exchange(forward_reduces, payload, self.zero)
        fw_time, fw_exposed = self._hide(fw.base_time, "fw", row)
        agrad_time, agrad_exposed = self._hide(agrad.base_time, "agrad", row)
        wgrad_again, again_exposed = self._hide(again.base_time, "wgrad", row)
        fw_required = self._required(fw, "fw", row)
        required = np.maximum(fw_required, self._required(agrad, "agrad", row))
        # The edge block is charged the base block's exposed time, and the repeated collective the forward's.
        fw.base_exposed = fw.edge_exposed = again.base_exposed = again.edge_exposed = fw_exposed
        agrad.base_exposed = agrad.edge_exposed = agrad_exposed
        wgrad = self._at("wgrad_time", row)
        return CommunicatingLayer(
            fw_time, agrad_time, wgrad, wgrad_again, fw, agrad, again, again_exposed, fw_required, required
        )

    def _required(self, exchange: LayerCollective, stage: str, row: int) -> Floats:
        """Bandwidth that a tile of the collective needs to hide behind a tile of slowed-down compute [bytes/s]."""
        tile = self._at(f"{stage}_flops_time", row) / (1.0 - self.busy) / self.members
        return np.maximum(exchange.base_size / self.members / tile, exchange.edge_size / self.members / tile)

    def _hide(self, network: Floats, stage: str, row: int) -> tuple[Floats, Floats]:
        """(processing time [s], exposed network time [s]) of a stage whose tiles overlap `network` [s]."""
        t, busy = self.members, self.busy
        compute, memory = self._at(f"{stage}_flops_time", row), self._at(f"{stage}_mem_time", row)
        alone = self._at(f"{stage}_time", row)
        # The network takes the share u of the compute while a tile is exchanged.
        slowed_compute = compute / (1.0 - busy)
        slowed = self.rates.processing(slowed_compute, memory)
        # Tile by tile: t - 1 tiles run next to an exchange, one has none to run next to.
        uncovered = network / t - slowed_compute / t
        bound = uncovered > 0
        # Network-bound: tiles wait, slowed down. Otherwise only the share u of the exchange lengthens them.
        time = np.where(
            bound,
            alone / t + (t - 1.0) * (slowed / t),
            alone / t + (t - 1.0) * (alone / t) + (t - 1.0) * (network / t) * busy,
        )
        exposed = np.where(bound, (t - 1.0) * uncovered, 0.0)
        # Pipelined tiles leave one tile uncovered, counted both as processing and as exposed.
        exposed = np.where(self.pipe, exposed + network / t, exposed)
        time = np.where(self.pipe, time + network / t, time)
        silent = network == 0.0
        return np.where(silent, alone, time), np.where(silent, 0.0, exposed)
