"""Searching a calibrated space by its bounds, on any system, finds what exploring everything finds; little is kept."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
from engine import Exploration, Scenario, WorkSizes, whatif, working_in
from engine.cost_models.calibrated.bound_search import CalibratedBoundSearch
from engine.cost_models.calibrated.rows.row_tables import calibrated_row_table
from engine.cost_models.calibrated.space import CalibratedSpace
from engine.executions.arrays import Floats, Ints
from engine.whatif.prepared_spaces import PreparedOptimum, made_ready
from tests.engine.cost_models.calibrated.small import NAMES, explored, named
from tests.engine.explored_with_rows import explored_with_rows

MIB = 2**20
LARGE: dict[str, Any] = {"system": "h100_80g_sxm", "num_procs": 32, "datatype": "bfloat16"}


def space_of(scenario: Scenario) -> CalibratedSpace:
    space = scenario.space
    assert isinstance(space, CalibratedSpace)
    return space


def another(base: Scenario, random: Random) -> Scenario:
    """The scenario with up to four of its system's parameters elsewhere, near or far; the second tier stays."""
    asked = [each for each in whatif.parameters(base) if each.about == "system"]
    reach = random.choice((0.05, 0.5, 3.0))
    changes = {}
    for each in random.sample(asked, random.randint(0, min(4, len(asked)))):
        if each.discrete:
            changes[each.name] = each.value * random.choice((1, 2, 4))
        elif each.value:
            changes[each.name] = each.value * 2.0 ** random.uniform(-reach, reach)
    return whatif.changed(base, changes)


def rate_of(found: Exploration, execution: int) -> float:
    rows = found.rows.table(["id", "sample_rate"])
    rates = rows["sample_rate"].to_numpy()[rows["id"].to_numpy() == execution]
    return float(rates[0]) if len(rates) else float("nan")


def assert_found(
    answer: PreparedOptimum, found: Exploration, kept_rate: float, evaluated: dict[str, Any] | None = None
) -> None:
    """The first of the best executions, how many run, and the kept execution, each as exploring has it, to the bit."""
    best = evaluated or found.best or {"id": None, "sample_rate": float("nan")}
    assert (answer.id, answer.feasible) == (best["id"], found.feasible)
    np.testing.assert_array_equal([answer.rate, answer.kept], [best["sample_rate"], kept_rate])
    assert answer.evaluated <= answer.feasible


@pytest.mark.parametrize("name", NAMES)
def test_searching_is_exploring_whatever_the_system(name: str) -> None:
    random, base = Random(name), named(name)
    space = space_of(base)
    kept = random.randrange(space.total)
    k = random.choice((1, 3, 400))
    sites = random.choice((40, 150, 65536))
    sizes = WorkSizes(
        first_rows=random.choice((1, 3, 48)),
        bounds_followed=random.choice((25, 200, 8192)),
        points_kept=sites,
        points_searched=sites,
        points_fitted=random.choice((16, 50, 1024)),
        modes_bounded=random.choice((300, 3_000, 262_144)),
        first_points=random.choice((1, 7, 64)),
        points_bounded=random.choice((20, 16_384)),
        rows_tabulated=random.choice((500, 16_384)),
        bytes_of_fits=random.choice((0, MIB)),
    )
    with working_in(sizes):
        ready = made_ready(space, "")
        for _ in range(2):
            changed = another(base, random)
            found = explored_with_rows(changed)
            best = found.best
            assert_found(ready.best(changed.system, kept), found, rate_of(found, kept), best)
            optimum = engine.best_of(changed, k=k)
            top = found.rows.top(k, names=["id", "sample_rate"]).to_pandas()
            assert optimum.top["id"].tolist() == top["id"].tolist()
            assert optimum.top["sample_rate"].tolist() == top["sample_rate"].tolist()
            assert optimum.feasible == found.feasible
            pd.testing.assert_series_equal(pd.Series(dict(optimum), dtype=object), pd.Series(best, dtype=object))
            kept = kept if best is None else int(best["id"])


def by_pair(parts: Iterable[tuple[Ints, Ints, Floats]]) -> dict[tuple[int, int], float]:
    """The bound of each mode of each schedule point among these parts."""
    lists = [[array.tolist() for array in part] for part in parts]
    return {(site, mode): rate for part in lists for site, mode, rate in zip(*part, strict=True)}


def highest(bounds: dict[tuple[int, int], float]) -> dict[int, float]:
    """The highest bound of each schedule point."""
    found: dict[int, float] = {}
    for (site, _), bound in bounds.items():
        found[site] = max(bound, found.get(site, bound))
    return found


@cache
def bounds_of(name: str) -> tuple[CalibratedBoundSearch, dict[tuple[int, int], float]]:
    """The search of a small space, and the bound of each mode of each of its schedule points."""
    space = space_of(named(name))
    whole = CalibratedBoundSearch(space, range(len(space.cells)))
    return whole, by_pair(whole.bounds(space))


@pytest.mark.parametrize("name", NAMES)
def test_bounds_are_not_exceeded_and_cover_everything_that_runs(name: str) -> None:
    whole, bounds = bounds_of(name)
    rows: pd.DataFrame = explored(name).rows.table(["id", "sample_rate"]).to_pandas()
    best: dict[int, float] = {}
    for execution, rate in zip(rows["id"].tolist(), rows["sample_rate"].tolist(), strict=True):
        (site,) = whole.point_of(execution).tolist()
        best[site] = max(rate, best.get(site, 0.0))
    most = highest(bounds)
    assert set(most) == set(best)
    for site, rate in best.items():
        assert most[site] >= rate * (1 - 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_sites_are_left_out_only_where_none_of_their_bounds_is_high_enough(name: str) -> None:
    space = space_of(named(name))
    whole, every = bounds_of(name)
    best = highest(every)
    for share in (0.5, 0.9, 1.0):
        least = float(np.quantile(list(every.values()), share))
        with working_in(WorkSizes(modes_bounded=300, first_points=3)):
            found = by_pair(whole.bounds(space, lambda: least))  # noqa: B023
        sites = {site for site, _ in found}
        assert found == {pair: rate for pair, rate in every.items() if pair[0] in sites}
        assert {site for site, rate in best.items() if rate >= least} <= sites
        if share == 1.0 and len(best) > 30:
            assert len(sites) < len(best) / 2
    # The most promising first: what the first part has is not far from the best.
    first = next(iter(whole.bounds(space)))[2].max()
    assert first >= 0.9 * max(best.values())


@pytest.mark.parametrize(("name", "batches"), [("llama-3-8B", None), ("mixtral-8x7B", [16, 32, 64])])
def test_sites_alike_in_memory_need_the_same_in_every_mode(name: str, batches: list[int] | None) -> None:
    limits = {} if batches is None else {"batch_size": batches}
    base = Scenario.of(name, "h100_80g_sxm", num_procs=16, max_batch_size=64, datatype="bfloat16", limits=limits)
    space = space_of(base)
    cells = range(len(space.cells))
    whole, needs = CalibratedBoundSearch(space, cells), calibrated_row_table(space, cells).needs
    needing, needs_as = whole.alike_in_memory(space)
    like = needing[needs_as]
    assert len(np.unique(like)) < len(like) * (0.95 if batches is None else 0.6)
    for tier in needs:
        assert np.array_equal(tier, tier[:, like])
    assert whole.feasible(space) == engine.explore_scenario(base).feasible


SLOWER, SMALLER = {"hbm_bandwidth": 2000.0, "net1_bandwidth": 20.0}, {"hbm_capacity": 60.0, "matrix": 2500.0}


@pytest.mark.parametrize(
    ("model", "batch", "changed_to"),
    [("mixtral-8x7B", 64, [SLOWER]), ("llama-3-8B", 64, [SLOWER, SMALLER])],
)
def test_a_large_space_is_settled_by_little_work_and_little_memory(
    model: str, batch: int, changed_to: list[dict[str, float]]
) -> None:
    base = Scenario.of(model, max_batch_size=batch, **LARGE)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    ready = made_ready(space_of(base), "")
    first = ready.best(base.system)
    kept_memory = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert kept_memory < 8 * MIB
    assert first.id is not None
    for changes in changed_to:
        changed = whatif.changed(base, changes)
        answer = ready.best(changed.system, first.id)
        found = engine.explore_scenario(changed)
        # Reading one rate from the rows would explore once more.
        (kept_rate,) = found.evaluate_ids([first.id])["sample_rate"].tolist()
        assert_found(answer, found, kept_rate)
        assert answer.evaluated < answer.feasible / 5
