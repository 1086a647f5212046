"""The named variants of the performance model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from engine.executions.arrays import Floats, Positions
from engine.planners.contract import PlanError
from engine.planners.elastic.cards import ModelCard
from engine.planners.elastic.enumeration import NO_ZERO, PlanTable
from engine.planners.elastic.performance.figures import PlanFigures
from engine.planners.elastic.performance.fitted import (
    IterationTerms,
    data_parallel,
    forward_data_parallel,
    forward_three_dimensional,
    three_dimensional,
)
from engine.planners.elastic.performance.physical import PhysicalVariant
from models.documents import did_you_mean, shown

__all__ = ["FITTED", "PHYSICAL", "VARIANTS", "PerformanceVariant", "PlanFigures", "variant_of"]


class PerformanceVariant(Protocol):
    """A performance model."""

    @property
    def name(self) -> str:
        """Returns its name in calls, files and links."""

    @property
    def title(self) -> str:
        """Returns its name for people."""

    @property
    def restricted(self) -> bool:
        """Returns whether it needs the card's table of feasible plans."""

    def node_size(self, card: ModelCard) -> int | None:
        """Returns the GPUs of a node where nothing else is said, None for a variant that needs no nodes.

        Args:
            card: of the model.
        """

    def figures(self, card: ModelCard, plans: PlanTable) -> PlanFigures:
        """Returns figures of plans.

        Args:
            card: of the model.
            plans: under any limits.
        """


@dataclass(frozen=True)
class FittedVariant:
    """Formulas with a card's seven fitted parameters and forward times, without a model of memory."""

    name: str = "artifact"
    title: str = "Fitted formulas"
    restricted: bool = True

    def node_size(self, card: ModelCard) -> int | None:
        """Return None: without a placement only the data-parallel family is considered, as in the artifact's sweep.

        Args:
            card: of the model.
        """
        return None

    def figures(self, card: ModelCard, plans: PlanTable) -> PlanFigures:
        """Return iterations by the fitted formulas.

        Args:
            card: of the model.
            plans: under any limits.
        """
        family = plans.zero != NO_ZERO
        parts: dict[str, Floats] = {}
        for chosen, terms in ((family, self._data_parallel), (~family, self._three_dimensional)):
            at = np.flatnonzero(chosen)
            if len(at):
                found = terms(card, plans, at)
                for name in IterationTerms.__dataclass_fields__:
                    parts.setdefault(name, np.zeros(len(plans)))[at] = getattr(found, name)
        for name in IterationTerms.__dataclass_fields__:
            parts.setdefault(name, np.zeros(len(plans)))
        made = IterationTerms(**parts)
        return PlanFigures(made, made.iteration, plans.reasons, np.full(len(plans), np.nan))

    def _data_parallel(self, card: ModelCard, plans: PlanTable, at: Positions) -> IterationTerms:
        return data_parallel(
            card.performance,
            card.environment,
            parameters_mi=card.parameters_mi,
            forward_ms=forward_data_parallel(card, plans.gpus[at]),
            gpus=plans.gpus[at],
            cpu_threads=plans.cpu_threads[at],
            zero=plans.zero[at],
            slow_network=plans.bandwidth[at] != 0,
            forward_factor=np.where(plans.recompute[at], 2.0, 1.0),
        )

    def _three_dimensional(self, card: ModelCard, plans: PlanTable, at: Positions) -> IterationTerms:
        return three_dimensional(
            card.performance,
            card.environment,
            parameters_mi=card.parameters_mi,
            global_batch=card.global_batch,
            tokens_hidden=card.tokens_hidden,
            layers=card.layers,
            forward_ms=forward_three_dimensional(card, plans.pp[at], plans.tp[at], plans.dp[at]),
            pp=plans.pp[at],
            tp=plans.tp[at],
            nodes=plans.nodes[at],
            gpus_per_node=plans.gpus_per_node[at],
        )


FITTED: Final = FittedVariant()
PHYSICAL: Final = PhysicalVariant()
VARIANTS: Final[dict[str, PerformanceVariant]] = {each.name: each for each in (FITTED, PHYSICAL)}


def variant_of(variant: str | PerformanceVariant) -> PerformanceVariant:
    """Returns the variant of a name, or the given variant.

    Args:
        variant: a name of `VARIANTS`, or a variant of one's own.

    Raises `engine.planners.contract.PlanError` for an unknown name.
    """
    if not isinstance(variant, str):
        return variant
    if variant not in VARIANTS:
        raise PlanError(
            f"There is no variant {shown(variant)} of the performance model{did_you_mean(variant, list(VARIANTS))}; "
            f"there are {', '.join(VARIANTS)}."
        )
    return VARIANTS[variant]
