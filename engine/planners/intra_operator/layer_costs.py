"""Costs of every strategy vector of a layer on a mesh: volume by collective, seconds, memory, and feasibility.

A contraction wants its input and gives its result in one of the states of `factors`; gradients go the same way back. A
forward conversion counts twice where a contraction with a weight uses it, for its result and for the gradient of its
weight; a conversion of a gradient counts once. Norms take the state of the tensor before them, and four small
all-reduces where that is split by its last dimension. The gradient of the first layer's input does not exist. Experts
are reached by conversions of all places.

A layer depends on the layers before it only through the state of the last one's result, so that its costs are one table
per state and one for the first layer. Within a layer every cost depends on one or two blocks: the tables of `factors`
are all there is, and the costs of millions of vectors are their sums.

Source: Alpa, cost of collectives in bytes of a ring; an all-to-all counts half an all-gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Final

import numpy as np

from engine.executions.arrays import Flags, Floats, Ints
from engine.planners.intra_operator.costs.accounting import accounted
from engine.planners.intra_operator.costs.factors import BEFORE, REPLICATED, Factor, all_states, state_number
from engine.planners.intra_operator.costs.options import BlockOptions, Widths, block_options
from engine.planners.intra_operator.costs.recomputation import done_again
from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.mesh import Mesh
from engine.planners.intra_operator.names import named_vectors
from engine.planners.intra_operator.parallel_blocks import layer_blocks

__all__ = [
    "FIRST",
    "LISTED",
    "STATES",
    "LayerCosts",
    "Vector",
    "Widths",
    "layer_costs",
    "undominated",
    "undominated_at_work",
    "working_caps",
]

Vector = tuple[int, ...] | tuple[tuple[int, ...], ...]
"""One strategy per block; on two mesh axes one for each axis."""
STATES: Final = 3
"""States between layers: whole, split by tokens, split by columns."""
FIRST: Final = -1
"""Position of the first layer in the tables by the state before."""
LISTED: Final = 20_000
"""Most vectors of a layer that are kept: the ones that can be best behind any layers, and the rest by time."""
MOST_CAPS: Final = 256
"""Number of limits on working memory under which the vectors of a layer are compared."""
ATTENTION: Final = ("qk", "av")


@dataclass(frozen=True)
class LayerCosts:
    """Vectors of a layer, and arrays along them.

    `volumes` [bytes] and `counts` have the axes state before the layer (and `FIRST`, the last), vector, collective of
    every mesh axis; `kernels` the seconds of a device [s] by state and vector, all 0 where there are no kernel rates;
    `gives` is the state behind it, `memory` the bytes that a device stores and `working` the additional bytes while the
    layer is at work, both by state and vector, `reasons` why a vector is impossible, empty if it is possible. `flop`
    are the operations of a step that the model needs, `first_flop` the part of its first layer, `again_flop` the
    recomputation in the backward pass. `total` is the number of all vectors, of which only some are listed if there are
    too many.
    """

    name: str
    choices: Ints
    options: tuple[BlockOptions, ...]
    gives: Ints
    volumes: Floats
    counts: Floats
    kernels: Floats
    memory: Floats
    working: Floats
    reasons: tuple[str, ...]
    flop: float
    first_flop: float
    again_flop: float
    total: int

    @cached_property
    def possible(self) -> Flags:
        """Returns which vectors can be."""
        return np.array([not each for each in self.reasons])

    @cached_property
    def vectors(self) -> tuple[Vector, ...]:
        """Returns the vectors, in the order of the arrays."""
        taken = zip(self.options, self.choices.T.tolist(), strict=True)
        return tuple(zip(*([each.words[one] for one in rows] for each, rows in taken), strict=True))

    def seconds(self, mesh: Mesh) -> Floats:
        """Returns the seconds of collectives and kernels [states and first, vectors] [s]; without the computation that
        the mesh's matrix rate gives where there are no kernel rates.

        Args:
            mesh: whose axes it was made for.
        """
        return np.asarray(mesh.seconds(self.volumes, self.counts).sum(axis=-1) + self.kernels)


def layer_costs(graph: LayerGraph, mesh: Mesh, widths: Widths) -> LayerCosts:
    """Returns the costs of every strategy vector of a layer.

    Args:
        graph: of the layer.
        mesh: that shares it.
        widths: bytes of elements and parameters, stored tensors and sharding.
    """
    blocks = layer_blocks(graph)
    options = tuple(block_options(block, mesh.shape, widths, graph.joined) for block in blocks)
    before, first = (accounted(graph, blocks, options, mesh, widths, first=at) for at in (False, True))
    sizes = [len(each.ids) for each in options]
    total = int(np.prod(sizes))
    if total <= LISTED:
        choices = np.array(list(product(*map(range, sizes))), np.int64)
    else:
        choices = _worth_keeping(graph, options, before, first, mesh)
    root = [each for each in graph.contractions if graph.reads.get(each.name) == ""]
    spared = sum(each.flop(graph.sizes) for each in root)
    behind = options_behind(graph, options)
    axes = len(mesh.shape)
    states, alone = np.arange(len(all_states(axes))), np.array([_replicated_state(axes)])
    volumes, counts, kernels, memory, working = (
        np.concatenate(
            [_gather_tables(before, name, choices, states, axes), _gather_tables(first, name, choices, alone, axes)]
        )
        for name in ("volumes", "counts", "seconds", "memory", "working")
    )
    again = done_again(mesh, widths)
    core = sum(each.flop(graph.sizes) for each in graph.contractions if each.name in ATTENTION)
    repeated = again.linear * (graph.flop - core) + again.attention * core
    return LayerCosts(
        graph.name,
        choices,
        options,
        behind[choices[:, _find_giver(graph, options)]],
        volumes,
        counts,
        kernels,
        memory,
        working,
        _explain_vectors(choices, options),
        # Forward once, backward twice; the gradient of the first layer's input does not exist (`spared`).
        widths.accumulation * 3.0 * graph.flop,
        widths.accumulation * (3.0 * graph.flop - spared),
        widths.accumulation * repeated,
        total,
    )


def options_behind(graph: LayerGraph, options: Sequence[BlockOptions]) -> Ints:
    """Returns the number of the state behind a layer for every option of the block that gives it.

    Args:
        graph: of the layer.
        options: of its blocks.
    """
    giver = options[_find_giver(graph, options)]
    return state_number(giver.behind)


def _find_giver(graph: LayerGraph, options: Sequence[BlockOptions]) -> int:
    """Returns the block whose strategy decides the state behind a layer: the experts if it has any, else the last
    one."""
    return next((at for at, each in enumerate(options) if each.experts), len(options) - 1)


def _replicated_state(axes: int) -> int:
    return int(state_number(np.full(axes, REPLICATED)))


def _explain_vectors(choices: Ints, options: Sequence[BlockOptions]) -> tuple[str, ...]:
    """Returns why vectors are impossible: the first reason of their blocks."""
    blocked = [(at, each.reasons) for at, each in enumerate(options) if any(each.reasons)]
    return tuple(next((why for at, whys in blocked if (why := whys[row[at]])), "") for row in choices.tolist())


def _gather_tables(factors: Sequence[Factor], name: str, choices: Ints, states: Ints, axes: int) -> Floats:
    """Sums of tables at chosen vectors [states, vectors], behind each of some states."""
    width = {"volumes": (axes * 4,), "counts": (axes * 4,)}.get(name, ())
    found = np.zeros((len(states), len(choices), *width))
    for each in factors:
        table = getattr(each, name)
        if table is not None:
            found += table[tuple(states[:, None] if key == BEFORE else choices[:, key] for key in each.keys)]
    return found


def _worth_keeping(
    graph: LayerGraph, options: Sequence[BlockOptions], before: Sequence[Factor], first: Sequence[Factor], mesh: Mesh
) -> Ints:
    """Returns the vectors that are Pareto-optimal in memory and time for some states before and behind, and the fastest
    others."""
    possible = [np.flatnonzero([not why for why in each.reasons]) for each in options]
    shape = tuple(len(each) for each in possible)
    if not all(shape):
        return np.zeros((1, len(options)), np.int64)
    axes = len(mesh.shape)
    behind = options_behind(graph, options)[possible[_find_giver(graph, options)]]
    giver = _find_giver(graph, options)
    kept: set[int] = set()
    fastest: Ints = np.zeros(0, np.int64)
    for state in range(-1, len(all_states(axes))):
        factors, number = (first, _replicated_state(axes)) if state < 0 else (before, state)
        seconds, memory, working = (
            _sum_tables(factors, name, possible, number, mesh) for name in ("seconds", "memory", "working")
        )
        # Only vectors that hand on the same state compete: the next layer sees nothing else of this one.
        for given in np.unique(behind):
            here = np.broadcast_to(_reshape_along(behind == given, giver, len(shape)), shape).ravel()
            kept.update(undominated_at_work(memory, seconds, working, here).tolist())
        if state < 0:
            fastest = np.argsort(seconds, kind="stable")[:LISTED]
    places = [{words: at for at, words in enumerate(map(tuple, each.ids.tolist()))} for each in options]
    spaces = [int(each.ids.max()) + 1 for each in options]
    for vector in named_vectors(graph.name, spaces, axes):
        at = [int(np.searchsorted(possible[block], places[block][one])) for block, one in enumerate(vector)]
        if all(
            here < len(possible[block]) and possible[block][here] == places[block][one]
            for block, (here, one) in enumerate(zip(at, vector, strict=True))
        ):
            kept.add(int(np.ravel_multi_index(at, shape)))
    # Where fewer are needed, the fastest others fill a quarter of the list.
    room = max(LISTED // 4 - len(kept), 0)
    kept.update(fastest[:room].tolist())
    found = np.array(np.unravel_index(np.array(sorted(kept)), shape)).T
    return np.stack([possible[at][found[:, at]] for at in range(len(options))], axis=1)


def _reshape_along(values: Flags, at: int, dims: int) -> Flags:
    return values.reshape([-1 if each == at else 1 for each in range(dims)])


def _sum_tables(factors: Sequence[Factor], name: str, possible: Sequence[Ints], state: int, mesh: Mesh) -> Floats:
    """Returns sums of tables over all vectors, flat; `seconds` sums collectives and kernels."""
    shape = tuple(len(each) for each in possible)
    found = np.zeros(shape)
    for each in factors:
        table = _factor_seconds(each, mesh) if name == "seconds" else getattr(each, name)
        if table is None:
            continue
        keys = list(each.keys)
        if BEFORE in keys:
            table = np.take(table, state, axis=keys.index(BEFORE))
            keys.remove(BEFORE)
        for axis, key in enumerate(keys):
            table = np.take(table, possible[key], axis=axis)
        table = np.transpose(table, np.argsort(keys)) if len(keys) > 1 else table
        there = sorted(keys)
        found += table.reshape([shape[at] if at in there else 1 for at in range(len(shape))])
    return found.ravel()


def _factor_seconds(factor: Factor, mesh: Mesh) -> Floats | None:
    if factor.volumes is None or factor.counts is None:
        return factor.seconds
    return np.asarray(mesh.seconds(factor.volumes, factor.counts).sum(axis=-1))


def working_caps(working: Floats, most: int) -> list[float]:
    """Return limits on working memory for successive searches [bytes]: all values, or a sample with the least and the
    largest if there are too many.

    Args:
        working: of vectors [bytes].
        most: how many limits.
    """
    there = np.unique(working)
    if len(there) > most:
        there = there[np.unique(np.linspace(0, len(there) - 1, most).round().astype(np.int64))]
    return [float(each) for each in there]


def undominated_at_work(memory: Floats, seconds: Floats, working: Floats, among: Flags) -> Ints:
    """Returns the vectors that are best under some limits of memory and of working memory.

    Args:
        memory, seconds, working: of the vectors [bytes, s, bytes].
        among: vectors to consider.
    """
    best: Ints = np.zeros(0, np.int64)
    kept: set[int] = set()
    below = -np.inf
    for cap in working_caps(working[among], MOST_CAPS):
        here = np.concatenate([best, np.flatnonzero(among & (working <= cap) & (working > below))])
        best, below = here[undominated(memory[here], seconds[here])], cap
        kept.update(best.tolist())
    return np.array(sorted(kept), np.int64)


def undominated(memory: Floats, seconds: Floats) -> Ints:
    """Returns the points that are faster than every point of no more memory, by rising memory.

    Args:
        memory: of the points [bytes].
        seconds: of the points [s].
    """
    if not len(memory):
        return np.zeros(0, np.int64)
    # One stable sort: what comes in rising runs is only merged. Of equal memory the last that is left is the fastest.
    order = np.argsort(memory, kind="stable")
    time = seconds[order]
    # The least time of any point of less memory.
    ahead = np.concatenate(([np.inf], np.minimum.accumulate(time)[:-1]))
    kept = order[time < ahead - NOISE * np.abs(np.where(np.isfinite(ahead), ahead, 0.0))]
    return np.asarray(kept[np.append(np.diff(memory[kept]) > 0, True)])


NOISE: Final = 1e-12
"""Times that differ by less are the same sums in another order."""
