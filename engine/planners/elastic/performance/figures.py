"""Figures of plans by a variant of the performance model."""

from __future__ import annotations

from dataclasses import dataclass

from engine.executions.arrays import Floats
from engine.planners.elastic.performance.fitted import IterationTerms

__all__ = ["PlanFigures"]


@dataclass(frozen=True)
class PlanFigures:
    """Figures of plans by one variant, [plans] each. Times of infeasible plans are undefined."""

    terms: IterationTerms
    iteration_ms: Floats
    reasons: tuple[str, ...]
    """Reason why each plan is infeasible, empty for feasible ones: the table's reasons and the variant's own."""
    memory: Floats
    """Memory of a GPU [bytes], NaN if the variant does not model it."""
    choices: tuple[str, ...] = ()
    """The variant's choices for each plan beyond its name, such as the microbatch."""
