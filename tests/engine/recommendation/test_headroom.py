"""How much memory stays free beside a recommended execution, stated once more for one execution at a time."""

from __future__ import annotations

from functools import cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

import pytest

import engine
from engine.executions.codes import OFFLOADS
from engine.recommendation import fit_of, mechanisms_of, recommend
from tests.engine.cost_models.calibrated.small import explored, named

GIB = 2**30
ASKED: dict[str, Any] = {"error": 0.6, "unmeasured": True}
"""Terms by which memory decides: many executions are too close to call, none is refused for want of measurements."""
TIERS = ("proc_mem_tier1_cap_req", "proc_mem_tier2_cap_req")


class Row(NamedTuple):
    """An execution that runs."""

    id: int
    rate: float
    needs: tuple[float, float]
    offloads: bool
    mechanisms: int


@cache
def rows(name: str) -> list[Row]:
    """All executions that run."""
    found = explored(name).rows.table().to_pandas()
    texts = found.select_dtypes("category").columns
    return [
        Row(
            row["id"],
            row["sample_rate"],
            (row[TIERS[0]], row[TIERS[1]]),
            any(row[each] for each in OFFLOADS),
            len(mechanisms_of(row)),
        )
        for row in found.astype({str(column): object for column in texts}).to_dict("records")
    ]


def capacities(name: str) -> tuple[float, float]:
    system = named(name).system
    return system.mem1.capacity_gib * GIB, system.mem2.capacity_gib * GIB


def by_hand(name: str, headroom: float, offload: bool) -> set[int]:
    """The simplest executions within 60 % of the best that leave enough of both memories free, and of those the
    fastest."""
    first, second = capacities(name)
    allowed = [
        row
        for row in rows(name)
        if first - row.needs[0] >= headroom * row.needs[0] and second - row.needs[1] >= headroom * row.needs[1]
        if offload or not row.offloads
    ]
    if not allowed:
        return set()
    # Where none comes within the error of the fastest, the fastest of those allowed takes its place.
    fastest, best = max(row.rate for row in allowed), max(row.rate for row in rows(name))
    floor = (best if fastest >= best / 1.6 else fastest) / 1.6
    close = [row for row in allowed if row.rate >= floor]
    fewest = min(row.mechanisms for row in close)
    rate = max(row.rate for row in close if row.mechanisms == fewest)
    return {row.id for row in close if row.mechanisms == fewest and row.rate == rate}


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("name", ["dense", "experts"])
def test_as_much_memory_as_asked_for_stays_free(name: str, offload: bool) -> None:
    """Between headrooms at which one more execution fits, what is recommended is the same as by hand."""
    edges = {
        capacity / need - 1.0
        for row in rows(name)
        for capacity, need in zip(capacities(name), row.needs, strict=True)
        if need and (offload or not row.offloads)
    }
    gaps = [(below, above) for below, above in pairwise(sorted(edges)) if above < 9.0 and above - below > 1e-6]
    expected = {(below + above) / 2: set[int]() for below, above in gaps[:: max(1, len(gaps) // 24)]}
    expected = {headroom: by_hand(name, headroom, offload) for headroom in expected}
    # One headroom on each side of every change.
    changes = [pair for pair in pairwise(expected) if expected[pair[0]] != expected[pair[1]]]
    assert len(changes) >= 2, "headroom decides nothing here"
    for headroom in dict.fromkeys(chain(*changes[:4], *changes[-2:])):
        found = recommend(explored(name), headroom=headroom, offload=offload, **ASKED)
        assert ({found.execution["id"]} if found.execution else set()) <= expected[headroom], headroom
        assert (found.execution is None) == (not expected[headroom]), headroom
    headroom = changes[0][1]
    searched = recommend(named(name), headroom=headroom, offload=offload, **ASKED)
    assert ({searched.execution["id"]} if searched.execution else set()) <= expected[headroom]


def test_a_share_of_what_is_needed_has_to_be_left() -> None:
    """80 GiB with 25 % kept free take 64 GiB; without measured runs 10 % is kept free, and 5 % is too close to call."""
    scenario = engine.Scenario.of(
        "gpt2-xl", "a100_80g", num_procs=8, max_batch_size=8, datatype="float16", cost_model="calculon"
    )
    fits = {need: fit_of(scenario, need * GIB, 0.25) for need in (60.0, 64.0, 64.01, 80.0, 80.01)}
    assert list(fits.values()) == ["fits", "fits", "may not fit", "may not fit", "does not fit"]
    host = scenario.system.mem2.capacity_gib
    assert fit_of(scenario, host / 1.25 * GIB, 0.25, second=True) == "fits"
    assert fit_of(scenario, host / 1.24 * GIB, 0.25, second=True) == "may not fit"
    terms = recommend(scenario).terms
    assert (terms.error, terms.headroom) == (0.05, 0.1)
