"""Every strategy vector as a plan of a whole model: layers of one kind all take the same one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from engine.planners.intra_operator.layer_costs import FIRST, LayerCosts, Widths, layer_costs
from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.mesh import COLLECTIVES, Mesh
from engine.planners.intra_operator.names import vector_name

__all__ = ["costs_of", "uniform_vectors"]


def costs_of(layers: Sequence[LayerGraph], mesh: Mesh, widths: Widths) -> dict[str, LayerCosts]:
    """Returns the costs of every different layer by its name, in the order of the model.

    Args:
        layers: from the first.
        mesh: that shares them.
        widths: of elements and parameters.
    """
    return {name: layer_costs(graph, mesh.devices, widths) for name, graph in {x.name: x for x in layers}.items()}


def uniform_vectors(layers: Sequence[LayerGraph], mesh: Mesh, widths: Widths) -> pd.DataFrame:
    """Returns the cost of a step for every strategy vector.

    Where a model has layers of two kinds, a vector is that of the first kind followed by that of the second.

    Args:
        layers: from the first.
        mesh: that shares them.
        widths: of elements and parameters.

    Returns:
        One row per vector: vector, solution (its name), seconds, compute_seconds, communication_seconds, by collective
        the volume [bytes] and the seconds, volume [bytes], memory of a device [bytes], reason (why it cannot be).
    """
    kinds = costs_of(layers, mesh, widths)
    grids = np.meshgrid(*(np.arange(len(each.vectors)) for each in kinds.values()), indexing="ij")
    at = {name: grid.ravel() for name, grid in zip(kinds, grids, strict=True)}
    order = [each.name for each in layers]
    start = kinds[order[0]]
    volumes = start.volumes[FIRST][at[order[0]]]
    counts = start.counts[FIRST][at[order[0]]]
    times: dict[tuple[str, str], int] = {}
    for pair in pairwise(order):
        times[pair] = times.get(pair, 0) + 1
    for (before, name), number in times.items():
        state = kinds[before].gives[at[before]]
        volumes = volumes + number * kinds[name].volumes[state, at[name]]
        counts = counts + number * kinds[name].counts[state, at[name]]
    memory = np.sum([order.count(name) * each.memory[at[name]] for name, each in kinds.items()], axis=0)
    flop = start.first_flop + sum(kinds[name].flop for name in order[1:])
    compute = flop / (mesh.devices * mesh.matrix_rate)
    seconds = mesh.seconds(volumes, counts)
    vectors = [
        tuple(int(one) for name, each in kinds.items() for one in each.vectors[at[name][row]])
        for row in range(len(volumes))
    ]
    reasons = [
        next((why for name, each in kinds.items() if (why := each.reasons[at[name][row]])), "")
        for row in range(len(volumes))
    ]
    found = {
        "vector": vectors,
        "solution": [vector_name(vector, list(kinds)) for vector in vectors],
        "seconds": compute + seconds.sum(axis=1),
        "compute_seconds": np.full(len(vectors), compute),
        "communication_seconds": seconds.sum(axis=1),
        **{name: volumes[:, number] for number, name in enumerate(COLLECTIVES)},
        **{f"{name}_seconds": seconds[:, number] for number, name in enumerate(COLLECTIVES)},
        "volume": volumes.sum(axis=1),
        "memory": memory,
        "reason": reasons,
    }
    return pd.DataFrame(found)
