"""Verb about serving: every way to serve a model, with latencies, throughput, memory and cost."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

import hardware
from engine.planners.contract import Cancel, Progress, never, unheard
from engine.questions.bounds import Context
from engine.questions.documents.serving import DeploymentsQuestion, ServedModel
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.scenarios.scenario import load_entity
from engine.serving import FIELDS, FIGURES, Assumptions, EngineFactors, ServingExploration, explore, not_represented
from engine.serving.reasons import by_code
from engine.serving.space import MOST
from engine.serving.uncertainty import SHARE
from hardware import System

__all__ = [
    "FIND_DEPLOYMENTS",
    "RangeRow",
    "deployments_document",
    "explore_deployments",
    "load_factors",
    "serving_assumptions",
]


class RangeRow(Document):
    """Range of a figure, from servers of models that were left out of the fit."""

    low: float = Field(description="Least measured over modelled.")
    high: float = Field(description="Greatest measured over modelled.")
    share: float = Field(description="Share of comparable servers inside.")
    rows: int = Field(description="Comparable servers.")
    models: int = Field(description="Their models.")
    described: str = Field(description="What they share with the deployment.")


class DeploymentsAnswer(Document):
    """Deployments of a model."""

    model: str
    system: str
    num_procs: int
    prompt: int = Field(description="[tokens]")
    output: int = Field(description="[tokens]")
    time_to_first_token_limit: float | None = Field(description="[s]; null for none.")
    time_per_output_token_limit: float | None = Field(description="[s]; null for none.")
    limits: dict[str, Any]
    factors: str | None = Field(
        description="Sentence that names the measured factors on the latencies; null without factors."
    )
    kind: Literal["modelled"] = Field(description="Modelled with constants fitted to measured kernels and servers.")
    not_represented: list[str] = Field(description="Parts of the model that the figures leave out or approximate.")
    total: int = Field(description="Deployments of the space.")
    feasible: int = Field(description="Deployments that run within the limits.")
    rejected_by_reason: dict[str, int] = Field(description="Numbers of the others, by code of the reason.")
    reasons: dict[str, str] = Field(description="Labels of the codes.")
    best: Row | None = Field(description="Most output per processor, with all figures; null if nothing runs.")
    ranges: dict[str, RangeRow] = Field(
        description="By figure of the best deployment: factors between which most comparable measured servers are; "
        "empty where none was measured."
    )
    top: list[Row] | None = Field(description="Best deployments, best first; null if the frontier is asked for.")
    frontier: list[Row] | None = Field(
        description="Pareto-optimal deployments in output per processor and per user; null unless asked for."
    )
    nearest: dict[str, Row] = Field(description="By reason: the deployment that misses least, with its sentence.")
    obstacle: str = Field(description="Why no layout is valid, and what would help; empty if one is.")
    units: dict[str, str] = Field(description="Units of figures by name.")
    seconds: float = Field(description="Time of the exploration [s].")


def load_factors(value: Any, system: System) -> EngineFactors | None:
    """Return the measured factors of a question; None without.

    Args:
        value: file or document of a calibration; None for none.
        system: that the predictions are of.

    Raises `engine.serving.FactorError`, and the errors of loading a calibration.
    """
    if value is None:
        return None
    found = load_entity(value, "calibration", hardware.load_calibration, hardware.load_calibration_document)
    return EngineFactors.of(found, system)


def serving_assumptions(asked: ServedModel) -> Assumptions:
    """Return the assumptions of a question about serving.

    Args:
        asked: the question.

    Raises `QuestionError` for more accepted tokens than drafts.
    """
    if asked.accepted_tokens > asked.draft_tokens:
        raise QuestionError(
            f"`accepted_tokens` is {asked.accepted_tokens:g}; it must be at most `draft_tokens`, which is "
            f"{asked.draft_tokens}."
        )
    reserve = {} if asked.memory_share is None else {"reserve_share": 1.0 - asked.memory_share}
    return Assumptions(
        prefill_chunk=asked.prefill_chunk,
        prefix_hit_rate=asked.prefix_hit_rate,
        draft_tokens=asked.draft_tokens,
        accepted_tokens=asked.accepted_tokens,
        **reserve,
    )


def explore_deployments(
    asked: DeploymentsQuestion, *, progress: Progress = unheard, cancel: Cancel = never, largest: int = MOST
) -> ServingExploration:
    """Return every deployment of a question.

    Args:
        asked: the question.
        progress: called with the share that is done and the current step.
        cancel: returns whether to stop.
        largest: deployments that a space may have.

    Raises `engine.serving.ServingLimitError`, `engine.serving.SpaceTooLarge`, `engine.serving.WorkloadError`,
    `engine.serving.FactorError`, `engine.ExplorationCancelled`, and the errors of loading model, system and factors.
    """
    system = found_system(asked.system)
    return explore(
        found_model(asked.model),
        system,
        num_procs=asked.num_procs,
        prompt=asked.prompt,
        output=asked.output,
        limits=asked.limits,
        time_to_first_token=asked.time_to_first_token_s,
        time_per_output_token=asked.time_per_output_token_s,
        price=asked.price_usd_per_h,
        assumptions=serving_assumptions(asked),
        requests_per_slot=asked.requests_per_slot,
        factors=load_factors(asked.factors, system),
        progress=progress,
        cancel=cancel,
        largest=largest,
    )


def deployments_document(asked: DeploymentsQuestion, found: ServingExploration) -> dict[str, Any]:
    """Return the answer to a question as JSON has it.

    Args:
        asked: the question.
        found: its deployments.
    """
    rows = found.frontier if asked.frontier else found.top(asked.top, asked.by)
    records = rows.to_dict("records")
    document = {
        "model": found.model.name,
        "system": found.system.name,
        "num_procs": found.space.num_procs,
        "prompt": found.space.prompt,
        "output": found.space.output,
        "time_to_first_token_limit": found.time_to_first_token,
        "time_per_output_token_limit": found.time_per_output_token,
        "limits": dict(found.space.limits),
        "factors": None if found.factors is None else found.factors.describe(),
        "kind": "modelled",
        "not_represented": list(not_represented(found.model)),
        "total": found.total,
        "feasible": found.feasible,
        "rejected_by_reason": dict(found.rejected),
        "reasons": {code: by_code(code).label for code in found.rejected},
        "best": found.best,
        "ranges": {name: {**each._asdict(), "share": SHARE} for name, each in found.ranges.items()},
        "top": None if asked.frontier else records,
        "frontier": records if asked.frontier else None,
        "nearest": {code: found.evaluate_ids([number]).iloc[0].to_dict() for code, number in found.nearest.items()},
        "obstacle": found.obstacle,
        "units": {column.name: column.unit for column in (*FIELDS, *FIGURES) if column.unit},
        "seconds": found.seconds,
    }
    return {name: plain(value) for name, value in document.items()}


def _answer_deployments(asked: DeploymentsQuestion, context: Context) -> dict[str, Any]:
    largest = min(MOST, context.bounds.largest_space)
    found = explore_deployments(asked, progress=context.tell, cancel=context.stops, largest=largest)
    return deployments_document(asked, found)


FIND_DEPLOYMENTS = Verb(
    "find_deployments",
    "Serve a model",
    "Evaluates every way to serve a model for inference: latency, throughput, memory and cost, within limits.",
    DeploymentsQuestion,
    DeploymentsAnswer,
    _answer_deployments,
)
