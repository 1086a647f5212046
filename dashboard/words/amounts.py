"""Amounts of a training run in few digits: times, large numbers, dollars."""

from __future__ import annotations

from dashboard.words.numbers import ABSENT, count, format_value, plain, with_unit

__all__ = ["format_duration", "format_large", "format_tokens", "format_usd_range"]


def format_duration(seconds: float) -> str:
    """Return a time from fractions of a second to hours, with its unit."""
    if seconds < 120:
        return format_value("total_time", seconds)
    return with_unit(plain(seconds / 3600), "h") if seconds >= 7200 else with_unit(plain(seconds / 60), "min")


def format_large(value: float) -> str:
    """Return a number with three digits: "30.9 M", "873,000", "17.2"."""
    return count(value) if value >= 1e6 else plain(float(f"{value:.3g}"))


def format_tokens(tokens: float) -> str:
    """Return tokens of a training run in words: "1 T tokens", "300 bn tokens"."""
    size, unit = next((pair for pair in ((1e12, "T"), (1e9, "bn")) if tokens >= pair[0]), (1e6, "M"))
    return f"{plain(float(f'{tokens / size:.4g}'))} {unit} tokens"


def format_usd_range(usd: tuple[float, float] | None) -> str:
    """Return a range of dollars: "$0.960–2.62 M"."""
    if usd is None:
        return ABSENT
    low, high = usd
    size, letter = next((pair for pair in ((1e9, "bn"), (1e6, "M"), (1e3, "k")) if high >= pair[0]), (1.0, ""))
    first, last = (plain(float(f"{value / size:.3g}")) for value in (low, high))
    return f"${first if low == high else f'{first}–{last}'} {letter}".strip()
