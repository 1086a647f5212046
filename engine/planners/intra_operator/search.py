"""The strategy vectors of all layers of a model with the least step time, under every memory limit at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from engine.columns.percentages import format_percent
from engine.planners.contract import PlanError
from engine.planners.intra_operator.frontier import MOST_POINTS, Thinned, frontier_of
from engine.planners.intra_operator.layer_costs import Widths
from engine.planners.intra_operator.layer_graphs import LayerGraph
from engine.planners.intra_operator.library import any_mesh
from engine.planners.intra_operator.mesh import Mesh
from engine.planners.intra_operator.names import MIXED
from engine.planners.intra_operator.steps import StepCosts, layers_of, positive, step_of, widths_of
from engine.planners.intra_operator.uniform import arithmetic_seconds, costs_of, step_flop, uniform_vectors
from models.loader import ModelLike

__all__ = ["IntraOperatorPlan", "search"]


@dataclass(frozen=True)
class IntraOperatorPlan:
    """Result of the search.

    `vectors` is the table of `uniform_vectors` with a column `fits`; `frontier` has for every memory the least time and
    the vectors of all layers; `chosen` may be None because nothing fits, and `infeasible` then says why. `layers` are
    the planned layers, from the first, `widths` their bytes and sharding; `thinned` describes the points left out of
    the frontier, if any; `steps` is the number of limits on working memory that were searched, if not all.
    """

    model: str
    mesh: Mesh
    memory_limit: float | None
    tflop: float
    vectors: pd.DataFrame
    frontier: pd.DataFrame
    chosen: StepCosts | None
    infeasible: str
    notes: tuple[str, ...] = ()
    layers: tuple[LayerGraph, ...] = ()
    widths: Widths = field(default_factory=Widths)
    thinned: Thinned | None = None
    steps: int = 0

    @property
    def exactness(self) -> str:
        """Returns a sentence on the exactness of the frontier: complete, or where points were left out and at what
        cost."""
        number = f"{len(self.frontier):,} point{'s' * (len(self.frontier) != 1)}"
        if self.thinned is not None:
            share = self.thinned.seconds / float(self.frontier["seconds"].min())
            return (
                f"Thinned: from layer {self.thinned.layer} on up to {self.thinned.points:,} plans of a state were "
                f"reduced to {MOST_POINTS:,}; under no limit is the plan more than {self.thinned.seconds:.2g} s "
                f"({format_percent(share)}) slower than the best."
            )
        if self.steps:
            return (
                f"The line has {number}; what the layer at work needs is told apart in {self.steps} steps, between "
                "which a plan may take a little more memory than the least."
            )
        if len(self.frontier) == 1:
            return "The line is exact: one plan beats all others in both memory and time."
        return f"The line is exact: it has all {number} that no plan beats in both memory and time."

    @property
    def batch(self) -> int:
        """Returns the sequences of a step."""
        return int(self.layers[0].sizes["b"]) * self.widths.accumulation

    @property
    def tflops(self) -> float:
        """Returns the rate of all devices together in the chosen plan [TFLOP/s]; not a number without one."""
        return self.tflop / self.chosen.seconds if self.chosen is not None else float("nan")

    def some_of_frontier(self, most: int = 1_000) -> pd.DataFrame:
        """Returns points of the frontier, all of them or as many, evenly by their number, both ends among them.

        Args:
            most: how many at most.
        """
        if len(self.frontier) <= most:
            return self.frontier
        return self.frontier.iloc[np.unique(np.linspace(0, len(self.frontier) - 1, most).round().astype(np.int64))]

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
    recompute: str = "none",
    accumulation: int = 1,
) -> IntraOperatorPlan:
    """Returns every strategy vector of a model with its time, volume and memory, and the best one for each layer.

    Args:
        model: of the library, by name, path or itself; or registered by name, such as "gpt F".
        mesh: of one axis or two, or its document (`mesh_of`), or a system with `devices` and optionally `datatype` and
            `tiers` (`system_mesh`).
        memory_limit: of a device [bytes]; the mesh's where None.
        batch: sequences.
        layers: how many; the model's where None.
        element_bytes: width of an element [bytes]; where None, 2, or that of a registered family.
        state_bytes: of a parameter with its gradient and optimizer state [bytes].
        zero: whether these are split where the parameter is not (ZeRO).
        keep_scores: whether scores of attention are kept for the backward pass, which fused attention does not; where
            None, they are not, unless a registered family keeps them.
        fsdp: whether parameters are split there, too, and gathered before each pass (ZeRO stage 3).
        sequence_parallel: whether what rows of a weight give is split by tokens, a reduce-scatter in place of an
            all-reduce; where None, it is, unless a registered family does without.
        gradient_bytes: width of an element of the gradients that are added up [bytes]; that of any where None.
        recompute: what the backward pass computes again: "none", "selective" (attention) or "full". `tflop` stays what
            the model needs.
        accumulation: microbatches of a step, whose gradients are added up before they are exchanged.

    Raises:
        PlanError: unknown model, invalid mesh, or a number out of range.
        models.ModelFileError: unknown or invalid model.
    """
    machine = any_mesh(mesh)
    limit = machine.memory if memory_limit is None else positive("memory_limit", memory_limit)
    widths = widths_of(
        model,
        element_bytes=element_bytes,
        state_bytes=state_bytes,
        zero=zero,
        keep_scores=keep_scores,
        fsdp=fsdp,
        sequence_parallel=sequence_parallel,
        gradient_bytes=gradient_bytes,
        recompute=recompute,
        accumulation=accumulation,
    )
    name, graphs, notes = layers_of(model, batch=batch, layers=layers, accumulation=widths.accumulation)
    kinds = costs_of(graphs, machine, widths)
    if blocked := [each.name for each in kinds.values() if not each.possible.any()]:
        why = next(each for each in kinds[blocked[0]].reasons if each)
        raise PlanError(f"Layer {blocked[0]} cannot be split over {machine.devices} devices: {why}")
    table = uniform_vectors(graphs, machine, widths, kinds)
    possible = table["reason"] == ""
    table["fits"] = possible if limit is None else possible & (table["memory"] <= limit)
    order = [each.name for each in graphs]
    # Without kernel times computation is the same in all plans and plays no part in the search.
    compute = 0.0 if machine.system is not None else arithmetic_seconds(kinds, order, machine)
    ends = frontier_of([kinds[each] for each in order], machine, compute)
    frontier = ends.table
    within = frontier if limit is None else frontier[frontier["memory"] <= limit]
    infeasible = ""
    chosen = None
    if within.empty:
        least = float(frontier["memory"].min())
        infeasible = f"No plan fits {limit:,.0f} bytes per device; the least that {name} takes is {least:,.0f} bytes."
    else:
        chosen = step_of(kinds, order, machine, within["vectors"].iloc[-1], widths)
    flop = step_flop(kinds, order)
    if any(each.total > len(each.choices) for each in kinds.values()):
        total = max(each.total for each in kinds.values())
        notes += (f"Of {total:,} vectors of a layer the table has those that can be best; the search saw all.",)
    if graphs[0].vocabulary and machine.system is None:
        notes += ("Without a system of the library, logits and the memory that frameworks reserve are not counted.",)
    if notes and not widths.gradient:
        notes += (f"Gradients are added up in elements of {widths.element:g} bytes; gradient_bytes takes others.",)
    return IntraOperatorPlan(
        name,
        machine,
        limit,
        flop / 1e12,
        table,
        frontier,
        chosen,
        infeasible,
        notes,
        tuple(graphs),
        widths,
        ends.thinned,
        ends.steps,
    )
