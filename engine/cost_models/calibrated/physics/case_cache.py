"""Cache of figures that depend on the rows of a case only, for evaluation with many parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Self, TypeVar

__all__ = ["CachedRows", "once_per_case"]

_Rows = TypeVar("_Rows", bound="CachedRows")
_Figure = TypeVar("_Figure")


@dataclass(frozen=True, slots=True)
class CachedRows:
    """Rows whose derived figures may be cached: `known` has them by function, if the rows are from `remembering`."""

    known: dict[Callable[..., Any], Any] | None = field(default=None, init=False, repr=False, compare=False)

    def remembering(self) -> Self:
        """Return the same rows with an empty cache; copies start without one."""
        rows = replace(self)
        object.__setattr__(rows, "known", {})
        return rows


def once_per_case(compute: Callable[[_Rows], _Figure]) -> Callable[[_Rows], _Figure]:
    """Return a function of a case that computes a result once for each case with a cache, and every time for others.

    It must depend on the case only, not on parameters of a calibration, and callers must not change its result: it
    returns `Mapping` and `tuple`, so that the type check finds changes.

    Args:
        compute: computes the result from a case.
    """

    @wraps(compute)
    def cached(case: _Rows) -> _Figure:
        known = case.known
        if known is None:
            return compute(case)
        if compute not in known:
            known[compute] = compute(case)
        figure: _Figure = known[compute]
        return figure

    return cached
