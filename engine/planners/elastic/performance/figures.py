"""What a variant of the performance model says of plans."""

from __future__ import annotations

from dataclasses import dataclass

from engine.executions.arrays import Floats
from engine.planners.elastic.performance.artifact import IterationTerms

__all__ = ["PlanFigures"]


@dataclass(frozen=True)
class PlanFigures:
    """What a variant says of plans, [plans] each. Times of plans that may not run mean nothing."""

    terms: IterationTerms
    iteration_ms: Floats
    reasons: tuple[str, ...]
    """Why a plan may not run, empty where it may: the table's reasons and the variant's own."""
    memory: Floats
    """Memory of a GPU [bytes], NaN where the variant does not know it."""
    choices: tuple[str, ...] = ()
    """What the variant chose for each plan beyond its name, such as the microbatch."""
