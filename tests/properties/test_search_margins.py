"""A search by bounds finds everything at every margin: executions that are equally fast but for less than 1e-4, too.

Whatever a search cuts off a little too early lies just above what it looks for. So it looks for the rate of every
kind of execution in turn: the fastest ones, those in the midst, and those that differ from the next by the least.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

import numpy as np
import pytest

import engine
from engine.executions.arrays import Floats
from engine.exploration.proven_optimum import executions_above
from tests.engine.cost_models.calibrated.small import named
from tests.engine.explored_with_rows import explored_with_rows
from tests.engine.small_spaces import draw

DRAWN = 6


def drawn_space(number: int) -> Callable[[], engine.Scenario]:
    return lambda: draw(Random(f"margins {number}"), largest=6_000).scenario


SPACES: dict[str, Callable[[], engine.Scenario]] = {
    **{f"calculon {number}": drawn_space(number) for number in range(DRAWN)},
    **{f"calibrated {name}": lambda name=name: named(name) for name in ("dense", "experts", "plain", "schedules")},
}


@cache
def explored(space: str) -> tuple[engine.Scenario, Floats, Floats]:
    """A scenario, and ids and rates of all of its executions that run, fastest first, of equal ones the first."""
    scenario = SPACES[space]()
    rows = explored_with_rows(scenario).rows.table(["id", "sample_rate"])
    ids, rates = (rows[name].to_numpy() for name in ("id", "sample_rate"))
    order = np.lexsort((ids, -rates))
    return scenario, ids[order], rates[order]


def floors_of(rates: Floats, random: Random) -> list[float]:
    """Rates to look for: the best ones, any, and those that the next one exceeds by the least."""
    different = np.unique(rates)[::-1]
    above = different[:-1] / different[1:] - 1
    closest = different[1:][np.argsort(above, kind="stable")]
    some = [random.choice(different.tolist()) for _ in range(3)]
    return [*different[:2].tolist(), *closest[:4].tolist(), *some]


@pytest.mark.parametrize("space", SPACES)
def test_every_execution_of_at_least_a_rate_is_found(space: str) -> None:
    scenario, ids, rates = explored(space)
    if not len(rates):
        assert engine.best_of(scenario).get("id") is None
        return
    for floor in floors_of(rates, Random(space)):
        # A hair above it excludes those that have it: the bound of the search is sharp on both sides.
        for least in (floor, float(np.nextafter(floor, np.inf))):
            found = executions_above(scenario, least)
            number = int((rates >= least).sum())
            assert found["id"].tolist() == ids[:number].tolist()
            assert found["sample_rate"].tolist() == rates[:number].tolist()


@pytest.mark.parametrize("space", SPACES)
def test_the_best_ones_are_found_however_many_are_asked_for(space: str) -> None:
    scenario, ids, rates = explored(space)
    near = np.flatnonzero(rates[:-1] / rates[1:] - 1 < 1e-4) + 1 if len(rates) > 1 else np.zeros(0, np.int64)
    chosen = Random(space).sample(near.tolist(), min(4, len(near)))
    for k in {1, len(rates), *chosen} - {0}:
        found = engine.best_of(scenario, k=k)
        assert found.top["id"].tolist() == ids[:k].tolist()
        assert found.top["sample_rate"].tolist() == rates[:k].tolist()


def test_the_spaces_have_executions_that_differ_by_little() -> None:
    for family in ("calculon", "calibrated"):
        gaps = []
        for space in SPACES:
            if space.startswith(family):
                different = np.unique(explored(space)[2])
                gaps += (different[1:] / different[:-1] - 1).tolist()
        assert sum(1e-9 < gap < 1e-4 for gap in gaps) > 100
