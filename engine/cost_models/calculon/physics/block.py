"""One block of the model, one microbatch: operations, bytes and seconds, for every distinct block key.

A space of millions of executions has a few thousand distinct block keys, because a block's figures depend on few
fields. `block_table` evaluates each key once, layer by layer; executions then gather from the result.

The computation goes in three steps, each on as few keys as it depends on:

1. *shapes*: (tensor parallel, microbatch, sequence parallel, overlapped, attention, fused): layers and their times;
2. *communication*: shapes x (network tier, communication type, ring or pipe): exposed and linked collectives;
3. *recomputation*: communication x (recompute, redo): recomputed layers and stored activations.

Source: Calculon 0.1.0 (commit caa4b11), `llm.py` `_compute_block_stats`, `layers.py`. Sums run over the layers in
order, left to right, so that results are bit-equal to the reference.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from engine.cost_models.calculon.physics.block_keys import BlockKeys
from engine.cost_models.calculon.physics.layers import LayerSpec, Quantities
from engine.cost_models.calculon.physics.rates import SystemRates
from engine.cost_models.calculon.physics.tensor_parallel import Shapes, TensorCollectives, shaped, timed
from engine.executions.arrays import Flags, Floats, Ints, distinct, take
from engine.executions.codes import ALL_REDUCE, FULL, NO_OVERLAP, NONE, RS_AG
from models import Model

__all__ = ["BlockTable", "BlockWork", "block_table", "block_times", "block_work", "ordered_sum", "recompute_flags"]


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


def recompute_flags(recompute: Ints, redo: Flags) -> dict[str, Flags]:
    """Returns what each recomputation choice does, by the words that layers use for it; arrays [keys].

    Attention-only recomputation redoes the attention's gather too, and dropping its input makes the fork's activation
    disappear from storage even where nothing regathers it.

    Args:
        recompute: kind of recomputation, a position in its choices [keys].
        redo: whether sequence parallelism gathers again in the backward pass [keys].
    """
    full = recompute == FULL
    attention = recompute != NONE
    flags = {"never": np.zeros_like(full), "always": np.ones_like(full), "full": full, "attention": attention}
    flags |= {"redo_attention": attention | redo, "redo_mlp": full | redo}
    return flags | {f"not_{name}": ~flags[name] for name in ("attention", "redo_attention", "redo_mlp")}


def block_table(model: Model, rates: SystemRates, keys: BlockKeys, element_bytes: int) -> BlockTable:
    """Returns the figures of one block and one microbatch for every key [keys].

    All keys must be well formed: tensor parallel divides the model's sizes, overlap only with tensor parallel > 1.

    Args:
        model: whose blocks they are.
        rates: of the system.
        keys: fields that the figures depend on.
        element_bytes: size of an element of the datatype [bytes].
    """
    return block_times(block_work(model, keys, element_bytes), rates)


@dataclass(slots=True)
class RecipeWork:
    """The part of `BlockWork` whose keys, at `rows`, share a recipe.

    `links` are the distinct communication keys and `communication_of` [keys] says which one a key has; `shape_of`
    [links] and `key_shape` [keys] say which shape. `figures` are the columns of `BlockTable` that no rate changes.
    """

    rows: npt.NDArray[np.intp]
    keys: BlockKeys
    links: BlockKeys
    communication_of: npt.NDArray[np.intp]
    shape_of: npt.NDArray[np.intp]
    key_shape: npt.NDArray[np.intp]
    specs: tuple[LayerSpec, ...]
    quantities: Quantities
    figures: dict[str, Floats]


@dataclass(slots=True)
class BlockWork:
    """Operations, traffic and memory of the blocks of some keys, without times: the same work serves all systems with a
    datatype of the same width."""

    count: int
    element_bytes: int
    recipes: list[RecipeWork]


def block_work(model: Model, keys: BlockKeys, element_bytes: int) -> BlockWork:
    """Returns the work of one block and one microbatch for every key [keys]; see `block_table` about the keys.

    Args:
        model: whose blocks they are.
        keys: fields that the figures depend on.
        element_bytes: size of an element of the datatype [bytes].
    """
    overlapped = keys.tensor_par_overlap != NO_OVERLAP
    group = keys.attention_type * 2 + overlapped
    recipes = []
    for value in np.unique(group).tolist():
        rows = np.flatnonzero(group == value)
        recipes.append(_recipe_work(model, rows, take(keys, rows), element_bytes, overlapped=bool(value % 2)))
    return BlockWork(len(keys.tensor_par), element_bytes, recipes)


def block_times(work: BlockWork, rates: SystemRates) -> BlockTable:
    """Returns the figures of all keys on a system.

    Args:
        work: operations and bytes of the blocks.
        rates: rates of the system.
    """
    names = [field.name for field in fields(BlockTable)]
    # As one array: to put rows in their places column by column takes twice as long.
    table = np.zeros((len(names), work.count))
    for part in work.recipes:
        figures = part.figures | _recipe_times(part, work.element_bytes, rates)
        table[:, part.rows] = np.array([figures[name] for name in names])
    return BlockTable(*table)


def _recipe_work(
    model: Model, rows: npt.NDArray[np.intp], keys: BlockKeys, element_bytes: int, overlapped: bool
) -> RecipeWork:
    communication_first, communication_of = distinct(
        keys.tensor_par,
        keys.tensor_par_net,
        keys.microbatch_size,
        keys.fused_activation,
        keys.tensor_par_comm_type,
        keys.tensor_par_overlap,
    )
    links = take(keys, communication_first)
    shape_first, shape_of = distinct(
        links.tensor_par, links.microbatch_size, links.fused_activation, links.tensor_par_comm_type == RS_AG
    )
    specs, q = shaped(model, take(links, shape_first), element_bytes, overlapped)
    key_shape = shape_of[communication_of]
    # Running totals, since recomputation adds them as they stand at each layer (`_recompute_totals`).
    running = {"fw_flops": np.cumsum(q.fw_flops, axis=0), "fw_mem_accessed": np.cumsum(q.fw_bytes, axis=0)}
    figures = {name: total[-1][key_shape] for name, total in running.items()}
    for name, layers in {
        "agrad_flops": q.agrad_flops,
        "agrad_mem_accessed": q.agrad_bytes,
        "wgrad_flops": q.wgrad_flops,
        "wgrad_mem_accessed": q.wgrad_bytes,
        "act_grads": q.act_grad_bytes,
    }.items():
        figures[name] = ordered_sum(layers)[key_shape] * keys.training
    figures["weights"] = ordered_sum(q.weight_bytes)[key_shape]
    # layers.py get_weight_grad: 4 bytes per weight, accumulated in 32 bits before any sharding.
    figures["weight_grads_unsharded"] = ordered_sum(4.0 * q.weights)[key_shape] * keys.training
    figures |= _activation_storage(model, specs, q, element_bytes, keys, key_shape)
    figures |= _recompute_totals(specs, keys, key_shape, running)
    return RecipeWork(rows, keys, links, communication_of, shape_of, key_shape, specs, q, figures)


def _recipe_times(work: RecipeWork, element_bytes: int, rates: SystemRates) -> dict[str, Floats]:
    """The columns of `BlockTable` that depend on rates: shapes, then communication, then recomputation."""
    shapes = timed(work.specs, work.quantities, element_bytes, rates)
    keys, key_shape = work.keys, work.key_shape
    running = {
        "fw_flops_time": np.cumsum(shapes.fw_flops_time, axis=0),
        "fw_mem_time": np.cumsum(shapes.fw_mem_time, axis=0),
    }
    result = {name: total[-1][key_shape] for name, total in running.items()}
    for name, layers in {
        "agrad_flops_time": shapes.agrad_flops_time,
        "agrad_mem_time": shapes.agrad_mem_time,
        "wgrad_flops_time": shapes.wgrad_flops_time,
        "wgrad_mem_time": shapes.wgrad_mem_time,
    }.items():
        result[name] = ordered_sum(layers)[key_shape] * keys.training
    result |= _recompute_totals(work.specs, keys, key_shape, running)
    return result | _communication_times(shapes, rates, work.links, work.shape_of, keys, work.communication_of)


def ordered_sum(layers: Floats) -> Floats:
    """Returns the sum over the layers [layers, keys] -> [keys], strictly in order.

    Args:
        layers: one row per layer, in the order of the recipe.
    """
    total: Floats = np.cumsum(layers, axis=0)[-1]
    return total


def _activation_storage(
    model: Model,
    specs: tuple[LayerSpec, ...],
    q: Quantities,
    element_bytes: int,
    keys: BlockKeys,
    key_shape: npt.NDArray[np.intp],
) -> dict[str, Floats]:
    """Return the working, stored and checkpointed activations of a block, and the bytes sent to the next stage
    [bytes]."""
    first, state_of = distinct(key_shape, keys.activation_recompute, keys.seq_par_ag_redo, keys.training)
    rows = key_shape[first]
    flags = recompute_flags(keys.activation_recompute[first], keys.seq_par_ag_redo[first])
    training = keys.training[first]
    working = np.zeros(len(rows))
    storage = np.zeros(len(rows))
    for row, spec in enumerate(specs):
        act = q.act_bytes[row][rows]
        # A layer that reuses the activation that its predecessor stored adds no working memory.
        if not spec.reused:
            working = working + act
        storage = storage + act
        if spec.output_stored != "always":
            storage = np.where(training & ~flags[spec.output_stored], storage - q.output_bytes[row][rows], storage)
        if spec.stored != "always":
            storage = np.where(training & ~flags[spec.stored], storage - act, storage)
    full = flags["full"]
    # Full recomputation stores the block's input alone, which is the checkpoint below.
    storage = np.where(full, 0.0, storage)
    # A checkpoint is the whole activation, also where sequence parallelism holds only a part of it.
    b = float(element_bytes)
    tokens = keys.microbatch_size.astype(np.float64) * model.seq_size
    activation = tokens * model.hidden
    part = np.floor(tokens / keys.tensor_par) * model.hidden
    return {
        "act_working": working[state_of],
        "act_storage": storage[state_of],
        "act_checkpoint": np.where((keys.activation_recompute == FULL) & keys.training, activation * b, 0.0),
        # With reduce-scatter each rank sends its 1/t of the activation to the next stage.
        "pipeline_payload": np.where(keys.tensor_par_comm_type != ALL_REDUCE, part, activation) * b,
    }


def _recompute_totals(
    specs: tuple[LayerSpec, ...], keys: BlockKeys, key_shape: npt.NDArray[np.intp], running: dict[str, Floats]
) -> dict[str, Floats]:
    """Return the recomputation of the backward pass, from the block's running totals, each [layers, shapes].

    As in the reference each recomputed layer adds the running totals rather than its own; the window behind which
    gradients are exchanged shrinks by them, and can become negative.
    """
    first, state_of = distinct(key_shape, keys.activation_recompute, keys.seq_par_ag_redo, keys.training)
    rows = key_shape[first]
    flags = recompute_flags(keys.activation_recompute[first], keys.seq_par_ag_redo[first])
    result: dict[str, Floats] = {}
    for name, prefix in running.items():
        total = np.zeros(len(rows))
        for row, spec in enumerate(specs):
            if spec.recomputed != "never":
                total = total + np.where(flags[spec.recomputed], prefix[row][rows], 0.0)
        result[name.replace("fw_", "re_")] = (total * keys.training[first])[state_of]
    return result


def _communication_times(
    shapes: Shapes,
    rates: SystemRates,
    links: BlockKeys,
    shape_of: npt.NDArray[np.intp],
    keys: BlockKeys,
    communication_of: npt.NDArray[np.intp],
) -> dict[str, Floats]:
    """Stage times and collectives: sums over the layers at communication keys, then at the keys themselves."""
    communication = TensorCollectives(shapes, rates, links, shape_of)
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
            # The forward collective runs again in the backward pass where its result was not stored.
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
    # Inference needs the bandwidth of the forward pass only.
    result["tp_bw_overlap_req"] = np.where(training, result["tp_bw_overlap_req"], result.pop("fw_req"))
    return result | {name: values * training for name, values in own.items()}
