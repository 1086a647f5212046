"""Elastic plans off the page: curves of library models, jobs that share a cluster by them, and replays of workloads."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.worker import Task, Worker
from engine import ExplorationCancelled
from engine.planners.contract import PlanCancelledError
from engine.planners.elastic import Phase, Split, after_failure, model_curve, model_job, model_phases, split
from engine.planners.elastic.cards import Environment
from engine.planners.elastic.cluster import ReplayResult, compared, library_applications
from engine.planners.elastic.cluster.applications import applications
from engine.planners.elastic.cluster.cluster import cluster_of
from engine.planners.elastic.fitting import CardFit, fit_parameters, held_out
from engine.planners.elastic.measured.profiles import profile_names, profile_of, profile_table
from hardware import System
from models import Model

__all__ = [
    "ElasticJob",
    "FitQuestion",
    "Fitted",
    "ModelCurves",
    "ModelCurvesQuestion",
    "Question",
    "ReplayQuestion",
    "SharedCluster",
    "SharedClusterQuestion",
    "elastic_plans",
]

MOST_KEPT: Final = 32
"""Plans that are remembered."""
HELD_OUT_STARTS: Final = 4
"""Starts of each leave-one-out fit; there is one fit per run."""
STEPS: Final = 100
"""Steps in which progress of a plan is reported."""


@dataclass(frozen=True, slots=True)
class ModelCurvesQuestion:
    """A library model on a system: its best executions at these numbers of GPUs with one global batch, what to do when
    the last nodes of the largest are lost, and its phases."""

    model: Model
    system: System
    batch: int
    sizes: tuple[int, ...]
    lost: int
    spares: int
    repair_s: float
    phases: tuple[Phase, ...]


@dataclass(frozen=True, slots=True)
class ModelCurves:
    """Curves of a library model. `failure` is None for a single node; `why_not` then says so, or that nothing runs."""

    curve: pd.DataFrame
    failure: pd.DataFrame | None
    phases: pd.DataFrame
    why_not: str


@dataclass(frozen=True, slots=True)
class SharedClusterQuestion:
    """Library models that share the GPUs of one system: each with its batch and the throughput that it was promised."""

    jobs: tuple[tuple[str, Model, int, float | None], ...]
    system: System
    gpus: int


@dataclass(frozen=True, slots=True)
class SharedCluster:
    """Split of a cluster among its jobs."""

    found: Split


@dataclass(frozen=True, slots=True)
class ReplayQuestion:
    """A workload, by its name or as the text of a CSV file, on nodes of equally many GPUs under several policies.
    `models` are the library models that it names, with their batches, on the GPUs of `system`."""

    workload: str
    cluster: str
    models: Mapping[str, tuple[Model, int]]
    system: System
    policies: tuple[str, ...]
    pause: float


@dataclass(frozen=True, slots=True)
class FitQuestion:
    """Profiled runs, by the name of a profile or as the text of a CSV file, and the node's bandwidths [MiB/ms]."""

    profile: str
    pcie: float
    nvlink: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """The seven parameters, errors with each run left out in turn, and notes on the profile."""

    fit: CardFit
    held_out: pd.DataFrame
    notes: tuple[str, ...]


Question = ModelCurvesQuestion | SharedClusterQuestion | ReplayQuestion | FitQuestion
Answer = ModelCurves | SharedCluster | Mapping[str, ReplayResult] | Fitted


@dataclass(frozen=True, slots=True)
class _Told:
    """Progress of a plan."""

    done: int
    total: int
    rate: float
    seconds_left: float


def _progress_reporter(task: Task, parts: float = 1.0, before: float = 0.0) -> Callable[[float, str], None]:
    """Return a callback for a planner's progress, which makes up `parts` of the whole after the share `before`."""
    start = time.monotonic()

    def tell(share: float, _: str) -> None:
        done = min(before + parts * share, 1.0)
        spent = time.monotonic() - start
        left = spent * (1 - done) / (done - before) if done > before else math.inf
        task.tell(_Told(round(STEPS * done), STEPS, 0.0, left))

    return tell


def found_answer(task: Task, question: Question) -> Answer:
    """Returns the answer to a question; for a worker."""
    try:
        if isinstance(question, ModelCurvesQuestion):
            return _compute_curves(task, question)
        if isinstance(question, SharedClusterQuestion):
            return _split_cluster(task, question)
        return _fit_profile(task, question) if isinstance(question, FitQuestion) else _replay_workload(task, question)
    except PlanCancelledError:
        raise ExplorationCancelled from None


def _compute_curves(task: Task, asked: ModelCurvesQuestion) -> ModelCurves:
    curve = model_curve(
        asked.model,
        asked.system,
        batch=asked.batch,
        gpus=asked.sizes,
        progress=_progress_reporter(task, 0.6),
        cancel=task.stops,
    )
    phases = model_phases(
        asked.model,
        asked.system,
        asked.phases,
        batch=asked.batch,
        progress=_progress_reporter(task, 0.3, 0.6),
        cancel=task.stops,
    )
    failure, why_not = None, ""
    placement = str(curve["placement"].iloc[-1])
    nodes = math.ceil(max(asked.sizes) / asked.system.node_size)
    if nodes < 2:
        why_not = "All GPUs are one node; with two and more it is told here what to do when one is lost."
    elif math.isnan(curve["raw_best"].iloc[-1]):
        why_not = "Nothing runs on all GPUs, so nothing can be lost."
    else:
        failure = after_failure(
            asked.model,
            asked.system,
            placement=placement,
            batch=asked.batch,
            lost=min(asked.lost, nodes),
            spares=asked.spares,
            repair_s=asked.repair_s,
        )
    return ModelCurves(curve, failure, phases, why_not)


def _split_cluster(task: Task, asked: SharedClusterQuestion) -> SharedCluster:
    share = 1 / len(asked.jobs)
    jobs = [
        model_job(
            model,
            asked.system,
            batch=batch,
            gpus=asked.gpus,
            guarantee=guarantee,
            name=name,
            progress=_progress_reporter(task, share, at * share),
            cancel=task.stops,
        )
        for at, (name, model, batch, guarantee) in enumerate(asked.jobs)
    ]
    return SharedCluster(split(jobs, asked.gpus, basis="predicted"))


def _replay_workload(task: Task, asked: ReplayQuestion) -> Mapping[str, ReplayResult]:
    share = 0.7 if asked.models else 0.0  # the curves take longer than the replays
    known = library_applications(
        asked.models,
        asked.system,
        cluster_of(asked.cluster),
        progress=_progress_reporter(task, share),
        cancel=task.stops,
    )
    return compared(
        asked.workload,
        asked.cluster,
        asked.policies,
        pause=asked.pause,
        models={**applications(), **known},
        progress=_progress_reporter(task, 1 - share, share),
        cancel=task.stops,
    )


def _fit_profile(task: Task, asked: FitQuestion) -> Fitted:
    runs = profile_of(asked.profile) if asked.profile in profile_names() else profile_table(asked.profile)
    environment, tell = Environment(pcie=asked.pcie, nvlink=asked.nvlink), _progress_reporter(task)
    found = fit_parameters(runs, environment)
    if task.stops():
        raise PlanCancelledError("The fit is not wanted any more.")
    tell(0.3, "")
    left_out = held_out(runs, environment, starts=HELD_OUT_STARTS)
    return Fitted(found, left_out, runs.notes)


class ElasticJob(Job):
    """One question on its way."""

    def __init__(self, kind: JobKind, key: str, question: Question, title: str, about: str) -> None:
        super().__init__(kind, key, title, about)
        self.question, self.answer = question, None

    answer: Answer | None

    def work(self) -> bool:
        """Plans."""
        self.answer = self.run(found_answer, self.question)
        return False


def elastic_plans(worker: Worker) -> JobKind:
    """Returns the kind of such jobs, worked on by a worker."""
    return JobKind(name="elastic plan", doing="Planning", unit="step", most_kept=MOST_KEPT, workers={"": worker})
