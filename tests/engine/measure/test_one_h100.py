"""What `shardscape measure` timed on one H100, which no formula of ours made: the file in `tests/reference`."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np
import pytest

import hardware
from engine.cost_models.calibrated import library_calibration
from engine.measure import Samples, load_samples, measured_calibration, measured_system
from hardware import Calibration

ROOT = Path(__file__).parents[3]
PEAK, BANDWIDTH = 989e12, 3350e9
"""Of NVIDIA's datasheet of the H100 SXM: dense BF16 [FLOP/s], memory [B/s]."""


@cache
def samples() -> Samples:
    return load_samples(ROOT / "tests/reference/one_h100.samples.json")


@cache
def calibration() -> Calibration:
    parent = hardware.load("h100_80g_sxm")
    return measured_calibration(samples(), measured_system(samples(), parent, "one_h100"), "one_h100")


def value(name: str) -> float:
    found = calibration().parameters[name]
    assert found.kind == "measured"
    return found.value


def test_products_of_all_shapes_are_described_by_rate_and_depth() -> None:
    """The formula written out: nothing is lost at the last wave on this machine, and a short sum costs its length."""
    error = [
        100
        * (
            2 * each.m * each.n * each.k / (value("sustained_hopper") * PEAK) * (1 + value("depth") / each.k)
            + value("kernel_start")
        )
        / each.time.seconds
        - 100
        for each in samples().products
        if each.datatype == "bfloat16" and each.m * each.n * each.k > 1024**3
    ]
    assert value("wave") == 0.0
    assert len(error) == 12
    assert np.abs(error).max() < 8.0
    assert np.abs(error).mean() < 2.5


def test_the_share_of_the_memory_rate_is_that_of_transfers_no_cache_holds() -> None:
    shares = [each.moved / each.time.seconds / BANDWIDTH for each in samples().transfers if each.moved > 9e8]
    assert len(shares) == 4
    assert value("memory") == pytest.approx(median(shares))


def test_what_was_fitted_to_training_steps_is_near_what_single_operations_reach() -> None:
    """The library's values come from steps of whole clusters, these from one idle accelerator."""
    library = library_calibration().parameters
    for name in ("sustained_hopper", "memory", "eight_bit", "attention", "foreign_kernel"):
        assert value(name) == pytest.approx(library[name].value, rel=0.15), name


def test_the_guide_tells_the_values_of_this_file() -> None:
    guide = (ROOT / "dashboard/guide/measuring.md").read_text(encoding="utf-8")
    told = {
        name: (float(measured), float(fitted))
        for name, measured, fitted in re.findall(r"^\| [^|]*\(`(\w+)`\) \| ([\d.]+) \| ([\d.]+) \|$", guide, re.M)
    }
    library = library_calibration().parameters
    assert set(told) == {"sustained_hopper", "memory", "eight_bit", "attention", "foreign_kernel"}
    assert told == {name: (round(value(name), 2), round(library[name].value, 2)) for name in told}


def test_timings_that_repeat_are_not_called_those_of_a_busy_machine() -> None:
    """Short sequences are slower than the formula says, again and again: measuring once more would not help."""
    ends = tuple(each for each in samples().attentions if each.sequence in (1_024, 16_384))
    doubted = samples().model_copy(update={"attentions": ends})
    parent = hardware.load("h100_80g_sxm")
    notes = measured_calibration(doubted, measured_system(doubted, parent, "one_h100"), "one_h100").notes
    assert any("repeats within" in note and "attention" in note for note in notes)
    assert not any("idle machine" in note for note in notes)
