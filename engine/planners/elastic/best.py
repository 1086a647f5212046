"""The best plan under one set of limits, with runners-up and the reason why every other plan is rejected."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.columns.percentages import format_percent
from engine.planners.contract import (
    Alternative,
    Cancel,
    Placement,
    Plan,
    PlanError,
    PlanFigure,
    Progress,
    Stage,
    never,
    unheard,
)
from engine.planners.elastic.cards import ModelCard, load_card, to_document
from engine.planners.elastic.enumeration import ResourceLimits, plan_table
from engine.planners.elastic.limits import checked_bandwidth, checked_threads
from engine.planners.elastic.performance.fitted import IterationTerms
from engine.planners.elastic.performance.variants import PerformanceVariant, variant_of
from engine.planners.elastic.placements import PlacementLike, gpus_on_nodes, placement_text
from engine.planners.elastic.plan_names import PlanName

__all__ = ["CardLike", "ElasticPlan", "ElasticProblem", "best_plan", "plans_table", "solve"]

VERSION: Final = "1"
LISTED: Final = 200
"""Rejected plans that a plan lists as alternatives at most; its table has all."""

CardLike = ModelCard | Mapping[str, Any] | str | os.PathLike[str]
"""A model card, a parsed document of one, a name of the library, or the path of a JSON file."""


@dataclass(frozen=True)
class ElasticProblem:
    """A model and the limits of its resources.

    `nodes` are the GPUs on each node, `cpu_threads` those per GPU, `bandwidth` the limit between nodes, 0 for none:
    the variant `artifact` counts any limit as 2 MiB/ms, as it does for every level, `physical` as GB/s of a GPU.
    `restricted` keeps plans with degrees to the card's table.
    """

    card: ModelCard
    nodes: tuple[int, ...]
    cpu_threads: int = 1
    bandwidth: float = 0.0
    variant: PerformanceVariant | str = "artifact"
    restricted: bool | None = None

    def document(self) -> dict[str, Any]:
        """Returns everything that the plan depends on, as JSON."""
        return {
            "card": to_document(self.card),
            "placement": placement_text(self.nodes),
            "cpu_threads": self.cpu_threads,
            "bandwidth": self.bandwidth,
            "variant": variant_of(self.variant).name,
            "restricted": self.restricted,
        }


@dataclass(frozen=True)
class ElasticPlan(Plan):
    """The best plan under the limits of its problem.

    `name` is the plan itself; `table` has one row for every plan that was looked at, the best first: figures, the parts
    of the iteration [ms], and the reason why it was not chosen.
    """

    name: PlanName = field(default_factory=PlanName)
    table: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def plan(self) -> str:
        """Returns the plan's name, such as 244 or zero-offload+gc."""
        return self.name.text

    @property
    def strategy(self) -> tuple[str | int, ...]:
        """Returns the plan in the artifact's form, such as (2, 4, 4) or (DP, gc, zero-offload)."""
        return self.name.strategy

    @property
    def iteration_ms(self) -> float:
        """Returns the predicted iteration [ms]."""
        return self.figure("iteration").value * 1e3

    @property
    def throughput(self) -> float:
        """Returns the predicted throughput [samples/s]."""
        return self.figure("throughput").value

    @property
    def runners_up(self) -> pd.DataFrame:
        """Returns the rows of all other plans that may run, the best first."""
        others = self.table.iloc[1:]
        return others[others["feasible"]]

    @property
    def rejected(self) -> pd.DataFrame:
        """Returns the rows of all plans that may not run, with their reasons."""
        return self.table[~self.table["feasible"]]


def best_plan(
    model_card: CardLike,
    *,
    placement: PlacementLike,
    cpu_threads: int = 1,
    bandwidth: float = 0.0,
    variant: str | PerformanceVariant = "artifact",
    restricted: bool | None = None,
) -> ElasticPlan:
    """Returns the plan of the highest throughput under the limits.

    Args:
        model_card: a card, a document of one, a name of the library, or the path of a file.
        placement: GPUs on each node: "8888", 8888, "16,16" or [8, 8, 8, 8].
        cpu_threads: of the host, per GPU.
        bandwidth: limit between nodes, 0 for none; see `ElasticProblem`.
        variant: of the performance model: `artifact` or `physical`.
        restricted: whether plans with degrees may run only where the card's table allows it; what the variant needs
            where None.

    Raises `engine.planners.contract.PlanError` for an invalid argument, or where no plan can run.
    """
    card, nodes = load_card(model_card), gpus_on_nodes(placement)
    return solve(ElasticProblem(card, nodes, cpu_threads, bandwidth, variant, restricted))


def solve(problem: ElasticProblem, progress: Progress = unheard, cancel: Cancel = never) -> ElasticPlan:
    """Returns the best plan of a problem.

    Args:
        problem: a model and the limits of its resources.
        progress: called with the share done (0 to 1) and the current step.
        cancel: not called; all plans are evaluated at once.

    Raises `engine.planners.contract.PlanError` for an invalid argument, or where no plan can run.
    """
    progress(0.0, "Evaluating plans")
    table = plans_table(
        problem.card,
        placement=problem.nodes,
        cpu_threads=problem.cpu_threads,
        bandwidth=problem.bandwidth,
        variant=problem.variant,
        restricted=problem.restricted,
    )
    return _plan_of_table(problem, table)


def plans_table(
    model_card: CardLike,
    *,
    placement: PlacementLike,
    cpu_threads: int = 1,
    bandwidth: float = 0.0,
    variant: str | PerformanceVariant = "artifact",
    restricted: bool | None = None,
    families: tuple[str, ...] = ("DP", "3D"),
) -> pd.DataFrame:
    """Returns one row for every plan under the limits: feasible plans by falling throughput, then the infeasible ones.

    Columns: `plan`, `family` (DP or 3D), `pp`, `tp`, `dp`, `gpus`, `feasible`, `throughput` [samples/s],
    `iteration_ms`, its parts [ms], `memory_gib`, `chosen` and `reason`, why it was not chosen.

    Args:
        model_card, placement, cpu_threads, bandwidth, variant, restricted: see `best_plan`.
        families: to evaluate.

    Raises `engine.planners.contract.PlanError` for an invalid argument.
    """
    card, nodes, model = load_card(model_card), gpus_on_nodes(placement), variant_of(variant)
    plans = plan_table(
        card,
        [ResourceLimits(nodes, checked_threads(cpu_threads), checked_bandwidth(bandwidth))],
        restricted=model.restricted if restricted is None else restricted,
        families=families,
        atom_limits=model.restricted,
    )
    figures = model.figures(card, plans)
    feasible = np.array([not reason for reason in figures.reasons], np.bool_)
    iteration = np.where(feasible, figures.iteration_ms, np.nan)
    table = pd.DataFrame(
        {
            "plan": [name.text for name in plans.names],
            "family": [name.family for name in plans.names],
            "pp": plans.pp,
            "tp": plans.tp,
            "dp": plans.dp,
            "gpus": plans.gpus,
            "feasible": feasible,
            "throughput": 1e3 * card.global_batch / iteration,
            "iteration_ms": iteration,
            **{
                f"{name}_ms": np.where(feasible, getattr(figures.terms, name), np.nan)
                for name in IterationTerms.__dataclass_fields__
            },
            "memory_gib": figures.memory / 2**30,
            "chosen": list(figures.choices) or [""] * len(plans),
            "reason": list(figures.reasons),
        }
    )
    # Equal throughputs keep the order in which plans were tried.
    order = np.lexsort((np.arange(len(plans)), np.where(feasible, -table["throughput"].to_numpy(), np.inf)))
    table = table.iloc[order].reset_index(drop=True)
    table.attrs["names"] = [plans.names[each] for each in order]
    _explain_slower(table)
    return table


def _explain_slower(table: pd.DataFrame) -> None:
    """Write into `reason` how much longer each feasible plan takes than the best."""
    feasible = table["feasible"].to_numpy()
    if not feasible.any():
        return
    best = float(table["iteration_ms"].iloc[0])
    slower = table["iteration_ms"].to_numpy()[feasible] / best - 1
    reasons = [
        "",
        *(f"{format_percent(each)} longer iteration" if each > 0 else "equal, and tried later" for each in slower[1:]),
    ]
    table.loc[feasible, "reason"] = reasons


def _plan_of_table(problem: ElasticProblem, table: pd.DataFrame) -> ElasticPlan:
    if not len(table) or not bool(table["feasible"].iloc[0]):
        reasons: Sequence[str] = list(dict.fromkeys(table["reason"])) if len(table) else []
        told = "; ".join(f"{plan}: {why}" for plan, why in zip(table["plan"][:3], table["reason"][:3], strict=True))
        raise PlanError(
            f"No plan of {problem.card.name} can run on {placement_text(problem.nodes)}"
            + (f" ({told}{'; ...' if len(reasons) > 3 else ''})." if told else ".")
        )
    best = table.iloc[0]
    name: PlanName = table.attrs["names"][0]
    figures = (
        PlanFigure("throughput", float(best["throughput"]), "samples/s", "Throughput"),
        PlanFigure("iteration", float(best["iteration_ms"]) / 1e3, "s", "Iteration"),
        *(
            PlanFigure(part, float(best[f"{part}_ms"]) / 1e3, "s", part.capitalize())
            for part in IterationTerms.__dataclass_fields__
        ),
    )
    others = [
        Alternative(row["plan"], row["throughput"] if row["feasible"] else None, row["reason"])
        for row in table.iloc[1 : LISTED + 1].to_dict("records")
    ]
    return ElasticPlan(
        planner="elastic",
        version=VERSION,
        problem=problem,
        stages=_pipeline_stages(problem, name),
        figures=figures,
        objective="throughput",
        alternatives=others,
        notes=(),
        name=name,
        table=table,
    )


def _pipeline_stages(problem: ElasticProblem, name: PlanName) -> tuple[Stage, ...]:
    """Pipeline stages with their layers and devices: neighbours, as many as a stage has replicas and ranks."""
    gpus, layers = sum(problem.nodes), problem.card.layers
    ends = [layers * (number + 1) // name.pp for number in range(name.pp)]
    size = gpus // name.pp
    return tuple(
        Stage(start, stop, Placement(tuple(range(number * size, (number + 1) * size))))
        for number, (start, stop) in enumerate(zip([0, *ends[:-1]], ends, strict=True))
    )
