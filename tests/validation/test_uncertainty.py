"""Intervals come from unseen comparable runs, widen with the share, and say what they rest on."""

from __future__ import annotations

import numpy as np
import pytest

from engine.validation.uncertainty import LEAST_ROWS, interval, residuals


@pytest.mark.parametrize("generation", ["ampere", "hopper", "blackwell", "other"])
@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("fully_sharded", [False, True])
def test_every_kind_has_an_interval_around_one(generation: str, experts: bool, fully_sharded: bool) -> None:
    narrow = interval(generation=generation, experts=experts, fully_sharded=fully_sharded, share=0.5)
    wide = interval(generation=generation, experts=experts, fully_sharded=fully_sharded, share=0.9)
    assert wide.low <= narrow.low <= narrow.high <= wide.high
    assert wide.low < 1 < wide.high
    assert wide.rows >= LEAST_ROWS


def test_it_is_a_quantile_of_comparable_runs() -> None:
    table = residuals()
    rows = table[(table["generation"] == "hopper") & ~table["experts"] & ~table["fully_sharded"]]
    found = interval(generation="hopper", experts=False, fully_sharded=False)
    assert found.rows == len(rows)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(rows["ratio"], [0.1, 0.9])))
    assert interval(generation="other", experts=False, fully_sharded=False).described == "all runs"


def test_mixtures_of_experts_are_less_certain() -> None:
    dense, sparse = (interval(generation="blackwell", experts=kind, fully_sharded=False) for kind in (False, True))
    assert sparse.high / sparse.low > dense.high / dense.low


def test_shares_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="share is 1"):
        interval(generation="hopper", experts=False, fully_sharded=False, share=1.0)
