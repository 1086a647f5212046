"""Thresholds of recommendations from the errors of predicted times and of predicted memory.

Without measured runs, as under a cost model that predicts no measurement, default values apply; both can be
given instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.columns import Fit
from engine.scenarios.scenario import Scenario
from engine.validation.uncertainty import Interval, interval_of, memory_interval_of
from hardware import GIB
from models.documents import shown

__all__ = ["UNTOLD_ERROR", "UNTOLD_HEADROOM", "Fit", "Terms", "fit_of", "terms_of"]

UNTOLD_ERROR: Final = 0.05
"""Share of the throughput within which executions count as equal, without measured runs."""
UNTOLD_HEADROOM: Final = 0.1
"""Share of the predicted memory to keep free in addition, without measured runs."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a recommendation.

    `error`: differences of throughput up to this share are too close to call; `headroom`: predicted memory and this
    share of it have to fit. `time` and `memory` are the intervals that the two come from; None where they were given,
    or are defaults without measured runs. `offload`, `unmeasured`: whether executions that offload, or that rest
    on anything never measured, may be recommended.
    """

    error: float
    headroom: float
    time: Interval | None
    memory: Interval | None
    offload: bool = False
    unmeasured: bool = False


def terms_of(
    scenario: Scenario,
    execution: Mapping[Any, Any] | None,
    *,
    error: float | None = None,
    headroom: float | None = None,
    offload: bool = False,
    unmeasured: bool = False,
) -> Terms:
    """Return the terms of a scenario, from measured runs if there are any.

    Args:
        scenario: scenario of the recommendation.
        execution: execution with measured properties only, whose intervals count, or None.
        error: share of the throughput that is too close to call, 0 to below 1; half the width of the interval of
            comparable runs if None.
        headroom: share of the predicted memory to keep free, 0 to 10; the upper end of the interval if None.
        offload: whether executions that offload may be recommended.
        unmeasured: whether executions that rest on something never measured may be.

    Raises ValueError for a share outside its range.
    """
    for name, value, most in (("error", error, 1.0), ("headroom", headroom, 10.0)):
        if value is not None and not 0.0 <= value < most:
            raise ValueError(f"{name} is {shown(value)}; it must be a share from 0 to below {most:g}, such as 0.05.")
    time = interval_of(scenario, execution) if error is None and execution is not None else None
    memory = memory_interval_of(scenario) if headroom is None else None
    if error is None:
        error = UNTOLD_ERROR if time is None else (time.high - time.low) / 2.0
    if headroom is None:
        headroom = UNTOLD_HEADROOM if memory is None else memory.high - 1.0
    return Terms(error, headroom, time, memory, offload, unmeasured)


def fit_of(
    scenario: Scenario, bytes_needed: float, headroom: float, *, second: bool = False, excess: float = 0.0
) -> Fit:
    """Returns whether predicted memory fits, with room to spare.

    Args:
        scenario: whose system has the capacity.
        bytes_needed: predicted memory of a GPU [bytes].
        headroom: share of it to keep free.
        second: whether it is memory of the second tier.
        excess: share of it that measured runs may need less, by which it may exceed the capacity and still fit.
    """
    tier = scenario.system.mem2 if second else scenario.system.mem1
    capacity = tier.capacity_gib * GIB
    if bytes_needed > capacity:
        return "may fit" if bytes_needed * (1.0 - excess) <= capacity else "does not fit"
    return "may not fit" if bytes_needed * (1.0 + headroom) > capacity else "fits"
