"""Verb about services: the fewest GPUs that hold limits under a load, the deployment, its latencies and cost."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from engine.planners.contract import Cancel, Progress, never, unheard
from engine.questions.bounds import Context
from engine.questions.documents.serving import ServiceQuestion
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.serving import RangeRow
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.serving import (
    FIELDS,
    SERVICE_FIGURES,
    Assumptions,
    ServiceLoad,
    ServiceSizing,
    not_represented,
    size_service,
)
from engine.serving.reasons import by_code
from engine.serving.services import LOAD_REASONS
from engine.serving.uncertainty import SHARE

__all__ = ["SIZE_SERVICE", "reason_label", "service_document", "size_asked_service"]


class NearestRow(Document):
    """Deployment that misses a limit least."""

    row: Row
    latency_s: float = Field(description="Latency without other requests, at the statistic of the limits [s].")
    limit_s: float = Field(description="[s]")


class ServiceAnswer(Document):
    """Services that hold limits under a load."""

    model: str
    system: str
    prompt: int = Field(description="[tokens]")
    output: int = Field(description="[tokens]")
    request_rate: float | None = Field(description="Of an open load [1/s].")
    users: float | None = Field(description="Of a closed load.")
    held_at: str
    room_for_error: bool
    time_to_first_token_limit: float | None = Field(description="[s]; null for none.")
    time_per_output_token_limit: float | None = Field(description="[s]; null for none.")
    request_latency_limit: float | None = Field(description="[s]; null for none.")
    kind: Literal["modelled"] = Field(description="No service under an open load was measured.")
    not_represented: list[str] = Field(description="Parts of the model that the figures leave out or approximate.")
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
    seconds: float = Field(description="Time of the search [s].")


def size_asked_service(
    asked: ServiceQuestion, *, progress: Progress = unheard, cancel: Cancel = never
) -> ServiceSizing:
    """Return the services of a question.

    Args:
        asked: the question.
        progress: called with the share that is done and the current step.
        cancel: returns whether to stop.

    Raises `QuestionError` for a question without a load or with two, `engine.serving.ServingLimitError`,
    `engine.serving.WorkloadError`, `engine.ExplorationCancelled`, and the errors of loading model and system.
    """
    if (asked.request_rate is None) == (asked.users is None):
        raise QuestionError("A service needs a load: give either `request_rate` or `users`.")
    return size_service(
        found_model(asked.model),
        found_system(asked.system),
        load=ServiceLoad(asked.request_rate, asked.users, asked.arrival_cv, asked.prompt_cv, asked.output_cv),
        prompt=asked.prompt,
        output=asked.output,
        num_procs=asked.num_procs,
        most_procs=asked.most_procs,
        limits=asked.limits,
        time_to_first_token=asked.time_to_first_token_s,
        time_per_output_token=asked.time_per_output_token_s,
        request_latency=asked.request_latency_s,
        level=asked.held_at,
        room_for_error=asked.room_for_error,
        price=asked.price_usd_per_h,
        assumptions=None if asked.memory_share is None else Assumptions(reserve_share=1.0 - asked.memory_share),
        progress=progress,
        cancel=cancel,
    )


def reason_label(code: str) -> str:
    """Return the label of a reason why a deployment is no service.

    Args:
        code: of the reason.
    """
    return LOAD_REASONS[code] if code in LOAD_REASONS else by_code(code).label


def service_document(asked: ServiceQuestion, found: ServiceSizing) -> dict[str, Any]:
    """Return the answer to a question as JSON has it.

    Args:
        asked: the question.
        found: its services.
    """
    document = {
        "model": found.model.name,
        "system": found.system.name,
        "prompt": found.prompt,
        "output": found.output,
        "request_rate": asked.request_rate,
        "users": asked.users,
        "held_at": found.limits.level,
        "room_for_error": asked.room_for_error,
        "time_to_first_token_limit": found.limits.first_token,
        "time_per_output_token_limit": found.limits.per_token,
        "request_latency_limit": found.limits.request,
        "kind": "modelled",
        "not_represented": list(not_represented(found.model)),
        "total": found.total,
        "holding": len(found.table),
        "rejected_by_reason": dict(found.rejected),
        "reasons": {code: reason_label(code) for code in found.rejected},
        "best": found.best,
        "ranges": {name: {**each._asdict(), "share": SHARE} for name, each in found.ranges.items()},
        "top": found.top(asked.top).to_dict("records"),
        "curve": found.curve.to_dict("records"),
        "nearest": {
            code: {"row": each.row, "latency_s": each.latency, "limit_s": each.limit}
            for code, each in found.nearest.items()
        },
        "obstacle": found.obstacle,
        "units": {column.name: column.unit for column in (*FIELDS, *SERVICE_FIGURES) if column.unit},
        "seconds": found.seconds,
    }
    return {name: plain(value) for name, value in document.items()}


def _answer_service(asked: ServiceQuestion, context: Context) -> dict[str, Any]:
    return service_document(asked, size_asked_service(asked, progress=context.tell, cancel=context.stops))


SIZE_SERVICE = Verb(
    "size_service",
    "Size a service",
    "Finds the fewest GPUs, the deployment and its cost that serve so many users or requests per second within limits "
    "on latencies, as means or percentiles.",
    ServiceQuestion,
    ServiceAnswer,
    _answer_service,
)
