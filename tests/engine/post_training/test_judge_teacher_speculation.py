"""Laws of judges, teachers, speculation and GPUs that help; without them every figure stays as it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import hardware
import models
from engine.post_training.iteration import IterationStep, JudgeTime, iteration_step
from engine.post_training.rollout import Speculation
from engine.post_training.search import Judge, PostTrainingGoal, find_post_training
from tests.engine.post_training.test_iteration import SIDE, TERMS, TIMES, WORK

MODES = ("one_step_off", "asynchronous")


def step(mode: str, training: float = 1.0, **more: Any) -> IterationStep:
    times = replace(TIMES, update_s=training * TIMES.update_s, forward_s=training * TIMES.forward_s)
    return iteration_step(mode, WORK, SIDE, times, TERMS, weight_bytes=6e10, sync_s=2.0, staleness=8, **more)


def test_speculation_divides_steps_by_the_accepted_tokens() -> None:
    steps = SIDE.steps
    nothing = Speculation(1.0, 0, 0.0).applied(steps)
    assert nothing.fixed == pytest.approx(steps.fixed)
    assert nothing.per_context == steps.per_context
    # Three drafted tokens: a step of 20 requests verifies 80 tokens, takes a tenth more for drafting, and keeps 2.5.
    drafted = Speculation(2.5, 3, 0.1).applied(replace(steps, batches=steps.batches * 1.0))
    assert float(drafted.at(1.0)) == pytest.approx(float(steps.at(4.0) + 0.1 * steps.at(1.0)) / 2.5)
    assert drafted.per_context == pytest.approx(steps.per_context / 2.5)


def test_gpus_that_help_are_never_slower_and_never_faster_than_if_all_generated() -> None:
    for mode in MODES:
        alone = step(mode)
        helped = [step(mode, helpers=each).seconds for each in (0, 2, 4, 8, 16)]
        assert helped[0] == alone.seconds
        assert helped == sorted(helped, reverse=True)
        assert helped[-1] < alone.seconds
        all_generate = replace(SIDE, replicas=SIDE.replicas + 16)
        bound = iteration_step(mode, WORK, all_generate, TIMES, TERMS, weight_bytes=6e10, sync_s=2.0, staleness=8)
        assert helped[-1] >= bound.seconds * (1.0 - 1e-12)
        # Where training is the longer side nobody has time to help.
        assert step(mode, training=50.0, helpers=16).seconds == step(mode, training=50.0).seconds
        assert step(mode, helpers=16).idle_training < alone.idle_training


def test_a_judge_adds_its_time_or_hides_behind_the_rollout() -> None:
    for mode in ("colocated", *MODES):
        plain = step(mode)
        shared = step(mode, judge=JudgeTime(4.0, 0.1, False))
        own = step(mode, judge=JudgeTime(4.0, 0.1, True))
        assert plain.seconds <= own.seconds <= shared.seconds
        assert shared.phase("judge") == pytest.approx(TERMS.software * TERMS.rollout * 4.0)
        assert own.phase("judge") <= TERMS.software * TERMS.rollout * 0.1 * (1 + 1e-9)
        # A judge that is slower than the rollout sets the pace.
        slow = step(mode, judge=JudgeTime(1e4, 0.1, True))
        assert slow.seconds >= TERMS.software * TERMS.rollout * 1e4
        taught = step(mode, teacher_s=100.0)
        assert taught.phase("teacher") == pytest.approx(TERMS.software * TERMS.training * 100.0)
        assert taught.seconds > plain.seconds


def test_a_search_with_judge_teacher_and_helpers_fits_and_says_what_does_not() -> None:
    system = hardware.load("h100_80g_sxm")
    goal = PostTrainingGoal(models.load("llama-3.1-8B"), system, 32, WORK, 4096)
    plain = find_post_training(goal)
    judge, larger = models.load("llama-3.1-8B"), models.load("llama-3.1-70B")
    asked = replace(goal, judge=Judge(judge, 200), teacher=judge, is_helping=True)
    found = find_post_training(asked)
    assert set(found.best) == set(plain.best)
    for mode, each in found.best.items():
        assert each.judge is not None
        assert {"judge", "teacher"} <= {phase.phase for phase in each.memory}
        assert all(phase.needs <= phase.has for phase in each.memory)
        assert each.step.seconds > 0.8 * plain.best[mode].step.seconds
    few = find_post_training(replace(goal, modes=("colocated",), judge=Judge(larger, 200, 1)), with_change=False)
    assert "judge" in few.reasons["colocated"]
    alone = replace(goal, num_procs=8, modes=("colocated",), teacher=models.load("llama-3.1-405B"))
    assert "The teacher does not fit" in find_post_training(alone, with_change=False).reasons["colocated"]
