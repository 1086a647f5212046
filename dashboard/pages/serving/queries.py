"""Queries of the Serving page: the exploration of a question, the recommended deployment, changes."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.compat.caches import remembered
from dashboard.link.fields import NONE
from engine.questions.documents.serving import DeploymentsQuestion
from engine.questions.serving import explore_deployments
from engine.serving import (
    ChangedDeployment,
    DeploymentRecommendation,
    ServingExploration,
    recommend_deployment,
    try_changes,
)
from engine.serving.space import CHOICES

__all__ = ["QuestionChange", "changes", "explored", "question_key", "recommended", "tried_changes"]

MOST_GROWTH: Final = 64
_DISPLAY: Final = {"top", "by", "frontier", "cache_room", "changes", "chosen", "beside", "other_system"}
"""Fields of a question that say nothing of its deployments."""


@st.cache_resource(show_spinner=False, max_entries=24)
def _explore_deployments(key: str, _question: DeploymentsQuestion) -> ServingExploration:
    return explore_deployments(_question)


def question_key(question: DeploymentsQuestion) -> str:
    """Return a text that is equal for questions with equal deployments.

    Args:
        question: the page's question.
    """
    return question.model_dump_json(exclude=_DISPLAY)


def explored(question: DeploymentsQuestion) -> ServingExploration:
    """Returns the exploration of a question, cached. Raises ValueError with one sentence for an invalid question."""
    return _explore_deployments(question_key(question), question)


@remembered(64, copied=False)
def recommended(key: str, cache_room: float, _found: ServingExploration) -> DeploymentRecommendation:
    """Return the recommended deployment, cached.

    Args:
        key: of the question.
        cache_room: as `recommend_deployment` takes it.
    """
    return recommend_deployment(_found, cache_room)


@remembered(32, copied=False)
def tried_changes(
    key: str, cache_room: float, _found: ServingExploration, _advice: DeploymentRecommendation
) -> tuple[ChangedDeployment, ...]:
    """Return the recommended deployments after changes of the question, cached.

    Args:
        key: of the question.
        cache_room: of the recommendation.
    """
    return try_changes(_found, _advice)


class QuestionChange(NamedTuple):
    """A change of the question after which something runs: words, and inputs to set."""

    words: str
    values: dict[str, str | None]
    runs: int


@remembered(64)
def changes(key: str, _question: DeploymentsQuestion) -> list[QuestionChange]:
    """Returns the nearest changes that let something run, each tried; empty if nothing helps."""
    q, now = _question, explored(_question)
    tried: list[tuple[str, dict[str, str | None], dict[str, Any]]] = []
    relaxed: dict[str, str | None] = {}
    arguments: dict[str, Any] = {}
    for name, label, short in (
        ("time_to_first_token", "the first token", "ttft"),
        ("time_per_output_token", "each token", "tpot"),
    ):
        field = f"{name}_s"
        if getattr(q, field) is None:
            continue
        free = _explore_changed(q, **{field: None})
        if free.feasible:
            least = np.ceil(float(free.table[name].min()) * 1e4) / 10
            tried.append((f"Allow {label} {least:g} ms", {short: f"{least:g}"}, {field: least / 1e3}))
        relaxed[short], arguments[field] = NONE, None
    if len(arguments) == 2:
        both = _explore_changed(q, **arguments)
        if both.feasible and not any(words.startswith("Allow") for words, *_ in tried):
            tried.append(_relax_both_limits(both.table, q))
        tried.append(("Drop both limits", relaxed, arguments))
    architecture = now.model.architecture
    longest = None if architecture is None else architecture.max_seq
    if longest is not None and q.prompt + q.output > longest:
        output = min(q.output, max(longest // 4, 1))
        values: dict[str, str | None] = {"prompt": str(longest - output), "output": str(output)}
        tried.append(
            (
                f"Shorten to {longest - output:,} + {output:,} tokens",
                values,
                {"prompt": longest - output, "output": output},
            )
        )
    if 4 not in q.limits.get("weight_bits", []):
        bits = CHOICES["weight_bits"]
        tried.append(
            (
                "Try weights in 4 bits, too",
                {"weight_bits": ",".join(map(str, bits))},
                {"limits": {**q.limits, "weight_bits": list(bits)}},
            )
        )
    factor = 2
    while factor <= MOST_GROWTH and not now.feasible:
        count = q.num_procs * factor
        if _explore_changed(q, num_procs=count).feasible:
            tried.append((f"Use {count:,} GPUs", {"procs": str(count)}, {"num_procs": count}))
            break
        factor *= 2
    found = [QuestionChange(words, values, _explore_changed(q, **changed).feasible) for words, values, changed in tried]
    return [change for change in found if change.runs]


def _relax_both_limits(
    rows: pd.DataFrame, question: DeploymentsQuestion
) -> tuple[str, dict[str, str | None], dict[str, Any]]:
    """Return the change of both limits that the nearest deployment would meet."""
    names = {"time_to_first_token": "ttft", "time_per_output_token": "tpot"}
    limits = {name: float(getattr(question, f"{name}_s")) for name in names}
    nearest = int(np.argmin(np.max([rows[name].to_numpy(np.float64) / limits[name] for name in names], axis=0)))
    # Round up to 0.1 ms, so that it runs with the written limit.
    least = {name: max(np.ceil(float(rows[name].iloc[nearest]) * 1e4) / 10, 1e3 * limits[name]) for name in names}
    first, later = least.values()
    return (
        f"Allow the first token {first:g} ms and each token {later:g} ms",
        {short: f"{least[name]:g}" for name, short in names.items()},
        {f"{name}_s": value / 1e3 for name, value in least.items()},
    )


def _explore_changed(question: DeploymentsQuestion, **changed: Any) -> ServingExploration:
    return explored(question.model_copy(update=changed))
