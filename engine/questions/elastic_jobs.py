"""Verbs about jobs that share a cluster: GPUs split among them, and workloads replayed under policies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
from pydantic import Field

import engine.reproductions  # noqa: F401 - adds the policies of papers to those of replays
from engine.planners import elastic
from engine.planners.contract import Cancel, Progress, never, unheard
from engine.planners.elastic import Split, SplitJob
from engine.planners.elastic.cluster import (
    ReplayResult,
    asked_models,
    compared,
    library_applications,
    summaries,
    workload_from,
)
from engine.planners.elastic.cluster.applications import application, applications
from engine.planners.elastic.cluster.cluster import cluster_of
from engine.planners.elastic.cluster.workload import workload_names
from engine.questions.bounds import Context
from engine.questions.documents.elastic import (
    JobDocument,
    SplitQuestion,
    WorkloadReplayQuestion,
)
from engine.questions.elastic_cards import find_card, find_measurements
from engine.questions.plain import plain, table_rows
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.scenarios.scenario import Scenario
from models import Model
from models.documents import shown

__all__ = ["REPLAY_WORKLOAD", "SPLIT_GPUS", "named_models", "replay_policies", "share_progress", "split_jobs"]


class SplitAnswer(Document):
    """Throughput of each way to split GPUs."""

    basis: str
    totals: dict[str, float] = Field(description="Sum of throughputs over those alone on all GPUs, by way.")
    ways: list[Row] = Field(
        description="Every job by way: equal shares, greedy as the published scheduler, exact the best that keeps all "
        "guarantees."
    )
    notes: list[str]


class ReplayAnswer(Document):
    """A workload under each policy."""

    gpus: int
    policies: list[Row] = Field(description="Completion times, makespan [s], GPUs in use, waiting jobs, changes.")
    jobs: list[Row] = Field(description="Every job under every policy, where asked for.")
    notes: list[str]


def share_progress(progress: Progress, parts: float, before: float = 0.0) -> Progress:
    """Return a callback for the progress of a part of the work.

    Args:
        progress: callback for the progress of the whole.
        parts: share of the whole that the part makes up.
        before: share that is done before it.
    """
    return lambda share, doing: progress(before + parts * share, doing)


def split_jobs(asked: SplitQuestion, progress: Progress = unheard, cancel: Cancel = never) -> Split:
    """Return the split of GPUs among jobs.

    Args:
        asked: the question.
        progress: called with the share done (0 to 1) and the current step.
        cancel: True stops the search for plans of library models.

    Raises `QuestionError`, `engine.planners.contract.PlanError`, and the errors of loading models and a system.
    """
    share = 1 / len(asked.jobs)
    jobs = [
        _build_job(each, asked, share_progress(progress, share, at * share), cancel)
        for at, each in enumerate(asked.jobs)
    ]
    return elastic.split(jobs, asked.gpus, basis=asked.basis, cpu_threads=asked.cpu_threads, variant=asked.variant)


def _build_job(given: JobDocument, asked: SplitQuestion, progress: Progress, cancel: Cancel) -> SplitJob:
    if (given.card is None) == (given.model is None):
        raise QuestionError("A job has a card, or a model of the library.")
    if given.card is not None:
        card = find_card(given.card)
        return SplitJob(given.name or card.name, card, find_measurements(card, given.measurements), given.guarantee)
    assert given.model is not None
    model = found_model(given.model)
    if asked.system is None or given.global_batch is None:
        raise QuestionError(f"The job of {model.name} needs its global_batch, and the question a system.")
    return elastic.model_job(
        model,
        found_system(asked.system),
        batch=given.global_batch,
        gpus=asked.gpus,
        guarantee=given.guarantee,
        name=given.name,
        progress=progress,
        cancel=cancel,
    )


def named_models(asked: WorkloadReplayQuestion) -> dict[str, tuple[Model, int]]:
    """Return the models with global batches that the jobs of a workload name, such as llama-3-8B*64, by that name.

    Args:
        asked: the question.

    Raises `QuestionError`, `engine.planners.contract.PlanError`, and the errors of loading a model.
    """
    return asked_models(workload_from(_workload_source(asked)), lambda name: found_model(asked.models.get(name, name)))


def _workload_source(asked: WorkloadReplayQuestion) -> str:
    known = workload_names()
    if asked.workload not in known and "\n" not in asked.workload:
        raise QuestionError(f"There is no workload {shown(asked.workload)}; give one of {', '.join(known)}, or a CSV.")
    return asked.workload


def replay_policies(
    asked: WorkloadReplayQuestion, progress: Progress = unheard, cancel: Cancel = never
) -> dict[str, ReplayResult]:
    """Return the replay of a workload under each policy, by the name of the policy.

    Args:
        asked: the question.
        progress: called with the share done (0 to 1) and the current step.
        cancel: True stops the replays.

    Raises `QuestionError`, `engine.planners.contract.PlanError`, and the errors of loading models and a system.
    """
    made, cluster, models = workload_from(_workload_source(asked)), cluster_of(asked.cluster), named_models(asked)
    own = {}
    if models and asked.system is None:
        raise QuestionError(f"{next(iter(models))} is a model of the library; give the system it runs on.")
    share = 0.7 if models else 0.0  # the curves take longer than the replays
    if models and asked.system is not None:
        own = library_applications(
            models,
            found_system(asked.system),
            cluster,
            progress=share_progress(progress, share),
            cancel=cancel,
        )
    cards = {}
    for each in asked.cards or ():
        card = find_card(each.card)
        cards[card.name] = application(card, find_measurements(card, each.measurements))
    return compared(
        made,
        cluster,
        asked.policies,
        pause=asked.pause_s,
        interval=asked.interval_s,
        models={**applications(), **cards, **own},
        progress=share_progress(progress, 1 - share, share),
        cancel=cancel,
    )


def _check_sizes(jobs: Iterable[JobDocument], asked: SplitQuestion, context: Context) -> None:
    """Raise `QuestionError` if the space of a job of a library model is too large."""
    for each in jobs:
        if each.model is None or asked.system is None or each.global_batch is None:
            continue
        system = found_system(asked.system)
        context.bounds.searchable(
            Scenario.of(
                found_model(each.model),
                system,
                num_procs=asked.gpus,
                max_batch_size=each.global_batch,
                datatype=system.closest_datatype("bfloat16", system.matrix),
                limits={"batch_size": [each.global_batch]},
            )
        )


def _answer_split(asked: SplitQuestion, context: Context) -> dict[str, Any]:
    _check_sizes(asked.jobs, asked, context)
    found = split_jobs(asked, context.tell, context.stops)
    return {
        "basis": found.basis,
        "totals": plain(found.totals().to_dict()),
        "ways": table_rows(found.table),
        "notes": list(found.notes),
    }


def _answer_replay(asked: WorkloadReplayQuestion, context: Context) -> dict[str, Any]:
    found = replay_policies(asked, context.tell, context.stops)
    jobs = [each.jobs.assign(policy=name) for name, each in found.items()] if asked.jobs else []
    return {
        "gpus": cluster_of(asked.cluster).gpus,
        "policies": table_rows(summaries(found)),
        "jobs": table_rows(pd.concat(jobs, ignore_index=True)) if jobs else [],
        "notes": [f"{name}: {note}" for name, each in found.items() for note in each.notes],
    }


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
