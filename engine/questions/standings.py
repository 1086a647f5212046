"""The verb that ranks an execution in use among all of its space, with the steps to the recommended one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from pydantic import Field

from engine.launch import LaunchReading, Standing, StandingTarget, flag_changes, framework_of, standing
from engine.launch.conversion import evaluable
from engine.questions.bounds import Context
from engine.questions.documents.executions import StandingQuestion
from engine.questions.evaluation_settings import load_evaluation_setting
from engine.questions.plain import chosen_statistics, plain
from engine.questions.recommendations import find_recommendation
from engine.questions.scenario_documents import (
    ScenarioSummary,
    summary_of,
)
from engine.questions.shown_executions import ShownAnswer, find_shown, shown_document
from engine.questions.verb import Document, Row, Verb
from engine.recommendation import FiguresOf, ShownExecution, with_fit
from engine.recommendation.own_run import target_of_run
from engine.scenarios.scenario import Scenario

__all__ = ["STANDING", "find_standing", "reading_document", "standing_document"]


class FieldChange(Document):
    """A field that changes with a step."""

    field: str
    old: bool | int | float | str | None
    new: bool | int | float | str | None


class ChangedFlag(Document):
    """A flag that changes with a step; null where it is not given."""

    flag: str
    old: Any
    new: Any


class StandingStep(Document):
    """A step towards the target: another execution that runs, faster than the one before."""

    changes: list[FieldChange]
    flags: list[ChangedFlag] = Field(description="Empty where the framework cannot say it.")
    sample_rate: float = Field(description="Throughput with it [samples/s].")
    gain: float | None = Field(description="Over that before the step [fraction]; null where it makes it run.")
    fit: str | None = Field(description="Whether it fits into memory, with the error of that; null where not known.")


class StandingTargetAnswer(ShownAnswer):
    """Execution that the steps lead to."""

    gain: float | None = Field(
        description="Its throughput over that of the execution in use, less 1; negative where it is slower."
    )
    objection: str = Field(
        description="Why the execution in use is not recommended, in words; empty where it is or is merely slower."
    )


class StandingAnswer(ScenarioSummary):
    """Rank of an execution among all of its model, system, GPUs, batch and datatype."""

    runs: bool
    reason_text: str = Field(description="Why it does not run; empty where it does.")
    sample_rate: float | None
    best_sample_rate: float | None
    faster: int | None = Field(description="How many executions are faster; null where there are too many to tell.")
    feasible: int | None
    total: int
    target: StandingTargetAnswer | None = Field(
        description="The recommended execution, or the fastest if its figures are asked for; null if nothing runs."
    )
    steps: list[StandingStep] = Field(
        description="Changes that lead to the target, those of one or two flags first, the largest gain first."
    )
    execution: Row
    best: Row | None


def reading_document(found: LaunchReading, named: str | None, left_out: Sequence[str] = ()) -> dict[str, Any]:
    """Return the reading of a launch configuration as a document, with the origin of every value.

    Args:
        found: result of `engine.launch.read`.
        named: the same model in the library, or None.
        left_out: parts of the model that figures leave out or approximate, a sentence each.
    """
    return {
        "framework": found.framework,
        "version": found.version,
        "num_procs": found.num_procs,
        "model_name": named,
        "model": dict(found.model),
        "execution": dict(found.execution),
        "origins": {
            name: {"kind": each.kind, "words": each.words, "file": each.file, "line": each.line}
            for name, each in found.origins.items()
        },
        "left": list(found.left),
        "not_modelled": list(found.not_modelled),
        "without_effect": list(found.without_effect),
        "unread": list(found.unread),
        "remarks": list(found.remarks),
        "recipes": list(found.recipes),
        "not_represented": list(left_out),
        "refused": found.refused,
    }


def standing_document(stands: Standing, framework: str) -> dict[str, Any]:
    """Returns where an execution stands as a document.

    Args:
        stands: what `engine.launch.standing` returned.
        framework: whose flags name the steps.
    """
    rate = float(stands.row["sample_rate"]) if stands.runs else None
    target = stands.target
    shown = None
    if target is not None:
        found = ShownExecution(target.execution, _ROLES[target.role], target.remark)
        shown = shown_document(stands.scenario, found)
    return {
        "runs": stands.runs,
        "reason_text": str(stands.row["reason_text"] or ""),
        "sample_rate": rate,
        "best_sample_rate": None if stands.best is None else float(stands.best["sample_rate"]),
        "faster": stands.faster,
        "feasible": stands.feasible,
        "total": stands.total,
        "target": shown and {**shown, "gain": stands.gain, "objection": "" if target is None else target.objection},
        "steps": [
            {
                "changes": [{"field": each.field, "old": each.old, "new": each.new} for each in step.changes],
                "flags": [{"flag": each.flag, "old": each.old, "new": each.new} for each in flags],
                "sample_rate": step.rate,
                "gain": step.gain if step.gain < float("inf") else None,
                "fit": fit,
            }
            for step, flags, fit in zip(
                stands.steps, flag_changes(stands, framework=framework), _step_fits(stands), strict=True
            )
        ],
        "execution": dict(stands.row),
        "best": None if stands.best is None else dict(stands.best),
    }


_ROLES: Mapping[str, FiguresOf] = {"recommended": "recommended", "fastest": "fastest"}


def _step_fits(stands: Standing) -> list[str | None]:
    """Return whether each step fits into memory; None where the error of predicted memory is not known."""
    if not stands.steps:
        return []
    scenario = stands.scenario
    found = with_fit(scenario, scenario.evaluate(pd.DataFrame([dict(step.execution) for step in stands.steps])))
    return [str(each) for each in found["fit"]] if "fit" in found else [None] * len(found)


def find_standing(asked: StandingQuestion, context: Context | None = None) -> Standing:
    """Return the rank of an execution among all of its model, system, GPUs, batch and datatype, and the steps to the
    execution whose figures are asked for, all of which the framework can start if there are such.

    Args:
        asked: the question.
        context: with the bounds of the space; none where None.

    Raises the errors of `engine.launch.standing`, and `QuestionError` for a space beyond the bounds.
    """
    setting = load_evaluation_setting(asked)
    fields = evaluable(asked.execution)
    terms: dict[str, Any] = {
        "limits": asked.limits,
        "cost_model": setting.cost_model.name,
        "calibration": setting.calibration,
        "attention": asked.attention,
    }
    framework = framework_of(asked.framework).name

    def choose_target(scenario: Scenario, row: Mapping[str, Any]) -> StandingTarget | None:
        advice = find_recommendation(scenario, asked) if asked.figures_of == "recommended" else None
        shown = find_shown(scenario, asked, advice=advice)
        if shown is None:
            return None
        return target_of_run(scenario, advice, row, shown)

    if context is not None:
        sizes = {"num_procs": fields["num_procs"], "max_batch_size": fields["batch_size"]}
        whole = Scenario.of(setting.model, setting.system, datatype=fields["datatype"], **sizes, **terms)
        context.bounds.searchable(whole)
    return standing(fields, setting.model, setting.system, choose_target=choose_target, framework=framework, **terms)


def _answer_standing(asked: StandingQuestion, context: Context) -> dict[str, Any]:
    framework = framework_of(asked.framework).name
    stands = find_standing(asked, context)
    cost_model = stands.scenario.cost_model
    statistics = set(chosen_statistics(cost_model, asked.statistics))
    document = plain(standing_document(stands, framework))
    every = set(chosen_statistics(cost_model, ["all"]))

    def chosen(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
        return None if row is None else {name: row[name] for name in row if name in statistics or name not in every}

    document |= {which: chosen(document[which]) for which in ("execution", "best")}
    if document["target"] is not None:
        document["target"]["execution"] = chosen(document["target"]["execution"])
    return {**summary_of(stands.scenario), **document}


STANDING = Verb(
    "standing",
    "Where an execution stands",
    "Says what an execution that somebody runs is worth: its rank, how much faster the recommended one is, and which "
    "flags lead there.",
    StandingQuestion,
    StandingAnswer,
    _answer_standing,
)
