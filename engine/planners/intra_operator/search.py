"""The strategy vectors of all layers of a model with the least step time, under every memory limit at once.

What a layer costs depends on the layers before it through one of three states only. So the best sequences that end in a
state are those that no other has both less memory and less time than: a Pareto frontier per state, extended layer by
layer, is exact, without buckets of memory.

Source: CFP, search over segments (published README); the frontier instead of buckets is ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats, Ints
from engine.planners.contract import PlanError
from engine.planners.intra_operator.layer_costs import FIRST, LayerCosts, Vector, Widths, undominated
from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.library import library_layers
from engine.planners.intra_operator.mesh import Mesh, mesh_of
from engine.planners.intra_operator.names import MIXED, vector_name
from engine.planners.intra_operator.suites import is_suite, suite_depth, suite_layers
from engine.planners.intra_operator.uniform import arithmetic_seconds, collectives_of, costs_of, uniform_vectors
from models.loader import ModelLike

__all__ = ["Chosen", "IntraOperatorPlan", "layers_of", "search"]

DEEPEST: Final = 256


@dataclass(frozen=True, slots=True)
class Chosen:
    """One vector for every layer: its name, the seconds of a step, of computation and of collectives, volume [bytes]
    and seconds by collective, memory of a device [bytes]."""

    vectors: tuple[Vector, ...]
    solution: str
    seconds: float
    compute_seconds: float
    communication_seconds: float
    volumes: Mapping[str, float]
    collective_seconds: Mapping[str, float]
    memory: float

    @property
    def volume(self) -> float:
        """Returns the volume of all collectives [bytes]."""
        return sum(self.volumes.values())

    def document(self) -> dict[str, Any]:
        """Returns it as JSON."""
        return {
            "vectors": [list(each) for each in self.vectors], "solution": self.solution, "seconds": self.seconds,
            "compute_seconds": self.compute_seconds, "communication_seconds": self.communication_seconds,
            "volumes": dict(self.volumes), "collective_seconds": dict(self.collective_seconds),
            "volume": self.volume, "memory": self.memory,
        }  # fmt: skip


@dataclass(frozen=True)
class IntraOperatorPlan:
    """What the search found.

    `vectors` are those of `uniform_vectors` with a column `fits`; `frontier` has for every memory the least time and
    the vectors of all layers; `chosen` is None where nothing fits, and `infeasible` says why, else is empty. `layers`
    are what was planned, from the first, `widths` what it was counted with.
    """

    model: str
    mesh: Mesh
    memory_limit: float | None
    tflop: float
    vectors: pd.DataFrame
    frontier: pd.DataFrame
    chosen: Chosen | None
    infeasible: str
    notes: tuple[str, ...] = ()
    layers: tuple[LayerGraph, ...] = ()
    widths: Widths = field(default_factory=Widths)

    @property
    def tflops(self) -> float:
        """Returns the rate of all devices together in the chosen plan [TFLOP/s]; not a number where there is none."""
        return self.tflop / self.chosen.seconds if self.chosen is not None else float("nan")

    @property
    def named(self) -> pd.DataFrame:
        """Returns the rows of `vectors` that have a name other than mixed, the fastest first."""
        return self.vectors[self.vectors["solution"] != MIXED].sort_values("seconds", kind="stable")


def search(
    model: ModelLike,
    mesh: Mesh | Mapping[str, Any],
    *,
    memory_limit: float | None = None,
    batch: int = 16,
    layers: int | None = None,
    element_bytes: float | None = None,
    state_bytes: float = 16.0,
    zero: bool = False,
    keep_scores: bool | None = None,
    fsdp: bool = False,
    sequence_parallel: bool | None = None,
) -> IntraOperatorPlan:
    """Returns every strategy vector of a model with its time, volume and memory, and the best one for each layer.

    Args:
        model: of the suites, such as "gpt F", "moe E" or "llama"; or of the library, by name, path or itself.
        mesh: of one axis or two, or its document (`mesh_of`).
        memory_limit: of a device [bytes]; the mesh's where None.
        batch: sequences.
        layers: how many; the model's where None.
        element_bytes: width of an element [bytes]; where None, 4 for models of the suites, 2 for those of the library.
        state_bytes: of a parameter with its gradient and optimizer state [bytes].
        zero: whether these are split where the parameter is not (ZeRO).
        keep_scores: whether scores of attention are kept for the backward pass, which fused attention does not; where
            None, of the models of the suites they are, of the library's not.
        fsdp: whether parameters are split there, too, and gathered before each pass (ZeRO stage 3).
        sequence_parallel: whether what rows of a weight give is split by tokens, a reduce-scatter in place of an
            all-reduce; where None, in models of the library it is, in the suites' not.

    Raises:
        PlanError: the model, the mesh or a number is none that there can be.
        models.ModelFileError: there is no such model.
    """
    machine = mesh_of(mesh)
    suite = isinstance(model, str) and is_suite(model)
    name, graphs, notes = layers_of(model, batch=batch, layers=layers)
    limit = machine.memory if memory_limit is None else _positive("memory_limit", memory_limit)
    width = (4.0 if suite else 2.0) if element_bytes is None else _positive("element_bytes", element_bytes)
    state = _positive("state_bytes", state_bytes)
    if state < width:
        raise PlanError(f"state_bytes {state:g} is less than the {width:g} bytes of the parameter itself.")
    kept = suite if keep_scores is None else bool(keep_scores)
    scattered = not suite if sequence_parallel is None else bool(sequence_parallel)
    widths = Widths(width, state, bool(zero), kept, bool(fsdp), scattered)
    kinds = costs_of(graphs, machine, widths)
    if blocked := [each.name for each in kinds.values() if not each.possible.any()]:
        why = next(each for each in kinds[blocked[0]].reasons if each)
        raise PlanError(f"Layer {blocked[0]} cannot be split over {machine.devices} devices: {why}")
    table = uniform_vectors(graphs, machine, widths, kinds)
    possible = table["reason"] == ""
    table["fits"] = possible if limit is None else possible & (table["memory"] <= limit)
    order = [each.name for each in graphs]
    ends = _Frontier([kinds[each] for each in order], machine)
    compute = 0.0 if machine.system is not None else arithmetic_seconds(kinds, order, machine)
    frontier = ends.table(compute)
    within = frontier if limit is None else frontier[frontier["memory"] <= limit]
    infeasible = ""
    chosen = None
    if within.empty:
        least = float(frontier["memory"].min())
        infeasible = f"No plan fits {limit:,.0f} bytes per device; the least that {name} takes is {least:,.0f} bytes."
    else:
        chosen = _chosen(kinds, order, machine, within["vectors"].iloc[-1], widths)
    flop = kinds[order[0]].first_flop + sum(kinds[each].flop for each in order[1:])
    if any(each.total > len(each.choices) for each in kinds.values()):
        total = max(each.total for each in kinds.values())
        notes += (f"Of {total:,} vectors of a layer the table has those that can be best; the search saw all.",)
    return IntraOperatorPlan(
        name, machine, limit, flop / 1e12, table, frontier, chosen, infeasible, notes, tuple(graphs), widths
    )


def layers_of(
    model: ModelLike, *, batch: int, layers: int | None = None
) -> tuple[str, list[LayerGraph], tuple[str, ...]]:
    """Returns the name of a model of the suites or of the library, its layers from the first, and what was simplified.

    Args:
        model: of the suites, such as "gpt F"; or of the library, by name, path or itself.
        batch: sequences.
        layers: how many; the model's where None.

    Raises:
        PlanError: the model or a number is none that there can be.
        models.ModelFileError: there is no such model.
    """
    notes: tuple[str, ...] = ()
    if isinstance(model, str) and (is_suite(model) or not model.strip()):
        graphs = suite_layers(model, batch=batch, layers=suite_depth(model) if layers is None else layers)
        name = model
    else:
        name, graphs, notes = library_layers(model, batch=batch, layers=layers)
    if len(graphs) > DEEPEST:
        raise PlanError(f"{len(graphs):,} layers are more than the search takes; at most {DEEPEST}.")
    return name, graphs, notes


def _positive(name: str, value: object) -> float:
    right = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e30
    if not right or not isinstance(value, (int, float)):
        raise PlanError(f"{name} {str(value)[:40]!r} is no number of bytes more than 0.")
    return float(value)


@dataclass(frozen=True, slots=True)
class _Points:
    """Sequences that end in one state: memory, seconds, the state and the point before, the vector of the last
    layer."""

    memory: Floats
    seconds: Floats
    state: Ints
    point: Ints
    vector: Ints


class _Frontier:
    """The frontier behind every layer, by the state in which it ends."""

    def __init__(self, order: Sequence[LayerCosts], mesh: Mesh) -> None:
        self.order = order
        seconds = {name: each.seconds(mesh) for name, each in {one.name: one for one in order}.items()}
        start = _Points(np.zeros(1), np.zeros(1), *(np.zeros(1, np.int64) for _ in range(3)))
        before: dict[int, _Points] = {FIRST: start}
        self.layers: list[dict[int, _Points]] = []
        for each in order:
            before = {
                state: points
                for state in np.unique(each.gives).tolist()
                if (points := _extended(before, each, seconds[each.name], state)) is not None
            }
            self.layers.append(before)

    def table(self, compute: float) -> pd.DataFrame:
        """The frontier of whole models, by rising memory and falling time."""
        last = self.layers[-1]
        found = [(x.memory[at], x.seconds[at], state, at) for state, x in last.items() for at in range(len(x.memory))]
        rows: list[tuple[float, float, tuple[Vector, ...]]] = []
        least = np.inf
        for memory, seconds, state, at in sorted(found):
            if seconds < least:
                least = seconds
                rows.append((float(memory), float(compute + seconds), self._vectors(state, at)))
        return pd.DataFrame(rows, columns=["memory", "seconds", "vectors"])

    def _vectors(self, state: int, at: int) -> tuple[Vector, ...]:
        found = []
        for costs, points in zip(reversed(self.order), reversed(self.layers), strict=True):
            here = points[state]
            found.append(costs.vectors[here.vector[at]])
            state, at = int(here.state[at]), int(here.point[at])
        return tuple(reversed(found))


def _extended(before: Mapping[int, _Points], costs: LayerCosts, seconds: Floats, state: int) -> _Points | None:
    parts: list[_Points] = []
    for source, points in before.items():
        which = np.flatnonzero(costs.possible & (costs.gives == state))
        which = which[undominated(costs.memory[which], seconds[source][which])]
        if not len(which):
            continue
        at = np.repeat(np.arange(len(points.memory)), len(which))
        vector = np.tile(which, len(points.memory))
        memory = points.memory[at] + costs.memory[vector]
        summed = points.seconds[at] + seconds[source][vector]
        keep = undominated(memory, summed)
        parts.append(_Points(memory[keep], summed[keep], np.full(len(keep), source, np.int64), at[keep], vector[keep]))
    if not parts:
        return None
    names = ("memory", "seconds", "state", "point", "vector")
    joined = [np.concatenate([getattr(each, name) for each in parts]) for name in names]
    keep = undominated(joined[0], joined[1])
    return _Points(*(each[keep] for each in joined))


def _chosen(
    kinds: Mapping[str, LayerCosts], order: Sequence[str], mesh: Mesh, vectors: Sequence[Vector], widths: Widths
) -> Chosen:
    places = {name: {vector: at for at, vector in enumerate(each.vectors)} for name, each in kinds.items()}
    first = kinds[order[0]]
    volumes, counts = np.zeros(first.volumes.shape[-1]), np.zeros(first.counts.shape[-1])
    memory, kernels, state = 0.0, 0.0, FIRST
    for name, vector in zip(order, vectors, strict=True):
        costs, at = kinds[name], places[name][vector]
        volumes = volumes + costs.volumes[state, at]
        counts = counts + costs.counts[state, at]
        kernels += float(costs.kernels[state, at])
        memory += float(costs.memory[at])
        state = int(costs.gives[at])
    seconds = mesh.seconds(volumes, counts)
    compute = kernels if mesh.system is not None else arithmetic_seconds(kinds, order, mesh)
    return Chosen(
        tuple(vectors),
        vector_name(vectors, order, widths),
        compute + float(seconds.sum()),
        compute,
        float(seconds.sum()),
        {name: float(value) for name, value in collectives_of(volumes, widths).items()},
        {name: float(value) for name, value in collectives_of(seconds, widths).items()},
        memory,
    )
