"""The optimizer's step on one block, for every distinct key.

Source: Calculon 0.1.0 (commit caa4b11), `llm.py` `_compute_block_stats`, `layers.py`. Sums run over the layers in
order, left to right, so that results are bit-equal to the reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.columns import by_name
from engine.cost_models.calculon.physics.block import ordered_sum
from engine.cost_models.calculon.physics.layers import quantities, recipe, sizes
from engine.cost_models.calculon.physics.rates import SystemRates
from engine.executions.arrays import Flags, Floats, Ints
from models import Model

__all__ = ["OptimizerTable", "OptimizerWork", "optimizer_table", "optimizer_times", "optimizer_work"]


@dataclass(slots=True)
class OptimizerTable:
    """Optimizer step on one block, each an array [keys]: operations, bytes, seconds, and the memory of its state."""

    flops: Floats
    flops_time: Floats
    mem_accessed: Floats
    mem_time: Floats
    time: Floats
    weight_grads: Floats
    state: Floats


@dataclass(slots=True)
class OptimizerWork:
    """Optimizer work on one block for some keys, by layer; `parts` are (rows, operations [layers, rows], bytes [layers,
    rows]) of the keys that share a recipe. `weight_grads` and `state` as in `OptimizerTable`."""

    training: Flags
    parts: list[tuple[npt.NDArray[np.intp], Floats, Floats]]
    flops: Floats
    moved: Floats
    weight_grads: Floats


def optimizer_table(
    model: Model,
    rates: SystemRates,
    *,
    tensor_par: Ints,
    attention_type: Ints,
    overlapped: Flags,
    sharding: Ints,
    training: Flags,
    element_bytes: int,
) -> OptimizerTable:
    """Returns the optimizer on one block for every key [keys].

    Independent of the microbatch; it depends on the overlap because that decides which weights form one layer.

    Args:
        model: whose blocks they are.
        rates: of the system.
        tensor_par: processors of a tensor-parallel group [keys].
        attention_type: position of the kind of attention in its choices [keys].
        overlapped: whether tensor-parallel communication is overlapped with its GEMM [keys].
        sharding: processors over which the state is spread [keys].
        training: whether there is an optimizer at all [keys].
        element_bytes: size of an element of the datatype [bytes].
    """
    work = optimizer_work(
        model,
        tensor_par=tensor_par,
        attention_type=attention_type,
        overlapped=overlapped,
        sharding=sharding,
        training=training,
        element_bytes=element_bytes,
    )
    return optimizer_times(work, rates)


def optimizer_work(
    model: Model,
    *,
    tensor_par: Ints,
    attention_type: Ints,
    overlapped: Flags,
    sharding: Ints,
    training: Flags,
    element_bytes: int,
) -> OptimizerWork:
    """Return the optimizer work on one block for every key [keys], without times.

    Args:
        model: the model.
        tensor_par: processors of a tensor-parallel group [keys].
        attention_type: position of the kind of attention in its choices [keys].
        overlapped: whether tensor-parallel communication is overlapped with its GEMM [keys].
        sharding: processors over which the state is spread [keys].
        training: True with an optimizer step [keys].
        element_bytes: size of an element of the datatype [bytes].
    """
    keys = len(tensor_par)
    work = OptimizerWork(training, [], *(np.zeros(keys) for _ in range(3)))
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
        # layers.py get_optim_step_flops: Adam, 11 FLOP per weight that the rank updates.
        flops = q.weights / shard * 11.0
        # layers.py get_optim_step_mem_accessed: the state once; weights and gradients are not counted.
        moved = q.optim_bytes / shard
        work.parts.append((rows, flops, moved))
        for column, layers in ((work.flops, flops), (work.moved, moved), (work.weight_grads, q.weight_bytes / shard)):
            column[rows] = ordered_sum(layers) * training[rows]
    return work


def optimizer_times(work: OptimizerWork, rates: SystemRates) -> OptimizerTable:
    """Return the optimizer's figures on a system.

    Args:
        work: operations and bytes of the optimizer.
        rates: rates of the system.
    """
    times = tuple(np.zeros(len(work.training)) for _ in range(3))
    for rows, flops, moved in work.parts:
        # The optimizer runs on the vector engine, layer by layer.
        compute, memory = rates.vector.seconds(flops), rates.memory.seconds(moved)
        for column, layers in zip(times, (compute, memory, rates.processing(compute, memory)), strict=True):
            column[rows] = ordered_sum(layers) * work.training[rows]
    flops_time, mem_time, time = times
    return OptimizerTable(
        flops=work.flops,
        flops_time=flops_time,
        mem_accessed=work.moved,
        mem_time=mem_time,
        time=time,
        weight_grads=work.weight_grads,
        state=work.moved,
    )
