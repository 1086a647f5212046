"""Every verb by name, and the one call that answers a question."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError

from engine.exploration.run import ExplorationCancelled
from engine.planners.contract import PlanCancelledError
from engine.questions.bounds import Context
from engine.questions.calibrations import CALIBRATE
from engine.questions.changes import LIST_PARAMETERS, SENSITIVITY, WHAT_IF
from engine.questions.comparison import COMPARE
from engine.questions.cost import COST
from engine.questions.days import PLAN_DAY
from engine.questions.designs import CODESIGN
from engine.questions.distir import SIMULATE_DISTIR
from engine.questions.elastic_cards import (
    CARD_CURVE,
    CARD_PHASES,
    LIST_CARDS,
    PLAN_CARD,
)
from engine.questions.elastic_fits import CARD_ACCURACY, COMPARE_LOSSES, FIT_CARD
from engine.questions.elastic_jobs import REPLAY_WORKLOAD, SPLIT_GPUS
from engine.questions.elastic_models import PLAN_ELASTIC
from engine.questions.executions import EVALUATE, EXPORT_LAUNCH, IMPORT_LAUNCH, OPERATIONS
from engine.questions.explorations import BEST, EXPLORE
from engine.questions.fine_tuning import PLAN_FINE_TUNING
from engine.questions.fleets import PLAN_FLEET
from engine.questions.layer_plans import PLAN_LAYERS
from engine.questions.library import LIST_COLUMNS, LIST_MODELS, LIST_SYSTEMS
from engine.questions.nearest_runs import NORMAL
from engine.questions.plans import PLAN_OPERATORS
from engine.questions.post_training import PLAN_POST_TRAINING
from engine.questions.recommendations import RECOMMEND
from engine.questions.run_plans import PLAN_RUN
from engine.questions.schedules import LIST_SCHEDULES, SIMULATE_EXECUTION, SIMULATE_SCHEDULE
from engine.questions.servers import COMPARE_SERVERS
from engine.questions.services import SIZE_SERVICE
from engine.questions.serving import FIND_DEPLOYMENTS
from engine.questions.serving_launch import EXPORT_DEPLOYMENT, IMPORT_DEPLOYMENT
from engine.questions.standings import STANDING
from engine.questions.traced_steps import COMPARE_TRACE
from engine.questions.validations import VALIDATE
from engine.questions.verb import QuestionError, Verb
from models.documents import did_you_mean, sentence, shown

__all__ = ["VERBS", "answer", "verb_of"]

VERBS: Final[Mapping[str, Verb]] = {
    each.name: each
    for each in (
        LIST_MODELS,
        LIST_SYSTEMS,
        LIST_COLUMNS,
        EXPLORE,
        BEST,
        RECOMMEND,
        EVALUATE,
        OPERATIONS,
        LIST_PARAMETERS,
        WHAT_IF,
        SENSITIVITY,
        COMPARE,
        COST,
        PLAN_RUN,
        PLAN_FLEET,
        PLAN_POST_TRAINING,
        PLAN_FINE_TUNING,
        FIND_DEPLOYMENTS,
        EXPORT_DEPLOYMENT,
        IMPORT_DEPLOYMENT,
        SIZE_SERVICE,
        PLAN_DAY,
        COMPARE_SERVERS,
        PLAN_LAYERS,
        PLAN_ELASTIC,
        PLAN_OPERATORS,
        LIST_SCHEDULES,
        SIMULATE_SCHEDULE,
        SIMULATE_EXECUTION,
        SIMULATE_DISTIR,
        LIST_CARDS,
        PLAN_CARD,
        CARD_CURVE,
        CARD_PHASES,
        CARD_ACCURACY,
        FIT_CARD,
        COMPARE_LOSSES,
        SPLIT_GPUS,
        REPLAY_WORKLOAD,
        CODESIGN,
        EXPORT_LAUNCH,
        IMPORT_LAUNCH,
        COMPARE_TRACE,
        STANDING,
        NORMAL,
        VALIDATE,
        CALIBRATE,
    )
}
"""Verbs in the order in which they are offered."""


def verb_of(name: str) -> Verb:
    """Return the verb of a name.

    Args:
        name: name of a verb, such as "best".

    Raises `QuestionError` for an unknown name.
    """
    found = VERBS.get(name)
    if found is None:
        raise QuestionError(f"There is no verb {shown(name)}{did_you_mean(name, list(VERBS))}.")
    return found


def answer(name: str, question: Any, context: Context | None = None) -> dict[str, Any]:
    """Returns the answer to a question, as JSON has it.

    Args:
        name: of the verb, such as "best".
        question: a document as the verb takes it.
        context: bounds, who hears of progress, and what says to stop; the usual bounds where None.

    Raises `QuestionError` where the question is not understood or takes too long, `engine.ExplorationCancelled` where
    the context says to stop, and what the engine raises for what cannot be: a ValueError with a sentence.
    """
    verb, context = verb_of(name), context or Context()
    if not isinstance(question, Mapping):
        raise QuestionError(f"The question is {shown(question)}; it must be a JSON object.")
    latest = time.monotonic() + context.bounds.longest_seconds

    def stops() -> bool:
        return context.stops() or time.monotonic() > latest

    try:
        asked = verb.asks.model_validate(dict(question))
        found = verb.run(asked, replace(context, stops=stops))
    except ValidationError as problem:
        raise QuestionError(sentence(problem, verb.asks, "The question")) from None
    except (ExplorationCancelled, PlanCancelledError):
        if context.stops():
            raise ExplorationCancelled("The question was taken back.") from None
        raise QuestionError(too_long(context.bounds.longest_seconds)) from None
    return verb.answers.model_validate(found).model_dump()


def too_long(seconds: float) -> str:
    """Returns the sentence for a question whose time is over.

    Args:
        seconds: that it may take [s].
    """
    return f"The question was given up after {seconds:,.0f} s, the limit here; limit some fields to make it smaller."
