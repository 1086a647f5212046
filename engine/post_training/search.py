"""Search of executions, deployments, the split of GPUs and modes for the shortest step of reinforcement learning.

Both sides are independent of each other once the split is given: the best deployment for the rollout and the best
execution for training make the best step of every mode. Rollouts are computed for every split; splits are then searched
from the best bound downwards, with model arithmetic at the peak rate as the bound of training, until no bound is left
that could beat the step found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from engine.exploration.run import ExplorationCancelled
from engine.post_training.choices import (
    DeploymentChoices,
    ExecutionChoices,
    JudgeChoice,
    JudgeSides,
    TeacherChoices,
    TrainingChoice,
    split_unit,
)
from engine.post_training.goal import Judge, PostTrainingGoal
from engine.post_training.iteration import IterationStep, RolloutSide, iteration_step
from engine.post_training.memory_phases import (
    SLEEPING,
    PhaseMemory,
    engine_phase,
    memory_phases,
    teacher_phase,
    tightest_phase,
)
from engine.post_training.rollout import Speculation
from engine.post_training.synchronisation import synchronisation_time
from engine.post_training.training_side import TrainingTimes
from engine.serving.memory import ServingMemoryUse
from hardware import GIB

__all__ = [
    "DeploymentChoices",
    "ExecutionChoices",
    "Judge",
    "ModeStep",
    "PostTrainingGoal",
    "PostTrainingPlan",
    "Speculation",
    "SplitPoint",
    "find_post_training",
    "split_unit",
]

MOST_SPLITS: Final = 96
"""Splits of a mode that are searched at most; of more, every second, third, ... is. Source: stated by us."""
ALL_SPLITS: Final = 24
"""Splits up to which all are evaluated, for the curve. Source: stated by us; some seconds."""
COLOCATED_SHARE, SPLIT_SHARE = 0.6, 0.8
"""Memory share of the rollout engine where none is asked for. Source: recipes of NeMo-RL 0.4 to 0.7."""
MORE_GPUS: Final = (2, 4, 8, 16)
"""Multiples of the GPUs that are tried as a change that fits. Source: stated by us."""


@dataclass(frozen=True, eq=False, slots=True)
class ModeStep:
    """Best step of a mode: GPUs of both sides (all, where they are shared), execution, deployment and memory."""

    gpus_train: int
    gpus_rollout: int
    step: IterationStep
    execution: Mapping[str, Any]
    deployment: Mapping[str, Any]
    memory: tuple[PhaseMemory, ...]
    judge: Mapping[str, Any] | None = None
    """Deployment of the judge."""


@dataclass(frozen=True, slots=True)
class SplitPoint:
    """One split on the curve: the step of a mode, None where nothing runs."""

    mode: str
    gpus_train: int
    gpus_rollout: int
    seconds: float | None


@dataclass(frozen=True, eq=False)
class PostTrainingPlan:
    """Result of a search: the best step by mode, the curve over splits, reasons of modes without a step, and how many
    splits were evaluated of all."""

    goal: PostTrainingGoal
    best: Mapping[str, ModeStep]
    curve: tuple[SplitPoint, ...]
    reasons: Mapping[str, str]
    change: str
    splits: int
    evaluated: int

    @property
    def chosen(self) -> ModeStep | None:
        """The step of the fastest mode; None if nothing runs."""
        return min(self.best.values(), key=lambda each: each.step.seconds, default=None)


def find_post_training(
    goal: PostTrainingGoal,
    *,
    progress: Callable[[float, str], None] = lambda share, doing: None,
    cancel: Callable[[], bool] = lambda: False,
    with_change: bool = True,
    evaluate_all: int = ALL_SPLITS,
) -> PostTrainingPlan:
    """Return the best step of every mode, with proof over the splits.

    Args:
        goal: the question.
        progress: called with the share that is done and the current step.
        cancel: returns whether to stop.
        with_change: whether to look for the smallest change that fits where nothing does.
        evaluate_all: splits up to which all are evaluated, for the curve; of more, bounds leave out most.

    Raises `engine.ExplorationCancelled` on `cancel`, and the errors of making a space.
    """
    search = _Search(goal, progress, cancel, evaluate_all)
    for mode in goal.modes:
        if mode == "colocated":
            search.try_colocated()
        else:
            search.try_splits(mode)
    change = "" if search.best or not with_change else _smallest_change(goal, cancel)
    return PostTrainingPlan(
        goal, search.best, tuple(search.curve), search.reasons, change, search.splits, search.evaluated
    )


class _Search:
    """State of one search."""

    def __init__(
        self,
        goal: PostTrainingGoal,
        progress: Callable[[float, str], None],
        cancel: Callable[[], bool],
        evaluate_all: int,
    ) -> None:
        self.goal, self.progress, self.cancel, self.evaluate_all = goal, progress, cancel, evaluate_all
        self.best: dict[str, ModeStep] = {}
        self.curve: list[SplitPoint] = []
        self.reasons: dict[str, str] = {}
        self.splits = self.evaluated = 0
        self._training: dict[float, ExecutionChoices] = {}
        self._rollout: dict[float, DeploymentChoices] = {}
        self._judges: dict[float, JudgeSides] = {}
        self._teachers = None if goal.teacher is None else TeacherChoices(goal)

    def try_colocated(self) -> None:
        """Find the best step on shared GPUs."""
        goal = self.goal
        sides = self._rollout_sides(COLOCATED_SHARE)
        trained = self._training_sides(SLEEPING).best(goal.num_procs)
        if trained is None:
            self.reasons["colocated"] = (
                f"No execution trains on {_words(goal.num_procs)} with "
                f"{SLEEPING / GIB:g} GiB of each left to the sleeping engine."
            )
            return
        rolled = sides.best(goal.num_procs, "colocated")
        if rolled is None:
            self.reasons["colocated"] = sides.reason
            return
        made = self._made("colocated", goal.num_procs, goal.num_procs, rolled, trained, sides.share)
        if isinstance(made, str):
            self.reasons["colocated"] = made
            return
        tightest = tightest_phase(made.memory)
        if tightest.is_over:
            self.reasons["colocated"] = (
                f"The phase {tightest.phase} needs {tightest.needs / GIB:,.1f} GiB of {tightest.has / GIB:,.1f} GiB."
            )
            return
        self.best["colocated"] = made
        self.curve.append(SplitPoint("colocated", goal.num_procs, goal.num_procs, made.step.seconds))

    def try_splits(self, mode: str) -> None:
        """Find the best split of a mode, from the best bound downwards."""
        goal, unit = self.goal, split_unit(self.goal.system)
        unit = 1 if goal.num_procs <= unit else unit
        # Of many nodes several move together: neighbouring splits differ by less than the error.
        unit *= math.ceil(goal.num_procs / unit / MOST_SPLITS)
        splits = (
            [goal.split]
            if goal.split
            else [(each, goal.num_procs - each) for each in range(unit, goal.num_procs, unit)]
        )
        # Engines on GPUs that help sleep while these train.
        sides = self._rollout_sides(COLOCATED_SHARE if goal.is_helping else SPLIT_SHARE)
        training = self._training_sides(SLEEPING if goal.is_helping else 0.0)
        reason = f"No execution trains on any side of a split of {goal.num_procs:,} GPUs."
        bounds = []
        for gpus_train, gpus_rollout in splits:
            self._stop_if_asked()
            rolled = sides.best(gpus_rollout, mode)
            if rolled is not None:
                step = self._step(
                    mode,
                    rolled[1],
                    training.bound(gpus_train),
                    gpus_rollout,
                    judge=self._judge(gpus_rollout, sides.share),
                    helpers=self._helpers(gpus_train, rolled[0]),
                )
                bounds.append((step.seconds, gpus_train, gpus_rollout, rolled))
        self.splits += len(splits)
        if not splits:
            self.reasons[mode] = "Two pools need two GPUs or more."
            return
        if not bounds:
            least = sides.least_gpus
            self.reasons[mode] = (
                sides.reason
                if least is None
                else f"A replica of the rollout needs {least:,} GPUs; no split of {goal.num_procs:,} has them."
            )
            return
        bounds.sort(key=lambda each: each[:2])
        for place, (bound, gpus_train, gpus_rollout, rolled) in enumerate(bounds):
            best = self.best.get(mode)
            if best is not None and bound >= best.step.seconds and len(bounds) > self.evaluate_all:
                break
            self._stop_if_asked()
            self.progress(place / len(bounds), f"{gpus_train:,} GPUs train, {gpus_rollout:,} generate")
            self.evaluated += 1
            trained = training.best(gpus_train)
            made = None
            if trained is not None:
                found = self._made(mode, gpus_train, gpus_rollout, rolled, trained, sides.share)
                if isinstance(found, str):
                    reason = found
                elif not tightest_phase(found.memory).is_over:
                    made = found
            seconds = None if made is None else made.step.seconds
            self.curve.append(SplitPoint(mode, gpus_train, gpus_rollout, seconds))
            if made is not None and (best is None or made.step.seconds < best.step.seconds):
                self.best[mode] = made
        if mode not in self.best:
            self.reasons[mode] = reason

    def _stop_if_asked(self) -> None:
        if self.cancel():
            raise ExplorationCancelled

    def _rollout_sides(self, default: float) -> DeploymentChoices:
        share = self.goal.memory_share or default
        if share not in self._rollout:
            self._rollout[share] = DeploymentChoices(self.goal, share)
        return self._rollout[share]

    def _training_sides(self, sleeping: float) -> ExecutionChoices:
        if sleeping not in self._training:
            self._training[sleeping] = ExecutionChoices(self.goal, sleeping)
        return self._training[sleeping]

    def _judge(self, gpus_rollout: int, share: float) -> JudgeChoice | None:
        """Return the best judge; None without one, or where none runs."""
        judge = self.goal.judge
        if judge is None:
            return None
        if share not in self._judges:
            self._judges[share] = JudgeSides(self.goal, judge, share)
        return self._judges[share].best(gpus_rollout)

    def _helpers(self, gpus_train: int, fields: Mapping[str, Any]) -> int:
        """Return the replicas that the GPUs that train make once their update is done."""
        return gpus_train // int(fields["tensor_par"]) if self.goal.is_helping else 0

    def _step(
        self,
        mode: str,
        side: RolloutSide,
        training: TrainingTimes,
        shards: int,
        *,
        judge: JudgeChoice | None = None,
        teacher_s: float = 0.0,
        helpers: int = 0,
    ) -> IterationStep:
        goal = self.goal
        sync = synchronisation_time(goal.constants, goal.synchronisation, goal.weight_bytes, shards)
        return iteration_step(
            mode,
            goal.work,
            side,
            training,
            goal.terms,
            weight_bytes=goal.weight_bytes,
            sync_s=sync,
            staleness=goal.staleness,
            judge=None if judge is None else judge.time,
            teacher_s=teacher_s,
            helpers=helpers,
        )

    def _made(
        self,
        mode: str,
        gpus_train: int,
        gpus_rollout: int,
        rolled: tuple[Mapping[str, Any], RolloutSide, ServingMemoryUse],
        trained: TrainingChoice,
        share: float,
    ) -> ModeStep | str:
        """Return the step of both sides, or the reason why the judge or the teacher does not run."""
        goal, (fields, side, used) = self.goal, rolled
        is_shared = mode == "colocated" or goal.is_helping
        memory = memory_phases(
            trained.execution,
            trained.forward,
            used,
            goal.system,
            parameters=goal.parameters,
            memory_share=share,
            is_colocated=is_shared,
        )
        judge = self._judge(gpus_rollout, share)
        if goal.judge is not None:
            if judge is None:
                gpus = goal.judge.gpus or gpus_rollout
                return f"No replica of the judge holds its weights and one request on {_words(gpus)}."
            memory = (*memory, engine_phase("judge", judge.memory, goal.system, share))
        teacher_s = 0.0
        if self._teachers is not None:
            resident = teacher_phase(trained.execution, goal.system, 0.0, is_colocated=is_shared)
            found = self._teachers.best(gpus_train, resident.has - resident.needs)
            if found is None:
                room = max(resident.has - resident.needs, 0.0) / GIB
                return f"The teacher does not fit on {_words(gpus_train)}, {room:,.1f} GiB of each are free."
            teacher_s = found.seconds
            memory = (*memory, teacher_phase(trained.execution, goal.system, found.memory, is_colocated=is_shared))
        step = self._step(
            mode,
            side,
            trained.times,
            int(fields["tensor_par"]),
            judge=judge,
            teacher_s=teacher_s,
            helpers=self._helpers(gpus_train, fields),
        )
        lengths = {"output": max(round(goal.work.law.mean), 1)}
        own = None if judge is None else judge.fields
        return ModeStep(gpus_train, gpus_rollout, step, trained.execution, {**fields, **lengths}, memory, own)


def _words(gpus: int) -> str:
    return f"{gpus:,} {'GPU' if gpus == 1 else 'GPUs'}"


def _smallest_change(goal: PostTrainingGoal, cancel: Callable[[], bool]) -> str:
    """Return the first of some changes, the smallest first, with which something runs; empty if none helps."""
    changes: list[tuple[str, PostTrainingGoal]] = []
    if "optimizer_offload" not in goal.training_limits:
        offload = {**goal.training_limits, "optimizer_offload": True}
        changes.append(("move the optimizer to host memory", replace(goal, training_limits=offload)))
    if goal.rollout_bits > 8:
        changes.append(("generate with weights of 8 bits", replace(goal, rollout_bits=8)))
    if goal.split is None:
        for factor in MORE_GPUS:
            gpus = factor * goal.num_procs
            changes.append((f"use {gpus:,} GPUs", replace(goal, num_procs=gpus, modes=goal.modes[:1])))
    for words, changed in changes:
        if find_post_training(changed, cancel=cancel, with_change=False).best:
            return words
    return ""
