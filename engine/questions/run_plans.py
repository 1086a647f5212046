"""Verb that plans a training run: how many GPUs of which system, layout, days, cost, energy and failures."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import Field

from engine.economics import DerivedError
from engine.executions.execution_names import execution_name
from engine.exploration.proven_optimum import best_of
from engine.questions.bounds import Context
from engine.questions.documents.cost import PlanRunQuestion, RunAssumptionsQuestion, SystemOffer
from engine.questions.documents.fleet import FleetQuestion
from engine.questions.plain import plain
from engine.questions.recommendations import find_recommendation
from engine.questions.run_phase_rows import PhasedRunRow, chain_document
from engine.questions.run_phases import ChainPlan, Steps, find_chain_plan
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.recommendation.training_plans import (
    PricedSystem,
    RunGoal,
    RunPlan,
    SizedRun,
    SystemRuns,
    plan_run,
)
from engine.scenarios.scenario import Scenario
from hardware import System

__all__ = [
    "PLAN_RUN",
    "find_phased_plan",
    "find_run_plan",
    "layout_words",
    "phased_plan_document",
    "run_plan_document",
]

GOALS = {"days": "deadline_days", "usd": "budget_usd"}


class FigureRow(Document):
    """Figure with its interval."""

    value: float
    low: float | None = Field(description="Null where the error is unknown.")
    high: float | None


class SizedRunRow(Document):
    """Training run on so many GPUs."""

    num_procs: int
    layout: str = Field(description="Degrees of parallelism that are not 1.")
    tokens: float
    days: FigureRow = Field(description="Wall-clock time, failures and checkpoints included.")
    usd: FigureRow | None = Field(
        description="Middle price; from the lowest to the highest, error of the time included where known."
    )
    mwh: FigureRow | None
    gpu_hours: FigureRow
    failures: FigureRow
    goodput: FigureRow = Field(description="Share of the time that computes what counts.")
    outlay_usd: list[float] | None = Field(description="Price of all GPUs where they are bought.")
    not_measured: list[str] = Field(description="Properties of the execution that no measured run has.")
    misses: list[Literal["deadline_days", "budget_usd"]] = Field(description="Limits that it does not hold.")
    execution: Row


class SystemRunsRow(Document):
    """Runs on one system."""

    system: str
    terms: Literal["rent", "reserve", "buy"]
    usd_per_gpu_hour: list[float] | None = Field(description="Lowest and highest price; null without one.")
    chosen: SizedRunRow | None
    knee: SizedRunRow | None = Field(description="Size from which on fewer days get dear; null with few sizes.")
    less_waste: list[SizedRunRow] = Field(description="Sizes near the chosen with fewer GPU-hours, fewest first.")
    curve: list[SizedRunRow] = Field(description="All sizes that run, ascending.")
    refused: dict[str, str] = Field(description="Sizes at which nothing runs, with the reason.")
    obstacle: str = Field(description="Why there is no choice, and the nearest; empty with one.")
    error: str = Field(description="Measured runs that the intervals rest on; empty where the error is unknown.")


class PlanRunAnswer(Document):
    """Plan of a training run."""

    model: str
    system: str | None = Field(description="Chosen system; null if nothing reaches the goal.")
    terms: str | None
    chosen: SizedRunRow | None
    recommended: Row | None = Field(
        description="Execution of the chosen run, or of its first pre-training, as `export_launch` takes it."
    )
    systems: list[SystemRunsRow]
    chain: PhasedRunRow | None = Field(default=None, description="Plan of phases, for a question with phases.")
    units: dict[str, str]
    seconds: float


def find_run_plan(
    asked: PlanRunQuestion,
    *,
    context: Context | None = None,
    search: Callable[[Scenario], Mapping[str, Any] | None] | None = None,
) -> RunPlan:
    """Return the plan of a question.

    Args:
        asked: the question.
        context: bounds, progress and cancelling.
        search: returns the execution to run of a scenario, if results are cached elsewhere; see `find_execution`.

    Raises `QuestionError`, the errors of loading model and systems, and `engine.ExplorationCancelled`.
    """
    context = context or Context()
    model = found_model(asked.model)
    offers = [_read_offer(each) for each in asked.systems]
    if asked.phases is not None:
        raise QuestionError("This question has phases; see `find_phased_plan`.")

    def scenario_at(system: System, num_procs: int) -> Scenario:
        return Scenario.of(
            model,
            system,
            num_procs=num_procs,
            max_batch_size=asked.max_batch_size,
            datatype=asked.datatype,
            limits=asked.limits,
            cost_model=asked.cost_model,
        )

    def find_searched(scenario: Scenario) -> Mapping[str, Any] | None:
        return find_execution(asked, context.bounds.searchable(scenario))

    for offer in offers:  # refuse a datatype or limit before the first size is searched
        context.bounds.searchable(scenario_at(offer.system, offer.system.node_size))
    try:
        return plan_run(
            scenario_at,
            offers,
            RunGoal(asked.tokens, asked.deadline_days, asked.budget_usd, asked.num_procs, asked.room_for_error),
            search or find_searched,
            assumptions={name: getattr(asked, name) for name in RunAssumptionsQuestion.model_fields},
            offload=asked.offload or asked.figures_of == "fastest",
            progress=context.tell,
            cancel=context.stops,
        )
    except DerivedError as problem:
        raise QuestionError(_name_fields(str(problem))) from None


def find_phased_plan(
    asked: PlanRunQuestion,
    *,
    context: Context | None = None,
    search: Callable[[Scenario], Mapping[str, Any] | None] | None = None,
    steps: Steps | None = None,
) -> ChainPlan:
    """Return the plan of a question with phases.

    Args:
        asked: the question.
        context: bounds, progress and cancelling.
        search: returns the execution to run of a scenario, if results are cached elsewhere; see `find_execution`.
        steps: steps of fine-tuning and of reinforcement learning that are known already, and that are added to.

    Raises `QuestionError`, the errors of loading models and systems, and `engine.ExplorationCancelled`.
    """
    context = context or Context()

    def find_searched(scenario: Scenario) -> Mapping[str, Any] | None:
        return find_execution(asked, context.bounds.searchable(scenario))

    try:
        offers = [_read_offer(each) for each in asked.systems]
        return find_chain_plan(asked, offers, search or find_searched, context, steps)
    except DerivedError as problem:
        raise QuestionError(_name_fields(str(problem))) from None


def _name_fields(text: str) -> str:
    """Return a sentence with fields of the question in place of parts of a goal."""
    for name, field in {**GOALS, "tokens": "tokens", "num_procs": "num_procs"}.items():
        text = re.sub(rf"\b{name}\b", f"`{field}`", text)
    return text


def find_execution(asked: PlanRunQuestion | FleetQuestion, scenario: Scenario) -> Mapping[str, Any] | None:
    """Return the execution that counts on the terms of a question; None if nothing is allowed or runs.

    Args:
        asked: the question.
        scenario: at one number of GPUs.
    """
    if asked.figures_of == "fastest":
        return best_of(scenario) or None
    return find_recommendation(scenario, asked).execution


def _read_offer(offer: SystemOffer) -> PricedSystem:
    return PricedSystem(
        found_system(offer.system),
        offer.terms,
        offer.usd_low,
        offer.usd_high,
        offer.reserved_days,
        offer.lifetime_years,
        offer.usd_per_kwh,
        offer.most_procs,
    )


def layout_words(run: SizedRun) -> str:
    """Return the layout of a run: all degrees that are not 1.

    Args:
        run: of a plan.
    """
    return execution_name(run.execution)


def _run_row(run: SizedRun | None) -> dict[str, Any] | None:
    if run is None:
        return None
    figures = {name: {"value": each.value, "low": each.low, "high": each.high} for name, each in run.figures.items()}
    return {
        "num_procs": run.num_procs,
        "layout": layout_words(run),
        "tokens": run.run.inputs.tokens,
        "usd": None,
        "mwh": None,
        **figures,
        "outlay_usd": None if run.outlay_usd is None else list(run.outlay_usd),
        "not_measured": run.not_measured,
        "misses": [GOALS[name] for name in run.misses],
        "execution": {str(name): plain(value) for name, value in run.execution.items()},
    }


def _system_row(found: SystemRuns) -> dict[str, Any]:
    hourly = None
    if found.runs:
        inputs = found.runs[0].run.inputs
        hourly = None if inputs.usd_low is None else [inputs.usd_low, inputs.usd_high]
    chosen = found.chosen or (found.runs[0] if found.runs else None)
    interval = None if chosen is None else chosen.interval
    return {
        "system": found.offer.system.name,
        "terms": found.offer.terms,
        "usd_per_gpu_hour": hourly,
        "chosen": _run_row(found.chosen),
        "knee": _run_row(found.knee),
        "less_waste": [_run_row(each) for each in found.thrifty],
        "curve": [_run_row(each) for each in found.runs],
        "refused": {str(size): reason for size, reason in found.refused.items()},
        "obstacle": found.obstacle,
        "error": "" if interval is None else f"{interval.share:.0%} of {interval.rests_on}",
    }


def phased_plan_document(found: ChainPlan) -> dict[str, Any]:
    """Return a plan of phases as JSON has it.

    Args:
        found: the plan.
    """
    chain = chain_document(found)
    phases = () if chain["chosen"] is None else chain["chosen"]["phases"]
    return {
        "model": chain["model"],
        "system": chain["system"],
        "terms": None if found.chosen is None else found.chosen.offer.terms,
        "chosen": None,
        "recommended": next((each["execution"] for each in phases if each["kind"] == "pretrain"), None),
        "systems": [],
        "chain": chain,
        "units": {
            "days": "days",
            "usd": "USD",
            "mwh": "MWh",
            "gpu_hours": "h",
            "usd_per_day": "USD/day",
            "rate": "1/s",
        },
    }


def run_plan_document(asked: PlanRunQuestion, found: RunPlan) -> dict[str, Any]:
    """Return a plan as JSON has it.

    Args:
        asked: the question.
        found: its plan.
    """
    chosen = found.chosen
    run = _run_row(found.run)
    return {
        "model": found_model(asked.model).name,
        "system": None if chosen is None else chosen.offer.system.name,
        "terms": None if chosen is None else chosen.offer.terms,
        "chosen": run,
        "recommended": None if run is None else run["execution"],
        "systems": [_system_row(each) for each in found.systems],
        "units": {"days": "days", "usd": "USD", "mwh": "MWh", "gpu_hours": "h", "outlay_usd": "USD"},
    }


def _answer_plan_run(asked: PlanRunQuestion, context: Context) -> dict[str, Any]:
    start = time.perf_counter()
    if asked.phases is not None:
        document = phased_plan_document(find_phased_plan(asked, context=context))
    else:
        document = run_plan_document(asked, find_run_plan(asked, context=context))
    return {**document, "seconds": time.perf_counter() - start}


PLAN_RUN = Verb(
    "plan_run",
    "Plan a training run",
    "Says how many GPUs of which system train a model by a deadline or within a budget: execution, days, cost, energy, "
    "failures and goodput with intervals, the curve of days against cost, and sizes that waste less. With phases "
    "(pretrain, sft, lora, rl, serve) each gets its own number of GPUs, and the answer says what binds.",
    PlanRunQuestion,
    PlanRunAnswer,
    _answer_plan_run,
)
