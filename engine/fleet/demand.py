"""Demand of a service by hour: tables of hours or of times of a day, and the highest rate of each hour."""

from __future__ import annotations

import csv
import io
from typing import Final

import numpy as np

from engine.executions.arrays import Floats
from engine.serving import WorkloadError
from engine.serving.days import DayDemand, read_demand
from models.documents import shown

__all__ = ["DAY_HOURS", "WEEK_HOURS", "hourly_peaks", "read_hours"]

DAY_HOURS: Final = 24
WEEK_HOURS: Final = 168
MOST: Final = 1e9
"""Highest rate [1/s], as `FleetServiceDocument` has it."""


def hourly_peaks(day: DayDemand) -> Floats:
    """Return the highest rate of each hour [24]: replicas change on the hour.

    Args:
        day: rates that count from their start until the next one.
    """
    peaks = np.zeros(DAY_HOURS)
    ends = np.append(day.starts[1:], float(DAY_HOURS))
    for start, end, rate in zip(day.starts, ends, day.rates, strict=True):
        first, last = int(start), max(int(np.ceil(end)), int(start) + 1)
        peaks[first:last] = np.maximum(peaks[first:last], rate)
    return peaks


def read_hours(text: str, name: str = "The demand") -> list[float]:
    """Return the requests per second of each hour of a day or a week.

    Args:
        text: CSV with the columns hour (0, 1, 2, ...) and requests_per_second in 24 or 168 rows; or one with times of a
            day, as `engine.serving.days.read_demand` takes it.
        name: of the file, for messages.

    Raises `engine.serving.WorkloadError` with one sentence for another table.
    """
    lines = text.split("\n", 1)
    if "hour" not in [cell.strip() for cell in lines[0].split(",")]:
        return [float(each) for each in hourly_peaks(read_demand(text, name))]
    rows = list(csv.DictReader(io.StringIO(text), skipinitialspace=True))
    if len(rows) not in (DAY_HOURS, WEEK_HOURS):
        raise WorkloadError(f"{name} has {len(rows):,} hours; give {DAY_HOURS} for a day, or {WEEK_HOURS} for a week.")
    rates = []
    for number, row in enumerate(rows):
        cells = {str(key).strip(): str(value).strip() for key, value in row.items()}
        if cells.get("hour") != str(number):
            raise WorkloadError(f"{name}, row {number + 1}: `hour` is {shown(cells.get('hour'))}; it must be {number}.")
        said = cells.get("requests_per_second", "")
        try:
            rate = float(said)
        except ValueError:
            rate = -1.0
        if not 0.0 <= rate <= MOST:
            raise WorkloadError(
                f"{name}, row {number + 1}: requests_per_second is {shown(said)}; it must be a number from 0 to 1e9."
            )
        rates.append(rate)
    if not any(rates):
        raise WorkloadError(f"{name} is 0 in all hours; it needs an hour with requests.")
    return rates
