"""Descriptions of the origin of measured values."""

from __future__ import annotations

from collections.abc import Sequence

from engine.measure.samples import Device, Samples, SampleTiming

__all__ = ["of_device", "rate_text", "spread_text"]


def of_device(device: Device) -> str:
    """Returns the device, its software and the day.

    Args:
        device: what was measured, with its software and the day.
    """
    return f"{device.name}, {device.software}, {device.date}"


def rate_text(per_second: float, unit: str) -> str:
    """Returns a rate with a prefix: rate_text(7.02e14, "FLOP/s") is "702 TFLOP/s".

    Args:
        per_second: the rate [units/s].
        unit: of the rate, such as "FLOP/s".
    """
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if per_second >= size:
            return f"{per_second / size:.3g} {letter}{unit}"
    return f"{per_second:.3g} {unit}"


def spread_text(samples: Samples, timings: Sequence[SampleTiming]) -> str:
    """Return the number of repeats, and the deviation of single repeats from their median.

    Args:
        samples: the measurements.
        timings: the timings behind a value.
    """
    repeats = sum(timing.repeats for timing in timings)
    spread = 100.0 * max((timing.spread for timing in timings), default=0.0)
    small = " in the quick run" if samples.quick else ""
    return f"{repeats:,} repeats{small}, half the quartile distance up to {spread:.1f} %"
