"""The strategy vectors of all layers of a model with the least step time, under every memory limit at once.

What a layer costs depends on the layers before it through one of three states only. So the best sequences that end in a
state are those that no other has both less memory and less time than: a Pareto frontier per state, extended layer by
layer, is exact, without buckets of memory. On two axes there are more states, and frontiers of deep models are thinned
to a thousand points each, the least memory and the least time always among them.

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
from engine.planners.intra_operator.library import any_mesh
from engine.planners.intra_operator.mesh import Mesh
from engine.planners.intra_operator.names import MIXED
from engine.planners.intra_operator.steps import Chosen, layers_of, positive, step_of, widths_of
from engine.planners.intra_operator.uniform import arithmetic_seconds, costs_of, uniform_vectors
from models.loader import ModelLike

__all__ = ["IntraOperatorPlan", "search"]

MOST_POINTS: Final = 1000
"""Points of a frontier of one state that are kept on two axes."""


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
    gradient_bytes: float | None = None,
) -> IntraOperatorPlan:
    """Returns every strategy vector of a model with its time, volume and memory, and the best one for each layer.

    Args:
        model: of the suites, such as "gpt F", "moe E" or "llama"; or of the library, by name, path or itself.
        mesh: of one axis or two, or its document (`mesh_of`), or a system with `devices` and where wanted `datatype`
            and `tiers` (`system_mesh`).
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
        gradient_bytes: width of an element of the gradients that are added up [bytes]; that of any where None.

    Raises:
        PlanError: the model, the mesh or a number is none that there can be.
        models.ModelFileError: there is no such model.
    """
    machine = any_mesh(mesh)
    name, graphs, notes = layers_of(model, batch=batch, layers=layers)
    limit = machine.memory if memory_limit is None else positive("memory_limit", memory_limit)
    widths = widths_of(
        model, element_bytes=element_bytes, state_bytes=state_bytes, zero=zero, keep_scores=keep_scores, fsdp=fsdp,
        sequence_parallel=sequence_parallel, gradient_bytes=gradient_bytes,
    )  # fmt: skip
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
        chosen = step_of(kinds, order, machine, within["vectors"].iloc[-1], widths)
    flop = kinds[order[0]].first_flop + sum(kinds[each].flop for each in order[1:])
    if any(each.total > len(each.choices) for each in kinds.values()):
        total = max(each.total for each in kinds.values())
        notes += (f"Of {total:,} vectors of a layer the table has those that can be best; the search saw all.",)
    if notes and not widths.gradient:
        notes += (f"Gradients are added up in elements of {widths.element:g} bytes; gradient_bytes takes others.",)
    if ends.thinned:
        notes += (f"On two axes {MOST_POINTS:,} points of memory and time are kept per state, not all of them.",)
    return IntraOperatorPlan(
        name, machine, limit, flop / 1e12, table, frontier, chosen, infeasible, notes, tuple(graphs), widths
    )


@dataclass(frozen=True, slots=True)
class _Points:
    """Sequences that end in one state: memory, seconds, the state and the point before, the vector of the last
    layer."""

    memory: Floats
    seconds: Floats
    state: Ints
    point: Ints
    vector: Ints


POINT: Final = ("memory", "seconds", "state", "point", "vector")


class _Frontier:
    """The frontier behind every layer, by the state in which it ends."""

    def __init__(self, order: Sequence[LayerCosts], mesh: Mesh) -> None:
        self.order = order
        seconds = {name: each.seconds(mesh) for name, each in {one.name: one for one in order}.items()}
        start = _Points(np.zeros(1), np.zeros(1), *(np.zeros(1, np.int64) for _ in range(3)))
        before: dict[int, _Points] = {FIRST: start}
        self.layers: list[dict[int, _Points]] = []
        self.thinned = False
        for each in order:
            behind = {}
            for state in np.unique(each.gives).tolist():
                points = _extended(before, each, seconds[each.name], state)
                if points is not None:
                    behind[state] = self._thinned(points) if mesh.outer is not None else points
            before = behind
            self.layers.append(before)

    def _thinned(self, points: _Points) -> _Points:
        """Evenly fewer points, the least memory and the least time among them, where there are too many."""
        if len(points.memory) <= MOST_POINTS:
            return points
        self.thinned = True
        keep = np.unique(np.linspace(0, len(points.memory) - 1, MOST_POINTS).round().astype(np.int64))
        return _Points(*(getattr(points, name)[keep] for name in POINT))

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
    joined = [np.concatenate([getattr(each, name) for each in parts]) for name in POINT]
    keep = undominated(joined[0], joined[1])
    return _Points(*(each[keep] for each in joined))
