"""Verb about serving: every way to serve a model, with latencies, throughput, memory and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import pandas as pd
from pydantic import Field

import hardware
from engine.planners.contract import Cancel, Progress, never, unheard
from engine.questions.bounds import Context
from engine.questions.documents.serving import DeploymentsQuestion, ServedModel
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.scenarios.scenario import load_entity
from engine.serving import (
    FIELDS,
    FIGURES,
    Assumptions,
    ChangedDeployment,
    DeploymentComparison,
    DeploymentRecommendation,
    EngineFactors,
    FigureRange,
    ServingExploration,
    compare_deployments,
    explore,
    not_represented,
    recommend_deployment,
    try_changes,
)
from engine.serving.changes import explore_change
from engine.serving.reasons import by_code
from engine.serving.space import MOST
from engine.serving.uncertainty import SHARE
from hardware import System

__all__ = [
    "FIND_DEPLOYMENTS",
    "ConsideredDeployments",
    "RangeRow",
    "choose_deployment",
    "compare_with_second",
    "consider_deployments",
    "deployments_document",
    "explore_deployments",
    "list_ineffective",
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


class AlternativeRow(Document):
    """Best deployment of another layout and precision."""

    row: Row
    reason: str = Field(description="Why it is not recommended.")


class ChangeRow(Document):
    """Recommended deployment after a change of the question."""

    code: str
    words: str
    settings: dict[str, bool | int | float | str | None] = Field(description="Changed fields of the question.")
    recommended: Row | None = Field(description="Null if nothing runs.")
    reason: str
    output: float | None = Field(description="Output of all processors over the present one.")
    output_per_processor: float | None = Field(description="Output per processor over the present one.")
    verdict: str


class ComparisonRow(Document):
    """Two deployments side by side."""

    one: Row
    other: Row
    other_system: str
    differs: dict[str, list[bool | int | float | str | None]] = Field(
        description="Values of both, by field in which they differ."
    )
    ratios: dict[str, float] = Field(description="Figures of the second over the first.")
    step_s: dict[str, float] = Field(description="Parts of a decode step of the second less those of the first [s].")
    is_too_close: bool = Field(description="True if outputs per processor differ by less than the error.")
    sentence: str


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
    ineffective: list[str] = Field(description="A sentence for each stated term that changes nothing.")
    total: int = Field(description="Deployments of the space.")
    feasible: int = Field(description="Deployments that run within the limits.")
    rejected_by_reason: dict[str, int] = Field(description="Numbers of the others, by code of the reason.")
    reasons: dict[str, str] = Field(description="Labels of the codes.")
    recommended: Row | None = Field(
        description="Deployment to run, with all figures: the fewest options of those within the error of the most "
        "output per processor, with room in the cache; null if nothing runs."
    )
    reason: str = Field(description="Why it is recommended; empty if nothing runs.")
    options: list[str] = Field(description="Options that it needs beyond one processor with 16 bits.")
    comparison_error: float = Field(description="Share of the output per processor that is too close to call.")
    cache_room: float = Field(description="Share of its requests for which its cache has room in addition, at least.")
    close: int = Field(description="Deployments too close to call.")
    limits_at_risk: list[str] = Field(
        description="Figures of the recommended deployment that miss their limit at the upper end of their range."
    )
    alternatives: list[AlternativeRow] = Field(
        description="Best of other layouts and precisions, most output first, and why they are not recommended."
    )
    recommended_ranges: dict[str, RangeRow] = Field(description="As `ranges`, of the recommended deployment.")
    chosen: Row | None = Field(description="The deployment that the question chooses; null without one.")
    changes: list[ChangeRow] | None = Field(
        description="Recommended deployments after changes of the question; null unless asked for."
    )
    comparison: ComparisonRow | None = Field(description="Of the deployment with a second one; null without one.")
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


def list_ineffective(asked: ServedModel) -> list[str]:
    """Return a sentence for each stated term of a question about serving that changes nothing.

    Args:
        asked: the question.
    """
    found = []
    if asked.host_cache_gib is not None and not asked.host_hit_share:
        found.append("Host memory for the cache changes nothing: no hits in host memory are stated.")
    if asked.host_hit_share and not asked.prefix_hit_rate:
        found.append("Hits in host memory change nothing: no hits of the prefix cache are stated.")
    return found


def serving_assumptions(asked: ServedModel) -> Assumptions:
    """Return the assumptions of a question about serving.

    Args:
        asked: the question.

    Raises `QuestionError` for drafts that contradict each other, and the errors of loading the draft model.
    """
    if asked.accepted_tokens > asked.draft_tokens:
        raise QuestionError(
            f"`accepted_tokens` is {asked.accepted_tokens:g}; it must be at most `draft_tokens`, which is "
            f"{asked.draft_tokens}."
        )
    if asked.acceptance_rate is not None and asked.accepted_tokens:
        raise QuestionError("Give `acceptance_rate` or `accepted_tokens`, not both.")
    if asked.draft_bits != 16 and asked.draft_model is None:
        raise QuestionError("`draft_bits` is about a draft model; give `draft_model`, too.")
    for name in ("draft_model", "acceptance_rate"):
        if getattr(asked, name) is not None and not asked.draft_tokens:
            raise QuestionError(f"`{name}` needs `draft_tokens` of 1 or more.")
    reserve = {} if asked.memory_share is None else {"reserve_share": 1.0 - asked.memory_share}
    return Assumptions(
        prefill_chunk=asked.prefill_chunk,
        prefix_hit_rate=asked.prefix_hit_rate,
        draft_tokens=asked.draft_tokens,
        accepted_tokens=asked.accepted_tokens,
        acceptance_rate=asked.acceptance_rate,
        draft_model=None if asked.draft_model is None else found_model(asked.draft_model),
        draft_bits=asked.draft_bits,
        lora_adapters=asked.lora_adapters,
        lora_rank=asked.lora_rank,
        host_hit_share=asked.host_hit_share,
        host_cache_gib=asked.host_cache_gib,
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


def choose_deployment(found: ServingExploration, number: int) -> dict[str, Any]:
    """Return a deployment by id with every figure.

    Args:
        found: all deployments.
        number: its id.

    Raises `QuestionError` for an id that does not exist, or a deployment that does not run.
    """
    if number >= found.total:
        raise QuestionError(f"Deployment {number:,} does not exist; ids run from 0 to {found.total - 1:,}.")
    row = {str(name): value for name, value in found.evaluate_ids([number]).iloc[0].items()}
    # Limits do not keep from looking at a deployment, only what has no figures does.
    if pd.isna(row["tokens_per_s"]):
        raise QuestionError(f"Deployment {number:,} does not run: {row['reason_text']}")
    return row


def compare_with_second(
    asked: DeploymentsQuestion,
    found: ServingExploration,
    one: Mapping[str, Any],
    *,
    cancel: Cancel = never,
    largest: int = MOST,
) -> tuple[DeploymentComparison, ServingExploration] | None:
    """Return a deployment next to the second one of a question, and the deployments of the second one's system; None
    for a question without a second one.

    Args:
        asked: the question.
        found: its deployments.
        one: the first deployment with all figures.
        cancel: returns whether to stop.
        largest: deployments that a space may have.

    Raises `QuestionError` if the other system runs nothing, and as `choose_deployment` and `explore_deployments` do.
    """
    there = found
    if asked.other_system is not None:
        # A price that is given is that of the first system.
        there = explore_change(
            found, system=found_system(asked.other_system), price=None, factors=None, cancel=cancel, largest=largest
        )
    elif asked.beside is None:
        return None
    if asked.beside is not None:
        other: Mapping[str, Any] | None = choose_deployment(there, asked.beside)
    else:
        other = recommend_deployment(there, asked.cache_room).row
    if other is None:
        raise QuestionError(f"{there.system.title or there.system.name} runs no deployment within the limits.")
    return compare_deployments(one, other), there


@dataclass(frozen=True, slots=True)
class ConsideredDeployments:
    """Deployments that a question picks out of those found."""

    recommended: DeploymentRecommendation
    chosen: Mapping[str, Any] | None
    """The deployment that the question names by id."""
    changes: Sequence[ChangedDeployment] | None
    compared: tuple[DeploymentComparison, ServingExploration] | None
    """The chosen or else recommended one next to a second one, and the deployments of the second one's system."""


def consider_deployments(
    asked: DeploymentsQuestion, found: ServingExploration, *, cancel: Cancel = never, largest: int = MOST
) -> ConsideredDeployments:
    """Return the recommended, chosen, changed and compared deployments of a question.

    Args:
        asked: the question.
        found: its deployments.
        cancel: returns whether to stop.
        largest: deployments that a space may have.

    Raises `QuestionError` for a deployment that does not exist or does not run, and the errors of exploring.
    """
    recommended = recommend_deployment(found, asked.cache_room)
    chosen = None if asked.chosen is None else choose_deployment(found, asked.chosen)
    first = recommended.row if chosen is None else chosen
    compared = None if first is None else compare_with_second(asked, found, first, cancel=cancel, largest=largest)
    changes = try_changes(found, recommended, cancel=cancel, largest=largest) if asked.changes else None
    return ConsideredDeployments(recommended, chosen, changes, compared)


def deployments_document(
    asked: DeploymentsQuestion, found: ServingExploration, considered: ConsideredDeployments
) -> dict[str, Any]:
    """Return the answer to a question as JSON has it.

    Args:
        asked: the question.
        found: its deployments.
        considered: deployments that the question picks out of them.
    """
    rows = found.frontier if asked.frontier else found.top(asked.top, asked.by)
    records = rows.to_dict("records")
    recommended, changes, compared = considered.recommended, considered.changes, considered.compared
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
        "ineffective": list_ineffective(asked),
        "total": found.total,
        "feasible": found.feasible,
        "rejected_by_reason": dict(found.rejected),
        "reasons": {code: by_code(code).label for code in found.rejected},
        "recommended": recommended.row,
        "reason": recommended.reason,
        "options": list(recommended.options),
        "comparison_error": recommended.error,
        "cache_room": recommended.cache_room,
        "close": recommended.close,
        "limits_at_risk": list(recommended.at_risk),
        "alternatives": [{"row": each.row, "reason": each.reason} for each in recommended.rejected],
        "recommended_ranges": _range_rows(recommended.ranges),
        "chosen": considered.chosen,
        "changes": None if changes is None else [_change_row(each) for each in changes],
        "comparison": None if compared is None else _comparison_row(*compared),
        "best": found.best,
        "ranges": _range_rows(found.ranges),
        "top": None if asked.frontier else records,
        "frontier": records if asked.frontier else None,
        "nearest": {code: found.evaluate_ids([number]).iloc[0].to_dict() for code, number in found.nearest.items()},
        "obstacle": found.obstacle,
        "units": {column.name: column.unit for column in (*FIELDS, *FIGURES) if column.unit},
        "seconds": found.seconds,
    }
    return {name: plain(value) for name, value in document.items()}


def _range_rows(ranges: Mapping[str, FigureRange]) -> dict[str, Any]:
    return {name: {**each._asdict(), "share": SHARE} for name, each in ranges.items()}


_SETTINGS: Final = {"time_to_first_token": "time_to_first_token_s", "time_per_output_token": "time_per_output_token_s"}
"""Fields of the question by argument of `engine.serving.explore`, where the names differ."""


def _change_row(changed: ChangedDeployment) -> dict[str, Any]:
    return {
        "code": changed.code,
        "words": changed.words,
        "settings": {_SETTINGS.get(name, name): value for name, value in changed.settings.items()},
        "recommended": changed.recommendation.row,
        "reason": changed.recommendation.reason,
        "output": changed.output,
        "output_per_processor": changed.output_per_gpu,
        "verdict": changed.verdict,
    }


def _comparison_row(compared: DeploymentComparison, there: ServingExploration) -> dict[str, Any]:
    return {
        "one": compared.one,
        "other": compared.other,
        "other_system": there.system.name,
        "differs": {name: list(values) for name, values in compared.differs.items()},
        "ratios": compared.ratios,
        "step_s": compared.step,
        "is_too_close": compared.is_too_close,
        "sentence": compared.sentence,
    }


def _answer_deployments(asked: DeploymentsQuestion, context: Context) -> dict[str, Any]:
    largest = min(MOST, context.bounds.largest_space)
    found = explore_deployments(asked, progress=context.tell, cancel=context.stops, largest=largest)
    considered = consider_deployments(asked, found, cancel=context.stops, largest=largest)
    return deployments_document(asked, found, considered)


FIND_DEPLOYMENTS = Verb(
    "find_deployments",
    "Serve a model",
    "Recommends a deployment of a model for inference and evaluates all others: latency, throughput, memory and cost "
    "within limits; on request also what one more GPU or half the context changes, and two deployments side by side.",
    DeploymentsQuestion,
    DeploymentsAnswer,
    _answer_deployments,
)
