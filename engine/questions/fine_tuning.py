"""Verb about fine-tuning: the best way to tune a model on a data set, with all weights, LoRA or QLoRA."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import cache
from typing import Any, Final, Literal

from pydantic import Field

from engine.columns import Fit
from engine.executions.execution_names import execution_name
from engine.fine_tuning import (
    METHODS,
    DataSet,
    FineTuningError,
    FineTuningGoal,
    FineTuningPlan,
    MethodPlan,
    find_fine_tuning,
    usual_pack_length,
)
from engine.fine_tuning.measured import nearest_runs
from engine.post_training.lengths import LengthError, LengthLaw
from engine.questions.bounds import Context
from engine.questions.documents.fine_tuning import FineTuningQuestion
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.validation.uncertainty import fine_tuning_residuals, fit_within
from models import ModelFileError, parameter_counts
from models.documents import shown

__all__ = ["PLAN_FINE_TUNING", "describe_basis", "find_asked_fine_tuning", "fine_tuning_document", "fine_tuning_goal"]

USUAL_BATCH: Final = 32
"""Packs of an optimizer step where none is asked for. Source: batch of the measured runs."""
HOUR: Final = 3600.0
"""Seconds of an hour [s]."""


class TuningFigure(Document):
    """Figure with its interval; low and high are null where no measured run is comparable."""

    value: float
    low: float | None
    high: float | None


class TuningRow(Document):
    """Fastest execution of one method."""

    method: Literal["full", "lora", "qlora"]
    num_procs: int = Field(description="GPUs asked for, or the fewest that fit.")
    fit: Fit = Field(description="Memory against capacity, with the error of predicted memory.")
    step_s: TuningFigure | None = Field(
        description="Optimizer step [s]; null where nothing fits or nothing is calibrated."
    )
    tokens_per_s: float | None = Field(description="Real tokens of all GPUs.")
    tokens_per_s_per_gpu: float | None
    hours: TuningFigure | None = Field(description="All steps.")
    usd: TuningFigure | None = Field(description="All GPUs for these hours; null without a price.")
    memory_gib: float | None = Field(description="Fullest GPU; the least of all executions if none fits [GiB].")
    capacity_gib: float = Field(description="Memory of a GPU [GiB].")
    memory_parts: dict[str, float] = Field(description="Parts of the memory [GiB].")
    fewest_gpus: int | None = Field(description="Fewest GPUs that fit, of powers of two and whole nodes.")
    safe_gpus: int | None = Field(description="Fewest GPUs that fit at the upper end of the interval of memory.")
    reason: str = Field(description="Why nothing fits, or why there is no time.")
    change: str = Field(description="Smallest of some changes with which it fits on these GPUs.")
    rests_on: str = Field(description="Measured runs that the interval rests on.")
    layout: str
    execution: Row | None


class SizeRow(Document):
    """Fastest execution of a method on a number of GPUs."""

    method: Literal["full", "lora"]
    num_procs: int
    tokens_per_s: float
    hours: TuningFigure
    usd: TuningFigure | None
    layout: str


class FineTuningAnswer(Document):
    """Best way of each method to fine-tune a model on a data set."""

    model: str
    system: str
    kind: Literal["modelled"] = "modelled"
    basis: str
    method: str | None = Field(description="Fastest method with a time; null if there is none.")
    methods: list[TuningRow]
    pack_to: int = Field(description="Tokens of a sequence.")
    packs: int = Field(description="Sequences that the data set fills.")
    packing: float = Field(description="Share of their tokens that are tokens of samples.")
    samples_per_pack: float
    batch: int = Field(description="Packs of an optimizer step.")
    steps: int
    tokens: float = Field(description="Tokens of samples in all epochs.")
    sizes: list[SizeRow] = Field(description="Time and cost over GPUs, where asked for.")
    nearest: list[Row] = Field(description="Measured runs nearest to the question, with their source.")
    units: dict[str, str]


@cache
def describe_basis() -> str:
    """Return a sentence on what all figures rest on, wherever they are shown."""
    methods = fine_tuning_residuals()["method"]
    return (
        f"Times rest on {int((methods == 'full').sum())} measured steps that tune all weights and "
        f"{int((methods != 'full').sum())} with adapters. Loading, evaluation and checkpoints are not counted."
    )


def fine_tuning_goal(asked: FineTuningQuestion) -> FineTuningGoal:
    """Return the goal of a search for a question.

    Args:
        asked: the question.

    Raises `QuestionError` with a sentence for a question that contradicts itself, and the errors of loading model and
    system.
    """
    model, system = found_model(asked.model), found_system(asked.system)
    if not system.has_rate(asked.datatype):
        raise QuestionError(f"{system.title or system.name} does not compute in {shown(asked.datatype)}.")
    if asked.batch is not None and asked.batch_samples is not None:
        raise QuestionError("Give either `batch` or `batch_samples`.")
    data = DataSet(asked.samples, _law_of(asked))
    price = asked.price_usd_per_h
    recorded = None if system.accelerator is None else system.accelerator.usd_per_h
    try:
        goal = FineTuningGoal(
            model,
            system,
            asked.num_procs,
            data,
            usual_pack_length(data, model) if asked.pack_to is None else asked.pack_to,
            batch=1 if asked.batch is None else asked.batch,
            epochs=asked.epochs,
            methods=METHODS if asked.method == "any" else (asked.method,),
            adapter_rank=asked.adapter_rank,
            adapter_targets=asked.adapter_targets,
            loss_chunk=asked.loss_chunk,
            headroom=asked.headroom,
            datatype=asked.datatype,
            limits=asked.limits,
            price_usd_per_h=recorded if price is None else (price, price),
        )
        if asked.batch is not None:
            return goal
        if asked.batch_samples is None:
            return replace(goal, batch=min(USUAL_BATCH, goal.packs))
        if asked.batch_samples > asked.samples:
            raise QuestionError(
                f"`batch_samples` is {asked.batch_samples:,}; the data set has {asked.samples:,} samples."
            )
        packs = round(asked.batch_samples * goal.packs / asked.samples)
        return replace(goal, batch=min(max(packs, 1), goal.packs))
    except FineTuningError as problem:
        raise QuestionError(str(problem)) from None
    except ModelFileError as problem:
        # Fields of the question as its other sentences have them.
        raise QuestionError(re.sub(r"\b(adapter_rank|adapter_targets)\b", r"`\1`", str(problem))) from None


def _law_of(asked: FineTuningQuestion) -> LengthLaw:
    said = asked.lengths
    if said.lengths is not None:
        if said.mean is not None or said.cap is not None:
            raise QuestionError("`lengths` has either lengths, or mean and cap.")
        return LengthLaw.histogram(said.lengths)
    if said.mean is None or said.cap is None:
        raise QuestionError("`lengths` needs mean and cap, or lengths.")
    if said.mean > said.cap:
        raise QuestionError(f"The mean sample has {said.mean:,.6g} tokens; it must have at most the cap, {said.cap:,}.")
    try:
        return LengthLaw.lognormal(said.mean, said.cap, said.cv)
    except LengthError as problem:
        raise QuestionError(f"`lengths`: {problem}") from None


def find_asked_fine_tuning(asked: FineTuningQuestion, context: Context | None = None) -> FineTuningPlan:
    """Return the plan of a question.

    Args:
        asked: the question.
        context: progress and cancelling.

    Raises the errors of `fine_tuning_goal` and of making a space, and `engine.ExplorationCancelled`.
    """
    context = context or Context()
    return find_fine_tuning(
        fine_tuning_goal(asked), progress=context.tell, cancel=context.stops, with_curve=asked.sizes
    )


def fine_tuning_document(plan: FineTuningPlan) -> dict[str, Any]:
    """Return the answer to a question as JSON has it.

    Args:
        plan: of the question.
    """
    goal, best = plan.goal, plan.chosen
    shown_plan = best or next(iter(plan.methods.values()))
    nearest = nearest_runs(
        parameters=float(parameter_counts(goal.model).total),
        system=goal.system.name,
        datatype=goal.datatype,
        gpus=shown_plan.num_procs,
        seq_size=goal.pack_to,
        method=shown_plan.method,
    )
    return {
        "model": goal.model.name,
        "system": goal.system.name,
        "kind": "modelled",
        "basis": describe_basis(),
        "method": None if best is None else best.method,
        "methods": [_tuning_row(goal, each) for each in plan.methods.values()],
        "pack_to": goal.pack_to,
        "packs": goal.packs,
        "packing": goal.packing.fill,
        "samples_per_pack": goal.data.samples / goal.packs,
        "batch": goal.batch,
        "steps": goal.steps,
        "tokens": goal.data.tokens * goal.epochs,
        "sizes": [_size_row(goal, each) for each in plan.curve],
        "nearest": [{name: plain(value) for name, value in row.items()} for row in nearest],
        "units": {"step_s": "s", "hours": "h", "usd": "USD", "memory_gib": "GiB", "tokens_per_s": "tokens/s"},
    }


def _size_row(goal: FineTuningGoal, plan: MethodPlan) -> dict[str, Any]:
    return {
        "method": plan.method,
        "num_procs": plan.num_procs,
        "tokens_per_s": plan.tokens_per_s,
        "hours": _hours_of(plan),
        "usd": _usd_of(goal, plan),
        "layout": execution_name(plan.row),
    }


def _hours_of(plan: MethodPlan) -> dict[str, float | None] | None:
    return _with_interval(plan, None if plan.seconds is None else plan.seconds / HOUR)


def _usd_of(goal: FineTuningGoal, plan: MethodPlan) -> dict[str, float] | None:
    usd = plan.usd(goal.price_usd_per_h)
    return None if usd is None else dict(zip(("value", "low", "high"), usd, strict=True))


def _tuning_row(goal: FineTuningGoal, plan: MethodPlan) -> dict[str, Any]:
    fit: Fit = "does not fit"
    if plan.fits and plan.memory_gib is not None:
        fit = fit_within(plan.memory_gib, plan.capacity_gib, plan.memory_interval)
    return {
        "method": plan.method,
        "num_procs": plan.num_procs,
        "fit": fit,
        "step_s": _with_interval(plan, plan.step_s),
        "tokens_per_s": plan.tokens_per_s,
        "tokens_per_s_per_gpu": None if plan.tokens_per_s is None else plan.tokens_per_s / plan.num_procs,
        "hours": _hours_of(plan),
        "usd": _usd_of(goal, plan),
        "memory_gib": plan.memory_gib,
        "capacity_gib": plan.capacity_gib,
        "memory_parts": dict(plan.parts),
        "fewest_gpus": plan.fewest,
        "safe_gpus": plan.fewest_safe,
        "reason": plan.reason,
        "change": plan.change,
        "rests_on": "" if plan.interval is None else plan.interval.rests_on,
        "layout": execution_name(plan.row) if plan.fits else "",
        "execution": {name: plain(value) for name, value in plan.row.items()} if plan.fits else None,
    }


def _with_interval(plan: MethodPlan, value: float | None) -> dict[str, float | None] | None:
    if value is None or not math.isfinite(value):
        return None
    if plan.interval is None:
        return {"value": value, "low": None, "high": None}
    return {"value": value, "low": value * plan.interval.low, "high": value * plan.interval.high}


def _answer_fine_tuning(asked: FineTuningQuestion, context: Context) -> dict[str, Any]:
    return fine_tuning_document(find_asked_fine_tuning(asked, context))


PLAN_FINE_TUNING = Verb(
    "plan_fine_tuning",
    "Plan fine-tuning",
    "Finds how to fine-tune a model on a data set with all weights, LoRA or QLoRA: the fastest execution, GPUs that "
    "fit, memory by part, packing, tokens per second, hours and cost with intervals, and the nearest measured runs.",
    FineTuningQuestion,
    FineTuningAnswer,
    _answer_fine_tuning,
)
