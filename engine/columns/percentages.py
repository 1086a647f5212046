"""Percentages of comparisons as text, in one way for planners, commands and pages."""

from __future__ import annotations

import math

__all__ = ["format_percent"]

_LEAST = 0.001
"""Smallest percentage that is written out."""


def format_percent(fraction: float) -> str:
    """Return a share of 1 in percent, to at most three digits: "1,100 %", "13.7 %", "3.9 %", "0.012 %".

    Args:
        fraction: of a comparison, such as 0.137 for 13.7 % longer.
    """
    percent = 100.0 * fraction
    size = abs(percent)
    if percent == 0 or not math.isfinite(percent):
        return f"{percent:g} %"
    if size < _LEAST:
        return f"under {_LEAST} %"
    if size >= 99.95:
        return f"{float(f'{percent:.2e}'):,.0f} %"
    # One decimal; two digits below 1 %, where plans often differ by less than a tenth.
    return f"{percent:.1f} %".replace(".0 %", " %") if size >= 0.995 else f"{percent:.2g} %"
