"""Every strategy vector as a plan of a whole model: layers of one kind all take the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats, Ints
from engine.planners.intra_operator.layer_costs import FIRST, LISTED, LayerCosts, Widths, layer_costs
from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.mesh import COLLECTIVES, Mesh
from engine.planners.intra_operator.names import named_vectors, vector_names

__all__ = ["arithmetic_seconds", "collectives_of", "costs_of", "step_flop", "uniform_vectors"]

EVERY: Final = 3
"""Collectives that any plan can have; the last, reduce-scatter, only where something is split by it."""


def costs_of(layers: Sequence[LayerGraph], mesh: Mesh, widths: Widths) -> dict[str, LayerCosts]:
    """Returns the costs of every different layer by its name, in the order of the model.

    Args:
        layers: from the first.
        mesh: that shares them.
        widths: of elements and parameters.
    """
    return {name: layer_costs(graph, mesh, widths) for name, graph in {x.name: x for x in layers}.items()}


def collectives_of(values: Floats, widths: Widths) -> dict[str, Floats]:
    """Returns values of collectives by their names, of all mesh axes together, without collectives that the plan cannot
    have.

    Args:
        values: collectives of every mesh axis along the last axis.
        widths: for the sharding.
    """
    summed = values.reshape(*values.shape[:-1], -1, len(COLLECTIVES)).sum(axis=-2)
    names = COLLECTIVES if widths.sequence or widths.fsdp else COLLECTIVES[:EVERY]
    return {name: summed[..., number] for number, name in enumerate(names)}


def _combine_rows(kinds: Mapping[str, LayerCosts], order: Sequence[str], mesh: Mesh) -> dict[str, Ints]:
    """Returns the vectors of each kind of layer that are combined: all with all, or if too many the fastest and the
    smallest of each kind."""
    most = int(LISTED ** (1.0 / len(kinds)))
    whole = np.prod([float(len(each.choices)) for each in kinds.values()])
    taken = []
    for name, each in kinds.items():
        every = np.arange(len(each.choices))
        if whole > LISTED and len(every) > most:
            state = FIRST if name == order[0] else int(np.bincount(each.gives).argmax())
            seconds = np.where(each.possible, each.seconds(mesh)[state], np.inf)
            memory = np.where(each.possible, (each.memory + each.working)[state], np.inf)
            half = max(most // 2, 1)
            best = [np.argsort(by, kind="stable")[:half] for by in (seconds, memory)]
            spaces = [int(one.ids.max()) + 1 for one in each.options]
            words = [
                one if len(mesh.shape) > 1 else tuple(n for (n,) in one)
                for one in named_vectors(name, spaces, len(mesh.shape))
            ]
            there = {vector: at for at, vector in enumerate(each.vectors)}
            named = np.array([there[one] for one in words if one in there], np.int64)
            every = np.unique(np.concatenate([*best, named]))
        taken.append(every)
    grids = np.meshgrid(*taken, indexing="ij")
    return {name: grid.ravel() for name, grid in zip(kinds, grids, strict=True)}


def uniform_vectors(
    layers: Sequence[LayerGraph], mesh: Mesh, widths: Widths, kinds: Mapping[str, LayerCosts] | None = None
) -> pd.DataFrame:
    """Returns the cost of a step for every strategy vector.

    Where a model has layers of several kinds, a vector joins the vectors of all kinds in order. Of more than 20,000
    vectors, about 20,000 are listed: the named ones, the fastest and the smallest in memory.

    Args:
        layers: from the first.
        mesh: that shares them.
        widths: of elements and parameters.
        kinds: from `costs_of`; computed where None.

    Returns:
        One row per vector: vector, solution (its name), seconds, compute_seconds, communication_seconds, by collective
        the volume [bytes] and the seconds, volume [bytes], memory of a device [bytes], reason (why it is impossible).
    """
    kinds = costs_of(layers, mesh, widths) if kinds is None else kinds
    order = [each.name for each in layers]
    at = _combine_rows(kinds, order, mesh)
    start = kinds[order[0]]
    volumes, counts, kernels, memory, working = (
        getattr(start, name)[FIRST][at[order[0]]] for name in ("volumes", "counts", "kernels", "memory", "working")
    )
    times: dict[tuple[str, str], int] = {}
    for pair in pairwise(order):
        times[pair] = times.get(pair, 0) + 1
    # Costs of a layer depend on the state in which the layer before leaves its result.
    for (before, name), number in times.items():
        state = kinds[before].gives[at[before]]
        volumes = volumes + number * kinds[name].volumes[state, at[name]]
        counts = counts + number * kinds[name].counts[state, at[name]]
        kernels = kernels + number * kinds[name].kernels[state, at[name]]
        memory = memory + number * kinds[name].memory[state, at[name]]
        # Memory in use only while a layer is at work counts once.
        working = np.maximum(working, kinds[name].working[state, at[name]])
    compute = kernels if mesh.system is not None else np.full(len(volumes), arithmetic_seconds(kinds, order, mesh))
    seconds = mesh.seconds(volumes, counts)
    taken = {name: at[name].tolist() for name in kinds}
    parts = zip(*([each.vectors[row] for row in taken[name]] for name, each in kinds.items()), strict=True)
    whys = zip(*([each.reasons[row] for row in taken[name]] for name, each in kinds.items()), strict=True)
    found = {
        "vector": [sum(each, ()) for each in parts],
        "solution": vector_names({name: (each.vectors, taken[name]) for name, each in kinds.items()}, widths),
        "seconds": compute + seconds.sum(axis=1),
        "compute_seconds": compute,
        "communication_seconds": seconds.sum(axis=1),
        **collectives_of(volumes, widths),
        **{f"{name}_seconds": values for name, values in collectives_of(seconds, widths).items()},
        "volume": volumes.sum(axis=1),
        "memory": memory + working,
        "reason": [next(filter(None, each), "") for each in whys],
    }
    return pd.DataFrame(found)


def step_flop(kinds: Mapping[str, LayerCosts], order: Sequence[str]) -> float:
    """Returns the operations of a step that the model needs, without recomputation [FLOP].

    Args:
        kinds: from `costs_of`.
        order: names of the layers, from the first.
    """
    return kinds[order[0]].first_flop + sum(kinds[name].flop for name in order[1:])


def arithmetic_seconds(kinds: Mapping[str, LayerCosts], order: Sequence[str], mesh: Mesh) -> float:
    """Returns the seconds of a step's arithmetic operations at the mesh's matrix rate [s].

    Args:
        kinds: what `costs_of` returned.
        order: names of the layers, from the first.
        mesh: that shares them.
    """
    # All strategies compute the same, on all devices at once.
    flop = step_flop(kinds, order) + sum(kinds[name].again_flop for name in order)
    return flop / (mesh.devices * mesh.matrix_rate)
