"""A day of a service: replicas that follow a demand over 24 hours, their hours and cost, and how many to reserve.

The day repeats. Demand is known as long before as a replica takes to start, so that replicas are ready in time.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd

from engine.executions.arrays import Floats
from engine.serving.evaluation import WorkloadError
from engine.serving.figures import HOUR, MILLION
from engine.serving.queueing import loaded_replicas
from engine.serving.services import ServiceSizing, latency_columns
from models.documents import shown

__all__ = [
    "DayDemand",
    "DayRules",
    "ServedDay",
    "ServingDays",
    "best_by_size",
    "find_days",
    "follow_demand",
    "read_demand",
    "shape_demand",
]

DAY: Final = 24.0
"""Hours of a day [h]."""
MOST_ROWS: Final = 1_440
"""Rows of a demand: one per minute. Source: stated by us."""
LONGEST: Final = 200_000
"""Characters of a file with a demand. Source: stated by us."""
STEPS: Final = 288
"""Intervals of a shaped demand: five minutes each. Source: stated by us."""
HIGHEST: Final = 1e9
"""Highest demand [requests/s]. Source: the bound of `engine.serving.ServiceLoad`."""
NUMBER: Final = re.compile(r"\d{1,20}(\.\d{0,20})?([eE][+-]?\d{1,3})?|\.\d{1,20}", re.ASCII)
"""Numbers of a demand; not such as 1_000, which Python reads, too."""
TIME: Final = re.compile(rf"{NUMBER.pattern}|\d{{1,2}}(:\d{{2}}){{1,2}}(\.\d{{1,9}})?", re.ASCII)
"""Times of a demand: hours, or hours, minutes and seconds."""
ROUNDING: Final = 1e-9
"""Relative excess of a demand over a capacity that is rounding, as in `engine.serving.services`."""


@dataclass(frozen=True, slots=True)
class DayDemand:
    """Requests per second from each time on until the next, over a day that repeats: `starts` [h], ascending from 0,
    and `rates` [1/s]."""

    starts: Floats
    rates: Floats

    @property
    def lengths(self) -> Floats:
        """Lengths of the intervals [h]."""
        return np.diff(self.starts, append=DAY)

    @property
    def peak(self) -> float:
        """Highest demand [1/s]."""
        return float(self.rates.max())

    @property
    def requests(self) -> float:
        """Requests of the day."""
        return float(np.sum(self.rates * self.lengths)) * HOUR

    def highest_within(self, before: float, after: float) -> tuple[Floats, Floats]:
        """Return times [h] between which the highest demand from `before` hours ago until `after` hours ahead is
        constant, and that demand [1/s].

        Args:
            before, after: ends of the window [h].
        """
        # The window of a time meets an interval that starts up to `after` later, or ended less than `before` ago.
        cuts = np.concatenate([[0.0], self.starts, self.starts - after, self.starts + before]) % DAY
        # Rounded to microseconds, so that equal times are one.
        cuts = np.unique(np.round(cuts, 9) % DAY)
        middles = (cuts + np.append(cuts[1:], DAY)) / 2.0
        if before + after >= DAY:
            return cuts, np.full(len(cuts), self.peak)
        ends = self.starts + self.lengths
        meets = np.zeros((len(middles), len(self.starts)), bool)
        for turn in (-DAY, 0.0, DAY):
            low, high = middles[:, None] - before + turn, middles[:, None] + after + turn
            meets |= (self.starts[None, :] < high) & (ends[None, :] > low)
            meets |= (self.starts[None, :] <= middles[:, None] + turn) & (middles[:, None] + turn < ends[None, :])
        return cuts, np.max(np.where(meets, self.rates[None, :], 0.0), axis=1)


def shape_demand(peak: float, trough_share: float, peak_hour: float) -> DayDemand:
    """Return a demand that swings once a day, as a cosine, in means of five minutes.

    Args:
        peak: highest demand [1/s].
        trough_share: lowest demand over the highest, 0 to 1.
        peak_hour: time of the highest demand, 0 to 24 [h].

    Raises `WorkloadError` for a number out of range.
    """
    for name, value, least, most in (
        ("peak_rate", peak, 1e-6, HIGHEST),
        ("trough_share", trough_share, 0.0, 1.0),
        ("peak_hour", peak_hour, 0.0, DAY),
    ):
        if not least <= value <= most:
            raise WorkloadError(f"{name} is {shown(value)}; it must be from {least:g} to {most:,.0f}.")
    length = DAY / STEPS
    starts = np.arange(STEPS, dtype=np.float64) * length
    middles = starts + length / 2.0
    # Mean of 1 + cos over two is 1/2: the mean demand is half way between trough and peak.
    swing = (1.0 + np.cos(2.0 * np.pi * (middles - peak_hour) / DAY)) / 2.0
    return DayDemand(starts, np.asarray(peak * (trough_share + (1.0 - trough_share) * swing)))


def read_demand(text: str, name: str = "The demand") -> DayDemand:
    """Return a demand from a CSV table.

    Args:
        text: with the columns time (hours such as 13.5, or 13:30) and requests_per_second. A row counts until the next
            one; the last until the first of the next day.
        name: of the file, for messages.

    Raises `WorkloadError` with one sentence for a missing column, a wrong value, or times that go back.
    """
    if len(text) > LONGEST:
        raise WorkloadError(f"{name} has {len(text):,} characters; it must have at most {LONGEST:,}.")
    try:
        table = pd.read_csv(io.StringIO(text), dtype=str, skipinitialspace=True, nrows=MOST_ROWS + 1, na_filter=False)
    except (ValueError, UnicodeError):
        raise WorkloadError(f"{name} is not a CSV table; it needs the columns time and requests_per_second.") from None
    if not isinstance(table.index, pd.RangeIndex):
        # With more cells than names, pandas would take the first cells for names of rows.
        raise WorkloadError(f"{name} has rows with more cells than the header; give each column a name.")
    columns = {str(column).strip(): column for column in table.columns}
    for column in ("time", "requests_per_second"):
        if column not in columns:
            found = ", ".join(each[:40] for each in list(columns)[:8])
            raise WorkloadError(f"{name} has no column {column}; its columns are {found}.")
    if not 1 <= len(table) <= MOST_ROWS:
        number = "no rows" if not len(table) else f"more than {MOST_ROWS:,} rows"
        raise WorkloadError(f"{name} has {number}; it needs 1 to {MOST_ROWS:,}, one per minute at most.")
    times, rates = (table[columns[each]].tolist() for each in ("time", "requests_per_second"))
    starts = np.array([_read_time(each, f"{name}, row {row:,}") for row, each in enumerate(times, 1)])
    values = np.array([_read_rate(each, f"{name}, row {row:,}") for row, each in enumerate(rates, 1)])
    back = np.flatnonzero(np.diff(starts) <= 0)
    if len(back):
        row = int(back[0]) + 2
        raise WorkloadError(f"{name}, row {row:,} is not after row {row - 1:,}; sort the rows by time.")
    if not values.any():
        raise WorkloadError(f"{name} is 0 all day; it needs a row with requests.")
    if starts[0] > 0.0:
        # The last row of the day before counts until the first.
        starts, values = np.append(0.0, starts), np.append(values[-1], values)
    return DayDemand(starts, values)


def _read_time(value: Any, where: str) -> float:
    """Return a time of the day [h]."""
    text = str(value).strip()
    parts = [float(each) for each in text.split(":")] if TIME.fullmatch(text) else [math.nan]
    minutes = parts[1:]
    hours = sum(part / 60**place for place, part in enumerate(parts))
    if not all(0 <= part < 60 for part in minutes) or not 0 <= hours < DAY:
        raise WorkloadError(f"{where}: time is {shown(text)}; it must be from 0 to below 24 hours, or such as 13:30.")
    return float(hours)


def _read_rate(value: Any, where: str) -> float:
    text = str(value).strip()
    rate = float(text) if NUMBER.fullmatch(text) else math.nan
    if not 0 <= rate <= HIGHEST:
        raise WorkloadError(
            f"{where}: requests_per_second is {shown(text)}; it must be a number from 0 to {HIGHEST:,.0f}."
        )
    return rate


@dataclass(frozen=True, slots=True)
class DayRules:
    """Rules for replicas over a day. A replica here is one deployment of a service.

    Attributes:
        start_up_s: from the start of a replica until it serves [s]. It is paid.
        scale_down_s: for which a replica goes on after it was last needed [s].
        least, most: replicas; None for no upper bound.
        most_procs: GPUs at once.
        price: on demand [USD per GPU-hour]; not a number where unknown.
        reserved_price: of a GPU that is paid all day [USD per GPU-hour]; None where GPUs cannot be reserved.
    """

    start_up_s: float = 300.0
    scale_down_s: float = 300.0
    least: int = 1
    most: int | None = None
    most_procs: int = 4096
    price: float = math.nan
    reserved_price: float | None = None

    def __post_init__(self) -> None:
        """Raise `WorkloadError` for rules that contradict each other, or for a number out of range."""
        for name in ("start_up_s", "scale_down_s"):
            if not 0 <= getattr(self, name) <= DAY * HOUR:
                raise WorkloadError(f"{name} is {shown(getattr(self, name))}; it must be from 0 to 86,400 seconds.")
        if self.least < 0 or (self.most is not None and self.most < max(self.least, 1)):
            raise WorkloadError(
                f"At least {self.least:,} and at most {shown(self.most)} replicas contradict each other; raise the "
                "most or lower the least."
            )
        if self.reserved_price is not None and not self.price >= 0:
            raise WorkloadError(
                "The system has no recorded price to compare the reserved price with; give a price on demand, too."
            )


@dataclass(frozen=True)
class ServedDay:
    """A day of one deployment: `starts` [h] of the times between which `replicas` and `ready` ones are constant.

    `replicas` are paid, whether they serve, start or wait for their end. `row` has the fields of the
    deployment, with `capacity`, the most requests per second of a replica within the limits, and `size`, its GPUs.
    """

    demand: DayDemand
    rules: DayRules
    row: Mapping[str, Any]
    output: int
    size: int
    capacity: float
    most: int
    starts: Floats
    replicas: Floats
    ready: Floats

    @property
    def lengths(self) -> Floats:
        """Lengths of the intervals [h]."""
        return np.diff(self.starts, append=DAY)

    @cached_property
    def rates(self) -> Floats:
        """Demand of each interval [1/s]."""
        middles = self.starts + self.lengths / 2.0
        return self.demand.rates[np.searchsorted(self.demand.starts, middles, side="right") - 1]

    @cached_property
    def served(self) -> Floats:
        """Requests per second that are served within the limits [1/s]."""
        return np.minimum(self.rates, self.most * self.capacity)

    @property
    def peak_replicas(self) -> int:
        """Most replicas at once."""
        return int(self.replicas.max())

    @property
    def replica_range(self) -> str:
        """Replicas over the day in words: "3 to 8", or "2" all day."""
        least, most = int(self.replicas.min()), self.peak_replicas
        return f"{most:,}" if least == most else f"{least:,} to {most:,}"

    @property
    def replica_hours(self) -> float:
        """Hours of all replicas, starting ones included [h]."""
        return float(np.sum(self.replicas * self.lengths))

    @property
    def served_requests(self) -> float:
        """Requests of the day that are served within the limits."""
        return float(np.sum(self.served * self.lengths)) * HOUR

    @property
    def unserved_requests(self) -> float:
        """Requests of the day beyond the most replicas."""
        return max(self.demand.requests - self.served_requests, 0.0) if self.is_short else 0.0

    @property
    def is_short(self) -> bool:
        """True if demand exceeds the most replicas at some time."""
        return self.demand.peak > self.most * self.capacity * (1.0 + ROUNDING)

    @cached_property
    def reserved(self) -> int:
        """Replicas to reserve for the lowest cost; the fewest of equal ones.

        Replica k is worth it if its hours of use at the price on demand cost more than 24 h at the reserved price.
        """
        if self.rules.reserved_price is None or self.rules.price <= 0:
            return 0
        order = np.argsort(-self.replicas, kind="stable")
        # Hours for which at least so many replicas are in use.
        hours = np.cumsum(self.lengths[order])
        worth = hours > self.break_even_hours * (1.0 + ROUNDING)
        return int(self.replicas[order][np.argmax(worth)]) if worth.any() else 0

    @property
    def break_even_hours(self) -> float:
        """Hours of use a day above which a reserved replica is cheaper [h]; infinite without a reserved price."""
        price, reserved = self.rules.price, self.rules.reserved_price
        return math.inf if reserved is None or price <= 0 else DAY * reserved / price

    def cost_with(self, reserved: int) -> float:
        """Return the cost of the day with so many reserved replicas [USD]; not a number without a price.

        Args:
            reserved: replicas that are paid all day.
        """
        beyond = float(np.sum(np.maximum(self.replicas - reserved, 0.0) * self.lengths))
        fixed = 0.0 if not reserved else DAY * reserved * float(self.rules.reserved_price or 0.0)
        return self.size * (self.rules.price * beyond + fixed)

    @cached_property
    def cost(self) -> float:
        """Lowest cost of the day [USD]; not a number without a price."""
        return self.cost_with(self.reserved)

    @property
    def constant_cost(self) -> float:
        """Cost of the most replicas on demand all day [USD]."""
        return self.size * self.rules.price * self.peak_replicas * DAY

    def figures(self) -> dict[str, float | int]:
        """Return the figures of the day by name; not a number, or infinite, for unknown ones."""
        hours, tokens = self.size * self.replica_hours, self.served_requests * self.output
        return {
            "replicas_at_peak": self.peak_replicas,
            "replicas_at_trough": int(self.replicas.min()),
            "gpus_at_peak": self.size * self.peak_replicas,
            "replica_hours": self.replica_hours,
            "gpu_hours": hours,
            "requests": self.demand.requests,
            "served_requests": self.served_requests,
            "unserved_requests": self.unserved_requests,
            "output_tokens": tokens,
            "reserved_replicas": self.reserved,
            "break_even_h": self.break_even_hours,
            "usd": self.cost,
            "usd_on_demand": self.cost_with(0),
            "usd_all_reserved": (
                self.cost_with(self.peak_replicas) if self.rules.reserved_price is not None else math.nan
            ),
            "usd_constant": self.constant_cost,
            "usd_per_million_tokens": self.cost / tokens * MILLION if tokens else math.nan,
        }


def follow_demand(
    demand: DayDemand, rules: DayRules, row: Mapping[str, Any], *, size: int, capacity: float, output: int
) -> ServedDay | None:
    """Return the day of a deployment; None if not even one replica may run.

    Args:
        demand: of the day.
        rules: for its replicas.
        row: fields of the deployment.
        size: its GPUs.
        capacity: most requests per second of a replica within the limits [1/s].
        output: tokens of a request.
    """
    most = rules.most_procs // size if rules.most is None else min(rules.most, rules.most_procs // size)
    if most < max(rules.least, 1):
        return None
    before, after = rules.scale_down_s / HOUR, rules.start_up_s / HOUR
    # A replica that is needed at some time is paid from its start until its end. Those that are needed are always the
    # first ones, so that the number of paid ones is the highest need within the window around a time.
    starts, highest = demand.highest_within(before, after)
    cuts, recent = demand.highest_within(before, 0.0)
    middles = (starts + np.append(starts[1:], DAY)) / 2.0
    needed = recent[np.searchsorted(cuts, middles, side="right") - 1]

    def count(rates: Floats) -> Floats:
        return np.clip(np.ceil(rates / capacity * (1.0 - ROUNDING)), rules.least, most)

    return ServedDay(demand, rules, row, output, size, capacity, most, starts, count(highest), count(needed))


@dataclass(frozen=True)
class ServingDays:
    """Days of the best deployment of each number of GPUs, the fewest unserved requests first, then the lowest cost.

    `sizing` has the deployments that hold the limits.
    """

    demand: DayDemand
    rules: DayRules
    sizing: ServiceSizing
    days: tuple[ServedDay, ...]
    holding: int
    """Deployments that hold the limits."""
    smallest: int
    """GPUs of the smallest of them."""

    @property
    def best(self) -> ServedDay | None:
        """The day with the fewest unserved requests, of these the cheapest; None if no deployment holds the limits."""
        return self.days[0] if self.days else None

    @property
    def order(self) -> str:
        """The order of `days` in words."""
        return f"requests not served, then {'cost' if math.isfinite(self.rules.price) else 'GPU-hours'}"

    @property
    def obstacle(self) -> str:
        """Explains why there is no day; "" if there is one."""
        if self.days:
            return ""
        if not self.holding:
            return self.sizing.obstacle or "No deployment holds all limits, even without load; raise a limit."
        least = max(self.rules.least, 1)
        return (
            f"The smallest deployment within the limits needs {self.smallest * least:,} GPUs for {least:,} "
            f"replica{'s' if least > 1 else ''}, but at most {self.rules.most_procs:,} may be used."
        )

    @cached_property
    def hours(self) -> pd.DataFrame:
        """The best day over time [h]: demand [1/s], served, replicas, those ready, GPUs, and latencies [s] at the
        mean and at the level of the limits; empty without a day."""
        day = self.best
        if day is None:
            return pd.DataFrame()
        count = len(day.starts)
        ready = np.maximum(day.ready, 1.0)
        profile = self.sizing.profile.take(np.full(count, int(day.row["profile"])))
        # Without requests there is no latency to speak of: the one of an idle replica is shown.
        load = np.maximum(day.served / ready, 1e-9)
        found = loaded_replicas(profile, self.sizing.load, load, ready)
        level = self.sizing.limits.level
        names = [f"{name}_{each}" for name in ("first_token", "per_token") for each in dict.fromkeys(("mean", level))]
        latencies = latency_columns(found)
        return pd.DataFrame(
            {
                "time": day.starts,
                "requests_per_second": day.rates,
                "served_per_second": day.served,
                "replicas": day.replicas.astype(np.int64),
                "ready": day.ready.astype(np.int64),
                "gpus": (day.size * day.replicas).astype(np.int64),
                **{name: latencies[name] for name in names},
            }
        )


def _sizes(table: pd.DataFrame) -> Floats:
    """Return the GPUs of a deployment [rows]."""
    return np.asarray(table["gpus"].to_numpy(np.float64) / table["deployments"].to_numpy(np.float64))


def best_by_size(sizing: ServiceSizing) -> list[tuple[int, float, dict[str, Any]]]:
    """Return for each number of GPUs the deployment that holds the highest load within the limits: GPUs, that load
    [1/s], and its fields and figures.

    Args:
        sizing: services that hold the limits, sized for an open load.
    """
    table = sizing.table
    capacity = table["most_load"].to_numpy(np.float64) / table["deployments"].to_numpy(np.float64)
    sizes = _sizes(table)
    found = []
    for size in np.unique(sizes):
        place = int(np.argmax(np.where(sizes == size, capacity, 0.0)))
        row = {str(name): value for name, value in table.iloc[place].items()}
        found.append((int(size), float(capacity[place]), row))
    return found


def find_days(demand: DayDemand, rules: DayRules, sizing: ServiceSizing) -> ServingDays:
    """Return the days of the best deployment of each number of GPUs.

    Of deployments with equally many GPUs, the one with the highest load within the limits needs the fewest replicas at
    every time, so that the others are not looked at.

    Args:
        demand: of the day.
        rules: for replicas.
        sizing: services that hold the limits, sized for an open load.
    """
    table = sizing.table
    sizes = _sizes(table)
    days = []
    for size, capacity, row in best_by_size(sizing):
        day = follow_demand(demand, rules, row, size=size, capacity=capacity, output=sizing.output)
        if day is not None:
            days.append(day)
    days.sort(key=lambda day: (day.unserved_requests, _rank(day), day.size * day.peak_replicas))
    smallest = int(sizes.min()) if len(sizes) else 0
    return ServingDays(demand, rules, sizing, tuple(days), len(table), smallest)


def _rank(day: ServedDay) -> float:
    """Return the cost, or the GPU-hours without a price."""
    return day.cost if math.isfinite(day.cost) else day.size * day.replica_hours
