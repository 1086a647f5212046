"""Verb about a fleet: training jobs and services that share GPUs of several kinds over the hours of a day or a week."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from pydantic import Field

from engine.economics import RunInputs
from engine.executions.arrays import Floats
from engine.executions.execution_names import execution_name
from engine.exploration.run import ExplorationCancelled
from engine.fleet import (
    OBJECTIVES,
    Allocation,
    FleetChange,
    FleetError,
    FleetJob,
    FleetProblem,
    FleetService,
    GpuPool,
    JobSize,
    ReplicaChoice,
    StagedPlan,
    check_chain,
    check_problem,
    explain_allocation,
    find_faults,
    plan_allocation,
    spare_nodes,
)
from engine.fleet.curves import (
    JobCurve,
    ReinforcementSize,
    choose_replica,
    curve_of_job,
    curve_of_reinforcement,
    step_tokens,
)
from engine.fleet.demand import DAY_HOURS, WEEK_HOURS, hourly_peaks
from engine.fleet.documents import describe_fleet_plan, describe_proof, list_ends, list_missed
from engine.fleet.reasons import in_turn, without_changes, without_growth
from engine.post_training.search import PostTrainingGoal
from engine.questions.bounds import Context
from engine.questions.documents.fleet import (
    OF_SHAPE,
    OF_TRAINING,
    FleetJobDocument,
    FleetPoolDocument,
    FleetQuestion,
    FleetServiceDocument,
)
from engine.questions.documents.post_training import MODE_WORDS, PostTrainingQuestion
from engine.questions.plain import plain
from engine.questions.post_training import BASIS, JUDGE_BESIDE, post_training_goal
from engine.questions.run_plans import find_execution
from engine.questions.scenario_documents import found_model, found_system, tuned_model
from engine.questions.verb import Document, QuestionError, Row, Verb
from engine.scenarios.scenario import Scenario
from engine.serving import FIELDS, ServiceLoad, size_service
from engine.serving.days import shape_demand
from hardware import System
from models.documents import did_you_mean, shown

__all__ = ["PLAN_FLEET", "FleetPlan", "demand_hours", "find_fleet_plan", "fleet_document", "read_fleet"]

DEFAULT_TOKENS: Final = 1e12
"""Tokens of a job that goes on, for the share of its time that failures take."""
NOT_MODELLED: Final = (
    "Jobs hold 1, 2, 3, 4, 6, 8, 12, ... nodes, or sixteenths of a system's GPUs.",
    "Replicas start and stop on the hour; they serve after their start-up, by default at once.",
    "A service has one deployment on each system, that with the highest load per GPU.",
)
"""Parts that a plan of a fleet leaves out."""
OF_REINFORCEMENT: Final = (
    BASIS,
    "Rollout replicas of an elastic job come and go on the hour without a restart; their failures are left out.",
)
"""Further sentences about a fleet with reinforcement learning."""
UNITS: Final = {
    "usd": "USD",
    "usd_per_h": "USD/h",
    "demand": "1/s",
    "unserved": "1/s",
    "capacity": "1/s",
    "days": "days",
    "deadline_days": "days",
    "restart_s": "s",
    "startup_s": "s",
    "start_days": "days",
    "end_days": "days",
}
"""Units of the figures of a plan."""
MOST_KNOWN: Final = 256
"""Curves of jobs and deployments of services that are remembered."""
_KNOWN: Final[dict[str, Any]] = {}
Found = TypeVar("Found")
SEARCH_SHARE: Final = 0.7
"""Share of the work that curves of jobs and services take, for the progress shown."""


class FleetPlan(NamedTuple):
    """Plan of a fleet: the best allocation or its stages, baselines by name, changes with their gains, and why a job
    or service does not run on a pool."""

    allocation: Allocation | StagedPlan
    baselines: Mapping[str, Allocation | StagedPlan]
    changes: list[FleetChange]
    refused: Mapping[str, str]


class FleetPoolRow(Document):
    """GPUs of a kind, and how many are in use."""

    name: str
    gpus: int
    node: int = Field(description="GPUs of a node.")
    spares: int = Field(description="GPUs kept free for failures.")
    usd_per_h: float | None
    used: list[int] = Field(description="GPUs in use by hour.")


class FleetSizeRow(Document):
    """GPUs that a job may hold."""

    pool: str
    gpus: int
    tokens_per_s: float = Field(description="Failures, checkpoints and restarts included.")
    layout: str
    group: int | None = Field(description="Sizes of one group change into each other without a restart.")
    step_s: float | None = Field(description="Step of reinforcement learning, failures left out [s]; null otherwise.")


class FleetJobRow(Document):
    """A job in the plan."""

    name: str
    tokens: float | None
    deadline_days: float | None
    weight: float
    is_elastic: bool
    restart_s: float
    after: str | None
    chain_factor: float = Field(
        description="Least days from its start to the end of all that waits for it, over its own."
    )
    alone_tokens_per_s: float = Field(description="With the fleet for itself.")
    curve: list[FleetSizeRow] = Field(
        description="Sizes at which it runs, by pool; with `why` also those of changed pools."
    )
    hours: list[int | None] = Field(description="Position of its size in `curve` by hour; null where it pauses.")
    tokens_per_s: float = Field(description="Mean of all hours.")
    days: float | None = Field(description="Null without tokens or without progress.")
    is_late: bool


class FleetChoiceRow(Document):
    """A deployment of a service."""

    pool: str
    gpus: int = Field(description="GPUs of a replica.")
    capacity: float = Field(description="Requests of a second that a replica serves within the limits.")
    deployment: Row


class FleetServiceRow(Document):
    """A service in the plan."""

    name: str
    after: str | None
    startup_s: float
    demand: list[float] = Field(description="Requests per second by hour, headroom included.")
    choices: list[FleetChoiceRow]
    replicas: list[list[int]] = Field(description="Replicas by choice and hour.")
    unserved: list[float] = Field(description="Demand beyond the replicas by hour [1/s].")


class FleetChangeRow(Document):
    """A change of the fleet or of its constraints."""

    words: str
    value: float | None = Field(description="The objective after it.")
    gain: float | None = Field(description="By which the objective gets better; below 0 if worse.")
    holds: bool = Field(description="Whether all demand and deadlines hold after it.")


class FleetEndRow(Document):
    """Speed and end of a job in a simpler plan."""

    name: str
    tokens_per_s: float | None = Field(description="Mean of all hours; null where jobs wait for others.")
    days: float | None = Field(description="Day of its end; null without tokens or without progress.")
    is_late: bool


class FleetBaselineRow(Document):
    """A simpler plan."""

    words: str
    value: float | None
    holds: bool
    usd: float | None
    jobs: list[FleetEndRow]


class FleetStageRow(Document):
    """Hours that repeat until a job ends, as a plan of their own. Tokens are left ones; deadlines are in days of the
    stage, without the time that later jobs need."""

    start_days: float
    days: float | None = Field(description="Length; null for the last one, which goes on.")
    ended: list[str] = Field(description="Jobs that end with it.")
    objective: str
    hours: int
    value: float | None
    bound: float | None
    gap: float
    holds: bool
    usd: float | None
    pools: list[FleetPoolRow]
    jobs: list[FleetJobRow]
    services: list[FleetServiceRow]


class ChainTimeRow(Document):
    """Start and end of a job or service."""

    name: str
    after: str | None
    is_service: bool
    tokens: float | None
    start_days: float | None = Field(description="Null if it never starts.")
    end_days: float | None = Field(description="Null if it never ends.")
    deadline_days: float | None
    is_late: bool


class FleetAnswer(Document):
    """Plan of a fleet: GPUs of every job and service in every hour."""

    objective: str
    objective_words: str
    hours: int
    value: float | None = Field(
        description="progress: 1 is every job as fast as alone on the fleet; days until the last job is done; or USD "
        "of all hours. Null if a job makes no progress."
    )
    bound: float | None = Field(description="No plan is better than this.")
    gap: float | None = Field(
        description="Share by which a better plan may exist; 0 if this one is proven best; null if no bound is known."
    )
    proof: str = Field(description="What is proven, in words.")
    missed: list[str] = Field(description="A sentence about each missed deadline, with what would hold.")
    stages: list[FleetStageRow] = Field(
        description="Where jobs wait for others: `pools`, `jobs` and `services` are from the first; else empty."
    )
    chain: list[ChainTimeRow] = Field(description="Start and end of each job and service; empty without stages.")
    holds: bool = Field(description="Whether all demand is served and no job is late.")
    usd: float | None = Field(description="Cost of the GPUs in use over all hours; null without a price.")
    pools: list[FleetPoolRow]
    jobs: list[FleetJobRow]
    services: list[FleetServiceRow]
    baselines: list[FleetBaselineRow]
    changes: list[FleetChangeRow] = Field(description="With `why`: a node more, and constraints lifted.")
    refused: dict[str, str] = Field(description="Jobs and services that a pool cannot run, with the reason.")
    faults: list[str] = Field(description="Empty: all figures were computed again from this document.")
    not_modelled: list[str]
    units: dict[str, str]
    seconds: float


def read_fleet(asked: FleetQuestion, context: Context) -> tuple[FleetProblem, dict[str, str]]:
    """Return the problem of a question, and which jobs and services a pool cannot run, with the reason.

    Args:
        asked: the question.
        context: bounds, progress and cancelling.

    Raises `QuestionError`, `engine.fleet.FleetError`, and the errors of loading models and systems.
    """
    systems = [found_system(pool.system) for pool in asked.pools]
    names = [system.name for system in systems]
    for name in names:
        if names.count(name) > 1:
            raise QuestionError(f"There are two pools of {name}; give one with the GPUs of both.")
    hours = _count_hours(asked)
    pools = tuple(_read_pool(pool, system, asked) for pool, system in zip(asked.pools, systems, strict=True))
    titles: set[str] = set()
    _refuse_ambiguous_order(asked)
    jobs = [_read_job(job, asked, names, titles) for job in asked.jobs]
    services = [_read_service(service, names, titles, hours) for service in asked.services]
    problem = FleetProblem(pools, tuple(jobs), tuple(services), hours, asked.objective)
    check_problem(problem)  # before the searches, which take a while
    check_chain(problem)
    refused: dict[str, str] = {}
    steps = len(pools) * (len(jobs) + len(services))
    done = 0

    def tell_step(share: float, doing: str) -> None:
        context.tell(SEARCH_SHARE * (done + share) / steps, doing)

    for place, job in enumerate(asked.jobs):
        sizes: list[JobSize] = []
        for number, system in enumerate(systems):
            of_pool = _sizes_of(number, pools[number], asked)
            if job.systems is None or system.name in job.systems:
                apart = {"name", "deadline_days", "after", "weight", "restart_s", "systems"}
                found = _remember(
                    (of_pool, system, job.model_dump_json(exclude=apart), _terms_of(asked), context.bounds),
                    partial(_curve, number, pools[number], system, job, asked, context, tell_step),
                )
                sizes += found.sizes
                if not found.sizes:
                    refused[f"{jobs[place].name} on {system.name}"] = next(iter(found.refused.values()))
            done += 1
        alone = max(
            (size.tokens_per_s for size in sizes if size.gpus <= pools[size.pool].gpus - pools[size.pool].spares),
            default=0.0,
        )
        jobs[place] = replace(jobs[place], sizes=tuple(sizes), alone_rate=alone)
    for place, service in enumerate(asked.services):
        choices: list[ReplicaChoice] = []
        for number, system in enumerate(systems):
            of_pool = _sizes_of(number, pools[number], asked)
            if service.systems is None or system.name in service.systems:
                apart = {"name", "after", "startup_s", "systems", "headroom", "demand", *OF_SHAPE}
                replicas, obstacle = _remember(
                    (of_pool, system, service.model_dump_json(exclude=apart), context.bounds),
                    partial(_choose_replica, number, pools[number], system, service, context, tell_step),
                )
                choices += replicas
                if not replicas:
                    refused[f"{services[place].name} on {system.name}"] = obstacle
            done += 1
        services[place] = replace(services[place], choices=tuple(choices))
    return replace(problem, jobs=tuple(jobs), services=tuple(services)), refused


def _sizes_of(number: int, pool: GpuPool, asked: FleetQuestion) -> tuple[int, ...]:
    """Return the figures of a pool that sizes of jobs and replicas depend on."""
    free = number, pool.node, pool.gpus - pool.spares
    return (*free, pool.gpus) if asked.why else free


def _terms_of(asked: FleetQuestion) -> str:
    """Return the terms of a question that curves of jobs depend on."""
    return asked.model_dump_json(exclude={"pools", "jobs", "services", "objective", "longest_s", "repair_h"})


def _remember(key: tuple[object, ...], find: Callable[[], Found]) -> Found:
    """Return curves or deployments that were found before, or find them: other demand and deadlines need no search."""
    name = repr(key)
    if name not in _KNOWN:
        found = find()
        while len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.pop(next(iter(_KNOWN)), None)
        _KNOWN[name] = found
        return found
    known: Found = _KNOWN[name]
    return known


def find_fleet_plan(asked: FleetQuestion, *, context: Context | None = None) -> FleetPlan:
    """Return the plan of a question.

    Args:
        asked: the question.
        context: bounds, progress and cancelling.

    Raises `QuestionError`, the errors of loading models and systems, and `engine.ExplorationCancelled`.
    """
    context = context or Context()
    try:
        problem, refused = read_fleet(asked, context)
        context.tell(SEARCH_SHARE, "allocation")
        found = plan_allocation(problem, asked.longest_s)
        simpler = {
            "Jobs keep one size all day": without_changes(problem),
            "Services keep the replicas of their peak, too": without_growth(problem),
        }
        timed = [job for job in problem.jobs if job.tokens is not None]
        if problem.objective == "days" and not problem.has_chain and len(timed) > 1:
            simpler = {"Jobs one after the other": in_turn(problem), **simpler}
        baselines = {words: plan_allocation(each, asked.longest_s) for words, each in simpler.items()}

        def tell_change(share: float, doing: str) -> None:
            if context.stops():
                raise ExplorationCancelled("The plan was cancelled.")
            context.tell(SEARCH_SHARE + (1.0 - SEARCH_SHARE) * share, doing)

        changes = explain_allocation(found, asked.longest_s, tell_change) if asked.why else []
    except FleetError as problem_found:
        raise QuestionError(str(problem_found)) from None
    return FleetPlan(found, baselines, changes, refused)


def _count_hours(asked: FleetQuestion) -> int:
    hours = {len(service.demand) for service in asked.services if service.demand is not None}
    for found in hours - {DAY_HOURS, WEEK_HOURS}:
        raise QuestionError(f"`demand` has {found:,} numbers; give {DAY_HOURS} for a day, or {WEEK_HOURS} for a week.")
    return max(hours, default=DAY_HOURS)


def _read_pool(pool: FleetPoolDocument, system: System, asked: FleetQuestion) -> GpuPool:
    inputs = RunInputs.of(system, mtbf_h=asked.mtbf_h)
    node = system.node_size
    spares = pool.spare_nodes
    if spares is None:
        spares = spare_nodes(pool.num_procs, node, inputs.mtbf_h, asked.repair_h)
    elif spares * node > pool.num_procs:
        raise QuestionError(
            f"{spares:,} spare nodes of {system.name} have {spares * node:,} GPUs; there are {pool.num_procs:,}."
        )
    price = pool.usd_per_h if pool.usd_per_h is not None else inputs.usd_middle
    return GpuPool(system.name, pool.num_procs, node, spares * node, math.nan if price is None else price)


def _refuse_ambiguous_order(asked: FleetQuestion) -> None:
    """Raise `QuestionError` for a job to wait for whose name several jobs have."""
    counts = Counter(job.name or found_model(job.model).name for job in asked.jobs)
    waited_for = [*(job.after for job in asked.jobs), *(service.after for service in asked.services)]
    for name in waited_for:
        if name is not None and counts[name] > 1:
            raise QuestionError(
                f"`after` names {shown(name)}, and {counts[name]:,} jobs have that name; give each its own."
            )


def _read_job(job: FleetJobDocument, asked: FleetQuestion, pools: list[str], titles: set[str]) -> FleetJob:
    """Return a job without its sizes."""
    name = _name_once(job.name or found_model(job.model).name, titles)
    _check_systems(job.systems, pools, name)
    tokens = job.tokens
    if job.post_training is not None:
        tokens = _read_reinforcement(job, asked, name)
    elif job.max_batch_size is None:
        raise QuestionError(f"{name} needs `max_batch_size`, or `post_training` for reinforcement learning.")
    if job.deadline_days is not None and tokens is None:
        raise QuestionError(f"{name} has a deadline, but no tokens to train; give `tokens`.")
    return FleetJob(name, (), tokens, job.deadline_days, job.weight, job.elastic, job.restart_s, job.after)


def _read_reinforcement(job: FleetJobDocument, asked: FleetQuestion, name: str) -> float:
    """Return the tokens of all samples of all steps; refuse terms that contradict each other before any search."""
    fields = FleetJobDocument.model_fields
    for field in OF_TRAINING:
        if getattr(job, field) != fields[field].get_default(call_default_factory=True):
            raise QuestionError(f"{name} has `post_training`, which says all of its work; leave `{field}` out.")
    if dict(job.post_training or ())["judge"].own_gpus is not None:
        raise QuestionError(f"{name}: {JUDGE_BESIDE}")
    goals = [
        _ask_goal(job, pool)
        for pool in asked.pools
        if job.systems is None or found_system(pool.system).name in job.systems
    ]
    return _count_steps(job) * step_tokens(goals[0])


def _ask_goal(job: FleetJobDocument, pool: FleetPoolDocument) -> PostTrainingGoal:
    """Return the goal of reinforcement learning on all GPUs of a pool."""
    assert job.post_training is not None
    place = {"model": job.model, "system": pool.system, "num_procs": pool.num_procs}
    return post_training_goal(PostTrainingQuestion.model_validate({**dict(job.post_training), **place}))


def _count_steps(job: FleetJobDocument) -> int:
    return int(dict(job.post_training or ())["steps"])


def _read_service(service: FleetServiceDocument, pools: list[str], titles: set[str], hours: int) -> FleetService:
    """Return a service without its deployments."""
    name = _name_once(service.name or found_model(service.model).name, titles)
    _check_systems(service.systems, pools, name)
    demand = demand_hours(service, hours) * (1.0 + service.headroom)
    return FleetService(name, (), demand, service.after, service.startup_s)


def _check_systems(wanted: list[str] | None, pools: list[str], title: str) -> None:
    for name in wanted or ():
        if name not in pools:
            raise QuestionError(f"{title} may use {shown(name)}, which is no pool{did_you_mean(name, pools)}.")


def _name_once(name: str, taken: set[str]) -> str:
    number, title = 1, name
    while title in taken:
        number += 1
        title = f"{name} ({number})"
    taken.add(title)
    return title


def _curve(
    number: int,
    pool: GpuPool,
    system: System,
    job: FleetJobDocument,
    asked: FleetQuestion,
    context: Context,
    tell: Callable[[float, str], None],
) -> JobCurve:
    free = pool.gpus - pool.spares
    # A node more, and no spares, only bring something if the job can hold them.
    further = (
        sorted({(free // pool.node + 1) * pool.node, pool.gpus // pool.node * pool.node} - {0}) if asked.why else []
    )
    inputs = RunInputs.of(system, mtbf_h=asked.mtbf_h)
    model = tuned_model(job)

    def tell_size(share: float, doing: str) -> None:
        tell(share, f"{model.name} on {system.name}, {doing}")

    if job.post_training is not None:
        goal = _ask_goal(job, asked.pools[number])
        inputs = replace(inputs, tokens=_count_steps(job) * step_tokens(goal))
        return curve_of_reinforcement(number, free, goal, inputs, job.elastic, tell_size, context.stops, further)
    most = job.max_batch_size or 0

    def scenario_at(num_procs: int) -> Scenario:
        return Scenario.of(
            model,
            system,
            num_procs=num_procs,
            max_batch_size=most,
            datatype=job.datatype,
            limits=job.limits,
            cost_model=asked.cost_model,
        )

    def search(scenario: Scenario) -> Mapping[str, Any] | None:
        return find_execution(asked, context.bounds.searchable(scenario))

    inputs = replace(inputs, tokens=job.tokens or DEFAULT_TOKENS)
    return curve_of_job(number, free, scenario_at, search, inputs, tell_size, context.stops, further)


def _choose_replica(
    number: int,
    pool: GpuPool,
    system: System,
    service: FleetServiceDocument,
    context: Context,
    tell: Callable[[float, str], None],
) -> tuple[tuple[ReplicaChoice, ...], str]:
    sizing = size_service(
        found_model(service.model),
        system,
        load=ServiceLoad(1.0, None),
        prompt=service.prompt,
        output=service.output,
        most_procs=max(pool.gpus - pool.spares, 1),
        limits=service.limits,
        time_to_first_token=service.time_to_first_token_s,
        time_per_output_token=service.time_per_output_token_s,
        level=service.held_at,
        progress=tell,
        cancel=context.stops,
    )
    return choose_replica(number, pool.gpus - pool.spares, sizing), sizing.obstacle or "No deployment holds the limits."


def demand_hours(service: FleetServiceDocument, hours: int) -> Floats:
    """Return the demand of a service by hour, without headroom [1/s].

    Args:
        service: of the question.
        hours: of the plan.

    Raises `QuestionError` for a service without demand, or with another number of hours.
    """
    if (service.demand is None) == (service.peak_rate is None):
        raise QuestionError("A service needs a demand: give either `demand` or `peak_rate`.")
    if service.demand is not None:
        if len(service.demand) != hours and hours % len(service.demand):
            raise QuestionError(f"`demand` has {len(service.demand)} numbers; the plan has {hours} hours.")
        if not any(service.demand):
            raise QuestionError("`demand` is 0 in all hours; leave the service out, or give requests per second.")
        return np.resize(np.array(service.demand, np.float64), hours)
    assert service.peak_rate is not None
    day = shape_demand(service.peak_rate, service.trough_share, service.peak_hour)
    return np.resize(hourly_peaks(day), hours)


def _list_idle_jobs(plan: Allocation | StagedPlan) -> dict[str, str]:
    """Return the jobs that least cost leaves undone, since nothing asks for their end, with that reason."""
    if plan.problem.objective != "usd" or isinstance(plan, StagedPlan):
        return {}
    reason = "Least cost runs no job without a deadline; give one, or choose another objective."
    asked = [(place, job) for place, job in enumerate(plan.problem.jobs) if job.sizes and job.deadline_days is None]
    return {job.name: reason for place, job in asked if plan.rate(place) == 0.0}


def fleet_document(found: FleetPlan) -> dict[str, Any]:
    """Return a plan as JSON has it.

    Args:
        found: the plan.
    """
    plan = found.allocation
    document = describe_fleet_plan(plan)
    faults = find_faults(document)
    problem = plan.problem
    if isinstance(plan, StagedPlan):
        for stage_row, stage in zip(document["stages"], plan.stages, strict=True):
            _add_rows(stage_row, stage.allocation.problem)  # the first one's rows are those of the document
    else:
        _add_rows(document, problem)
    rests_on = OF_REINFORCEMENT if any(_is_reinforcement(job) for job in problem.jobs) else ()
    return {
        **document,
        "objective_words": OBJECTIVES[problem.objective],
        "baselines": [
            {
                "words": words,
                "value": plain(each.value),
                "holds": each.holds,
                "usd": plain(each.usd),
                "jobs": list_ends(each),
            }
            for words, each in found.baselines.items()
        ],
        "changes": [
            {"words": each.words, "value": plain(each.value), "gain": plain(each.gain), "holds": each.holds}
            for each in found.changes
        ],
        "proof": describe_proof(document),
        "missed": list_missed(plan),
        "refused": {**found.refused, **_list_idle_jobs(plan)},
        "faults": faults,
        "not_modelled": [*rests_on, *NOT_MODELLED],
        "units": UNITS,
    }


def _add_rows(document: Mapping[str, Any], problem: FleetProblem) -> None:
    """Add executions and deployments to the curves and choices of a document."""
    for row, job in zip(document["jobs"], problem.jobs, strict=True):
        for size_row, size in zip(row["curve"], job.sizes, strict=True):
            size_row["layout"] = _layout_words(size)
            size_row["step_s"] = size.row.step_s if isinstance(size.row, ReinforcementSize) else None
    for row, service in zip(document["services"], problem.services, strict=True):
        for choice_row, choice in zip(row["choices"], service.choices, strict=True):
            choice_row["deployment"] = {column.name: plain(choice.row[column.name]) for column in FIELDS}


def _is_reinforcement(job: FleetJob) -> bool:
    return any(isinstance(size.row, ReinforcementSize) for size in job.sizes)


def _layout_words(size: JobSize) -> str:
    row = size.row
    if not isinstance(row, ReinforcementSize):
        return execution_name(row)
    pools = "" if row.mode == "colocated" else f" {row.gpus_train:,} train + {row.gpus_rollout:,} generate"
    return f"{MODE_WORDS[row.mode]}{pools}, {execution_name(row.execution)}"


def _answer_fleet(asked: FleetQuestion, context: Context) -> dict[str, Any]:
    start = time.perf_counter()
    document = fleet_document(find_fleet_plan(asked, context=context))
    return {**document, "seconds": time.perf_counter() - start}


PLAN_FLEET = Verb(
    "plan_fleet",
    "Plan a fleet",
    "Says which job (training, fine-tuning, reinforcement learning) and which service gets which GPUs of a fleet in "
    "which hour of a day or a week, proven best for progress, the earliest end or cost, in stages where jobs wait for "
    "others; what is late or unserved, and what a node more would bring.",
    FleetQuestion,
    FleetAnswer,
    _answer_fleet,
)
