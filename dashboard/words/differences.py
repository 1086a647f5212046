"""Differences of figures: threshold of a change, its words and its colours."""

from __future__ import annotations

import math
from typing import Any, Final

from dashboard.words.numbers import format_delta
from engine.columns import Column

__all__ = ["RESOLUTION", "UNCHANGED", "change_text", "gain_tone", "is_change"]

RESOLUTION: Final = 5e-4
"""Smallest share of a quantity that counts as a change: what rounds to 0.1 %. Smaller differences are rounding of the
arithmetic, and far below the error of any cost model."""
UNCHANGED: Final = "±0"


def is_change(change: float, whole: float) -> bool:
    """Returns whether a difference is large enough to count.

    Args:
        change: difference of two quantities, or of parts of them; absent where it is not a number.
        whole: the quantity that it is a difference of, such as the step that a part belongs to, in the same unit.
    """
    return math.isinf(change) or abs(change) >= RESOLUTION * abs(whole)


def change_text(column: Column | str, change: Any, whole: float) -> str:
    """Returns a signed difference with its unit, "±0" where it does not count: "+32.9 ms", not "−0.000444 ps".

    Args:
        column: of the quantity.
        change: difference, in the column's base unit.
        whole: the quantity that it is a difference of, as for `is_change`.
    """
    known = isinstance(change, int | float) and not math.isnan(change)
    return UNCHANGED if known and not is_change(float(change), whole) else format_delta(column, change)


def gain_tone(gain: float) -> str:
    """Returns the tone of a relative gain: "better", "worse", or none where it does not count or is unknown.

    Args:
        gain: of the new over the old, less 1; more is better [fraction].
    """
    if not is_change(gain, 1.0):
        return ""
    return "better" if gain > 0 else "worse" if gain < 0 else ""
