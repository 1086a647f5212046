"""Percentages of comparisons: at most three digits, true to them, the same in planners and on pages."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.words.numbers import signed_percent
from engine.columns.percentages import format_percent
from engine.planners import elastic


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.13689, "13.7 %"),
        (11.022, "1,100 %"),
        (0.3, "30 %"),
        (0.0387, "3.9 %"),
        (0.000123, "0.012 %"),
        (1e-9, "under 0.001 %"),
        (0.0, "0 %"),
        (0.99996, "100 %"),
    ],
)
def test_a_comparison_has_at_most_three_digits(fraction: float, text: str) -> None:
    assert format_percent(fraction) == text


def _digits(text: str) -> str:
    return re.sub(r"[^0-9]", "", text).lstrip("0")


@given(st.floats(0.00001, 1e6))
def test_every_comparison_is_short_and_true_to_its_digits(fraction: float) -> None:
    for text in (format_percent(fraction), signed_percent(fraction)):
        if text == "±0":
            continue
        assert len(_digits(text).rstrip("0")) <= 3
        number = float(re.sub(r"[^0-9.]", "", text))
        assert number == pytest.approx(100 * fraction, rel=0.051, abs=0.051)


def test_reasons_of_plans_have_short_comparisons() -> None:
    table = elastic.best_plan("llama7_bsz16", placement="8888", cpu_threads=2).table
    reasons = [each for each in table["reason"] if "longer iteration" in each]
    assert len(reasons) > 3
    assert all(len(_digits(each).rstrip("0")) <= 3 for each in reasons)
