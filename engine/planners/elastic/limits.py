"""Limits of resources, as people write them, checked."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Final

from engine.planners.contract import PlanError
from models.documents import shown

__all__ = ["checked_bandwidth", "checked_threads", "checked_whole"]

MOST_THREADS: Final = 100_000
"""Most CPU threads per GPU. Source: stated by us."""
MOST_BANDWIDTH: Final = 1e6
"""Largest bandwidth that a limit may have. Source: stated by us."""


def checked_whole(value: Any, what: str, low: int, high: int) -> int:
    """Returns a whole number from `low` to `high`.

    Args:
        value: any value.
        what: it is, as a sentence begins: "CPU threads per GPU are".
        low, high: least and most.

    Raises `engine.planners.contract.PlanError` otherwise.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) <= high:
        raise PlanError(f"{what} {shown(value)}; give a whole number from {low:,} to {high:,}.")
    return int(value)


def checked_threads(value: Any) -> int:
    """Returns the CPU threads per GPU, as `checked_whole` does.

    Args:
        value: any value.
    """
    return checked_whole(value, "CPU threads per GPU are", 1, MOST_THREADS)


def checked_bandwidth(value: Any) -> float:
    """Returns a limit of bandwidth, 0 for none.

    Args:
        value: any value.

    Raises `engine.planners.contract.PlanError` for a value that is not a number from 0 to a million.
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= MOST_BANDWIDTH:
        raise PlanError(f"The bandwidth is {shown(value)}; give a number from 0 (no limit) to {MOST_BANDWIDTH:,.0f}.")
    return float(value)
