"""Verb about co-design: the front of a study, the best design per budget, binding constraints, worth of more."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from pydantic import Field

from engine.codesign import (
    BindingReport,
    Progress,
    Results,
    Study,
    StudyCancelled,
    StudyError,
    bill,
    ready_names,
    ready_study,
    results,
    run,
    sensitivity,
    unpriced,
)
from engine.codesign.quantities import quantity
from engine.exploration.run import ExplorationCancelled
from engine.questions.bounds import Context
from engine.questions.design_pairs import (
    DesignPair,
    DesignPairAnswer,
    compare_designs,
    pair_document,
    shown_sides,
    side_document,
)
from engine.questions.documents.codesign import CodesignQuestion, DesignsQuestion
from engine.questions.plain import plain
from engine.questions.shown_executions import ShownAnswer
from engine.questions.verb import Document, QuestionError, Row, Verb
from models.documents import did_you_mean, shown

__all__ = [
    "CODESIGN",
    "DesignFindings",
    "designs_document",
    "find_designs",
    "find_pair",
    "find_study",
    "find_worth",
]


class CodesignAnswer(Document):
    """Designs of a study: the best, the front, budgets, and constraints."""

    study: str = Field(description="Name of the study.")
    key: str = Field(description="Hash of all that its points depend on.")
    complete: bool = Field(description="Whether all points are computed.")
    points: int
    of: str
    at: str
    best: Row | None = Field(description="Best design in the first objective; null if none meets all constraints.")
    unpriced: dict[str, list[str]] = Field(description="Parameters without a price, by quantity.")
    best_per_budget: list[Row] | None = Field(description="Best design of each budget; null without a budget.")
    front: list[Row] | None = Field(description="Pareto-optimal designs; null with one objective.")
    binding: list[Row] | None = Field(
        description="Constraints: slack of the best design, designs refused, gain without it; null without constraints."
    )
    constraints: dict[str, Any] | None = Field(description="Smallest set of binding constraints, and counts.")
    sensitivity: list[Row] | None = Field(description="Worth of more of each rate and capacity, if asked for.")
    shown: dict[str, ShownAnswer | None] | None = Field(
        description="Executions of the best design by model, recommended or fastest as asked; designs are ranked by "
        "the fastest."
    )
    pair: DesignPairAnswer | None = Field(description="Two designs next to each other, if asked for.")


@dataclass(frozen=True, slots=True)
class DesignFindings:
    """Answers about the designs of a study. `best` is the best design of all, None without one."""

    results: Results
    objectives: list[str]
    asked: DesignsQuestion
    budget: str
    """Bounded figure; empty without a bound."""
    objective: str
    best: dict[str, object] | None
    per_budget: pd.DataFrame | None
    front: pd.DataFrame | None
    binding: BindingReport | None


def find_designs(found: Results, asked: DesignsQuestion) -> DesignFindings:
    """Return the answers to a question about computed points.

    Args:
        found: points of a study.
        asked: the question.

    Raises `engine.codesign.StudyError` for a question that the study cannot answer.
    """
    objectives, of, at = asked.objectives or list(found.study.document.objectives), asked.of, asked.at
    lower = next((name for name in objectives if quantity(name).better == "lower"), "")
    if not lower and found.answers("usd") and not bill(found.study, np.zeros(1, np.int64))["usd_low"].isna().any():
        lower = "usd"
    upper = next((name for name in objectives if name != lower), objectives[0])
    if upper == lower:
        lower = ""
    if asked.budgets and not lower:
        raise StudyError(f"--budget bounds what is lower the better, beside {upper}; give that as an --objective too.")
    per_budget = found.best_per_budget(asked.budgets, budget=lower, objective=upper, of=of, at=at) if lower else None
    return DesignFindings(
        found,
        objectives,
        asked,
        lower,
        upper,
        best=found.best(upper, of=of, at=at),
        per_budget=per_budget,
        front=found.front(objectives, of=of, at=at) if len(objectives) > 1 else None,
        binding=found.binding_report(upper, of=of, at=at) if found.study.document.constraints else None,
    )


def find_worth(findings: DesignFindings) -> pd.DataFrame | None:
    """Return the worth of more of each rate and capacity of the design that is asked about; None if none is.

    Args:
        findings: answers about the designs.

    Raises `engine.codesign.StudyError` for a design that does not run.
    """
    asked = findings.asked
    if asked.sensitivity is None:
        return None
    return sensitivity(findings.results, asked.sensitivity, objective=findings.objective, of=asked.of, at=asked.at)


def designs_document(findings: DesignFindings, worth: pd.DataFrame | None) -> dict[str, Any]:
    """Return answers about designs as a document.

    Args:
        findings: answers about the designs.
        worth: worth of more of each rate and capacity, if asked for.
    """
    found, binding, pair = findings.results, findings.binding, find_pair(findings)
    return {
        "study": found.study.document.name,
        "key": found.study.key,
        "complete": found.complete,
        "points": len(found.rows),
        "of": findings.asked.of,
        "at": findings.asked.at,
        "best": findings.best,
        "unpriced": {"usd": unpriced(found.study), "watts": unpriced(found.study, "watts")},
        "best_per_budget": _table_records(findings.per_budget),
        "front": _table_records(findings.front),
        "binding": None if binding is None else _table_records(binding.table),
        "constraints": None if binding is None else binding.as_json(),
        "sensitivity": _table_records(worth),
        "shown": _shown_documents(findings),
        "pair": None if pair is None else pair_document(pair),
    }


def find_pair(findings: DesignFindings) -> DesignPair | None:
    """Return the two designs that are asked about next to each other; None if none are.

    Args:
        findings: answers about the designs.

    Raises `engine.codesign.StudyError` for a design that is not computed.
    """
    asked = findings.asked
    if asked.beside is None:
        return None
    one, other = asked.beside
    return compare_designs(findings.results, one, other, asked)


def _shown_documents(findings: DesignFindings) -> dict[str, Any] | None:
    if findings.best is None:
        return None
    sides = shown_sides(findings.results, int(str(findings.best["design"])), findings.asked)
    return {name: side_document(side) for name, side in sides.items()}


def _table_records(table: pd.DataFrame | None) -> list[dict[str, object]] | None:
    return None if table is None else [dict(row) for row in table.to_dict("records")]  # type: ignore[arg-type]


def find_study(given: str | Mapping[str, Any]) -> Study:
    """Return the study of a name or a document; a name is never opened as a path.

    Args:
        given: name of a ready study, or a document.

    Raises `QuestionError` for an unknown name, and what `engine.codesign.Study.from_document` raises.
    """
    if not isinstance(given, str):
        return Study.from_document(given)
    known = ready_names()
    if given not in known:
        hint = did_you_mean(given, known)
        raise QuestionError(f"There is no ready study {shown(given)}{hint}; there are {', '.join(known)}.")
    return ready_study(given)


def _check_study(study: Study, context: Context) -> None:
    """Raise `QuestionError` if a study has too many points, or a space that is too large."""
    most = context.bounds.most_points
    if study.points > most:
        raise QuestionError(
            f"The study has {study.points:,} points; up to {most:,} are computed here. Run it with shardscape codesign."
        )
    said = study.document
    largest = max(range(len(said.sizes)), key=lambda at: said.sizes[at])
    for model in range(len(study.models)):
        for system in range(len(study.systems)):
            for batch in range(len(said.batches)):
                context.bounds.searchable(study.scenario(model, system, 0, largest, batch))


def _answer_codesign(asked: CodesignQuestion, context: Context) -> dict[str, Any]:
    study = find_study(asked.study)
    _check_study(study, context)
    if asked.sensitivity is not None:
        study.design(asked.sensitivity)

    def progress(found: Progress) -> None:
        context.tell(found.done / found.total, f"{found.done:,} of {found.total:,} points")

    with tempfile.TemporaryDirectory(prefix="shardscape-codesign-") as folder:
        try:
            run(study, folder, workers=1, progress=progress, cancel=context.stops)
        except StudyCancelled:
            raise ExplorationCancelled("The study was stopped.") from None
        findings = find_designs(results(folder), asked)
        document = designs_document(findings, find_worth(findings))
    return {name: plain(value) for name, value in document.items()}


CODESIGN = Verb(
    "codesign",
    "Co-design",
    "Runs a study of many designs of a machine, each point one proven optimum: the Pareto front, the best design per "
    "budget, binding constraints, and where one more dollar goes.",
    CodesignQuestion,
    CodesignAnswer,
    _answer_codesign,
)
