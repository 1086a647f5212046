"""Best deployment of a rollout and best execution of training by number of GPUs, each computed once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

import models
from engine.exploration.proven_optimum import best_of
from engine.post_training.goal import Judge, PostTrainingGoal
from engine.post_training.iteration import IterationWork, JudgeTime, RolloutSide
from engine.post_training.lengths import LengthLaw
from engine.post_training.rollout import decode_steps, rollout_rate, slots_of
from engine.post_training.training_side import (
    TOGETHER,
    ForwardPass,
    TrainingTimes,
    forward_pass,
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

__all__ = [
    "DeploymentChoices",
    "ExecutionChoices",
    "JudgeChoice",
    "JudgeSides",
    "TeacherChoices",
    "TeacherPass",
    "TrainingChoice",
    "split_unit",
]

TRAY: Final = 4
"""GPUs that are moved together where a node is a whole rack. Source: compute trays of GB200 NVL72 have four."""
RACK: Final = 16
"""GPUs of a node beyond which it is a rack. Source: stated by us; servers have at most 16."""
LARGEST_REPLICA: Final = 64
"""Most GPUs of a tensor-parallel replica of the rollout. Source: stated by us; published runs have 32."""
BACKWARD: Final = 6.0
"""Operations of forward and backward per parameter and token. Source: Kaplan et al. 2020 (arXiv:2001.08361), section
2.1."""
FORWARD: Final = 2.0
"""Operations of a forward pass per parameter and token; the same source."""
PACKED_LIMITS: Final[Mapping[str, Any]] = {
    "microbatch_size": 1,
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "uneven_pipelines": True,
}
"""Limits of training where none is asked for: a pack is a sequence, and every microbatch one pack."""


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
        slots = slots_of(self.subject, row, work.rollout_law, work.prompt, goal.max_sequences)
        if slots < 1:
            return
        steps = decode_steps(self.subject, row, work.rollout_law, work.prompt, float(slots), goal.speculation)
        self.found.append((fields, RolloutSide(steps, 1, slots), self._memory(row, slots)))

    def _memory(self, row: Deployments, slots: int) -> ServingMemoryUse:
        work = self.goal.work
        full = replace(row, batch=np.array([float(slots)]), output=np.array([work.rollout_law.mean]))
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
    """Best execution by GPUs, each searched once.

    Its data-parallel degree divides the samples of an update: NeMo-RL, verl and slime deal as many samples to every
    rank and refuse other degrees.
    """

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
                limits={**PACKED_LIMITS, "data_par": _divisors(goal.packed.samples, gpus), **goal.training_limits},
            )
            row = best_of(scenario)
            self._known[gpus] = self._choice(row) if row else None
        return self._known[gpus]

    def _choice(self, row: Mapping[str, Any]) -> TrainingChoice:
        forward = forward_pass(self.model, self.system, row, self.goal.work.updates)
        return TrainingChoice(row, training_times(row, self.goal.packed, forward), forward)


def _divisors(number: int, most: int) -> list[int]:
    """Return the divisors of a number up to a limit, ascending."""
    return [each for each in range(1, min(number, most) + 1) if number % each == 0]


class JudgeChoice(NamedTuple):
    """Deployment of a judge, its time, and its memory."""

    fields: Mapping[str, Any]
    time: JudgeTime
    memory: ServingMemoryUse


class JudgeSides:
    """Deployments of a judge by GPUs: every response is one request, all of one length."""

    def __init__(self, goal: PostTrainingGoal, judge: Judge, share: float) -> None:
        work = goal.work
        scored = IterationWork(
            work.samples,
            1,
            work.prompt + work.law.mean,
            LengthLaw.lognormal(float(judge.tokens), float(judge.tokens), 0.0),
            1,
            0,
        )
        self.judge, self.work = judge, scored
        self.goal = replace(
            goal,
            model=judge.model,
            work=scored,
            rollout_bits=16,
            rollout_tensor_par=(),
            speculation=None,
            judge=None,
            num_procs=judge.gpus or goal.num_procs,
        )
        self.sides = DeploymentChoices(self.goal, share)
        self._known: dict[int, JudgeChoice | None] = {}

    def best(self, gpus_rollout: int) -> JudgeChoice | None:
        """Return the fastest deployment of the judge; None if it has too few GPUs.

        Args:
            gpus_rollout: of the rollout, on which a judge without GPUs of its own runs.
        """
        gpus = self.judge.gpus or gpus_rollout
        if gpus not in self._known:
            found = self.sides.best(gpus, "colocated")
            self._known[gpus] = None if found is None else self._choice(*found)
        return self._known[gpus]

    def _choice(self, fields: Mapping[str, Any], side: RolloutSide, memory: ServingMemoryUse) -> JudgeChoice:
        one = replace(self.work, samples=1)
        time = JudgeTime(side.span(self.work).seconds, side.span(one).seconds, self.judge.gpus is not None)
        return JudgeChoice({**fields, "output": self.judge.tokens}, time, memory)


class TeacherPass(NamedTuple):
    """Forward pass of a teacher: time of all samples of a step [s], and its memory on a GPU [bytes]."""

    seconds: float
    memory: float


class TeacherChoices:
    """Fastest forward pass of a teacher by GPUs and the memory that the trained model leaves, each searched once."""

    def __init__(self, goal: PostTrainingGoal) -> None:
        assert goal.teacher is not None
        self.goal, self.model = goal, models.edited(goal.teacher, {"seq_size": goal.pack_to})
        self._known: dict[tuple[int, int], TeacherPass | None] = {}

    def best(self, gpus: int, room: float) -> TeacherPass | None:
        """Return the fastest pass; None if the teacher does not fit.

        Args:
            gpus: that train.
            room: memory of each that is free [bytes].
        """
        key = (gpus, int(room / GIB))
        if key not in self._known:
            self._known[key] = self._search(*key) if key[1] > 0 else None
        return self._known[key]

    def _search(self, gpus: int, room_gib: int) -> TeacherPass | None:
        goal, packed = self.goal, self.goal.packed
        memory = goal.system.mem1.model_copy(update={"capacity_gib": float(room_gib)})
        bins = packed.bins * goal.work.updates
        scenario = Scenario.of(
            self.model,
            goal.system.model_copy(update={"mem1": memory}),
            num_procs=gpus,
            max_batch_size=math.ceil(packed.bins * min(goal.work.updates, TOGETHER)),
            datatype=goal.datatype,
            limits={**PACKED_LIMITS, "training": False},
        )
        row = best_of(scenario)
        if not row:
            return None
        share = 1.0 if int(row["pipeline_par"]) > 1 else packed.fill
        seconds = float(row["total_time"]) * bins / float(row["batch_size"]) * share
        return TeacherPass(seconds, float(row["proc_mem_tier1_cap_req"]))
