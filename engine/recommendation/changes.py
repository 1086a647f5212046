"""Effect of a change between the executions whose figures are shown: recommended before and after, or fastest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

import pandas as pd

from engine.exploration.result import first_row
from engine.recommendation.contenders import ProvenBest
from engine.recommendation.recommended import recommend
from engine.recommendation.shown import NOTHING_RECOMMENDED, FiguresOf
from engine.scenarios.scenario import Scenario
from engine.whatif import Answer, Choice
from engine.whatif.kept import Kept
from engine.whatif.prepared_spaces import ready
from engine.whatif.search import Searcher, first_enumerated, searcher_of, transfer_execution
from engine.whatif.studies import reoptimise

__all__ = ["RecommendationLimits", "ShownChange", "reoptimise_shown"]

_BASES_KEPT: Final = 64
"""Recommendations of bases that are kept: users change one many times."""


class RecommendationLimits(NamedTuple):
    """Terms that a user may set, see `engine.recommendation.recommend`."""

    headroom: float | None = None
    offload: bool = False
    unmeasured: bool = False


@dataclass(frozen=True, slots=True)
class ShownChange(Answer):
    """Effect of a change, of the executions whose figures are shown: `base` before, `best` after, and `kept`.

    `figures_of` and `base_figures_of`: roles of `best` and `base`. `remark` and `base_remark`: why one of them is not
    of the role that was asked for; empty otherwise. `fastest`: the effect on the fastest executions, None where these
    are shown.
    """

    figures_of: FiguresOf = "fastest"
    base_figures_of: FiguresOf = "fastest"
    remark: str = ""
    base_remark: str = ""
    fastest: Answer | None = None

    @property
    def of_fastest(self) -> Answer:
        """Effect on the fastest executions."""
        return self if self.fastest is None else self.fastest

    @property
    def has_less_from_more(self) -> bool:
        """Return whether the shown throughput falls although the fastest execution does not become slower."""
        return self.gain < 0.0 <= self.of_fastest.gain


class _Base(NamedTuple):
    """Recommended execution of a scenario with every statistic; None if nothing is recommended."""

    row: dict[str, Any] | None


_bases: Kept[_Base] = Kept(_BASES_KEPT)


def reoptimise_shown(
    scenario: Scenario,
    changes: Mapping[str, float],
    figures_of: FiguresOf = "recommended",
    limits: RecommendationLimits = RecommendationLimits(),  # noqa: B008 - immutable
    choose: Choice = first_enumerated,
) -> ShownChange:
    """Return the effect of a change on the recommended execution, or on the fastest.

    Args:
        scenario: the scenario before any change.
        changes: values by name of `engine.whatif.parameters`.
        figures_of: the choice; without a recommended execution before or after, the fastest stands there.
        limits: terms of the recommendation.
        choose: which of several executions that tie is the fastest.

    Raises as `engine.whatif.reoptimise`, and ValueError for a headroom outside its range.
    """
    start = time.perf_counter()
    found = reoptimise(scenario, changes, choose)
    if figures_of == "fastest" or (found.base is None and found.best is None):
        return _of_answer(found)
    searcher = searcher_of(scenario, choose)
    own = _bases.get((scenario.key, choose, limits), lambda: _recommend_base(searcher, limits)).row
    base = found.base if own is None else own
    kept = found.kept if own is None else _evaluate_kept(found.scenario, own)
    best = own
    if changes:
        after = recommend(
            found.scenario,
            **limits._asdict(),
            contenders=0,
            best=ProvenBest(None if found.best is None else float(found.best["sample_rate"]), found.tied, found.best),
            prepared=ready(found.scenario),
            near=kept,
        ).execution
        best = None if after is None else _row_of(searcher, found.scenario, int(after["id"]))
    return _of_answer(
        replace(
            found,
            base=base,
            best=found.best if best is None else best,
            kept=kept,
            seconds=time.perf_counter() - start,
        ),
        figures_of="fastest" if best is None else "recommended",
        base_figures_of="fastest" if own is None else "recommended",
        remark="" if best is not None or found.best is None else NOTHING_RECOMMENDED,
        base_remark="" if own is not None or base is None else NOTHING_RECOMMENDED,
        fastest=found,
    )


def _recommend_base(searcher: Searcher, limits: RecommendationLimits) -> _Base:
    scenario, fastest = searcher.scenario, searcher.base
    best = ProvenBest(None if fastest is None else float(fastest["sample_rate"]), searcher.base_tied, fastest)
    found = recommend(scenario, **limits._asdict(), contenders=0, best=best, prepared=searcher.space).execution
    return _Base(None if found is None else _row_of(searcher, scenario, int(found["id"])))


def _row_of(searcher: Searcher, scenario: Scenario, number: int) -> dict[str, Any]:
    """Return an execution with its id and every statistic."""
    return {"id": number} | searcher.row(scenario, number)


def _evaluate_kept(after: Scenario, base: Mapping[str, Any]) -> dict[str, Any]:
    """Return the execution before as it runs after the change, with the reason if it does not run."""
    return first_row(after.evaluate(pd.DataFrame([transfer_execution(base, after)])))


def _of_answer(found: Answer, **more: Any) -> ShownChange:
    return ShownChange(**{each.name: getattr(found, each.name) for each in fields(Answer)}, **more)
