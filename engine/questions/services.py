"""Verb about services: the fewest GPUs that hold limits under a load, the deployment, its latencies and cost."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field

from engine.planners.contract import Cancel, Progress, never, unheard
from engine.questions.bounds import Context
from engine.questions.documents.serving import LoadedModel, ServiceQuestion
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.serving import RangeRow, list_ineffective, load_factors, serving_assumptions
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.serving import (
    FIELDS,
    SERVICE_FIGURES,
    PoolSizing,
    ServiceLoad,
    ServiceSizing,
    compare_services,
    not_represented,
    size_pools,
    size_service,
)
from engine.serving.reasons import by_code
from engine.serving.services import LOAD_REASONS
from engine.serving.uncertainty import SHARE

__all__ = [
    "SIZE_SERVICE",
    "asked_limits",
    "compare_asked",
    "reason_label",
    "service_document",
    "size_asked_pools",
    "size_asked_service",
]


class NearestRow(Document):
    """Deployment that misses a limit least."""

    row: Row
    latency_s: float = Field(description="Latency without other requests, at the statistic of the limit [s].")
    limit_s: float = Field(description="[s]")
    held_at: str = Field(description="Statistic that the limit holds for.")


class PoolServiceRow(Document):
    """A disaggregated service: both pools with the number of their deployments, and figures of both."""

    prefill: Row
    decode: Row
    figures: Row


class PoolsAnswer(Document):
    """Disaggregated services that hold the limits."""

    best: PoolServiceRow | None = Field(description="Fewest GPUs, of these the most headroom; null if none holds.")
    top: list[PoolServiceRow]
    prefill_system: str
    prefill_deployments: int = Field(description="That run and were tried.")
    decode_deployments: int = Field(description="That run and were tried.")
    pairs: int = Field(description="Pairs of both with one engine, and the cache in the same bits.")
    evaluated: int = Field(description="Pairs whose latencies were computed; a bound ruled out the others.")
    link_gb_per_s: float = Field(description="Rate of a GPU's link between the pools, one way.")
    least_per_rate: float | None = Field(
        description="Bound of the GPUs per request and second, or per user, at large loads."
    )
    obstacle: str = Field(description="Why no pair holds the limits; empty if one does.")
    seconds: float = Field(description="Time of the search [s].")


class ServiceAnswer(Document):
    """Services that hold limits under a load."""

    model: str
    system: str
    prompt: int = Field(description="[tokens]")
    output: int = Field(description="[tokens]")
    request_rate: float | None = Field(description="Of an open load [1/s].")
    users: float | None = Field(description="Of a closed load.")
    think_s: float = Field(description="Pause of a user between an answer and the next request [s].")
    held_at: str
    room_for_error: bool
    time_to_first_token_limit: float | None = Field(description="[s]; null for none.")
    time_per_output_token_limit: float | None = Field(description="[s]; null for none.")
    request_latency_limit: float | None = Field(description="[s]; null for none.")
    mean_first_token_limit: float | None = Field(description="On the mean besides [s]; null for none.")
    mean_per_token_limit: float | None = Field(description="On the mean besides [s]; null for none.")
    factors: str | None = Field(
        description="Sentence that names the measured factors on the latencies; null without factors."
    )
    kind: Literal["modelled"] = Field(description="No service under an open load was measured.")
    not_represented: list[str] = Field(description="Parts of the model that the figures leave out or approximate.")
    ineffective: list[str] = Field(description="A sentence for each stated term that changes nothing.")
    total: int = Field(description="Deployments that were tried.")
    holding: int = Field(description="Deployments that hold the limits under the load.")
    rejected_by_reason: dict[str, int] = Field(description="Numbers of the others, by code of the reason.")
    reasons: dict[str, str] = Field(description="Labels of the codes.")
    best: Row | None = Field(
        description="Fewest GPUs, of these the most headroom: number of deployments, GPUs, the deployment, latencies, "
        "cost; null if none holds the limits."
    )
    ranges: dict[str, RangeRow] = Field(
        description="Of the mean latencies of the best service: factors between which most comparable measured servers "
        "are, all under closed loads; empty where none was measured."
    )
    top: list[Row] = Field(description="Best services, best first.")
    curve: list[Row] = Field(description="Latencies of the best service against its load, up to saturation.")
    nearest: dict[str, NearestRow] = Field(description="By limit: the deployment that misses it least, without load.")
    obstacle: str = Field(description="Why nothing was tried, and what would help; empty if something was.")
    units: dict[str, str] = Field(description="Units of figures by name.")
    disaggregated: PoolsAnswer | None = Field(description="Prefill and decode in two pools; null if not asked for.")
    recommended: Literal["aggregated", "disaggregated"] | None = Field(
        description="Kind of the recommended service; null if none holds the limits."
    )
    comparison: str = Field(description="Why one kind is better than the other; empty if pools were not asked for.")
    seconds: float = Field(description="Time of the search [s].")


def asked_limits(asked: LoadedModel) -> dict[str, Any]:
    """Return the limits on latencies of a question as `engine.serving.size_service` takes them.

    Args:
        asked: the question.
    """
    return {
        "time_to_first_token": asked.time_to_first_token_s,
        "time_per_output_token": asked.time_per_output_token_s,
        "request_latency": asked.request_latency_s,
        "level": asked.held_at,
        "mean_time_to_first_token": asked.mean_first_token_s,
        "mean_time_per_output_token": asked.mean_per_token_s,
    }


def _asked_load(asked: ServiceQuestion) -> ServiceLoad:
    """Return the load of a question. Raises `QuestionError` for a question without a load or with two."""
    if (asked.request_rate is None) == (asked.users is None):
        raise QuestionError("A service needs a load: give either `request_rate` or `users`.")
    if asked.think_s and asked.users is None:
        raise QuestionError("`think_s` is the pause of users between requests; give `users`, or leave `think_s` out.")
    return ServiceLoad(
        asked.request_rate, asked.users, asked.arrival_cv, asked.prompt_cv, asked.output_cv, asked.think_s
    )


def size_asked_service(
    asked: ServiceQuestion, *, progress: Progress = unheard, cancel: Cancel = never
) -> ServiceSizing:
    """Return the services of a question.

    Args:
        asked: the question.
        progress: called with the share that is done and the current step.
        cancel: returns whether to stop.

    Raises `QuestionError` for a question without a load or with two, `engine.serving.ServingLimitError`,
    `engine.serving.WorkloadError`, `engine.serving.FactorError`, `engine.ExplorationCancelled`, and the errors of
    loading model, system and factors.
    """
    system = found_system(asked.system)
    return size_service(
        found_model(asked.model),
        system,
        load=_asked_load(asked),
        prompt=asked.prompt,
        output=asked.output,
        num_procs=asked.num_procs,
        most_procs=asked.most_procs,
        limits=asked.limits,
        **asked_limits(asked),
        room_for_error=asked.room_for_error,
        price=asked.price_usd_per_h,
        assumptions=serving_assumptions(asked),
        factors=load_factors(asked.factors, system),
        progress=progress,
        cancel=cancel,
    )


def size_asked_pools(
    asked: ServiceQuestion, *, progress: Progress = unheard, cancel: Cancel = never
) -> PoolSizing | None:
    """Return the disaggregated services of a question; None if it asks for none.

    Args:
        asked: the question.
        progress: called with the share that is done and the current step.
        cancel: returns whether to stop.

    Raises `QuestionError` for an option that pools do not have, and else as `size_asked_service` does.
    """
    if asked.disaggregated == "no":
        named = ("prefill_system", "prefill_limits", "transfer_gb_per_s")
        for name in (each for each in named if getattr(asked, each)):
            raise QuestionError(f"`{name}` is about two pools; give `disaggregated` yes or either, too.")
        return None
    for name, words in (
        ("room_for_error", "no pair of pools was measured under load"),
        ("num_procs", "give the most GPUs as `most_procs`"),
    ):
        if getattr(asked, name):
            raise QuestionError(f"`{name}` cannot be given with two pools: {words}.")
    system = found_system(asked.system)
    return size_pools(
        found_model(asked.model),
        system,
        load=_asked_load(asked),
        prompt=asked.prompt,
        output=asked.output,
        prefill_system=None if asked.prefill_system is None else found_system(asked.prefill_system),
        most_procs=asked.most_procs,
        limits=asked.limits,
        prefill_limits=asked.prefill_limits,
        transfer_gb_per_s=asked.transfer_gb_per_s,
        **asked_limits(asked),
        price=asked.price_usd_per_h,
        assumptions=serving_assumptions(asked),
        factors=load_factors(asked.factors, system),
        top=asked.top,
        progress=progress,
        cancel=cancel,
    )


def compare_asked(asked: ServiceQuestion, found: ServiceSizing, pools: PoolSizing | None) -> tuple[str | None, str]:
    """Return the recommended kind of service, and why; no reason without pools.

    Args:
        asked: the question.
        found: services whose replicas prefill and decode.
        pools: disaggregated ones; None if not asked for.
    """
    if pools is None:
        return None if found.best is None else "aggregated", ""
    better, why = compare_services(found, pools)
    if asked.disaggregated == "yes":
        better = None if pools.best is None else "disaggregated"
    return better, why


def _pools_document(pools: PoolSizing | None) -> dict[str, Any] | None:
    if pools is None:
        return None
    rows = [each._asdict() for each in pools.services]
    return {
        "best": rows[0] if rows else None,
        "top": rows,
        "prefill_system": pools.systems[0].name,
        "prefill_deployments": pools.tried[0],
        "decode_deployments": pools.tried[1],
        "pairs": pools.pairs,
        "evaluated": pools.evaluated,
        "link_gb_per_s": pools.bandwidth / 1e9,
        "least_per_rate": pools.least_per_rate if math.isfinite(pools.least_per_rate) else None,
        "obstacle": pools.obstacle,
        "seconds": pools.seconds,
    }


def reason_label(code: str) -> str:
    """Return the label of a reason why a deployment is no service.

    Args:
        code: of the reason.
    """
    return LOAD_REASONS[code] if code in LOAD_REASONS else by_code(code).label


def service_document(asked: ServiceQuestion, found: ServiceSizing, pools: PoolSizing | None = None) -> dict[str, Any]:
    """Return the answer to a question as JSON has it.

    Args:
        asked: the question.
        found: its services.
        pools: disaggregated ones; None if not asked for.
    """
    recommended, comparison = compare_asked(asked, found, pools)
    document = {
        "model": found.model.name,
        "system": found.system.name,
        "prompt": found.prompt,
        "output": found.output,
        "request_rate": asked.request_rate,
        "users": asked.users,
        "think_s": asked.think_s,
        "held_at": found.limits.level,
        "room_for_error": asked.room_for_error,
        "time_to_first_token_limit": found.limits.first_token,
        "time_per_output_token_limit": found.limits.per_token,
        "request_latency_limit": found.limits.request,
        "mean_first_token_limit": found.limits.mean_first_token,
        "mean_per_token_limit": found.limits.mean_per_token,
        "factors": None if found.factors is None else found.factors.describe(),
        "kind": "modelled",
        "not_represented": list(not_represented(found.model)),
        "ineffective": list_ineffective(asked),
        "total": found.total,
        "holding": len(found.table),
        "rejected_by_reason": dict(found.rejected),
        "reasons": {code: reason_label(code) for code in found.rejected},
        "best": found.best,
        "ranges": {name: {**each._asdict(), "share": SHARE} for name, each in found.ranges.items()},
        "top": found.top(asked.top).to_dict("records"),
        "curve": found.curve.to_dict("records"),
        "nearest": {
            code: {"row": each.row, "latency_s": each.latency, "limit_s": each.limit, "held_at": each.level}
            for code, each in found.nearest.items()
        },
        "obstacle": found.obstacle,
        "units": {column.name: column.unit for column in (*FIELDS, *SERVICE_FIGURES) if column.unit},
        "disaggregated": _pools_document(pools),
        "recommended": recommended,
        "comparison": comparison,
        "seconds": found.seconds,
    }
    return {name: plain(value) for name, value in document.items()}


def _answer_service(asked: ServiceQuestion, context: Context) -> dict[str, Any]:
    pools = size_asked_pools(asked, progress=context.tell, cancel=context.stops)
    return service_document(asked, size_asked_service(asked, progress=context.tell, cancel=context.stops), pools)


SIZE_SERVICE = Verb(
    "size_service",
    "Size a service",
    "Finds the fewest GPUs, the deployment and its cost that serve so many users or requests per second within limits "
    "on latencies, as means or percentiles; on request with prefill and decode in two pools.",
    ServiceQuestion,
    ServiceAnswer,
    _answer_service,
)
