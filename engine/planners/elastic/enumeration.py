"""Every plan of a model on some GPUs, and why a plan may not run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.executions.arrays import Flags, Floats, Ints, Positions
from engine.planners.elastic.cards import ModelCard
from engine.planners.elastic.placements import gpus_on_nodes, placement_text
from engine.planners.elastic.plan_names import DATA_PARALLEL, OFFLOAD, ZERO_DP, PlanName, parse_plan

__all__ = ["NO_ZERO", "PlanTable", "ResourceLimits", "data_parallel_plans", "every_plan", "plan_table"]

Placements = tuple[tuple[int, ...], ...]

NO_ZERO = -1
"""Kind of the plans that are not of the data-parallel family."""


@dataclass(frozen=True, slots=True)
class ResourceLimits:
    """Resources of a job: GPUs on each node, CPU threads per GPU, and the bandwidth to other nodes, 0 for no limit."""

    nodes: tuple[int, ...]
    cpu_threads: int = 1
    bandwidth: float = 0.0

    @property
    def gpus(self) -> int:
        """Returns all GPUs."""
        return sum(self.nodes)


@dataclass(frozen=True)
class PlanTable:
    """Plans under several limits, limit by limit, in the order in which the artifact tries them: among equal plans the
    first one wins.

    `limit` says to which of the limits each plan belongs, `reasons` why it may not run, empty where it may.
    """

    limits: tuple[ResourceLimits, ...]
    limit: Ints
    names: tuple[PlanName, ...]
    reasons: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    def of_limits(self, values: Sequence[float]) -> Ints:
        """Returns for each plan the whole number of its limit [plans].

        Args:
            values: one per limit.
        """
        return np.array(values, np.int64)[self.limit]

    @cached_property
    def gpus(self) -> Ints:
        """Returns all GPUs of each plan [plans]."""
        return self.of_limits([each.gpus for each in self.limits])

    @cached_property
    def nodes(self) -> Ints:
        """Returns nodes [plans]."""
        return self.of_limits([len(each.nodes) for each in self.limits])

    @cached_property
    def gpus_per_node(self) -> Ints:
        """Returns GPUs on the first node [plans]."""
        return self.of_limits([each.nodes[0] for each in self.limits])

    @cached_property
    def cpu_threads(self) -> Ints:
        """Returns CPU threads per GPU [plans]."""
        return self.of_limits([each.cpu_threads for each in self.limits])

    @cached_property
    def bandwidth(self) -> Floats:
        """Returns limits of bandwidth between nodes, 0 for none [plans]."""
        return np.array([each.bandwidth for each in self.limits], np.float64)[self.limit]

    @cached_property
    def pp(self) -> Ints:
        """Returns pipeline parallel degrees [plans]."""
        return np.array([name.pp for name in self.names], np.int64)

    @cached_property
    def tp(self) -> Ints:
        """Returns tensor parallel degrees [plans]."""
        return np.array([name.tp for name in self.names], np.int64)

    @cached_property
    def dp(self) -> Ints:
        """Returns data parallel degrees [plans]: all GPUs for the data-parallel family."""
        return np.where(self.zero == NO_ZERO, [name.dp for name in self.names], self.gpus).astype(np.int64)

    @cached_property
    def zero(self) -> Ints:
        """Returns the kinds of the data-parallel family, -1 for other plans [plans]."""
        return np.array([NO_ZERO if name.zero is None else name.zero for name in self.names], np.int64)

    @cached_property
    def recompute(self) -> Flags:
        """Returns whether plans of the data-parallel family recompute activations [plans]."""
        return np.array([name.recompute for name in self.names], np.bool_)

    @cached_property
    def starts(self) -> Positions:
        """Returns where each limit's plans begin [limits]; every limit has some."""
        return np.searchsorted(self.limit, np.arange(len(self.limits)))


def plan_table(
    card: ModelCard,
    limits: Sequence[ResourceLimits],
    *,
    restricted: bool = True,
    families: tuple[str, ...] = ("DP", "3D"),
    atom_limits: bool = True,
) -> PlanTable:
    """Returns every plan under each of the limits with the reasons for which some may not run.

    Args:
        card: of the model.
        limits: of the job's resources.
        restricted: whether plans with degrees may run only where the card's table allows it.
        families: `DP` for the data-parallel family, `3D` for plans with degrees.
        atom_limits: whether the data-parallel family may hold only as many samples on a GPU as the card says.
    """
    known: dict[tuple[int, ...], list[tuple[PlanName, str]]] = {}
    table = _parse_allowed_plans(card) if "3D" in families else {}
    named: list[tuple[PlanName, str]] = []
    counts: list[int] = []
    for each in limits:
        key = each.nodes if "3D" in families else (each.gpus,)
        if key not in known:
            known[key] = data_parallel_plans(card, each.gpus, atom_limits) if "DP" in families else []
            known[key] += every_plan(card, each.nodes, table, restricted) if "3D" in families else []
        named += known[key]
        counts.append(len(known[key]))
    limit = np.repeat(np.arange(len(counts)), counts)
    return PlanTable(tuple(limits), limit, tuple(each[0] for each in named), tuple(each[1] for each in named))


def data_parallel_plans(card: ModelCard, gpus: int, atom_limits: bool = True) -> list[tuple[PlanName, str]]:
    """Returns the six plans of the data-parallel family, each with the reason why it may not run or an empty
    text.

    Args:
        card: of the model.
        gpus: that share the global batch.
        atom_limits: whether a GPU may hold only as many samples as the card says.
    """
    return [(name, _data_parallel_reason(card, gpus, name, atom_limits)) for name in DATA_PARALLEL]


def _data_parallel_reason(card: ModelCard, gpus: int, name: PlanName, atom_limits: bool) -> str:
    share, rest = divmod(card.global_batch, gpus)
    if rest:
        return f"{card.global_batch} samples do not divide among {gpus} GPUs"
    if not atom_limits:
        return ""
    limits = {OFFLOAD: card.atom_batches.zero_offload, ZERO_DP: card.atom_batches.zero_dp}
    limit = limits.get(name.zero if name.zero is not None else 0, card.atom_batches.dp)
    most = limit.recompute if name.recompute else limit.other
    if share <= most:
        return ""
    if not most:
        return f"the card rules {name.text} out: it gives it no sample on a GPU"
    return f"{share} samples on a GPU are more than the {most} that the card gives {name.text}"


def every_plan(
    card: ModelCard, nodes: tuple[int, ...], table: Mapping[PlanName, Placements], restricted: bool = True
) -> list[tuple[PlanName, str]]:
    """Returns every plan of pipeline, tensor and data parallelism that uses all GPUs, each with the reason why it may
    not run, or an empty text. Plans of the card's table come first, in its order.

    Args:
        card: of the model.
        nodes: GPUs on each node.
        table: placements on which the card allows each plan.
        restricted: whether plans may run only where that table allows it.
    """
    gpus = sum(nodes)
    listed = [plan for plan, where in table.items() if nodes in where]
    degrees = [name for name in listed if restricted or name.pp * name.tp * name.dp == gpus]
    known = set(degrees)
    for pp in _divisors_of(gpus):
        for tp in _divisors_of(gpus // pp):
            name = PlanName(pp, tp, gpus // pp // tp)
            if name not in known:
                degrees.append(name)
    return [(name, _degrees_reason(card, nodes, name, table if restricted else None)) for name in degrees]


def _degrees_reason(
    card: ModelCard, nodes: tuple[int, ...], name: PlanName, table: Mapping[PlanName, Placements] | None
) -> str:
    most = nodes[0]
    if not card.three_dimensional:
        return "the model is not run with tensor or pipeline parallelism"
    if table is not None and nodes in table.get(name, ()):
        return ""
    if name.tp > most:
        return f"{name.tp} tensor parallel ranks are more than the {most} GPUs of a node"
    if len(set(nodes)) > 1:
        return f"nodes of {placement_text(nodes)} have different numbers of GPUs"
    if most % name.tp:
        return f"groups of {name.tp} tensor parallel ranks do not divide a node of {most} GPUs"
    if name.pp > card.layers:
        return f"{name.pp} stages are more than the {card.layers} layers"
    if card.global_batch % name.dp:
        return f"{card.global_batch} samples do not divide among {name.dp} replicas"
    if table is None:
        return ""
    where = ", ".join(placement_text(each) for each in table.get(name, ()))
    return f"the card allows it on {where} only" if where else "the card allows it on no placement"


def _parse_allowed_plans(card: ModelCard) -> dict[PlanName, Placements]:
    """Parse the card's table: plans with the placements on which they may run, in its order."""
    return {parse_plan(plan): tuple(map(gpus_on_nodes, where)) for plan, where in card.allowed_plans.items()}


def _divisors_of(number: int) -> list[int]:
    low = [each for each in range(1, math.isqrt(number) + 1) if not number % each]
    return sorted({*low, *(number // each for each in low)})
