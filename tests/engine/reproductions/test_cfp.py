"""CFP's published runs and volumes, and the plans that it runs, beside ours."""

from __future__ import annotations

from typing import Any

import pytest

from engine.planners.intra_operator import search
from engine.reproductions.cfp.candidates import run_time_candidates
from engine.reproductions.cfp.comparison import published_runs, published_volumes

A100: dict[str, Any] = {"devices": 4, "bandwidth": 20.65e9, "matrix_rate": 83.8e12}


def test_published_volumes_stand_beside_counted_ones() -> None:
    found = published_volumes().set_index("vector")
    assert list(found["reproduced"]) == [False, False, True, False]
    assert [round(each, 2) for each in found["ratio"]] == [0.64, 0.63, 0.96, 0.64]
    rates = [round(each / 1e9, 1) for each in found["bytes_per_second"][:3]]
    assert rates == [20.7, 5.9, 15.7]


def test_published_runs_have_the_printed_throughputs() -> None:
    found = published_runs()
    # Printed from times of more than the eight digits that are printed.
    printed = [203.33177455599028, 118.31206101529366, 157.54991020463305]
    assert list(found["tflops"]) == pytest.approx(printed, rel=1e-7)
    assert list(found["devices"]) == [4, 4, 8]
    assert found["speedup"].iloc[0] == pytest.approx(0.37685599 / 0.29200369)


def test_the_search_is_the_fastest_of_the_plans_that_cfp_runs() -> None:
    found = run_time_candidates(search("gpt F", A100, batch=16, layers=2)).set_index("candidate")
    seconds = found["seconds"]
    assert seconds["search"] == pytest.approx(seconds.min(), rel=1e-12)
    assert {"template 1,1,1,1", "template 0,1,1,1", "template 0,1,0,2", "fastest of each segment"} < set(found.index)
    assert seconds.is_monotonic_increasing
    assert seconds["fastest of each segment"] > 1.1 * seconds["search"]  # alone, a segment needs no resharding
    few = run_time_candidates(search("gpt F", A100, batch=2, layers=2)).set_index("candidate")
    assert few.loc["template 1,1,1,1", "reason"] == "qk splits 2 sequences, no multiple of 4 devices."
    assert few["seconds"].isna()["template 1,1,1,1"]
