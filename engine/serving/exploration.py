"""Exploration of every deployment of a space: feasible and best deployments, and how far the others miss."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from engine.executions.arrays import Floats
from engine.exploration.frontier import frontier
from engine.exploration.run import ExplorationCancelled
from engine.serving.assumptions import Assumptions
from engine.serving.checks import limit_reasons, shape_reasons
from engine.serving.columns import FIELDS, FIGURES, HEADLINE, by_name
from engine.serving.deployments import WORDS, Deployments
from engine.serving.evaluation import evaluate, positive, subject_of
from engine.serving.factors import EngineFactors
from engine.serving.figures import ServingSubject, figures, grouped, host_bytes, memory_of
from engine.serving.reasons import FITS, REASONS, by_code, number_of
from engine.serving.shapes import longest_context
from engine.serving.space import MOST, DeploymentSpace
from engine.serving.uncertainty import FigureRange, figure_ranges
from hardware import Calibration, System, SystemLike
from models import Model, ModelLike

__all__ = ["AXES", "BEST_BY", "ServingExploration", "explore"]

AXES = ("tokens_per_s_per_user", "tokens_per_s_per_processor")
"""The figures of the frontier."""
BEST_BY = "tokens_per_s_per_processor"
KEPT = tuple(column.name for column in HEADLINE if column.name != "memory_capacity")
NEAREST: Mapping[str, str] = {
    "memory": "memory_total",
    "time_to_first_token": "time_to_first_token",
    "time_per_output_token": "time_per_output_token",
}
"""Reason -> the figure that is nearest to passing where it is lowest."""


@dataclass(frozen=True)
class ServingExploration:
    """The deployments of a space. `table` has the deployments within the limits, by id, with all headline figures.

    `rejected` counts the others by reason; `nearest` is, for memory and for either limit, the id of the deployment
    among them that is nearest to passing. `refused_ids` has the deployments that a limit alone keeps
    from the frontier.
    """

    model: Model
    system: System
    space: DeploymentSpace
    time_to_first_token: float | None
    time_per_output_token: float | None
    price: float | None
    table: pd.DataFrame
    rejected: Mapping[str, int]
    nearest: Mapping[str, int]
    seconds: float
    calibration: Calibration | None
    assumptions: Assumptions | None
    requests_per_slot: float | None = None
    factors: EngineFactors | None = None
    refused_ids: tuple[int, ...] = ()

    @property
    def total(self) -> int:
        """Deployments of the space."""
        return self.space.total

    @property
    def feasible(self) -> int:
        """Deployments that run within the limits."""
        return len(self.table)

    @property
    def obstacle(self) -> str:
        """Explains why no layout is valid enough to check whether it fits, and what would help; "" if one is."""
        if self.feasible or self.nearest:
            return ""
        if not self.total:
            return f"No layout of {self.space.num_procs:,} GPUs is within the limits on fields; leave some limits out."
        most_tokens = longest_context(self.model)
        # The last check of the shape: what fails it alone is sound.
        if "context_too_long" in self.rejected and most_tokens is not None:
            length = self.space.prompt + self.space.output
            return (
                f"Prompt and output have {length:,} tokens together, but the model's context ends at "
                f"{most_tokens:,}; shorten them by {length - most_tokens:,} tokens, or choose "
                "a model with a longer context."
            )
        most = max(self.rejected, key=lambda code: self.rejected[code])
        why = f"None of {self.total:,} deployments matches the shape of the model, most often because: "
        help_ = "leave some limits out" if self.space.limits else "try another number of GPUs"
        return f"{why}{by_code(most).label}; {help_}."

    def top(self, count: int, by: str = BEST_BY) -> pd.DataFrame:
        """Returns the `count` best deployments by a figure; of equal ones the first.

        Raises ValueError for a figure that has no better direction.
        """
        column = by_name(by)
        if column.better is None or by not in self.table:
            raise ValueError(f"{by} has no better direction; choose one of {', '.join(KEPT)}.")
        return self.table.sort_values(by, ascending=column.better == "lower", kind="stable").head(count)

    @cached_property
    def best(self) -> dict[str, Any] | None:
        """The deployment with the most output per processor, with every figure; None where none runs."""
        top = self.top(1)
        if not len(top):
            return None
        return {str(name): value for name, value in self.evaluate_ids([int(top["id"].iloc[0])]).iloc[0].items()}

    @cached_property
    def ranges(self) -> dict[str, FigureRange]:
        """Ranges of the measured figures of the best deployment, see `figure_ranges`."""
        return {} if self.best is None else figure_ranges(self.model, self.system, self.best)

    @cached_property
    def frontier(self) -> pd.DataFrame:
        """The deployments that no other beats in output per user and per processor at once, fastest per user first."""
        axes = [self.table[name].to_numpy(np.float64) for name in AXES]
        return self.table.iloc[frontier(axes, ["higher", "higher"])].reset_index(drop=True)

    @cached_property
    def refused(self) -> pd.DataFrame:
        """The deployments that a limit keeps from the frontier, with every figure and the reason, fastest per user
        first."""
        rows = self.evaluate_ids(list(self.refused_ids))
        return rows.sort_values(AXES[0], ascending=False, kind="stable").reset_index(drop=True)

    def evaluate_ids(self, ids: list[int]) -> pd.DataFrame:
        """Returns the deployments by id with every figure and the parts of a decode step, also such that do not run."""
        d = self.space.at(np.asarray(ids, np.int64))
        columns = {column.name: getattr(d, column.name) for column in FIELDS if column.dtype == "int64"}
        columns |= {name: [words[int(place)] for place in getattr(d, name)] for name, words in WORDS.items()}
        found = evaluate(
            self.model,
            self.system,
            columns,
            time_to_first_token=self.time_to_first_token,
            time_per_output_token=self.time_per_output_token,
            price=self.price,
            calibration=self.calibration,
            assumptions=self.assumptions,
            requests_per_slot=self.requests_per_slot,
            factors=self.factors,
        )
        found.insert(0, "id", np.asarray(ids, np.int64))
        return found


def explore(
    model: ModelLike,
    system: SystemLike,
    *,
    num_procs: int,
    prompt: int,
    output: int,
    limits: Mapping[str, Any] | None = None,
    time_to_first_token: float | None = None,
    time_per_output_token: float | None = None,
    price: float | None = None,
    calibration: Calibration | None = None,
    assumptions: Assumptions | None = None,
    requests_per_slot: float | None = None,
    factors: EngineFactors | None = None,
    progress: Callable[[float, str], None] | None = None,
    cancel: Callable[[], bool] | None = None,
    largest: int = MOST,
) -> ServingExploration:
    """Evaluates every deployment of a model on a number of processors, with constants fitted to measured servers.

    Args:
        model, system: name, path or object.
        num_procs: processors; every deployment uses all of them.
        prompt, output: tokens of a request.
        limits: allowed values of fields, see `engine.serving.space`.
        time_to_first_token, time_per_output_token: slower deployments are rejected [s].
        price: of a processor [USD per hour]; the system's recorded price where left out.
        calibration, assumptions: the library's where left out.
        requests_per_slot, factors: as for `evaluate`.
        progress: called with the share that is done, 0 to 1, and the current step in words.
        cancel: returns whether to stop.
        largest: deployments that the space may have.

    Raises:
        ServingLimitError, WorkloadError: an invalid argument. SpaceTooLarge: limit more.
        engine.ExplorationCancelled: `cancel` returned True.
    """
    start = time.perf_counter()
    bounds = (
        positive("time_to_first_token", time_to_first_token),
        positive("time_per_output_token", time_per_output_token),
    )
    subject = subject_of(
        model,
        system,
        price=price,
        calibration=calibration,
        assumptions=assumptions,
        requests_per_slot=requests_per_slot,
        factors=factors,
    )
    space = DeploymentSpace.of(num_procs, prompt, output, limits, mixture=subject.pattern.is_routed, largest=largest)
    sweep = _Sweep(subject, space, bounds)
    sweep.run(progress, cancel)
    rejected = {reason.code: int(n) for reason, n in zip(REASONS, sweep.counts[1:], strict=True) if n}
    return ServingExploration(
        subject.model,
        subject.system,
        space,
        bounds[0],
        bounds[1],
        price,
        sweep.table(),
        rejected,
        {code: each[1] for code, each in sweep.nearest.items()},
        time.perf_counter() - start,
        calibration,
        assumptions,
        requests_per_slot,
        factors,
        sweep.refused_ids(),
    )


class _Sweep:
    """One pass over a space, cheapest checks first: shape by layout, then memory, then time."""

    def __init__(
        self, subject: ServingSubject, space: DeploymentSpace, bounds: tuple[float | None, float | None]
    ) -> None:
        self.subject, self.space, self.bounds = subject, space, bounds
        self.counts = np.zeros(len(REASONS) + 1, np.int64)
        self.nearest: dict[str, tuple[float, int]] = {}
        self._ids: list[npt.NDArray[np.int64]] = []
        self._figures: list[list[Floats]] = []
        self._refused: list[tuple[npt.NDArray[np.int64], Floats]] = []

    def run(self, progress: Callable[[float, str], None] | None, cancel: Callable[[], bool] | None) -> None:
        """Evaluate all deployments. Raises `ExplorationCancelled` if `cancel` returns True."""
        space = self.space
        if not space.total:
            return
        each = space.per_layout
        firsts = np.arange(len(space.layouts), dtype=np.int64) * each
        reason = shape_reasons(self.subject, space.at(firsts))
        np.add.at(self.counts, reason, each)
        self.counts[FITS] = 0
        # Layouts with as many stages follow each other, so that groups are large.
        sound = np.flatnonzero(reason == FITS)
        done = 0
        for p in np.unique(space.layouts[sound, 1]).tolist():
            here = sound[space.layouts[sound, 1] == p]
            ids = (firsts[here, None] + np.arange(each)).ravel()
            d = space.at(ids)
            for index in grouped(d):
                if cancel is not None and cancel():
                    raise ExplorationCancelled
                self._group(ids[index], d.take(index))
                done += len(index)
                if progress is not None:
                    progress(done / (len(sound) * each), f"{done:,} of {len(sound) * each:,} deployments")

    def _group(self, ids: npt.NDArray[np.int64], d: Deployments) -> None:
        need = memory_of(self.subject, d).total
        over = need > self.subject.accelerator.capacity
        self._reject("memory", ids[over], need[over])
        if over.all():
            return
        ids, d = ids[~over], d.take(~over)
        if self.subject.host_share:
            held = d.batch * host_bytes(self.subject, d)
            over = held > self.subject.host_capacity
            self._reject("host_memory", ids[over], held[over])
            if over.all():
                return
            ids, d = ids[~over], d.take(~over)
        found = figures(self.subject, d)
        late = limit_reasons(found["time_to_first_token"], found["time_per_output_token"], *self.bounds)
        for code in ("time_to_first_token", "time_per_output_token"):
            missed = late == number_of(code)
            self._reject(code, ids[missed], found[NEAREST[code]][missed])
        self._keep_refused(ids[late != FITS], np.stack([found[name][late != FITS] for name in AXES]))
        good = late == FITS
        if good.any():
            self._ids.append(ids[good])
            self._figures.append([found[name][good] for name in KEPT])

    def _keep_refused(self, ids: npt.NDArray[np.int64], axes: Floats) -> None:
        """Keep the frontier of deployments that miss a limit; `axes` [2, rows]."""
        if len(ids):
            best = frontier(list(axes), ["higher", "higher"])
            self._refused.append((ids[best], axes[:, best]))

    def refused_ids(self) -> tuple[int, ...]:
        """Return the deployments that would be on the frontier without limits, and miss one."""
        if not self._refused:
            return ()
        places = [KEPT.index(name) for name in AXES]
        good = [np.stack([part[place] for place in places]) for part in self._figures]
        ids = np.concatenate([each for each, _ in self._refused])
        axes = np.concatenate([*(each for _, each in self._refused), *good], axis=1)
        best = frontier(list(axes), ["higher", "higher"])
        return tuple(sorted(int(ids[place]) for place in best if place < len(ids)))

    def _reject(self, code: str, ids: npt.NDArray[np.int64], distance: Floats) -> None:
        if not len(ids):
            return
        self.counts[number_of(code)] += len(ids)
        least = int(np.argmin(distance))
        candidate = (float(distance[least]), int(ids[least]))
        self.nearest[code] = min(self.nearest.get(code, candidate), candidate)

    def table(self) -> pd.DataFrame:
        """Returns the feasible deployments, by id."""
        ids = np.concatenate([np.zeros(0, np.int64), *self._ids])
        order = np.argsort(ids, kind="stable")
        d = self.space.at(ids[order])
        columns: dict[str, Any] = {"id": ids[order]}
        for column in FIELDS:
            if column.dtype == "int64":
                columns[column.name] = getattr(d, column.name).astype(np.int64)
            else:
                places = getattr(d, column.name).astype(np.int8)
                columns[column.name] = pd.Categorical.from_codes(places, pd.Index(WORDS[column.name]))
        for position, name in enumerate(KEPT):
            values = [np.zeros(0), *(part[position] for part in self._figures)]
            columns[name] = np.concatenate(values)[order]
        columns["memory_capacity"] = np.full(len(ids), float(self.subject.accelerator.capacity))
        names = ["id", *(column.name for column in FIELDS), *(c.name for c in FIGURES if c.name in columns)]
        return pd.DataFrame({name: columns[name] for name in names})
