"""Numbers of processors of a scenario, with the executions whose figures are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from engine.exploration.proven_optimum import Optimum
from engine.recommendation.changes import RecommendationLimits
from engine.recommendation.contenders import ProvenBest
from engine.recommendation.recommended import recommend
from engine.recommendation.shown import NOTHING_RECOMMENDED, FiguresOf
from engine.scenarios.scenario import Scenario
from engine.whatif import Point, PointSequence
from engine.whatif.search import INF
from engine.whatif.studies import sizes

__all__ = ["shown_sizes"]


def shown_sizes(
    scenario: Scenario,
    counts: Sequence[int],
    batch: Literal["kept", "scaled"] = "kept",
    figures_of: FiguresOf = "recommended",
    limits: RecommendationLimits = RecommendationLimits(),  # noqa: B008 - immutable
    largest: float = INF,
) -> PointSequence[Point]:
    """Return the figures of the recommended execution, or of the fastest, for each number of processors.

    Args:
        scenario: the scenario before any change.
        counts: numbers of processors.
        batch: whether the largest batch is constant or grows with the machine.
        figures_of: the choice; where nothing is recommended the fastest stands, and the point's `remark` says so.
        limits: terms of the recommendation.
        largest: executions of a space above which a point is not searched and has this as its `problem` [count].
    """
    if figures_of == "fastest":
        return sizes(scenario, counts, batch, largest)

    def choose(optimum: Optimum) -> tuple[Mapping[str, Any], str]:
        here = optimum.scenario
        best = ProvenBest(optimum["sample_rate"], optimum.tied, optimum)
        own = recommend(here, **limits._asdict(), contenders=0, best=best).execution
        return (optimum, NOTHING_RECOMMENDED) if own is None else (here.row(int(own["id"])), "")

    return sizes(scenario, counts, batch, largest, choose)
