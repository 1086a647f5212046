"""Chains of phases: exact against all combinations of sizes, limits, widths, relaxations and what binds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine.lifetime import (
    Chain,
    ChainGoal,
    ChainsOnSystem,
    ChainTerms,
    PhaseCurve,
    PhaseSize,
    ServiceShare,
    chains_on_system,
    explain_chains,
)
from engine.recommendation.training_plans import RunFigure

PRICES = ChainTerms(2.0, 4.0)


def draw_curves(random: np.random.Generator, phases: int, sizes: int = 6) -> list[PhaseCurve]:
    """Curves with more days than perfect scaling has, intervals and failures; not always falling."""
    found = []
    for phase in range(phases):
        work = random.uniform(50.0, 5_000.0)
        rows = []
        for gpus in sorted(random.choice(np.arange(8, 200, 8), sizes, replace=False)):
            days = work / gpus ** random.uniform(0.6, 1.0)
            half = random.uniform(0.02, 0.4)
            figure = RunFigure(days, days * math.exp(-half), days * math.exp(half))
            rows.append(PhaseSize(int(gpus), figure, random.uniform(0, 20), random.uniform(0, 0.01), 1.0, ""))
        found.append(PhaseCurve(f"phase {phase}", "pretrain", tuple(rows), {}))
    return found


def every_chain(
    curves: Sequence[PhaseCurve], terms: ChainTerms, goal: ChainGoal, most: int, service: ServiceShare
) -> list[tuple[float, float, float, float]]:
    """Days and cost, and both at the 90 % quantile, of all combinations, statement by statement."""
    found = []
    room = most - service.beside
    held_sizes = sorted({size.gpus for curve in curves for size in curve.sizes}) if terms.is_held else [0]
    for held in held_sizes if goal.num_procs is None else [goal.num_procs]:
        for sizes in itertools.product(*(curve.sizes for curve in curves)):
            largest = held if terms.is_held or goal.num_procs else room
            if largest > room or any(size.gpus > largest for size in sizes):
                continue
            days = sum(size.days.value for size in sizes)
            hours = sum(24 * size.gpus * size.days.value for size in sizes)
            squares = [
                (size.days.high - size.days.value) ** 2 + 1.2816**2 * size.failures * size.failure_days**2
                for size in sizes
                if size.days.high is not None
            ]
            more = math.sqrt(sum(squares))
            wide = math.sqrt(sum(s * (24 * size.gpus) ** 2 for s, size in zip(squares, sizes, strict=True)))

            def cost(price: float, days: float, hours: float, held: int = held) -> float:
                paid = 24 * held * max(days, terms.reserved_days) if terms.is_held or goal.num_procs else hours
                beside_days = max(days, terms.reserved_days) if terms.is_held or goal.num_procs else days
                used = hours + 24 * service.beside * days + 24 * service.after_days
                return (
                    price * (paid + 24 * service.beside * beside_days + 24 * service.after_days)
                    + terms.power_usd_per_h * used
                )

            found.append((days, cost(3.0, days, hours), days + more, cost(4.0, days + more, hours + wide)))
    return found


@pytest.mark.parametrize("room", [False, True])
@pytest.mark.parametrize(
    "terms",
    [PRICES, ChainTerms(2.0, 4.0, 0.1, is_held=True), ChainTerms(2.0, 4.0, is_held=True, reserved_days=60.0)],
    ids=["rent", "buy", "reserve"],
)
def test_chains_are_the_best_of_all_combinations(room: bool, terms: ChainTerms) -> None:
    for seed in range(12):
        random = np.random.default_rng(seed)
        curves = draw_curves(random, int(random.integers(1, 4)))
        service = ServiceShare(int(random.choice([0, 16])), float(random.choice([0.0, 200.0])))
        combinations = np.array(every_chain(curves, terms, ChainGoal(), 200, service))
        at = (2, 3) if room else (0, 1)
        days = float(np.quantile(combinations[:, at[0]], 0.4))
        usd = float(np.quantile(combinations[:, at[1]], 0.5))
        for goal in (
            ChainGoal(days, None, None, room),
            ChainGoal(None, usd, None, room),
            ChainGoal(days, usd, None, room),
            ChainGoal(0.5 * float(combinations[:, at[0]].min()), usd, None, room),
        ):
            found = chains_on_system(curves, terms, goal, most=200, service=service)
            in_time = combinations[:, at[0]] <= (goal.deadline_days or math.inf) * (1 + 1e-9)
            in_budget = combinations[:, at[1]] <= (goal.budget_usd or math.inf) * (1 + 1e-9)
            able = combinations[in_time & in_budget]
            if not len(able):
                assert found.chosen is None
                assert found.days_needed == pytest.approx(combinations[in_budget][:, at[0]].min())
                assert found.obstacle.endswith(".")
                continue
            assert found.chosen is not None
            assert found.chosen.usd is not None
            assert not found.chosen.misses
            best = able[:, 0].min() if goal.deadline_days is None else able[:, 1].min()
            own = found.chosen.days if goal.deadline_days is None else found.chosen.usd
            assert own.value == pytest.approx(best, rel=1e-12)
            check_front(found, combinations)


def check_front(found: ChainsOnSystem, combinations: Any) -> None:
    """No combination is shorter and cheaper than the front, and every chain of it is one of them."""
    front = np.array([[each.days.value, each.usd.value] for each in found.front if each.usd is not None])
    assert (np.diff(front[:, 0]) > 0).all()
    assert (np.diff(front[:, 1]) < 0).all()
    for days, usd in front:
        shorter = combinations[combinations[:, 0] <= days * (1 + 1e-12)]
        assert shorter[:, 1].min() == pytest.approx(usd, rel=1e-9)


def test_given_gpus_are_held_by_all_phases() -> None:
    curves = draw_curves(np.random.default_rng(1), 3)
    gpus = max(curve.sizes[0].gpus for curve in curves)
    found = chains_on_system(curves, PRICES, ChainGoal(num_procs=gpus), most=200)
    chain = found.chosen
    assert chain is not None
    fastest = [min(size.days.value for size in curve.sizes if size.gpus <= gpus) for curve in curves]
    assert chain.days.value == pytest.approx(sum(fastest))
    assert chain.usd is not None
    assert chain.usd.value == pytest.approx(3.0 * 24 * gpus * sum(fastest))


def test_one_phase_and_widths_by_hand() -> None:
    size = PhaseSize(10, RunFigure(20.0, 17.0, 24.0), 9.0, 0.1, 5.0, "")
    (chain,) = chains_on_system([PhaseCurve("one", "sft", (size,), {})], PRICES, ChainGoal(30.0), most=16).front
    failures = 1.2816 * 3 * 0.1
    assert chain.days == RunFigure(
        20.0, pytest.approx(20 - math.hypot(3, failures)), pytest.approx(20 + math.hypot(4, failures))
    )
    assert chain.usd is not None
    assert chain.usd.high == pytest.approx(4.0 * 24 * 10 * chain.days.high)
    two = chains_on_system([PhaseCurve("one", "sft", (size,), {})] * 2, PRICES, ChainGoal(30.0), most=16)
    assert two.chosen is None
    assert two.days_needed == pytest.approx(40.0)
    assert two.front[0].days.high == pytest.approx(40 + math.sqrt(2) * math.hypot(4, failures))
    assert two.front[0].failures == 18.0
    unknown = PhaseSize(10, RunFigure(5.0), 0.0, 0.0, None, "")
    mixed = chains_on_system([PhaseCurve(str(at), "sft", (each,), {}) for at, each in enumerate((size, unknown))],
                             ChainTerms(), ChainGoal(30.0), most=16)  # fmt: skip
    assert mixed.chosen is not None
    assert (mixed.chosen.days.low, mixed.chosen.usd, mixed.chosen.mwh) == (None, None, None)


def test_what_binds_alone_and_together() -> None:
    def sized(*rows: tuple[int, float]) -> list[PhaseCurve]:
        return [
            PhaseCurve("one", "sft", tuple(PhaseSize(gpus, RunFigure(d), 0.0, 0.0, 1.0, "") for gpus, d in rows), {})
        ]

    # 72 USD per GPU and day: 8 GPUs 11 days 6,336; 16 GPUs 8 days 9,216; 24 GPUs 6.2 days 10,714.
    terms = ChainTerms(3.0, 3.0)
    rows = [(8, 11.0), (16, 8.0), (24, 6.2)]
    found = chains_on_system(sized(*rows), terms, ChainGoal(10.0, 10_000.0), most=24)
    assert chosen_sizes(found) == [16]
    changes = {each.words: each for each in explain_chains(found, lambda: (sized(*rows, (32, 5.9)), 32))}
    assert changes["One day more"].gain == pytest.approx(9_216 - 6_336)
    assert changes["10 % more budget"].gain == 0.0
    assert set(changes) == {"One day more", "10 % more budget", "One node more"}
    # Neither a day nor the budget alone: together they do.
    tight = chains_on_system(sized((16, 8.0)), terms, ChainGoal(7.5, 9_000.0), most=16)
    assert (tight.chosen, tight.days_needed, tight.usd_needed) == (None, None, None)
    alone = {each.words: each.holds for each in explain_chains(tight)}
    assert alone == {"One day more": False, "10 % more budget": False, "One day more and 10 % more budget": True}


def chosen_sizes(found: ChainsOnSystem) -> list[int]:
    chain: Chain | None = found.chosen
    assert chain is not None
    return [size.gpus for size in chain.sizes]


def test_more_gpus_and_looser_limits_are_never_worse() -> None:
    curves = draw_curves(np.random.default_rng(7), 3)
    last = math.inf
    for most in (120, 160, 200):
        for days in (120.0, 200.0, 400.0):
            chain = chains_on_system(curves, PRICES, ChainGoal(days, room_for_error=True), most=most).chosen
            if days == 400.0 and chain is not None and chain.usd is not None:
                assert chain.usd.value <= last * (1 + 1e-12)
                last = chain.usd.value


def test_eight_phases_of_many_sizes_are_solved() -> None:
    curves = draw_curves(np.random.default_rng(3), 8, sizes=16)
    found = chains_on_system(curves, PRICES, ChainGoal(budget_usd=1e12), most=200)
    assert found.chosen is not None
    fastest = [min(size.days.value for size in curve.sizes) for curve in curves]
    assert found.chosen.days.value == pytest.approx(sum(fastest))
