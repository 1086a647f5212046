"""Verbs about model cards of elastic plans: the best plan under limits, curves, phases, shared GPUs, workloads.

A card says of a model how long its parts take; `plan_elastic` needs none, for models of the library.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field

from engine.planners import elastic
from engine.planners.elastic import Measurements, ModelCard, SplitJob
from engine.planners.elastic.cards import sent_card
from engine.planners.elastic.cluster import asked_models, compared, library_applications, summaries, workload_from
from engine.planners.elastic.cluster.applications import applications
from engine.planners.elastic.cluster.cluster import cluster_of
from engine.planners.elastic.cluster.policies import POLICIES
from engine.planners.elastic.cluster.workload import workload_names
from engine.planners.elastic.measured import measurements_of
from engine.planners.elastic.over_time import FIGURE_7
from engine.planners.elastic.strategies import STATIC
from engine.questions.bounds import Context
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, Named, QuestionError, Row, Verb
from engine.scenarios.scenario import Scenario
from models.documents import Number, Text, Whole, did_you_mean, shown

__all__ = ["CARD_CURVE", "CARD_PHASES", "LIST_CARDS", "PLAN_CARD", "REPLAY_WORKLOAD", "SPLIT_GPUS"]

LONGEST_TABLE = 500_000
Placement = Annotated[str, Text(20_000, shortest=1)]
Threads = Annotated[int, Whole(1, 4_096)]
Bandwidth = Annotated[float, Number(0, 1e6)]
CardGiven = Annotated[Named, Field(description="Model card: a name that `list_cards` has, or a whole card document.")]
Trace = Annotated[
    Annotated[str, Text(LONGEST_TABLE, shortest=1)] | None,
    Field(
        description="What was measured of it: the text of a CSV with exec_plan, placement and iteration_s; null for "
        "the trace of a card of the library. No time, or 0, says that a plan does not run."
    ),
]
Variant = Annotated[
    Literal["artifact", "physical"],
    Field(description="Performance model: the published one, or that of the calibrated cost model."),
]
Basis = Annotated[
    Literal["measured", "predicted"] | None,
    Field(description="Which times count; measured where there are measurements and null."),
]


class CardsQuestion(Document):
    """Question for the model cards of the library."""


class CardRow(Document):
    """A model card of the library."""

    name: str
    title: str
    global_batch: int = Field(description="Samples of an iteration.")
    parameters: float = Field(description="Of the model.")
    measured: bool = Field(description="Whether a trace of measurements comes with it.")
    physical: bool = Field(description="Whether it names a model of the library, which the variant physical needs.")


class CardsAnswer(Document):
    """Model cards of the library."""

    cards: list[CardRow]


class ResourceLimit(Document):
    """Resources that a job has."""

    placement: Placement = Field(description="GPUs on each node, such as 8888 or 16,16.")
    cpu_threads: Threads = Field(default=1, description="Of the host, per GPU.")
    bandwidth: Bandwidth = Field(
        default=0.0, description="Limit between nodes, 0 for none: a level of the artifact, GB/s of a GPU in physical."
    )


class CardQuestion(Document):
    """The best plan of a card under each of some limits."""

    card: CardGiven
    limits: list[ResourceLimit] = Field(min_length=1, max_length=64)
    measurements: Trace = None
    variant: Variant = "artifact"
    every_plan: bool = Field(default=False, description="Whether to ignore the card's table of allowed plans.")
    top: Annotated[int, Whole(1, 2_000)] = Field(default=8, description="Plans to list, the best first.")


class LimitAnswer(Document):
    """The best plan under one limit."""

    placement: str
    cpu_threads: int
    bandwidth: float
    plan: str = Field(description="Digits are pipeline, tensor, data degrees; empty where nothing runs.")
    throughput: float | None = Field(description="Predicted [samples/s].")
    iteration_s: float | None
    measured_s: float | None = Field(description="What was measured of the same plan there; null where nothing was.")
    plans: list[Row] = Field(description="Plans with the parts of their iterations, and why each is not the answer.")
    rejected: int = Field(description="How many plans cannot run there.")


class CardAnswer(Document):
    """The best plan under each limit."""

    card: str
    limits: list[LimitAnswer]


class CurveQuestion(Document):
    """Best throughput against one resource."""

    card: CardGiven
    over: Literal["gpus", "cpu_threads", "bandwidth"] = "gpus"
    values: list[Annotated[float, Number(0, 1e6)]] | None = Field(
        default=None, min_length=1, max_length=1_024, description="1 to 64 GPUs, 1 to 16 threads, 0 to 10 by default."
    )
    placement: Placement | None = Field(default=None, description="Of curves over other resources than GPUs.")
    gpus: Annotated[int, Whole(1, 10**6)] | None = None
    gpus_per_node: Annotated[int, Whole(1, 10**6)] | None = None
    cpu_threads: Threads = 1
    bandwidth: Bandwidth = 0.0
    variant: Variant = "artifact"


class CurveAnswer(Document):
    """Best throughput against one resource."""

    card: str
    points: list[Row] = Field(
        description="raw_best and raw_plan at exactly the limit, stored_best with up to as much, gain of each unit "
        "[samples/s]."
    )


class PhaseDocument(ResourceLimit):
    """Resources for some time."""

    duration_s: Annotated[float, Number(1e-3, 1e9)]
    placement: Placement = Field(description="GPUs on each node; 0 where there are none.")


class PhasesQuestion(Document):
    """A job through phases of different resources, under the planner and under static strategies."""

    card: CardGiven
    phases: list[PhaseDocument] | None = Field(
        default=None, min_length=1, max_length=1_000, description="Those of figure 7 where null."
    )
    strategies: list[Annotated[str, Text(200, shortest=1)]] | None = Field(
        default=None,
        max_length=16,
        description=f"Static ones: {'; '.join(STATIC)}; or rules such as n/g, g, 1. All named ones where null.",
    )
    measurements: Trace = None
    basis: Basis = None
    pause_s: Annotated[float, Number(0, 1e6)] = Field(default=0.0, description="Standstill at each change [s].")
    variant: Variant = "artifact"


class PhasesAnswer(Document):
    """Throughput over phases."""

    card: str
    basis: str
    phases: list[Row] = Field(description="Every strategy in every phase: plan, iteration, throughput [samples/s].")
    means: list[Row] = Field(description="Mean throughput of each strategy, and the planner's gain over it.")


class JobDocument(Document):
    """A job: of a card, or of a model of the library with its batch."""

    card: CardGiven | None = None
    model: Named | None = Field(default=None, description="Instead: a model of the library, with global_batch.")
    global_batch: Annotated[int, Whole(1, 10**6)] | None = None
    name: Annotated[str, Text(100, shortest=1)] | None = None
    guarantee: Annotated[float, Number(0, 1e12)] | None = Field(
        default=None, description="Throughput that it must reach [samples/s]; null for best effort."
    )
    measurements: Trace = None


class SplitQuestion(Document):
    """Question for the split of GPUs among jobs."""

    jobs: list[JobDocument] = Field(min_length=1, max_length=16)
    gpus: Annotated[int, Whole(1, 256)]
    system: Named | None = Field(default=None, description="Whose GPUs they are, for models of the library.")
    basis: Basis = None
    cpu_threads: Threads = 1
    variant: Variant = "artifact"


class SplitAnswer(Document):
    """Throughput of each way to split GPUs."""

    basis: str
    totals: dict[str, float] = Field(description="Sum of throughputs over those alone on all GPUs, by way.")
    ways: list[Row] = Field(
        description="Every job by way: equal shares, greedy as the published scheduler, exact the best that keeps all "
        "guarantees."
    )
    notes: list[str]


class WorkloadReplayQuestion(Document):
    """A workload of jobs on a cluster over time."""

    workload: Annotated[str, Text(LONGEST_TABLE, shortest=1)] = Field(
        description=f"One of {', '.join(workload_names())}, or the text of a CSV with name, submission_time, "
        "application, num_gpus, exec_plan, steps or duration, is_sla."
    )
    cluster: Annotated[str, Text(600, shortest=1)] = Field(default="8x8", description="Nodes and GPUs of each.")
    policies: list[Literal["artifact", "published", "first-come", "equal-share"]] | None = Field(
        default=None, min_length=1, max_length=4, description="All by default."
    )
    pause_s: Annotated[float, Number(0, 86_400)] = Field(default=260.0, description="Standstill at a change [s].")
    system: Named | None = Field(default=None, description="Whose GPUs run models of the library in the workload.")
    jobs: bool = Field(default=False, description="Whether to list every job.")


class ReplayAnswer(Document):
    """A workload under each policy."""

    gpus: int
    policies: list[Row] = Field(description="Completion times, makespan [s], GPUs in use, waiting jobs, changes.")
    jobs: list[Row] = Field(description="Every job under every policy, where asked for.")
    notes: list[str]


def _load_card(given: Any) -> ModelCard:
    """The card of a name or a document; a name is never opened as a path."""
    if not isinstance(given, str):
        return sent_card(given)
    known = elastic.card_names()
    if given not in known:
        raise QuestionError(
            f"There is no model card {shown(given)}{did_you_mean(given, known)}; there are {', '.join(known)}."
        )
    return elastic.load_card(given)


def _load_measurements(card: ModelCard, trace: str | None) -> Measurements | None:
    if trace is None:
        return measurements_of(card.name, None)
    # A line end makes it text: never the path of a file.
    return elastic.read_measurements(f"{trace.rstrip()}\n", name=card.name)


def _table_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [plain(row) for row in table.to_dict("records")]


def _answer_list(asked: CardsQuestion, context: Context) -> dict[str, Any]:
    traces = set(elastic.measurement_names())
    cards = [elastic.load_card(name) for name in elastic.card_names()]
    return {
        "cards": [
            {
                "name": each.name,
                "title": each.title,
                "global_batch": each.global_batch,
                "parameters": each.parameters_mi * 2**20,
                "measured": each.name in traces,
                "physical": each.library_model is not None,
            }
            for each in cards
        ]
    }


def _answer_plan(asked: CardQuestion, context: Context) -> dict[str, Any]:
    card = _load_card(asked.card)
    measured = _load_measurements(card, asked.measurements)
    found = []
    for number, limit in enumerate(asked.limits):
        context.tell(number / len(asked.limits), f"Plans on {limit.placement[:40]}")
        table = elastic.plans_table(
            card,
            placement=limit.placement,
            cpu_threads=limit.cpu_threads,
            bandwidth=limit.bandwidth,
            variant=asked.variant,
            restricted=False if asked.every_plan else None,
        )
        runs = len(table) > 0 and bool(table["feasible"].iloc[0])
        best = table.iloc[0] if runs else None
        seconds = None
        if best is not None and measured is not None:
            seconds = plain(measured.iteration_s(str(best["plan"]), limit.placement, limit.cpu_threads))
        found.append(
            {
                "placement": limit.placement,
                "cpu_threads": limit.cpu_threads,
                "bandwidth": limit.bandwidth,
                "plan": "" if best is None else str(best["plan"]),
                "throughput": None if best is None else float(best["throughput"]),
                "iteration_s": None if best is None else float(best["iteration_ms"]) / 1e3,
                "measured_s": seconds,
                "plans": _table_rows(table.head(asked.top)),
                "rejected": int((~table["feasible"]).sum()) if len(table) else 0,
            }
        )
    return {"card": card.name, "limits": found}


def _answer_curve(asked: CurveQuestion, context: Context) -> dict[str, Any]:
    card = _load_card(asked.card)
    values = None if asked.values is None else [int(each) if each.is_integer() else each for each in asked.values]
    table = elastic.curve(
        card,
        over=asked.over,
        values=values,
        placement=asked.placement,
        gpus=asked.gpus,
        gpus_per_node=asked.gpus_per_node,
        cpu_threads=asked.cpu_threads,
        bandwidth=asked.bandwidth,
        variant=asked.variant,
    )
    return {"card": card.name, "points": _table_rows(table)}


def _answer_phases(asked: PhasesQuestion, context: Context) -> dict[str, Any]:
    card = _load_card(asked.card)
    found = elastic.timeline(
        card,
        FIGURE_7 if asked.phases is None else [each.model_dump() for each in asked.phases],
        strategies=tuple(STATIC) if asked.strategies is None else asked.strategies,
        measured=_load_measurements(card, asked.measurements),
        basis=asked.basis,
        pause_s=asked.pause_s,
        variant=asked.variant,
    )
    return {
        "card": card.name,
        "basis": found.basis,
        "phases": _table_rows(found.table),
        "means": _table_rows(found.summary()),
    }


def _build_job(given: JobDocument, asked: SplitQuestion, context: Context) -> SplitJob:
    if (given.card is None) == (given.model is None):
        raise QuestionError("A job has a card, or a model of the library.")
    if given.card is not None:
        card = _load_card(given.card)
        return SplitJob(given.name or card.name, card, _load_measurements(card, given.measurements), given.guarantee)
    assert given.model is not None
    model = found_model(given.model)
    if asked.system is None or given.global_batch is None:
        raise QuestionError(f"The job of {model.name} needs its global_batch, and the question a system.")
    system = found_system(asked.system)
    datatype = "bfloat16" if "bfloat16" in system.matrix else next(iter(system.matrix))
    context.bounds.searchable(
        Scenario.of(
            model,
            system,
            num_procs=asked.gpus,
            max_batch_size=given.global_batch,
            datatype=datatype,
            limits={"batch_size": [given.global_batch]},
        )
    )
    return elastic.model_job(
        model,
        system,
        batch=given.global_batch,
        gpus=asked.gpus,
        guarantee=given.guarantee,
        name=given.name,
        progress=context.tell,
        cancel=context.stops,
    )


def _answer_split(asked: SplitQuestion, context: Context) -> dict[str, Any]:
    jobs = [_build_job(each, asked, context) for each in asked.jobs]
    found = elastic.split(jobs, asked.gpus, basis=asked.basis, cpu_threads=asked.cpu_threads, variant=asked.variant)
    return {
        "basis": found.basis,
        "totals": plain(found.totals().to_dict()),
        "ways": _table_rows(found.table),
        "notes": list(found.notes),
    }


def _answer_replay(asked: WorkloadReplayQuestion, context: Context) -> dict[str, Any]:
    known = workload_names()
    if asked.workload not in known and "\n" not in asked.workload:
        raise QuestionError(f"There is no workload {shown(asked.workload)}; give one of {', '.join(known)}, or a CSV.")
    made, cluster = workload_from(asked.workload), cluster_of(asked.cluster)
    models = asked_models(made, found_model)
    own = {}
    if models:
        if asked.system is None:
            raise QuestionError(f"{next(iter(models))} is a model of the library; give the system it runs on.")
        own = library_applications(
            models, found_system(asked.system), cluster, progress=context.tell, cancel=context.stops
        )
    found = compared(
        made,
        cluster,
        asked.policies or tuple(POLICIES),
        pause=asked.pause_s,
        models={**applications(), **own},
        progress=context.tell,
        cancel=context.stops,
    )
    jobs = [each.jobs.assign(policy=name) for name, each in found.items()] if asked.jobs else []
    return {
        "gpus": cluster.gpus,
        "policies": _table_rows(summaries(found)),
        "jobs": _table_rows(pd.concat(jobs, ignore_index=True)) if jobs else [],
        "notes": [f"{name}: {note}" for name, each in found.items() for note in each.notes],
    }


LIST_CARDS = Verb(
    "list_cards",
    "List model cards",
    "Lists the model cards of elastic plans that come with it.",
    CardsQuestion,
    CardsAnswer,
    _answer_list,
)
PLAN_CARD = Verb(
    "plan_card",
    "Plan a model card",
    "Finds the best plan of a model card under each limit of GPUs, CPU threads and bandwidth (Rubick), with runners-up "
    "and why every other plan is rejected.",
    CardQuestion,
    CardAnswer,
    _answer_plan,
)
CARD_CURVE = Verb(
    "card_curve",
    "Sensitivity of a model card",
    "Gives the best throughput of a model card against GPUs, CPU threads or bandwidth, and what each unit brings.",
    CurveQuestion,
    CurveAnswer,
    _answer_curve,
)
CARD_PHASES = Verb(
    "card_phases",
    "A job through phases",
    "Takes a model card through phases of changing resources, under the planner and under static strategies.",
    PhasesQuestion,
    PhasesAnswer,
    _answer_phases,
)
SPLIT_GPUS = Verb(
    "split_gpus",
    "Split GPUs among jobs",
    "Splits GPUs among jobs of model cards or of models: equally, as the published scheduler, and at best.",
    SplitQuestion,
    SplitAnswer,
    _answer_split,
)
REPLAY_WORKLOAD = Verb(
    "replay_workload",
    "Replay a workload",
    "Replays jobs that come and go on a cluster under several policies: completion times, makespan, GPUs in use.",
    WorkloadReplayQuestion,
    ReplayAnswer,
    _answer_replay,
)
