"""Search of executions, deployments, the split of GPUs and modes for the shortest step of reinforcement learning.

Both sides are independent of each other once the split is given: the best deployment for the rollout and the best
execution for training make the best step of every mode. Rollouts are computed for every split; splits are then searched
from the best bound downwards, with model arithmetic at the peak rate as the bound of training, until no bound is left
that could beat the step found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

import models
from engine.exploration.proven_optimum import best_of
from engine.exploration.run import ExplorationCancelled
from engine.post_training.constants import FrameworkTerms, PostTrainingConstants, library_constants
from engine.post_training.iteration import MODES, IterationStep, IterationWork, RolloutSide, iteration_step
from engine.post_training.memory_phases import SLEEPING, PhaseMemory, memory_phases, tightest_phase
from engine.post_training.rollout import decode_steps, rollout_rate, slots_of
from engine.post_training.synchronisation import synchronisation_time
from engine.post_training.training_side import (
    ForwardPass,
    PackedBatch,
    TrainingTimes,
    forward_pass,
    packed_batch,
    training_times,
)
from engine.scenarios.scenario import Scenario
from engine.serving.assumptions import Assumptions
from engine.serving.checks import shape_reasons
from engine.serving.deployments import Deployments, deployments_of
from engine.serving.evaluation import subject_of
from engine.serving.figures import ServingSubject, memory_of
from engine.serving.memory import ServingMemoryUse
from hardware import GIB, System
from models import Model

__all__ = [
    "DeploymentChoices",
    "ExecutionChoices",
    "ModeStep",
    "PostTrainingGoal",
    "PostTrainingPlan",
    "SplitPoint",
    "find_post_training",
    "split_unit",
]

TRAY: Final = 4
"""GPUs that are moved together where a node is a whole rack. Source: compute trays of GB200 NVL72 have four."""
RACK: Final = 16
"""GPUs of a node beyond which it is a rack. Source: stated by us; servers have at most 16."""
MOST_SPLITS: Final = 96
"""Splits of a mode that are searched at most; of more, every second, third, ... is. Source: stated by us."""
ALL_SPLITS: Final = 24
"""Splits up to which all are evaluated, for the curve. Source: stated by us; some seconds."""
LARGEST_REPLICA: Final = 64
"""Most GPUs of a tensor-parallel replica of the rollout. Source: stated by us; published runs have 32."""
BACKWARD: Final = 6.0
"""Operations of forward and backward per parameter and token. Source: Kaplan et al. 2020 (arXiv:2001.08361), section
2.1."""
FORWARD: Final = 2.0
"""Operations of a forward pass per parameter and token; the same source."""
COLOCATED_SHARE, SPLIT_SHARE = 0.6, 0.8
"""Memory share of the rollout engine where none is asked for. Source: recipes of NeMo-RL 0.4 to 0.7."""
PACKED_LIMITS: Final[Mapping[str, Any]] = {
    "microbatch_size": 1,
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "uneven_pipelines": True,
}
"""Limits of training where none is asked for: a pack is a sequence, and every microbatch one pack."""
MORE_GPUS: Final = (2, 4, 8, 16)
"""Multiples of the GPUs that are tried as a change that fits. Source: stated by us."""


@dataclass(frozen=True, eq=False)
class PostTrainingGoal:
    """Question of a search: model, system, work of a step, and what may be chosen."""

    model: Model
    system: System
    num_procs: int
    work: IterationWork
    pack_to: int
    modes: tuple[str, ...] = MODES
    staleness: int = 8
    split: tuple[int, int] | None = None
    """GPUs that train and GPUs that generate; chosen where None."""
    datatype: str = "bfloat16"
    training_limits: Mapping[str, Any] = field(default_factory=dict)
    rollout_bits: int = 16
    rollout_tensor_par: tuple[int, ...] = ()
    """Tensor-parallel degrees of a replica; all that divide the model's heads where empty."""
    memory_share: float | None = None
    max_sequences: int = 256
    synchronisation: str = "broadcast"
    framework: str = "nemo-rl"
    release: str | None = None
    software: float | None = None
    """Factor of one's own software; the release's where None."""
    constants: PostTrainingConstants = field(default_factory=library_constants)

    @cached_property
    def terms(self) -> FrameworkTerms:
        """Terms of the framework."""
        accelerator = self.system.accelerator
        generation = "" if accelerator is None else accelerator.generation
        terms = self.constants.framework(self.framework, self.release, generation)
        return terms if self.software is None else replace(terms, software=self.software)

    @cached_property
    def parameters(self) -> float:
        """Parameters of the model."""
        return float(models.parameter_counts(self.model).total)

    @property
    def weight_bytes(self) -> float:
        """Weights as training sends them, in 16 bits [bytes]."""
        return 2.0 * self.parameters

    @cached_property
    def packed(self) -> PackedBatch:
        """Samples of an optimizer step, packed."""
        samples = self.work.samples // self.work.updates
        return packed_batch(self.work.prompt, self.work.law, samples, self.pack_to)


@dataclass(frozen=True, eq=False, slots=True)
class ModeStep:
    """Best step of a mode: GPUs of both sides (all, where they are shared), execution, deployment and memory."""

    gpus_train: int
    gpus_rollout: int
    step: IterationStep
    execution: Mapping[str, Any]
    deployment: Mapping[str, Any]
    memory: tuple[PhaseMemory, ...]


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


def split_unit(system: System) -> int:
    """Return the GPUs that move from one side to the other together: a node, or a tray of a rack.

    Args:
        system: of both sides.
    """
    return system.node_size if system.node_size <= RACK else TRAY


class DeploymentChoices:
    """Deployments of one engine setting, each tabulated once; replicas follow from the GPUs."""

    def __init__(self, goal: PostTrainingGoal, share: float) -> None:
        self.goal, self.share = goal, share
        self.subject: ServingSubject = subject_of(
            goal.model, goal.system, assumptions=Assumptions(reserve_share=1.0 - share)
        )
        self.found: list[tuple[Mapping[str, Any], RolloutSide, ServingMemoryUse]] = []
        self.reason = "No replica of the rollout holds the weights and one response."
        most = min(LARGEST_REPLICA, goal.num_procs)
        degrees = goal.rollout_tensor_par or tuple(2**k for k in range(most.bit_length()) if 2**k <= most)
        for degree in degrees:
            for expert in sorted({1, degree}) if self.subject.pattern.is_routed else [1]:
                self._add(degree, expert)

    def _add(self, degree: int, expert: int) -> None:
        goal, work = self.goal, self.goal.work
        fields = {
            "tensor_par": degree,
            "pipeline_par": 1,
            "expert_par": expert,
            "replicas": 1,
            "batch": 1,
            "prompt": max(round(work.prompt), 1),
            "output": 2,
            "weight_bits": goal.rollout_bits,
            "engine": "vllm",
        }
        row = deployments_of(pd.DataFrame([fields]))
        if shape_reasons(self.subject, row)[0] or degree > goal.num_procs:
            return
        slots = slots_of(self.subject, row, work.law, work.prompt, goal.max_sequences)
        if slots < 1:
            return
        steps = decode_steps(self.subject, row, work.law, work.prompt, float(slots))
        self.found.append((fields, RolloutSide(steps, 1, slots), self._memory(row, slots)))

    def _memory(self, row: Deployments, slots: int) -> ServingMemoryUse:
        work = self.goal.work
        full = replace(row, batch=np.array([float(slots)]), output=np.array([work.law.mean]))
        return memory_of(self.subject, full)

    def best(self, gpus: int, mode: str) -> tuple[Mapping[str, Any], RolloutSide, ServingMemoryUse] | None:
        """Return the fastest deployment on so many GPUs; replicas that do not fill them leave the rest idle."""
        best: tuple[float, tuple[Mapping[str, Any], RolloutSide, ServingMemoryUse]] | None = None
        for fields, side, memory in self.found:
            replicas = gpus // int(fields["tensor_par"])
            if not replicas:
                continue
            here = replace(side, replicas=replicas)
            seconds = self._seconds(here, mode)
            if best is None or seconds < best[0]:
                best = (seconds, ({**fields, "replicas": replicas, "batch": side.slots}, here, memory))
        return None if best is None else best[1]

    def _seconds(self, side: RolloutSide, mode: str) -> float:
        work = self.goal.work
        if mode != "asynchronous":
            return side.span(work).seconds
        in_flight = min(side.replicas * side.slots, (self.goal.staleness + 1) * work.samples)
        rate = rollout_rate(
            side.steps,
            work.law,
            prompt=work.prompt,
            replicas=min(side.replicas, in_flight),
            slots=max(in_flight // side.replicas, 1),
            group=work.group,
        )
        return work.samples / rate

    @property
    def least_gpus(self) -> int | None:
        """GPUs of the smallest replica that runs; None if none does."""
        return min((int(fields["tensor_par"]) for fields, _, _ in self.found), default=None)


class TrainingChoice(NamedTuple):
    """Execution that trains, its times, and its forward pass."""

    execution: Mapping[str, Any]
    times: TrainingTimes
    forward: ForwardPass


class ExecutionChoices:
    """Best execution by GPUs, each searched once."""

    def __init__(self, goal: PostTrainingGoal, sleeping: float) -> None:
        self.goal = goal
        memory = goal.system.mem1
        room = memory.model_copy(update={"capacity_gib": memory.capacity_gib - sleeping / GIB})
        self.system = goal.system.model_copy(update={"mem1": room})
        self.model = models.edited(goal.model, {"seq_size": goal.pack_to})
        self._known: dict[int, TrainingChoice | None] = {}

    def best(self, gpus: int) -> TrainingChoice | None:
        """Return the fastest execution on at most so many GPUs; None if none runs.

        Besides all of them, the largest number of the form 2^k or 3 x 2^k units is tried: more GPUs can be slower where
        they divide nothing.
        """
        unit = split_unit(self.goal.system)
        round_sizes = [each * unit * 2**k for each in (1, 3) for k in range(24) if each * unit * 2**k < gpus]
        found = [each for size in (gpus, *sorted(round_sizes)[-1:]) if (each := self._search(size)) is not None]
        passes = self.goal.work.passes
        return min(found, key=lambda each: each.times.update_s + passes * each.times.forward_s, default=None)

    def bound(self, gpus: int) -> TrainingTimes:
        """Return times that no execution on so many GPUs is below: model arithmetic at the peak rate."""
        goal = self.goal
        active = float(models.parameter_counts(goal.model).active)
        tokens = goal.packed.samples * (goal.work.prompt + goal.work.law.mean)
        rate = gpus * goal.system.peak_tflops(goal.datatype) * 1e12
        return TrainingTimes(BACKWARD * active * tokens / rate, FORWARD * active * tokens / rate)

    def _search(self, gpus: int) -> TrainingChoice | None:
        if gpus not in self._known:
            goal = self.goal
            scenario = Scenario.of(
                self.model,
                self.system,
                num_procs=gpus,
                max_batch_size=math.ceil(goal.packed.bins),
                datatype=goal.datatype,
                limits={**PACKED_LIMITS, **goal.training_limits},
            )
            row = best_of(scenario)
            self._known[gpus] = self._choice(row) if row else None
        return self._known[gpus]

    def _choice(self, row: Mapping[str, Any]) -> TrainingChoice:
        forward = forward_pass(self.model, self.system, row, self.goal.work.updates)
        return TrainingChoice(row, training_times(row, self.goal.packed, forward), forward)


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

    def try_colocated(self) -> None:
        """Find the best step on shared GPUs."""
        goal = self.goal
        sides = self._rollout_sides(COLOCATED_SHARE)
        trained = self._training_sides(SLEEPING).best(goal.num_procs)
        if trained is None:
            self.reasons["colocated"] = (
                f"No execution trains on {goal.num_procs:,} {'GPU' if goal.num_procs == 1 else 'GPUs'} with "
                f"{SLEEPING / GIB:g} GiB of each left to the sleeping engine."
            )
            return
        rolled = sides.best(goal.num_procs, "colocated")
        if rolled is None:
            self.reasons["colocated"] = sides.reason
            return
        made = self._made("colocated", goal.num_procs, goal.num_procs, rolled, trained, sides.share)
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
        sides, training = self._rollout_sides(SPLIT_SHARE), self._training_sides(0.0)
        bounds = []
        for gpus_train, gpus_rollout in splits:
            self._stop_if_asked()
            rolled = sides.best(gpus_rollout, mode)
            if rolled is not None:
                step = self._step(mode, rolled[1], training.bound(gpus_train), gpus_rollout)
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
            made = None if trained is None else self._made(mode, gpus_train, gpus_rollout, rolled, trained, sides.share)
            if made is not None and tightest_phase(made.memory).is_over:
                made = None
            seconds = None if made is None else made.step.seconds
            self.curve.append(SplitPoint(mode, gpus_train, gpus_rollout, seconds))
            if made is not None and (best is None or made.step.seconds < best.step.seconds):
                self.best[mode] = made
        if mode not in self.best:
            self.reasons[mode] = f"No execution trains on any side of a split of {goal.num_procs:,} GPUs."

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

    def _step(self, mode: str, side: RolloutSide, training: TrainingTimes, shards: int) -> IterationStep:
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
        )

    def _made(
        self,
        mode: str,
        gpus_train: int,
        gpus_rollout: int,
        rolled: tuple[Mapping[str, Any], RolloutSide, ServingMemoryUse],
        trained: TrainingChoice,
        share: float,
    ) -> ModeStep:
        goal, (fields, side, used) = self.goal, rolled
        memory = memory_phases(
            trained.execution,
            trained.forward,
            used,
            goal.system,
            parameters=goal.parameters,
            memory_share=share,
            is_colocated=mode == "colocated",
        )
        step = self._step(mode, side, trained.times, int(fields["tensor_par"]))
        lengths = {"output": max(round(goal.work.law.mean), 1)}
        return ModeStep(gpus_train, gpus_rollout, step, trained.execution, {**fields, **lengths}, memory)


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
