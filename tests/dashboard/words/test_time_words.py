"""Where the time of a step goes, in words."""

from __future__ import annotations

import re
from typing import Any

import pytest

from dashboard.queries.step_times import differences_in_time, losses, slower_than
from tests.dashboard.page_runs import exploration, plainly, run

STEP: dict[str, Any] = {
    "training": True,
    "batch_size": 8,
    "sample_rate": 4.0,
    "total_time": 2.0,
    "tensor_par": 2,
    "pipeline_par": 4,
    "data_par": 1,
    "fw_time": 0.5,
    "bw_time": 1.0,
    "bubble_time": 0.3,
    "tp_comm_exposed_time": 0.1,
    "recomm_exposed_time": 0.04,
    "dp_comm_exposed_time": 0.04,
    "optim_step_time": 0.018,
    "recompute_time": 0.002,
}


def test_losses_are_shares_of_the_step() -> None:
    told = plainly(losses(STEP))
    assert told == (
        "**75.0 %** of the step is forward and backward. Lost most to pipeline bubble 15.0 %, TP comm., exposed 7.0 %, "
        "DP comm., exposed 2.0 %."
    )


def test_a_step_without_losses_says_so() -> None:
    told = losses(
        {
            **STEP,
            "total_time": 0.5,
            "fw_time": 0.5,
            "training": False,
            "bw_time": 0.0,
            "bubble_time": 0.0,
            "tp_comm_exposed_time": 0.0,
            "recomm_exposed_time": 0.0,
            "dp_comm_exposed_time": 0.0,
            "optim_step_time": 0.0,
            "recompute_time": 0.0,
        }
    )
    assert plainly(told) == "**100.0 %** of the step is forward. No other part is large."


def test_a_slower_execution_says_by_what() -> None:
    # Twice the batch in 4.4 s: 2.2 s for as many samples as the best takes 2 s for.
    slow = {
        **STEP,
        "batch_size": 16,
        "sample_rate": 16 / 4.4,
        "total_time": 4.4,
        "fw_time": 1.0,
        "bw_time": 2.0,
        "bubble_time": 1.0,
        "tp_comm_exposed_time": 0.2,
        "recomm_exposed_time": 0.08,
        "dp_comm_exposed_time": 0.08,
        "optim_step_time": 0.036,
        "recompute_time": 0.004,
    }
    told = plainly(slower_than(STEP, slow))
    assert told == "A sample takes **10.0 %** longer than in the fastest, TP 2 × PP 4 × DP 1: pipeline bubble +200 ms."
    assert slower_than(STEP, dict(STEP)) == ""
    assert differences_in_time(STEP, STEP) == "no part of the step changes"


def test_the_panel_says_why() -> None:
    def captions(link: dict[str, str]) -> str:
        page = run("explore", exploration(), {"figures": "fastest", **link})
        return plainly(" ".join(caption.value for caption in page.caption))

    found = exploration()
    best = found.best
    assert best is not None
    share = (best["fw_time"] + best["bw_time"]) / best["total_time"]
    assert f"**{100 * share:.1f} %** of the step is forward and backward" in captions({})
    cells = found.by_cell()
    other = cells[cells["feasible"] > 0].sort_values("value").iloc[0]
    told = captions({"cell": f"{other['tensor_par']}x{other['pipeline_par']}"})
    behind = re.search(r"takes \*\*([\d.,]+) %\*\* longer than in the fastest", told)
    assert behind is not None
    expected = 100 * (best["sample_rate"] / other["value"] - 1)
    assert float(behind.group(1).replace(",", "")) == pytest.approx(expected, abs=0.05)
