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
from engine.block_keys import ALL_REDUCE, FULL, NO_OVERLAP, NONE, RS_AG, BlockKeys, distinct
from engine.columns import by_name
from engine.layers import quantities, recipe, sizes
from engine.rates import Rates
from engine.tensor_parallel import Communication, Shapes, shape_layers
from models import Model

__all__ = ["BlockTable", "OptimizerTable", "block_table", "optimizer_table", "recompute_flags"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


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


def _recipe_table(
    model: Model, rates: Rates, keys: BlockKeys, element_bytes: int, overlapped: bool
) -> dict[str, Floats]:
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
    linked |= {
        "fw_time": np.zeros(n),
        "agrad_time": np.zeros(n),
        "tp_bw_overlap_req": np.zeros(n),
        "fw_req": np.zeros(n),
    }
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
