"""Services that hold limits under a load: the fewest GPUs, as copies of one deployment, with latencies and cost.

A deployment here is one replica, or the replicas that share experts. Its most load within the limits (goodput) gives
the number of copies, and that the GPUs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.executions.arrays import Floats
from engine.exploration.run import ExplorationCancelled
from engine.serving.arrivals import ServiceLoad
from engine.serving.assumptions import Assumptions
from engine.serving.checks import shape_reasons
from engine.serving.columns import FIELDS, SERVICE_FIGURES
from engine.serving.deployments import WORDS, Deployments
from engine.serving.evaluation import WorkloadError, positive, subject_of
from engine.serving.factors import EngineFactors
from engine.serving.figures import HOUR, MILLION, ServingSubject, grouped, memory_of
from engine.serving.profiles import MOST_REQUESTS, ReplicaProfile, replica_profiles
from engine.serving.queueing import LEVELS, LatencyLimits, LoadedReplicas, largest_load, loaded_replicas
from engine.serving.reasons import FITS, REASONS
from engine.serving.space import MOST_PROCESSORS, DeploymentSpace, ServingLimitError
from engine.serving.uncertainty import FigureRange, figure_ranges
from engine.space.space import divisors
from hardware import System, SystemLike
from models import Model, ModelLike
from models.documents import shown

__all__ = [
    "LOAD_REASONS",
    "MOST_UNIT",
    "ServiceSizing",
    "deployment_table",
    "latency_columns",
    "limits_of",
    "runnable_deployments",
    "size_service",
    "unit_sizes",
]

MOST_UNIT: Final = 64
"""GPUs of the largest deployment that is tried. Source: stated by us."""
LOAD_REASONS: Final[Mapping[str, str]] = {
    "first_token": "First token too late, without load",
    "per_token": "Tokens too slow, without load",
    "request": "Request too long, without load",
    "mean_first_token": "First token too late on average, without load",
    "mean_per_token": "Tokens too slow on average, without load",
    "too_many_gpus": "More GPUs than allowed",
    "too_few_gpus": "Load too high for the GPUs",
}
"""Reasons why a deployment holds no load, by code, beyond `engine.serving.reasons`."""
CURVE: Final = (0.02, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.94, 0.97)
"""Shares of the saturating load at which a load curve is drawn. Source: stated by us."""


class NearestService(NamedTuple):
    """Deployment that misses a limit least: its fields, the latency without load [s], the limit [s], and the statistic
    that it holds for."""

    row: dict[str, Any]
    latency: float
    limit: float
    level: str


@dataclass(frozen=True)
class ServiceSizing:
    """Services that hold the limits: `table` has one per deployment, best first, with the figures of
    `engine.serving.columns.SERVICE_FIGURES`; `rejected` counts the others by reason.

    `nearest` has, by limit, the deployment without load that misses it least, where none holds the limits.
    """

    model: Model
    system: System
    load: ServiceLoad
    limits: LatencyLimits
    prompt: int
    output: int
    table: pd.DataFrame
    total: int
    rejected: Mapping[str, int]
    nearest: Mapping[str, NearestService]
    seconds: float
    profile: ReplicaProfile
    held: LatencyLimits
    """The limits with the room for error of every row of `profile`."""
    least_per_rate: float
    """GPUs per unit of load of the deployment that needs fewest of them, at large loads; infinite where none holds."""
    factors: EngineFactors | None = None
    """Measured factors on the latencies of engines; None for none."""

    @property
    def obstacle(self) -> str:
        """Explains why nothing was tried, and what would help; "" if something was."""
        if self.total:
            return ""
        return f"No layout of 1 to {MOST_UNIT} GPUs is within the limits on fields; leave some limits out."

    @property
    def best(self) -> dict[str, Any] | None:
        """The service with the fewest GPUs, of these the one with the most headroom; None where none holds."""
        return self._row(0) if len(self.table) else None

    @cached_property
    def ranges(self) -> dict[str, FigureRange]:
        """Factors between which comparable measured servers are, of the mean latencies of the best service, by figure;
        empty where none was measured. All of them had closed loads."""
        if self.best is None:
            return {}
        found = figure_ranges(self.model, self.system, {**self.best, "batch": max(self.best["in_flight"], 1.0)})
        return {name: found[name] for name in ("time_to_first_token", "time_per_output_token") if name in found}

    def _row(self, place: int) -> dict[str, Any]:
        return {str(name): value for name, value in self.table.iloc[place].items() if name != "profile"}

    def top(self, count: int) -> pd.DataFrame:
        """Returns the best services with different degrees and precisions.

        Args:
            count: of services at most.
        """
        return self.table.head(count).drop(columns="profile")

    @cached_property
    def curve(self) -> pd.DataFrame:
        """Latencies of the best service against its load up to saturation: load, request rate [1/s], mean and
        percentiles [s], and whether the limits hold; empty where no service holds them."""
        if not len(self.table):
            return pd.DataFrame()
        best = self.table.iloc[0]
        count = len(CURVE)
        profile = self.profile.take(np.full(count, int(best["profile"])))
        free = LatencyLimits(level=self.limits.level)
        replicas = np.full(count, float(best["deployments"] * best["replicas"]))
        if self.load.is_open:
            loads = np.array(CURVE) * largest_load(profile, self.load, free)[0]
        else:
            # As many users as keep all places busy; beyond, they wait for each other.
            full = loaded_replicas(profile, replace(self.load, think_s=0.0), profile.most, replicas)
            loads = np.array(CURVE) * 1.5 * (profile.most + full.rate * self.load.think_s)
        found = loaded_replicas(profile, self.load, loads, replicas)
        held = self.limits._replace(room=_room_of(self.held, int(best["profile"])))
        columns = {"load": loads * replicas, "served_rate": found.rate * replicas}
        return pd.DataFrame(columns | latency_columns(found) | {"holds": found.missed(held) == 0})


def size_service(
    model: ModelLike,
    system: SystemLike,
    *,
    load: ServiceLoad,
    prompt: int,
    output: int,
    num_procs: int | None = None,
    most_procs: int = 4096,
    limits: Mapping[str, Any] | None = None,
    time_to_first_token: float | None = None,
    time_per_output_token: float | None = None,
    request_latency: float | None = None,
    level: str = "p99",
    mean_time_to_first_token: float | None = None,
    mean_time_per_output_token: float | None = None,
    room_for_error: bool = False,
    price: float | None = None,
    assumptions: Assumptions | None = None,
    factors: EngineFactors | None = None,
    progress: Callable[[float, str], None] | None = None,
    cancel: Callable[[], bool] | None = None,
) -> ServiceSizing:
    """Finds the services that hold limits on latencies under a load, on the fewest GPUs.

    Args:
        model, system: name, path or object.
        load: of the whole service.
        prompt, output: mean tokens of a request.
        num_procs: GPUs of the service, all of which it uses; the fewest that hold the limits where None.
        most_procs: most GPUs that it may use.
        limits: allowed values of fields, see `engine.serving.space`; `batch` limits the requests that a replica serves
            at once.
        time_to_first_token, time_per_output_token, request_latency: limits [s]; None for none.
        level: statistic that they hold for, one of `engine.serving.queueing.LEVELS`.
        mean_time_to_first_token, mean_time_per_output_token: limits on the means besides [s]; None for none.
        room_for_error: True if latencies have to hold their limits also at the upper end of the range in which most
            comparable servers were measured.
        price: of a GPU [USD/h]; the system's recorded price where None.
        assumptions: the usual ones where None.
        factors: on the latencies of engines, measured on one's own servers; none where None.
        progress: called with the share that is done, 0 to 1, and the current step in words.
        cancel: returns whether to stop.

    Raises:
        ServingLimitError, WorkloadError: an invalid argument. engine.ExplorationCancelled: `cancel` returned True.
    """
    start = time.perf_counter()
    bounds = limits_of(
        time_to_first_token,
        time_per_output_token,
        request_latency,
        level,
        mean_first_token=mean_time_to_first_token,
        mean_per_token=mean_time_per_output_token,
    )
    subject = replace(
        subject_of(model, system, price=price, assumptions=assumptions, factors=factors),
        output_cv=float(load.output_cv),
    )
    sizes = unit_sizes(num_procs, most_procs)
    rejected: dict[str, int] = {}

    def tell(share: float, words: str) -> None:
        if cancel is not None and cancel():
            raise ExplorationCancelled
        if progress is not None:
            progress(0.3 * share, words)

    d, most = runnable_deployments(subject, sizes, prompt, output, limits or {}, rejected, tell)
    total = len(d) + rejected.get("memory", 0)
    if progress is not None:
        progress(0.3, f"{len(d):,} deployments under load")
    profile = replica_profiles(subject, d, most)
    if cancel is not None and cancel():
        raise ExplorationCancelled
    held = _leave_room(subject, d, bounds) if room_for_error else bounds
    capacity, missed = largest_load(profile, load, held)
    table, nearest = _services(subject, d, profile, load, held, (capacity, missed), num_procs, most_procs, rejected)
    return ServiceSizing(
        subject.model,
        subject.system,
        load,
        bounds,
        prompt,
        output,
        table,
        total + sum(n for code, n in rejected.items() if code not in LOAD_REASONS and code != "memory"),
        {code: n for code, n in rejected.items() if n},
        nearest,
        time.perf_counter() - start,
        profile,
        held,
        _least_per_load(d, capacity),
        factors,
    )


def _least_per_load(d: Deployments, capacity: Floats) -> float:
    """Return the fewest GPUs per unit of load."""
    size, holds = d.tensor_par * d.pipeline_par, capacity > 0
    return float(np.min(size[holds] / capacity[holds])) if np.any(holds) else math.inf


def limits_of(
    first_token: float | None,
    per_token: float | None,
    request: float | None,
    level: str,
    *,
    mean_first_token: float | None = None,
    mean_per_token: float | None = None,
) -> LatencyLimits:
    """Returns checked limits on latencies.

    Args:
        first_token, per_token, request: limits [s]; None for none.
        level: statistic that they hold for, one of `engine.serving.queueing.LEVELS`.
        mean_first_token, mean_per_token: limits on the means besides [s]; None for none.

    Raises `WorkloadError` for an unknown statistic, or a limit out of range.
    """
    if level not in LEVELS:
        raise WorkloadError(f"level is {shown(level)}; it must be one of {', '.join(LEVELS)}.")
    return LatencyLimits(
        positive("time_to_first_token", first_token),
        positive("time_per_output_token", per_token),
        positive("request_latency", request),
        level,
        mean_first_token=positive("mean_time_to_first_token", mean_first_token),
        mean_per_token=positive("mean_time_per_output_token", mean_per_token),
    )


def _leave_room(subject: ServingSubject, d: Deployments, limits: LatencyLimits) -> LatencyLimits:
    """Return the limits with the upper ends of the ranges of each deployment's engine as factors [rows]."""
    found = [figure_ranges(subject.model, subject.system, {"engine": name, "batch": None}) for name in WORDS["engine"]]
    if not all(found):
        raise WorkloadError(
            f"No server was measured on GPUs like {subject.system.name}'s, so the error is unknown; leave "
            "room_for_error out."
        )
    engines = d.engine.astype(np.intp)
    first, each = (
        np.array([ranges[name].high for ranges in found])[engines]
        for name in ("time_to_first_token", "time_per_output_token")
    )
    return limits._replace(room=(first, each, np.maximum(first, each)))


def _room_of(limits: LatencyLimits, place: int) -> tuple[float, float, float]:
    """Return the factors of one row."""
    first, each, request = (float(np.ravel(room)[place if np.ndim(room) else 0]) for room in limits.room)
    return first, each, request


def unit_sizes(num_procs: int | None, most_procs: int) -> list[int]:
    """Returns the GPUs of a deployment that are tried: powers of two, or divisors of the GPUs given.

    Args:
        num_procs: GPUs of the service; None for any number.
        most_procs: most GPUs of the service.

    Raises `ServingLimitError` for a number out of range.
    """
    for name, value in (("num_procs", num_procs), ("most_procs", most_procs)):
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_PROCESSORS
        ):
            raise ServingLimitError(
                f"{name} is {shown(value)}; it must be a whole number from 1 to {MOST_PROCESSORS:,}."
            )
    if num_procs is not None:
        return [size for size in divisors(num_procs) if size <= MOST_UNIT]
    return [2**power for power in range(int(math.log2(min(MOST_UNIT, most_procs))) + 1)]


def runnable_deployments(
    subject: ServingSubject,
    sizes: Sequence[int],
    prompt: int,
    output: int,
    limits: Mapping[str, Any],
    rejected: dict[str, int] | None = None,
    tell: Callable[[float, str], None] | None = None,
) -> tuple[Deployments, Floats]:
    """Returns the deployments that run, and the requests that a replica of each serves at once at most [rows].

    Args:
        subject: model, system and assumptions.
        sizes: GPUs of a deployment.
        prompt, output: tokens of a request.
        limits: allowed values by field.
        rejected: numbers of the others by reason, to which these are added.
        tell: called with the share that is done and the current step in words.

    Raises `ServingLimitError` for a limit that makes no sense.
    """
    given, counted = dict(limits), {} if rejected is None else rejected
    if "replicas" in given:
        raise ServingLimitError("The number of replicas follows from the load; leave the limit on replicas out.")
    places = given.pop("batch", None)
    parts: list[tuple[Deployments, Floats]] = []
    for position, size in enumerate(sizes):
        if tell is not None:
            tell(position / len(sizes), f"deployments of {size:,} GPUs")
        d, most = _runnable_units(subject, size, prompt, output, given, places, counted)
        runs = most >= 1
        _count(counted, "memory", int(np.sum(~runs)))
        parts.append((d.take(runs), most[runs]))
    return (
        _join_deployments([part for part, _ in parts]),
        np.concatenate([np.zeros(0), *(each for _, each in parts)]),
    )


def _runnable_units(
    subject: ServingSubject,
    size: int,
    prompt: int,
    output: int,
    limits: Mapping[str, Any],
    places: Any,
    rejected: dict[str, int],
) -> tuple[Deployments, Floats]:
    """Return the deployments of a size with a valid shape, and the requests that fit; count the others."""
    mixture = subject.pattern.is_routed
    space = DeploymentSpace.of(size, prompt, output, {**limits, "batch": [1]}, mixture=mixture)
    # Checks the limit on the requests at once, too.
    allowed = DeploymentSpace.of(size, prompt, output, {"batch": places}, mixture=mixture).limits.get("batch")
    least = min(allowed) if isinstance(allowed, list) else (allowed or {"min": 0})["min"]
    if least > MOST_REQUESTS:
        raise ServingLimitError(
            f"batch cannot be {least:,} or more; a replica serves at most {MOST_REQUESTS:,} at once."
        )
    d = space.at(np.arange(space.total))
    # Replicas that share no experts are deployments of their own.
    d = d.take(d.replicas == d.expert_replicas)
    reason = shape_reasons(subject, d)
    for number in np.unique(reason[reason != FITS]).tolist():
        _count(rejected, REASONS[number - 1].code, int(np.sum(reason == number)))
    d = d.take(reason == FITS)
    most = np.zeros(len(d))
    for index in grouped(d):
        most[index] = memory_of(subject, d.take(index)).largest_batch
    return d, _allowed_places(np.minimum(most, MOST_REQUESTS), allowed)


def _allowed_places(most: Floats, allowed: Any) -> Floats:
    """Return the most requests at once that fit and are allowed; 0 where none is."""
    if allowed is None:
        return most
    if isinstance(allowed, Mapping):
        most = np.minimum(most, float(allowed["max"]))
        return np.where(most >= allowed["min"], most, 0.0)
    listed = np.array(sorted([0, *allowed]), np.float64)
    return np.asarray(listed[np.searchsorted(listed, most, side="right") - 1])


def _count(rejected: dict[str, int], code: str, number: int) -> None:
    rejected[code] = rejected.get(code, 0) + number


def _join_deployments(parts: list[Deployments]) -> Deployments:
    columns = {
        each.name: np.concatenate([np.zeros(0), *(getattr(part, each.name) for part in parts)])
        for each in fields(Deployments)
    }
    return Deployments(**columns)


def _services(
    subject: ServingSubject,
    d: Deployments,
    profile: ReplicaProfile,
    load: ServiceLoad,
    bounds: LatencyLimits,
    largest: tuple[Floats, Floats],
    num_procs: int | None,
    most_procs: int,
    rejected: dict[str, int],
) -> tuple[pd.DataFrame, dict[str, NearestService]]:
    capacity, missed = largest
    size = d.tensor_par * d.pipeline_par * d.replicas
    for number, check in enumerate(bounds.checks(), 1):
        _count(rejected, check.code, int(np.sum((capacity <= 0) & (missed == number))))
    with np.errstate(divide="ignore"):
        needed = np.ceil(load.amount / (capacity * d.replicas) * (1.0 - 1e-9))
    needed = np.maximum(needed, 1.0)
    units = needed if num_procs is None else num_procs / size
    enough = (capacity > 0) & (units >= needed) & (units * size <= most_procs)
    short = (capacity > 0) & ~enough
    _count(rejected, "too_many_gpus" if num_procs is None else "too_few_gpus", int(np.sum(short)))
    places = np.flatnonzero(enough)
    replicas = units[places] * d.replicas[places]
    found = loaded_replicas(profile.take(places), load, load.amount / replicas, replicas)
    gpus = units[places] * size[places]
    rate = found.rate * replicas
    figures = {
        "deployments": units[places],
        "gpus": gpus,
        "served_rate": rate,
        "served_tokens": rate * profile.output[places],
        "in_flight": found.in_flight,
        "most_load": capacity[places] * replicas,
        "headroom": capacity[places] * replicas / load.amount,
        "busy": found.busy,
        **latency_columns(found),
        "cost_per_h": subject.price * gpus,
        "cost_per_million_served": subject.price * gpus / HOUR / (rate * profile.output[places]) * MILLION,
    }
    table = deployment_table(d.take(places), profile.most[places])
    for column in SERVICE_FIGURES:
        table[column.name] = figures[column.name]
    for name in ("deployments", "gpus"):
        table[name] = table[name].astype(np.int64)
    table["profile"] = places
    # The fewest GPUs; of these the most headroom, rounded, so that the simplest comes first where it is the same.
    room = np.round(figures["headroom"], 3)
    order = np.lexsort((size[places], d.pipeline_par[places], -room, gpus))
    table = table.iloc[order].reset_index(drop=True)
    nearest = {}
    if not len(table) and len(d):
        idle = loaded_replicas(
            profile, load, np.full(len(d), 1e-9) if load.is_open else np.ones(len(d)), np.ones(len(d))
        )
        for number, check in enumerate(bounds.checks(), 1):
            late = np.flatnonzero((capacity <= 0) & (missed == number))
            if len(late):
                values = getattr(idle, check.figure).level(check.level)[late]
                place = late[int(np.argmin(values))]
                fields_of = deployment_table(d.take(np.array([place])), profile.most[[place]])
                row = {str(name): value for name, value in fields_of.iloc[0].items()}
                limit = float(check.limit or 0.0) / _room_of(bounds, place)[check.place]
                nearest[check.code] = NearestService(row, float(values.min()), limit, check.level)
    return table, nearest


def latency_columns(found: LoadedReplicas) -> dict[str, npt.NDArray[np.float64]]:
    """Returns the statistics of all latencies by name of their column [rows] [s].

    Args:
        found: replicas under load.
    """
    each = (("first_token", found.first_token), ("per_token", found.per_token), ("request", found.request))
    return {f"{name}_{level}": figure.level(level) for name, figure in each for level in LEVELS}


def deployment_table(d: Deployments, most: Floats) -> pd.DataFrame:
    """Returns the fields of deployments as a table.

    Args:
        d: deployments [rows].
        most: requests at once of a replica, its batch [rows].
    """
    columns: dict[str, Any] = {}
    for column in FIELDS:
        values = most if column.name == "batch" else getattr(d, column.name)
        if column.dtype == "int64":
            columns[column.name] = values.astype(np.int64)
        else:
            columns[column.name] = [WORDS[column.name][int(place)] for place in values]
    return pd.DataFrame(columns)
