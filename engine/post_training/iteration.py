"""One iteration of reinforcement learning in each mode: phases, the step, and the idle share of each pool of GPUs.

    colocated, one after the other   T = k_r T_roll + T_reward + k_t (u T_upd + passes) + T_switch + T_0
    one step off, two pools          T = max(k_r T_roll + T_reward, k_t T_train + T_0) + T_sync
    asynchronous, staleness k        T = max(N / (X_roll / k_a), k_t T_train + T_0 + T_sync)

with N samples per step. A judge on the rollout's GPUs adds its time to the rollout, one on GPUs of its own its excess
over the rollout; a teacher adds a forward pass to training. GPUs that train and then help, with the rate of h replicas
next to R, take over the rest of a rollout: T_roll becomes (R T_roll + h (T_train + T_switch)) / (R + h), and is never
shorter than if all had generated from the start. In flight and queued are at most (k + 1) N samples, which bounds the
slots that can be busy. What every synchronisation computes again of interrupted samples is part of k_a.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.post_training.constants import FrameworkTerms
from engine.post_training.lengths import LengthLaw
from engine.post_training.rollout import DecodeSteps, Makespan, makespan, rollout_rate
from engine.post_training.synchronisation import GB
from engine.post_training.training_side import TrainingTimes

__all__ = ["MODES", "IterationPhase", "IterationStep", "IterationWork", "JudgeTime", "RolloutSide", "iteration_step"]

MODES: Final = ("colocated", "one_step_off", "asynchronous")
"""Ways to share GPUs between rollout and training."""


@dataclass(frozen=True, slots=True)
class IterationWork:
    """Work of a step, the same in every mode.

    `samples` of a step in groups of `group`, `prompt` tokens and a law of responses; `updates` optimizer steps and
    `passes` forward passes of all samples; with a critic of the model's size, a further pass and as many updates;
    `rounds` of rollout until enough groups are kept; `reward_s` after and `tool_s` within a rollout are waiting [s].
    Where more responses are launched than kept, `launched` per kept one with the law `launched_law` until they are
    stopped.
    """

    samples: int
    group: int
    prompt: float
    law: LengthLaw
    updates: int
    passes: int
    has_critic: bool = False
    rounds: float = 1.0
    reward_s: float = 0.0
    tool_s: float = 0.0
    launched: float = 1.0
    launched_law: LengthLaw | None = None

    @property
    def rollout_law(self) -> LengthLaw:
        """Law of the lengths that the rollout generates."""
        return self.launched_law or self.law


@dataclass(frozen=True, eq=False, slots=True)
class RolloutSide:
    """Rollout deployment: decode steps of a replica, replicas, and requests of each at once."""

    steps: DecodeSteps
    replicas: int
    slots: int

    def span(self, work: IterationWork) -> Makespan:
        """Return the rollout of all samples, one round.

        Args:
            work: of the step.
        """
        return makespan(
            self.steps,
            work.rollout_law,
            prompt=work.prompt,
            samples=round(work.samples * work.launched),
            replicas=self.replicas,
            slots=self.slots,
            group=work.group,
        )


@dataclass(frozen=True, slots=True)
class JudgeTime:
    """Time of a judge: all samples of one round, one sample alone [s], and whether it has GPUs of its own."""

    seconds: float
    last_s: float
    has_own_gpus: bool


@dataclass(frozen=True, slots=True)
class IterationPhase:
    """Phase of a step: `seconds` on `pool` (all, rollout, training or judge)."""

    name: str
    seconds: float
    pool: str


@dataclass(frozen=True, slots=True)
class IterationStep:
    """Step in one mode: `seconds`, its phases, idle shares of both pools, and mean staleness of samples [steps]."""

    mode: str
    seconds: float
    phases: tuple[IterationPhase, ...]
    idle_rollout: float
    idle_training: float
    tail_ratio: float
    staleness: float

    def phase(self, name: str) -> float:
        """Return the seconds of a phase; 0 where the step has none of the name.

        Args:
            name: of the phase.
        """
        return sum(each.seconds for each in self.phases if each.name == name)


def iteration_step(
    mode: str,
    work: IterationWork,
    rollout: RolloutSide,
    training: TrainingTimes,
    terms: FrameworkTerms,
    *,
    weight_bytes: float,
    sync_s: float,
    staleness: int = 1,
    judge: JudgeTime | None = None,
    teacher_s: float = 0.0,
    helpers: int = 0,
) -> IterationStep:
    """Return a step in one mode.

    Args:
        mode: one of `MODES`.
        work: of the step.
        rollout: deployment that generates.
        training: times of an optimizer step.
        terms: of the framework.
        weight_bytes: of all weights [bytes], for the switches of a colocated step.
        sync_s: synchronisation between pools [s].
        staleness: steps that a sample may be old, in asynchronous mode.
        judge: that scores every response.
        teacher_s: forward pass of a teacher over all samples [s].
        helpers: replicas on GPUs that train, which generate once their update is done, in modes with two pools.
    """
    f = terms.software
    sides = 2.0 if work.has_critic else 1.0
    passes_s = (
        f * terms.training * work.updates * training.forward_s * (work.passes + (1.0 if work.has_critic else 0.0))
    )
    teacher_s = f * terms.training * teacher_s
    update_s = f * terms.training * work.updates * training.update_s * sides
    fixed_s, sync_s = f * terms.fixed_s, f * sync_s
    switch_s = f * terms.switch_s_per_gb * weight_bytes / GB
    span = rollout.span(work)
    waiting = work.rounds * (work.reward_s + work.tool_s)
    rollout_s = f * terms.rollout * work.rounds * span.seconds
    train_s = update_s + passes_s + teacher_s + fixed_s
    inner = (
        IterationPhase("log_probs", passes_s, "training"),
        IterationPhase("teacher", teacher_s, "training"),
        IterationPhase("update", update_s, "training"),
        IterationPhase("other", fixed_s, "training"),
    )
    old, helped_s = 1.0, 0.0
    least_s = 0.0
    if mode == "asynchronous":
        rollout_s = f * terms.asynchronous * _stale_rollout(work, rollout, staleness, f * terms.asynchronous)
        waiting = 0.0
        train_s += sync_s
    if helpers and mode != "colocated":
        more = RolloutSide(rollout.steps, rollout.replicas + helpers, rollout.slots)
        if mode == "asynchronous":
            least_s = f * terms.asynchronous * _stale_rollout(work, more, staleness, f * terms.asynchronous)
        else:
            least_s = f * terms.rollout * work.rounds * more.span(work).seconds
        begin = train_s + switch_s
        rate = terms.helping * helpers
        shared = (rollout.replicas * rollout_s + rate * begin) / (rollout.replicas + rate)
        shortened = max(shared, least_s)
        if begin < shortened < rollout_s:
            rollout_s, helped_s = shortened, shortened - train_s
    judge_s, judge_pool = _judge_time(judge, work, f * terms.rollout, rollout_s, mode)
    generated = (
        IterationPhase("rollout", rollout_s, "rollout"),
        IterationPhase("reward", waiting, "rollout"),
        IterationPhase("judge", judge_s, judge_pool),
    )
    if mode == "colocated":
        seconds = rollout_s + waiting + judge_s + train_s + switch_s
        phases = (*generated, *inner, IterationPhase("switch", switch_s, "all"))
        return IterationStep(mode, seconds, phases, 0.0, 0.0, span.tail_ratio, 0.0)
    on_rollout = judge_s if judge_pool == "rollout" else 0.0
    if mode == "asynchronous":
        seconds = max(rollout_s + judge_s, train_s)
        in_flight = min(rollout.replicas * rollout.slots, (staleness + 1) * work.samples)
        # The slower side decides: a slow trainer lets the queue fill up to the bound.
        is_bound = rollout_s + judge_s >= train_s
        old = min(float(staleness), in_flight / work.samples) if is_bound else float(staleness)
        busy = (rollout_s + on_rollout, train_s + helped_s)
    else:
        seconds = max(rollout_s + waiting + judge_s, train_s) + sync_s
        busy = (rollout_s + on_rollout + sync_s, train_s + helped_s + sync_s)
    phases = (*generated, *inner, IterationPhase("synchronisation", sync_s, "all"))
    idle = tuple(max(0.0, 1.0 - each / seconds) for each in busy)
    return IterationStep(mode, seconds, phases, idle[0], idle[1], span.tail_ratio, old)


def _stale_rollout(work: IterationWork, rollout: RolloutSide, staleness: int, factor: float) -> float:
    """Return the time in which slots that are never empty generate the samples of a step, without the factor [s]."""
    in_flight = min(rollout.replicas * rollout.slots, (staleness + 1) * work.samples)
    rate = rollout_rate(
        rollout.steps,
        work.law,
        prompt=work.prompt,
        replicas=min(rollout.replicas, in_flight),
        slots=max(in_flight // rollout.replicas, 1),
        group=work.group,
    )
    # Tool calls hold slots: the rate falls with the share of its life that a sample waits.
    decode_s = factor * in_flight / rate
    return work.rounds * work.samples / rate * (1.0 + work.tool_s / decode_s)


def _judge_time(
    judge: JudgeTime | None, work: IterationWork, factor: float, rollout_s: float, mode: str
) -> tuple[float, str]:
    """Return the time of a judge that nothing hides [s], and the pool that it runs on."""
    if judge is None:
        return 0.0, "rollout"
    seconds = factor * work.rounds * judge.seconds
    if not judge.has_own_gpus:
        return seconds, "rollout"
    # It scores while others generate; the last response is scored alone. Where nothing drains its rate alone counts.
    last = 0.0 if mode == "asynchronous" else factor * judge.last_s
    return max(rollout_s + last, seconds) - rollout_s, "judge"
