"""The verb that recommends an execution: the simplest whose throughput cannot be distinguished from the best."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from engine.exploration.result import Exploration
from engine.questions.bounds import Context
from engine.questions.documents.explorations import RecommendationTermsQuestion, RecommendQuestion
from engine.questions.framework_costs import FrameworkCostRow, framework_cost_of, searchable_scenario
from engine.questions.plain import chosen_statistics, plain, rows_of, units_of
from engine.questions.scenario_documents import ScenarioSummary, summary_of
from engine.questions.verb import Document, Row, Verb
from engine.recommendation import ProvenBest, Recommendation, Searched, mechanisms_of, recommend, with_fit
from engine.scenarios.scenario import Scenario
from engine.store import StoreCondition
from engine.whatif.prepared_spaces import AnyReadySpace

__all__ = ["RECOMMEND", "find_recommendation", "recommendation_document"]


class MemoryInterval(Document):
    """Interval of the memory that a GPU needs."""

    low: float = Field(description="[bytes]")
    high: float = Field(description="[bytes]")
    share: float = Field(description="Share of comparable measured runs between them.")


class ContenderRow(Document):
    """The best of another layout."""

    id: int
    sample_rate: float
    reason: str = Field(description="Why it is not recommended; empty for the recommended one.")


class RecommendAnswer(ScenarioSummary):
    """The recommended execution beside the fastest."""

    framework_cost: FrameworkCostRow | None = Field(description=FrameworkCostRow.summary)
    recommended: Row | None = Field(description="The execution to run; null where nothing is allowed or runs.")
    fastest: Row | None
    mechanisms: list[str] = Field(description="What the recommended one takes, in words.")
    fastest_takes: list[str] = Field(description="What the fastest takes beyond that.")
    fastest_faster_by: float | None = Field(description="[fraction]")
    fastest_loses_because: str
    stake_usd: float | None = Field(
        description="Cost of training 1e12 tokens that depends on whether the rival is as fast as predicted [USD]; "
        "null without a rival or a price."
    )
    rival_id: int | None = Field(
        description="Fastest execution within the error: measure it and the recommended one. Null if it leads by less "
        "than 0.5 %."
    )
    error: float = Field(description="Share of the throughput that is too close to call.")
    headroom: float = Field(description="Share of predicted memory that is kept free.")
    memory: MemoryInterval | None = Field(description="Of the recommended one; null where no measured run tells.")
    close: int = Field(description="How many executions are too close to call.")
    contenders: list[ContenderRow]
    units: dict[str, str] = Field(description="Units of the statistics by name.")
    seconds: float


def recommendation_document(found: Recommendation) -> dict[str, Any]:
    """Returns a recommendation as a document: the terms, the recommended execution, and why others lose.

    Args:
        found: what `engine.recommendation.recommend` returned.
    """
    terms, own = found.terms, found.execution
    told = None
    if own is not None:
        told = dict(own) | {"mechanisms": list(mechanisms_of(own).values()), "memory": _memory_interval(found)}
    return {
        "error": terms.error,
        "headroom": terms.headroom,
        "offload": terms.offload,
        "unmeasured": terms.unmeasured,
        "not_measured": list(found.waived),
        "close": found.close,
        "execution": told,
        "fastest_faster_by": found.difference,
        "fastest_takes": list(found.takes),
        "fastest_loses_because": found.why,
        "stake_usd": found.stake_usd,
        "rival_id": None if found.rival is None else int(found.rival["id"]),
        "contenders": [
            {"id": one.id, "sample_rate": float(one.execution["sample_rate"]), "reason": one.reason}
            for one in found.contenders
        ],
    }


def _memory_interval(found: Recommendation) -> dict[str, float] | None:
    """Return the interval of memory that the recommended execution may need [bytes]; None without measured runs."""
    interval, own = found.terms.memory, found.execution
    if interval is None or own is None:
        return None
    needed = float(own["proc_mem_tier1_cap_req"])
    return {"low": needed * interval.low, "high": needed * interval.high, "share": interval.share}


def find_recommendation(
    searched: Scenario | Exploration | Searched,
    terms: RecommendationTermsQuestion,
    *,
    where: Sequence[StoreCondition] = (),
    contenders: int = 10,
    best: ProvenBest | None = None,
    prepared: AnyReadySpace | None = None,
    near: Mapping[str, Any] | None = None,
) -> Recommendation:
    """Return the recommended execution of a scenario. See `engine.recommendation.recommend`.

    Args:
        searched: the scenario, its exploration, or a search of it with bounds.
        terms: of the recommendation.
        where: conditions that executions of an exploration must meet.
        contenders: how many of the best to say of why they lose.
        best: the fastest executions of the scenario, if they are known.
        prepared: the space of the scenario, if it is prepared.
        near: fields of an execution that may be like the recommended one.
    """
    return recommend(
        searched,
        headroom=terms.headroom,
        offload=terms.offload,
        unmeasured=terms.unmeasured,
        contenders=contenders,
        where=where,
        best=best,
        prepared=prepared,
        near=near,
    )


def _answer_recommend(asked: RecommendQuestion, context: Context) -> dict[str, Any]:
    start = time.perf_counter()
    scenario = context.bounds.searchable(searchable_scenario(asked.scenario))
    statistics = chosen_statistics(scenario.cost_model, asked.statistics)
    found = find_recommendation(scenario, asked)
    document = recommendation_document(found)

    def row(execution: Mapping[str, Any] | None) -> dict[str, Any] | None:
        if execution is None:
            return None
        table = scenario.evaluate(scenario.space.table([int(execution["id"])]))
        table.insert(0, "id", [int(execution["id"])])
        return rows_of(with_fit(scenario, table), scenario.cost_model, statistics)[0]

    own = found.execution
    same = (
        "error",
        "headroom",
        "close",
        "fastest_takes",
        "fastest_faster_by",
        "fastest_loses_because",
        "stake_usd",
        "rival_id",
        "contenders",
    )
    return {
        **summary_of(scenario),
        **{name: plain(document[name]) for name in same},
        "framework_cost": framework_cost_of(scenario),
        "recommended": row(own),
        "fastest": row(found.fastest),
        "mechanisms": [] if own is None else list(mechanisms_of(own).values()),
        "memory": plain(_memory_interval(found)),
        "units": units_of(statistics),
        "seconds": time.perf_counter() - start,
    }


RECOMMEND = Verb(
    "recommend",
    "Recommended execution",
    "Says which execution to run: the simplest whose throughput cannot be told from the best, with memory to spare.",
    RecommendQuestion,
    RecommendAnswer,
    _answer_recommend,
)
