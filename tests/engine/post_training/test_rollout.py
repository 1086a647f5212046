"""Length laws, packing and makespans against moments, draws and a simulation of events."""

from __future__ import annotations

import numpy as np
import pytest

from engine.post_training.lengths import LengthError, LengthLaw, expected_bins, packing_efficiency
from engine.post_training.rollout import DecodeSteps, makespan, rollout_rate
from tests.engine.post_training.rollout_events import simulate

STEPS = DecodeSteps(np.array([1.0, 32.0, 256.0]), np.array([8e-3, 9e-3, 15e-3]), 4e-9, 1e-3)


@pytest.mark.parametrize(("mean", "cap", "cv"), [(3200.0, 3986.0, 1.0), (700.0, 30_000.0, 1.5), (900.0, 1000.0, 0.2)])
def test_a_capped_law_has_the_moments_of_its_draws(mean: float, cap: float, cv: float) -> None:
    law = LengthLaw.lognormal(mean, cap, cv)
    assert law.mean == pytest.approx(mean, rel=1e-4)
    draws = law.quantiles((np.arange(1_000_000) + 0.5) / 1_000_000)
    assert draws.mean() == pytest.approx(mean, rel=0.01)
    assert (draws**2).mean() == pytest.approx(law.second_moment, rel=0.02)
    contexts = 100.0 * draws + draws**2 / 2.0
    assert law.contexts(100.0) == pytest.approx((contexts.mean(), contexts.std()), rel=0.02)
    # The equilibrium residual of a renewal process has the mean E L^2 / (2 E L).
    assert np.trapezoid(law.residual, law.tokens) == pytest.approx(law.second_moment / (2 * law.mean), rel=1e-3)


def test_a_histogram_is_the_law_of_its_lengths() -> None:
    lengths = [100.0, 100.0, 400.0, 1000.0]
    law = LengthLaw.histogram(lengths)
    assert law.mean == pytest.approx(np.mean(lengths))
    assert law.second_moment == pytest.approx(np.mean(np.square(lengths)))
    assert law.cap == 1000.0


def test_packing_fills_bins_but_not_with_two_long_samples() -> None:
    half = LengthLaw.lognormal(3300.0, 3300.0)
    assert packing_efficiency(0.0, half, 512, 4096) == pytest.approx(3300 / 4096, rel=1e-6)
    rng = np.random.default_rng(1)
    for _ in range(20):
        mean = rng.uniform(100, 3000)
        law = LengthLaw.lognormal(mean, rng.uniform(mean, 4000), rng.uniform(0, 2))
        assert 0.0 < packing_efficiency(90.0, law, 300, 4096) <= 1.0
        # No packing beats the sum of lengths, or the number of samples longer than half of a bin.
        least = 300 * max((90.0 + law.mean) / 4096, float(np.interp(2048 - 90, law.tokens, law.survival)))
        assert expected_bins(90.0, law, 300, 4096) >= 0.98 * least
    with pytest.raises(LengthError, match="more than"):
        expected_bins(500.0, half, 10, 3500)


@pytest.mark.parametrize(("mean", "cap", "cv"), [(0.0, 10.0, 1.0), (11.0, 10.0, 1.0), (5.0, 10.0, -1.0)])
def test_impossible_lengths_are_refused_in_a_sentence(mean: float, cap: float, cv: float) -> None:
    with pytest.raises(LengthError, match=r"\.$"):
        LengthLaw.lognormal(mean, cap, cv)


def test_the_closed_form_agrees_with_events() -> None:
    rng = np.random.default_rng(11)
    errors = []
    for case in range(36):
        mean = rng.uniform(300, 4000)
        law = LengthLaw.lognormal(mean, mean * rng.uniform(1.2, 10), rng.uniform(0.1, 1.6))
        replicas, slots = int(rng.choice([1, 2, 4, 8, 16])), int(rng.choice([16, 32, 64, 128]))
        samples, prompt = int(replicas * slots * rng.choice([0.5, 1, 1.5, 2, 3, 5])), rng.uniform(50, 1500)
        batches = np.array([1.0, 32.0, 128.0])
        steps = DecodeSteps(batches, 8e-3 + batches * (case % 2) * 2e-5, rng.uniform(1e-9, 2e-8), 1e-3)
        found = makespan(steps, law, prompt=prompt, samples=samples, replicas=replicas, slots=slots).seconds
        # A rollout of few samples varies with its longest: as many draws as make a steady mean.
        runs = [
            simulate(steps, law.quantiles(rng.random(samples)), prompt=prompt, replicas=replicas, slots=slots)
            for _ in range(max(3, 3000 // samples))
        ]
        errors.append(abs(found / np.mean(runs) - 1.0))
    assert np.median(errors) < 0.02
    assert max(errors) < 0.12


@pytest.mark.parametrize("mean", [1500.0, 3300.0])
def test_of_more_responses_than_are_kept_the_first_decide(mean: float) -> None:
    law = LengthLaw.lognormal(mean, 4000.0, 1.0)
    steps = DecodeSteps(np.array([1.0, 64.0]), np.array([0.01, 0.01]), 0.0)
    rng = np.random.default_rng(3)
    for launched in (1.25, 2.0):
        every, kept = law.first(launched)
        draws = np.sort(law.quantiles(rng.random((200, round(512 * launched)))), axis=1)[:, :512]
        assert kept.mean == pytest.approx(draws.mean(), rel=0.01)
        found = makespan(steps, every, prompt=10, samples=round(512 * launched), replicas=16, slots=64)
        assert found.seconds == pytest.approx(0.01 * draws[:, -1].mean(), rel=0.02)
        assert kept.mean <= law.mean
    alone = law.first(1.0)
    assert [each.mean for each in alone] == pytest.approx([law.mean, law.mean])


def test_equal_lengths_take_the_steps_of_full_batches() -> None:
    law = LengthLaw.lognormal(1000.0, 4000.0, 0.0)
    steps = DecodeSteps(np.array([1.0, 64.0]), np.array([0.01, 0.01]), 0.0)
    for n in (32, 64, 128, 256):
        found = makespan(steps, law, prompt=10, samples=4 * n, replicas=4, slots=64)
        assert found.seconds == pytest.approx(n * 1000 * 0.01 / min(n, 64), rel=2e-3)
        assert found.tail_ratio == pytest.approx(1.0, rel=2e-3)


def test_more_replicas_slots_and_speed_are_never_slower() -> None:
    law = LengthLaw.lognormal(2500.0, 8000.0, 1.0)

    def seconds(replicas: int = 8, slots: int = 64, steps: DecodeSteps = STEPS) -> float:
        return makespan(steps, law, prompt=100, samples=2048, replicas=replicas, slots=slots).seconds

    for times in (
        [seconds(replicas=each) for each in (1, 2, 4, 8, 16, 32, 64)],
        [seconds(slots=each) for each in (16, 32, 64, 96, 128, 256)],
        [seconds(steps=STEPS.scaled(each)) for each in (1.0, 0.8, 0.5)],
    ):
        assert times == sorted(times, reverse=True)
    # Slots that are never empty generate faster than a rollout that drains.
    assert 2048 / rollout_rate(STEPS, law, prompt=100, replicas=8, slots=64) <= seconds()
