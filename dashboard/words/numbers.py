"""Numbers as text, in one way everywhere.

Three significant digits, a comma between thousands, a non-breaking space before the unit; SI prefixes for time,
operations and bandwidth, binary ones for bytes; counts in full below a million; the true minus sign; "–" for a missing
value. The unit of a value comes from its column in `engine.columns`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from engine.columns import Column, by_name, choice_label
from hardware import GIB

ABSENT: Final = "–"
INFINITY: Final = "∞"
MINUS: Final = "\u2212"
SPACE: Final = "\u00a0"
"""Between a number and its unit, which stay on one line."""

_SI_UP: Final = (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15), ("E", 1e18), ("Z", 1e21))
_SI_TIME: Final = (("ps", 1e-12), ("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0))
_BINARY: Final = (("B", 1.0), ("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30), ("TiB", 2.0**40), ("PiB", 2.0**50))
_COUNT: Final = (("", 1.0), ("M", 1e6), ("bn", 1e9), ("tn", 1e12))
_LARGEST_PLAIN: Final = 1e6
"""From here on a number that no prefix shortens is written as a power of ten."""


@dataclass(frozen=True, slots=True)
class Scale:
    """A unit that suits a set of values: `value / factor` is the number to print before `unit`."""

    factor: float
    unit: str
    """Unit with prefix, such as "GiB" or "%"; empty for plain numbers."""

    @property
    def suffix(self) -> str:
        """The unit with the space before it, empty without a unit."""
        return with_unit("", self.unit)

    def title(self, label: str) -> str:
        """Returns an axis title or table header, such as "HBM needed, GiB"."""
        return f"{label}, {self.unit}" if self.unit and self.unit != label else label

    def number(self, value: Any, digits: int = 3) -> str:
        """Returns the number without its unit."""
        known = _as_float(value)
        return ABSENT if known is None else plain(known / self.factor, digits)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value for display: its number and its unit with prefix, such as "2.01" and "PFLOP/s".

    Callers that draw the two apart take both from here: a number that is cut out of text has lost its prefix.
    """

    number: str
    unit: str = ""

    def __str__(self) -> str:
        """Returns number and unit on one line: "2.01 PFLOP/s"."""
        return with_unit(self.number, self.unit)


_MONEY: Final = (("", 1.0), ("k", 1e3), ("M", 1e6), ("bn", 1e9))
_ENERGY: Final = (("kWh", 1.0), ("MWh", 1e3), ("GWh", 1e6))


def column_of(column: Column | str) -> Column:
    """Returns the column itself or the one of that name."""
    return by_name(column) if isinstance(column, str) else column


def with_unit(number: str, unit: str) -> str:
    """Returns a number and its unit, on one line: "1.87 s"; a unit of several words too: "1.68 M samples/s"."""
    return f"{number}{SPACE}{unit.replace(' ', SPACE)}" if unit else number


def plain(value: float, digits: int = 3) -> str:
    """Returns a number with at least `digits` significant digits; digits before the decimal point are never rounded.

    A whole number has no decimals: 80, but 80.3 and 79.9.
    """
    if math.isnan(value):
        return ABSENT
    if math.isinf(value):
        return INFINITY if value > 0 else MINUS + INFINITY
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude >= _LARGEST_PLAIN or magnitude < 1e-4:
        return _power_of_ten(value, digits)
    # Rounding first decides the number of integer digits: 9.996 has two of them at three digits.
    rounded = float(f"{magnitude:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(rounded)))
    text = f"{magnitude:,.0f}" if magnitude == int(magnitude) else f"{magnitude:,.{decimals}f}"
    return MINUS + text if value < 0 else text


def _power_of_ten(value: float, digits: int) -> str:
    mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
    raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{mantissa.replace('-', MINUS)}{SPACE}×{SPACE}10{raised}"


def scale_for(column: Column | str, values: Iterable[Any]) -> Scale:
    """Returns the unit in which the largest finite of `values` reads best; all of a chart or table column shares it."""
    finite = [abs(known) for value in values if (known := _as_float(value)) is not None and math.isfinite(known)]
    return _scale_of(column_of(column).unit, max(finite, default=0.0))


def _scale_of(unit: str, magnitude: float) -> Scale:
    """Returns the scale of one magnitude [in `unit`]."""
    if unit == "fraction":
        return Scale(0.01, "%")
    if unit == "bytes":
        name, factor = _largest_step(_BINARY, magnitude, "GiB")
        return Scale(factor, name)
    if unit == "s":
        name, factor = _largest_step(_SI_TIME, magnitude, "s")
        return Scale(factor, name)
    if unit == "FLOP":
        prefix, factor = _largest_step(_SI_UP, magnitude, "")
        return Scale(factor, f"{prefix}FLOP")
    if unit == "FLOP/s":
        prefix, factor = _largest_step(_SI_UP, magnitude, "T")
        return Scale(factor, f"{prefix}FLOP/s")
    if unit == "kWh":
        name, factor = _largest_step(_ENERGY, magnitude, "kWh")
        return Scale(factor, name)
    if unit == "bytes/s":
        prefix, factor = _largest_step(_SI_UP, magnitude, "G")
        return Scale(factor, f"{prefix}B/s")
    if unit == "USD":
        prefix, factor = _largest_step(_MONEY, magnitude, "")
        return Scale(factor, f"{prefix} {unit}".strip())
    if unit in ("samples/s", "tokens/s", "tokens/USD"):
        prefix, factor = _largest_step(_COUNT, magnitude, "")
        return Scale(factor, f"{prefix} {unit}".strip())
    return Scale(1.0, unit)


def _largest_step(steps: tuple[tuple[str, float], ...], magnitude: float, at_zero: str) -> tuple[str, float]:
    """Returns the largest step that leaves at least 1 before the point, after rounding to three digits."""
    if magnitude == 0 or not math.isfinite(magnitude):
        return at_zero, dict(steps)[at_zero]
    return next((step for step in reversed(steps) if float(f"{magnitude / step[1]:.2e}") >= 1), steps[0])


def format_value(column: Column | str, value: Any, digits: int = 3) -> str:
    """Returns a column's value as text with its unit: "1.87 s", "51.4 GiB", "58.7 %", "RS+AG", "on", "–" if absent."""
    return str(quantity(column, value, digits))


def quantity(column: Column | str, value: Any, digits: int = 3) -> Quantity:
    """Returns a column's value as number and unit; words, counts and missing values have no unit."""
    column = column_of(column)
    if column.dtype in ("str", "bool"):
        return Quantity(ABSENT if _is_absent(value) else choice_label(column, value))
    known = _as_float(value)
    if known is None:
        return Quantity(ABSENT)
    if math.isinf(known):
        return Quantity(plain(known))
    if column.dtype == "int64":
        return Quantity(f"{int(known):,}".replace("-", MINUS))
    if column.unit == "fraction":
        return Quantity(_percent_number(known, 1), "%")
    scale = _scale_of(column.unit, abs(known))
    return Quantity(scale.number(known, digits), scale.unit)


def format_delta(column: Column | str, change: Any) -> str:
    """Returns a signed difference with its unit: "+32.9 ms", "−0.3 GiB", "±0" when it rounds to nothing.

    The difference of two fractions is in percentage points.
    """
    column = column_of(column)
    known = _as_float(change)
    if known is None:
        return ABSENT
    if column.unit == "fraction" and math.isfinite(known):
        points = f"{abs(known) * 100:,.1f}"
        return "±0" if float(points.replace(",", "")) == 0 else f"{_sign_of(known)}{with_unit(points, 'points')}"
    if known == 0:
        return "±0"
    return _sign_of(known) + format_value(column, abs(known))


def relative(new: Any, base: Any) -> str:
    """Returns how much `new` exceeds `base`: "+4.7 %", "±0" below 0.05 %, "–" where there is no ratio."""
    first, second = _as_float(new), _as_float(base)
    if first is None or second is None or second == 0 or not math.isfinite(first) or not math.isfinite(second):
        return ABSENT
    return signed_percent(first / second - 1)


def signed_percent(fraction: Any) -> str:
    """Returns a signed share of 1 in percent: "+4.7 %", "±0" below 0.05 %."""
    return str(signed_quantity(fraction))


def signed_quantity(fraction: Any) -> Quantity:
    """Return a signed share of 1 in percent, number and unit apart, as maps draw it: "+4.7"; "±0" has none.

    From 100 % on it has three significant digits: "+1,100".
    """
    known = _as_float(fraction)
    if known is None:
        return Quantity(ABSENT)
    if math.isinf(known):
        return Quantity(_sign_of(known) + INFINITY)
    size = abs(known) * 100
    text = f"{size:,.1f}" if size < 99.95 else f"{float(f'{size:.2e}'):,.0f}"
    return Quantity("±0") if float(text.replace(",", "")) == 0 else Quantity(f"{_sign_of(known)}{text}", "%")


def percent(fraction: Any, decimals: int = 1) -> str:
    """Returns a share of 1 in percent with a fixed number of decimals: "58.7 %"."""
    known = _as_float(fraction)
    if known is None:
        return ABSENT
    if math.isinf(known):
        return plain(known)
    return with_unit(_percent_number(known, decimals), "%")


def _percent_number(fraction: float, decimals: int) -> str:
    text = f"{abs(fraction) * 100:,.{decimals}f}"
    sign = MINUS if fraction < 0 and float(text.replace(",", "")) != 0 else ""
    return sign + text


def count(number: Any) -> str:
    """Returns a count: in full below a million ("33,866"), then "3.14 M", "1.20 bn"."""
    known = _as_float(number)
    if known is None:
        return ABSENT
    if math.isinf(known):
        return plain(known)
    if abs(known) < _COUNT[1][1]:
        return f"{round(known):,}".replace("-", MINUS)
    name, factor = _largest_step(_COUNT, abs(known), "")
    return with_unit(_format_fixed(known / factor), name)


def counted(number: Any, thing: str) -> str:
    """Returns a count with its noun, whose plural ends in s: "1 sequence", "3,072 sequences", "2 microbatches"."""
    plural = "es" if thing.endswith("ch") else "s"
    return f"{count(number)} {thing}{'' if number == 1 else plural}"


def _format_fixed(value: float, digits: int = 3) -> str:
    """Returns a rounded quantity with exactly `digits` significant digits where decimals allow: 2.00, 20.0, 200."""
    rounded = float(f"{abs(value):.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(rounded)))
    text = f"{abs(value):,.{decimals}f}"
    return MINUS + text if value < 0 else text


def days(seconds: Any) -> str:
    """Returns a duration in days with one decimal: "6.9 days"; below one day as "7.2 h" or "20 min"."""
    known = _as_float(seconds)
    if known is None:
        return ABSENT
    if math.isinf(known):
        return plain(known)
    if 0 < abs(known) < 3_600:
        return with_unit(_format_fixed(known / 60, 2), "min")
    if 0 < abs(known) < 86_400:
        return with_unit(_format_fixed(known / 3_600, 2), "h")
    return with_unit(f"{known / 86_400:,.1f}", "days")


UNLIMITED: Final = 2.0**60
"""Capacity of a memory from which on it counts as unlimited [bytes]; descriptions of machines that do have such memory
write numbers such as 80,000,000,000 GiB."""


def gibibytes(number: Any) -> str:
    """Returns bytes as the reader of a capacity expects them: "80 GiB", "1.5 TiB", "95.2 GiB", "unlimited"."""
    known = _as_float(number)
    return "unlimited" if known is not None and known >= UNLIMITED else format_value("proc_mem_tier1_cap_req", number)


def shortfall(missing: Any) -> str:
    """Returns missing memory [bytes] as a cell of a map prints it, in GiB, from 1,024 of them on in TiB: "+95", "+0.4",
    "+1.5T"; "–" where memory is not the reason."""
    known = _as_float(missing)
    if known is None or not math.isfinite(known) or known <= 0:
        return ABSENT
    large = scale_for("proc_mem_tier1_cap_req", [known]).factor > GIB
    number = known / (GIB * (1024 if large else 1))
    # As sentences say it; never "+0", which would say that nothing is missing.
    said = f"+{number:,.0f}" if number >= 9.95 else f"+{max(number, 0.05 + 1e-9):.1f}"
    return f"{said}T" if large else said


def capacity_words(gib: float) -> str:
    """Returns a capacity given in GiB: "79.6 GiB", "1.5 TiB", "unlimited"."""
    return gibibytes(gib * GIB)


def share_of(need: float, capacity: float) -> str:
    """Returns how much of a memory is taken, both in bytes: "41 % of 80 GiB"."""
    return f"{percent(need / capacity, 0)} of {gibibytes(capacity)}" if capacity < UNLIMITED else "of unlimited memory"


def header(column: Column | str, scale: Scale) -> str:
    """Returns the header of a table column: short name and unit."""
    return scale.title(column_of(column).short)


def decimals_for(values: Iterable[Any], scale: Scale, digits: int = 3) -> int:
    """Returns how many decimals give the smallest value of a table column `digits` digits, at most 3."""
    finite = [
        abs(known / scale.factor)
        for value in values
        if (known := _as_float(value)) is not None and math.isfinite(known) and known != 0
    ]
    if not finite:
        return 0
    return min(3, max(0, digits - 1 - math.floor(math.log10(max(finite)))))


def _sign_of(value: float) -> str:
    return MINUS if value < 0 else "+"


def _is_absent(value: Any) -> bool:
    if value is None:
        return True
    try:
        return bool(value != value)  # NaN and NaT differ from themselves
    except (TypeError, ValueError):  # pandas.NA has no truth value
        return True


def _as_float(value: Any) -> float | None:
    """Returns the value as a float, None where it is absent or no number."""
    if _is_absent(value):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return None
