"""One block of the model, one microbatch: operations, bytes and seconds, for every distinct block key.

A space of millions of executions has a few thousand distinct block keys, because a block's figures depend on few
fields. `block_table` evaluates each key once, layer by layer; executions then gather from the result.

The computation goes in three steps, each on as few keys as it depends on:

1. *shapes*: (tensor parallel, microbatch, sequence parallel, overlapped, attention, fused): layers and their times;
2. *communication*: shapes x (network tier, communication type, ring or pipe): exposed and linked collectives;
3. *recomputation*: communication x (recompute, redo): what is done again and what is kept.

Source: Calculon 0.1.0 (commit caa4b11), `llm.py` `_compute_block_stats`, `layers.py`. Sums run over the layers in
order, left to right, so that results are bit-equal to the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from engine.arrays import take
from engine.columns import by_name
from engine.layers import LayerSpec, Quantities, quantities, recipe, sizes
from engine.rates import Rates
from models import Model

__all__ = ["BlockKeys", "BlockTable", "OptimizerTable", "block_table", "distinct", "optimizer_table", "recompute_flags"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

FULL, ATTENTION_ONLY, NONE = range(3)
ALL_REDUCE, P2P_RS_AG, RS_AG = range(3)
NO_OVERLAP, RING, PIPE = range(3)


@dataclass(slots=True)
class BlockKeys:
    """The fields that a block's figures depend on, each an array [keys]; words are positions in their choices."""

    tensor_par: Ints
    tensor_par_net: Ints
    microbatch_size: Ints
    fused_activation: Bools
    attention_type: Ints
    activation_recompute: Ints
    tensor_par_comm_type: Ints
    tensor_par_overlap: Ints
    seq_par_ag_redo: Bools
    training: Bools


def pack(*parts: Ints | Bools) -> Ints:
    """One whole number per row that tells rows with different parts apart."""
    result = np.zeros(len(parts[0]), np.int64)
    for part in parts:
        values = part.astype(np.int64)
        low, span = int(values.min(initial=0)), int(values.max(initial=0)) - int(values.min(initial=0)) + 1
        if int(result.max(initial=0)) >= 2**62 // span:
            result = np.unique(result, return_inverse=True)[1].astype(np.int64)
        result = result * span + (values - low)
    return result


def distinct(*parts: Ints | Bools) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """(position of the first row of each distinct combination, which combination each row is)."""
    _, first, inverse = np.unique(pack(*parts), return_index=True, return_inverse=True)
    return first, inverse


@dataclass(slots=True)
class BlockTable:
    """Figures of one block and one microbatch, each an array [keys].

    Names are the statistics' where one exists: `fw_time` is block_fw_time [s], `base_`/`edge_` the base and edge block
    of a chunk, `tp_time` the link time and `tp_exposed` the exposed time of tensor-parallel communication [s].
    """

    fw_flops: Floats
    fw_flops_time: Floats
    fw_mem_accessed: Floats
    fw_mem_time: Floats
    fw_time: Floats
    base_fw_tp_size: Floats
    edge_fw_tp_size: Floats
    base_fw_tp_time: Floats
    edge_fw_tp_time: Floats
    base_fw_tp_exposed: Floats
    edge_fw_tp_exposed: Floats
    re_flops: Floats
    re_flops_time: Floats
    re_mem_accessed: Floats
    re_mem_time: Floats
    re_time: Floats
    base_recomm_size: Floats
    edge_recomm_size: Floats
    base_recomm_time: Floats
    edge_recomm_time: Floats
    base_recomm_exposed: Floats
    edge_recomm_exposed: Floats
    agrad_flops: Floats
    agrad_flops_time: Floats
    agrad_mem_accessed: Floats
    agrad_mem_time: Floats
    agrad_time: Floats
    base_bw_tp_size: Floats
    edge_bw_tp_size: Floats
    base_bw_tp_time: Floats
    edge_bw_tp_time: Floats
    base_bw_tp_exposed: Floats
    edge_bw_tp_exposed: Floats
    wgrad_flops: Floats
    wgrad_flops_time: Floats
    wgrad_mem_accessed: Floats
    wgrad_mem_time: Floats
    wgrad_time: Floats
    tp_bw_overlap_req: Floats
    weights: Floats
    act_working: Floats
    act_storage: Floats
    act_checkpoint: Floats
    weight_grads_unsharded: Floats
    act_grads: Floats
    pipeline_payload: Floats


def recompute_flags(recompute: Ints, redo: Bools) -> dict[str, Bools]:
    """What each recomputation choice does, by the words that layers use for it; arrays [keys].

    Attention-only recomputation redoes the attention's gather too (Q11), and dropping its input makes the fork's
    activation disappear from storage even where nothing regathers it (Q10).
    """
    full = recompute == FULL
    attention = recompute != NONE
    flags = {"never": np.zeros_like(full), "always": np.ones_like(full), "full": full, "attention": attention}
    flags |= {"redo_attention": attention | redo, "redo_mlp": full | redo}
    return flags | {f"not_{name}": ~flags[name] for name in ("attention", "redo_attention", "redo_mlp")}


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


def on_matrix(specs: tuple[LayerSpec, ...]) -> Bools:
    """Which layers run on the matrix engine, the others on the vector engine [layers]."""
    return np.array([spec.kind in ("linear", "batch_matmul", "overlapped") for spec in specs])


def shape_layers(model: Model, rates: Rates, keys: BlockKeys, element_bytes: int, overlapped: bool) -> Shapes:
    """Layers of the recipe that all `keys` share, at the keys' shapes [keys]."""
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
    q = quantities(specs, z)
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
class Exchange:
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
    with the forward collective done again beside it (Q5). `again_exposed_by_layer`: what a table of single layers shows
    as exposed of the repeated collective [s], which is not what a block is charged (Q4).
    """

    fw: Floats
    agrad: Floats
    wgrad: Floats
    wgrad_again: Floats
    fw_exchange: Exchange
    agrad_exchange: Exchange
    again_exchange: Exchange
    again_exposed_by_layer: Floats
    fw_overlap_req: Floats
    tp_bw_overlap_req: Floats


class Communication:
    """Tensor-parallel collectives at communication keys: who communicates, over which tier, split or not."""

    def __init__(self, shapes: Shapes, rates: Rates, keys: BlockKeys, shape_of: npt.NDArray[np.intp]) -> None:
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
        """The layer at `row` of the recipe, which must be of a communicating kind."""
        spec = self.shapes.specs[row]
        return self._overlapped(row, spec) if spec.kind == "overlapped" else self._standalone(row, spec)

    def _at(self, name: str, row: int) -> Floats:
        result: Floats = getattr(self.shapes, name)[row][self.shape_of]
        return result

    def _collective(self, split: Bools, reduces: bool, payload: Floats) -> tuple[Floats, Floats]:
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

    def _exchange(self, reduces: bool, payload: Floats, work: Floats) -> Exchange:
        """A collective with `work` [s] of additions added to it, all exposed."""
        (base_size, base), (edge_size, edge) = (self._collective(split, reduces, payload) for split in self.splits)
        base = np.where(self.communicates, base + work, 0.0)
        edge = np.where(self.communicates, edge + work, 0.0)
        return Exchange(base_size, edge_size, base, edge, base, edge)

    def _standalone(self, row: int, spec: LayerSpec) -> CommunicatingLayer:
        """Communication as a layer of its own: all of it is exposed, its additions included (Q12)."""
        payload = self.shapes.quantities.output_payload[row][self.shape_of]
        forward_reduces = not spec.gathers
        fw = self._exchange(forward_reduces, payload, self._at("fw_time", row))
        agrad = self._exchange(spec.gathers, payload, self._at("agrad_time", row))
        again = self._exchange(forward_reduces, payload, self.zero)
        return CommunicatingLayer(self.zero, self.zero, self.zero, self.zero, fw, agrad, again, again.base_exposed, self.zero, self.zero)

    def _overlapped(self, row: int, spec: LayerSpec) -> CommunicatingLayer:
        """A GEMM in as many tiles as the group has members, each beside one tile of the collective."""
        q, b = self.shapes.quantities, float(self.shapes.element_bytes)
        inputs, outputs = q.input_payload[row][self.shape_of], q.output_payload[row][self.shape_of]
        forward_reduces = not spec.gathers
        payload = outputs if forward_reduces else inputs
        additions = self.rates.vector.seconds(payload / b * (self.members - 1.0) / self.members)
        fw = self._exchange(forward_reduces, payload, additions if forward_reduces else self.zero)
        agrad = self._exchange(spec.gathers, payload, additions if spec.gathers else self.zero)
        again = self._exchange(forward_reduces, payload, self.zero)
        fw_time, fw_exposed = self._hide(fw.base_time, "fw", row)
        agrad_time, agrad_exposed = self._hide(agrad.base_time, "agrad", row)
        wgrad_again, again_exposed = self._hide(again.base_time, "wgrad", row)
        fw_required = self._required(fw, "fw", row)
        required = np.maximum(fw_required, self._required(agrad, "agrad", row))
        # The edge block is charged the base block's exposed time, and the repeated collective the forward's (Q4).
        fw.base_exposed = fw.edge_exposed = again.base_exposed = again.edge_exposed = fw_exposed
        agrad.base_exposed = agrad.edge_exposed = agrad_exposed
        wgrad = self._at("wgrad_time", row)
        return CommunicatingLayer(fw_time, agrad_time, wgrad, wgrad_again, fw, agrad, again, again_exposed, fw_required, required)

    def _required(self, exchange: Exchange, stage: str, row: int) -> Floats:
        """Bandwidth that a tile of the collective needs to hide behind a tile of slowed-down compute [bytes/s]."""
        tile = self._at(f"{stage}_flops_time", row) / (1.0 - self.busy) / self.members
        return np.maximum(exchange.base_size / self.members / tile, exchange.edge_size / self.members / tile)

    def _hide(self, network: Floats, stage: str, row: int) -> tuple[Floats, Floats]:
        """(processing time [s], exposed network time [s]) of a stage whose tiles overlap `network` [s]."""
        t, busy = self.members, self.busy
        compute, memory = self._at(f"{stage}_flops_time", row), self._at(f"{stage}_mem_time", row)
        alone = self._at(f"{stage}_time", row)
        slowed_compute = compute / (1.0 - busy)
        slowed = self.rates.processing(slowed_compute, memory)
        uncovered = network / t - slowed_compute / t
        bound = uncovered > 0
        time = np.where(
            bound,
            alone / t + (t - 1.0) * (slowed / t),
            alone / t + (t - 1.0) * (alone / t) + (t - 1.0) * (network / t) * busy,
        )
        exposed = np.where(bound, (t - 1.0) * uncovered, 0.0)
        # Pipelined tiles leave one tile uncovered, counted both as processing and as exposed (Q3).
        exposed = np.where(self.pipe, exposed + network / t, exposed)
        time = np.where(self.pipe, time + network / t, time)
        silent = network == 0.0
        return np.where(silent, alone, time), np.where(silent, 0.0, exposed)


def block_table(model: Model, rates: Rates, keys: BlockKeys, element_bytes: int) -> BlockTable:
    """Figures of one block and one microbatch for every key [keys].

    All keys must be well formed: tensor parallel divides the model's sizes, overlap only with tensor parallel > 1.
    """
    table = BlockTable(*(np.zeros(len(keys.tensor_par)) for _ in fields(BlockTable)))
    overlapped = keys.tensor_par_overlap != NO_OVERLAP
    group = keys.attention_type * 2 + overlapped
    for value in np.unique(group).tolist():
        rows = np.flatnonzero(group == value)
        part = _recipe_table(model, rates, take(keys, rows), element_bytes, overlapped=bool(value % 2))
        for field in fields(BlockTable):
            getattr(table, field.name)[rows] = part[field.name]
    return table


def _recipe_table(model: Model, rates: Rates, keys: BlockKeys, element_bytes: int, overlapped: bool) -> dict[str, Floats]:
    """`block_table` for keys that share a recipe: shapes, then communication, then recomputation."""
    communication_first, communication_of = distinct(
        keys.tensor_par, keys.tensor_par_net, keys.microbatch_size, keys.fused_activation,
        keys.tensor_par_comm_type, keys.tensor_par_overlap,
    )  # fmt: skip
    links = take(keys, communication_first)
    shape_first, shape_of = distinct(
        links.tensor_par, links.microbatch_size, links.fused_activation, links.tensor_par_comm_type == RS_AG
    )
    shapes = shape_layers(model, rates, take(links, shape_first), element_bytes, overlapped)
    key_shape = shape_of[communication_of]

    result: dict[str, Floats] = {}
    prefixes: dict[str, Floats] = {}
    q = shapes.quantities
    for name, layers in {
        "fw_flops": q.fw_flops, "fw_flops_time": shapes.fw_flops_time,
        "fw_mem_accessed": q.fw_bytes, "fw_mem_time": shapes.fw_mem_time,
    }.items():  # fmt: skip
        prefixes[name] = np.cumsum(layers, axis=0)
        result[name] = prefixes[name][-1][key_shape]
    for name, layers in {
        "agrad_flops": q.agrad_flops, "agrad_flops_time": shapes.agrad_flops_time,
        "agrad_mem_accessed": q.agrad_bytes, "agrad_mem_time": shapes.agrad_mem_time,
        "wgrad_flops": q.wgrad_flops, "wgrad_flops_time": shapes.wgrad_flops_time,
        "wgrad_mem_accessed": q.wgrad_bytes, "wgrad_mem_time": shapes.wgrad_mem_time,
        "act_grads": q.act_grad_bytes,
    }.items():  # fmt: skip
        result[name] = _ordered_sum(layers)[key_shape] * keys.training
    result["weights"] = _ordered_sum(q.weight_bytes)[key_shape]
    result["weight_grads_unsharded"] = _ordered_sum(4.0 * q.weights)[key_shape] * keys.training
    result |= _storage(model, shapes, keys, key_shape)
    result |= _recomputed_prefixes(shapes, keys, key_shape, prefixes)
    result |= _communicated(shapes, rates, links, shape_of, keys, communication_of)
    return result


def _ordered_sum(layers: Floats) -> Floats:
    """Sum over the layers [layers, keys] -> [keys], strictly in order."""
    total: Floats = np.cumsum(layers, axis=0)[-1]
    return total


def _storage(model: Model, shapes: Shapes, keys: BlockKeys, key_shape: npt.NDArray[np.intp]) -> dict[str, Floats]:
    """Activations that a block works on, keeps and checkpoints, and what it sends down the pipeline [bytes]."""
    q = shapes.quantities
    first, state_of = distinct(key_shape, keys.activation_recompute, keys.seq_par_ag_redo, keys.training)
    rows = key_shape[first]
    flags = recompute_flags(keys.activation_recompute[first], keys.seq_par_ag_redo[first])
    training = keys.training[first]
    working = np.zeros(len(rows))
    storage = np.zeros(len(rows))
    for row, spec in enumerate(shapes.specs):
        act = q.act_bytes[row][rows]
        if not spec.reused:
            working = working + act
        storage = storage + act
        if spec.output_stored != "always":
            storage = np.where(training & ~flags[spec.output_stored], storage - q.output_bytes[row][rows], storage)
        if spec.stored != "always":
            storage = np.where(training & ~flags[spec.stored], storage - act, storage)
    full = flags["full"]
    storage = np.where(full, 0.0, storage)
    # A checkpoint is the whole activation, also where sequence parallelism holds only a part of it (Q15).
    b = float(shapes.element_bytes)
    tokens = keys.microbatch_size.astype(np.float64) * model.seq_size
    activation = tokens * model.hidden
    part = np.floor(tokens / keys.tensor_par) * model.hidden
    return {
        "act_working": working[state_of],
        "act_storage": storage[state_of],
        "act_checkpoint": np.where((keys.activation_recompute == FULL) & keys.training, activation * b, 0.0),
        "pipeline_payload": np.where(keys.tensor_par_comm_type != ALL_REDUCE, part, activation) * b,
    }


def _recomputed_prefixes(
    shapes: Shapes, keys: BlockKeys, key_shape: npt.NDArray[np.intp], prefixes: dict[str, Floats]
) -> dict[str, Floats]:
    """Work done again in the backward pass: each recomputed layer adds the block's running totals (Q1)."""
    first, state_of = distinct(key_shape, keys.activation_recompute, keys.seq_par_ag_redo, keys.training)
    rows = key_shape[first]
    flags = recompute_flags(keys.activation_recompute[first], keys.seq_par_ag_redo[first])
    result: dict[str, Floats] = {}
    for name, prefix in prefixes.items():
        total = np.zeros(len(rows))
        for row, spec in enumerate(shapes.specs):
            if spec.recomputed != "never":
                total = total + np.where(flags[spec.recomputed], prefix[row][rows], 0.0)
        result[name.replace("fw_", "re_")] = (total * keys.training[first])[state_of]
    return result


def _communicated(
    shapes: Shapes,
    rates: Rates,
    links: BlockKeys,
    shape_of: npt.NDArray[np.intp],
    keys: BlockKeys,
    communication_of: npt.NDArray[np.intp],
) -> dict[str, Floats]:
    """Stage times and collectives: sums over the layers at communication keys, then at the keys themselves."""
    communication = Communication(shapes, rates, links, shape_of)
    flags = recompute_flags(keys.activation_recompute, keys.seq_par_ag_redo)
    training = keys.training
    n, m = len(communication.members), len(keys.tensor_par)
    parts = ("size", "time", "exposed")
    ends = ("base", "edge")
    linked = {f"{end}_{stage}_{part}": np.zeros(n) for end in ends for stage in ("fw_tp", "bw_tp") for part in parts}
    linked |= {"fw_time": np.zeros(n), "agrad_time": np.zeros(n), "tp_bw_overlap_req": np.zeros(n), "fw_req": np.zeros(n)}
    own = {f"{end}_recomm_{part}": np.zeros(m) for end in ends for part in parts}
    own |= {"re_time": np.zeros(m), "wgrad_time": np.zeros(m)}
    for row, spec in enumerate(shapes.specs):
        if spec.kind in ("comm", "overlapped"):
            layer = communication.layer(row)
            fw, agrad = layer.fw, layer.agrad
            again = flags[spec.recommunicated]
            for end in ends:
                for part in parts:
                    name = f"{end}_{part}"
                    linked[f"{end}_fw_tp_{part}"] += getattr(layer.fw_exchange, name)
                    linked[f"{end}_bw_tp_{part}"] += getattr(layer.agrad_exchange, name)
                    repeated = getattr(layer.again_exchange, name)[communication_of]
                    own[f"{end}_recomm_{part}"] += np.where(again, repeated, 0.0)
            linked["fw_req"] = np.maximum(linked["fw_req"], layer.fw_overlap_req)
            linked["tp_bw_overlap_req"] = np.maximum(linked["tp_bw_overlap_req"], layer.tp_bw_overlap_req)
            wgrad = np.where(again, layer.wgrad_again[communication_of], layer.wgrad[communication_of])
        else:
            fw, agrad = shapes.fw_time[row][shape_of], shapes.agrad_time[row][shape_of]
            wgrad = shapes.wgrad_time[row][shape_of][communication_of]
        linked["fw_time"] += fw
        linked["agrad_time"] += agrad
        own["wgrad_time"] += wgrad
        if spec.recomputed != "never":
            own["re_time"] += np.where(flags[spec.recomputed], fw[communication_of], 0.0)
    result = {name: values[communication_of] for name, values in linked.items()}
    for name in result:
        if name == "agrad_time" or "_bw_tp_" in name:
            result[name] = result[name] * training
    result["tp_bw_overlap_req"] = np.where(training, result["tp_bw_overlap_req"], result.pop("fw_req"))
    return result | {name: values * training for name, values in own.items()}


@dataclass(slots=True)
class OptimizerTable:
    """The optimizer's step on one block, each an array [keys]: operations, bytes, seconds, and what is kept."""

    flops: Floats
    flops_time: Floats
    mem_accessed: Floats
    mem_time: Floats
    time: Floats
    weight_grads: Floats
    state: Floats


def optimizer_table(
    model: Model,
    rates: Rates,
    *,
    tensor_par: Ints,
    attention_type: Ints,
    overlapped: Bools,
    sharding: Ints,
    training: Bools,
    element_bytes: int,
) -> OptimizerTable:
    """The optimizer on one block for every key [keys]; `sharding` is over how many processors its state is spread.

    Independent of the microbatch; it depends on the overlap because that decides which weights form one layer (Q22).
    """
    table = OptimizerTable(*(np.zeros(len(tensor_par)) for _ in fields(OptimizerTable)))
    group = attention_type * 2 + overlapped
    for value in np.unique(group).tolist():
        rows = np.flatnonzero(group == value)
        attention = by_name("attention_type").choices[value // 2]
        specs = recipe(attention, bool(value % 2))
        one = np.ones(len(rows), np.int64)
        z = sizes(
            model,
            tensor_par=tensor_par[rows].astype(np.float64),
            microbatch_size=one.astype(np.float64),
            sequence_parallel=np.zeros(len(rows), bool),
            fused_activation=np.ones(len(rows), bool),
            element_bytes=element_bytes,
        )
        q = quantities(specs, z)
        shard = sharding[rows].astype(np.float64)
        flops = q.weights / shard * 11.0
        moved = q.optim_bytes / shard
        compute, memory = rates.vector.seconds(flops), rates.memory.seconds(moved)
        columns = {
            "flops": flops, "flops_time": compute, "mem_accessed": moved, "mem_time": memory,
            "time": rates.processing(compute, memory), "weight_grads": q.weight_bytes / shard, "state": moved,
        }  # fmt: skip
        for name, layers in columns.items():
            getattr(table, name)[rows] = _ordered_sum(layers) * training[rows]
    return table
