"""Templates filled with numbers, for many rows at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hardware import System, network_words

__all__ = ["excess", "excesses", "filled", "network_subjects", "pieces", "write_amount"]

_LEAST: Final = 0.001
"""Smallest quantity shown in a sentence [GiB]."""
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_FIRST: Final = -3
"""Power of 1,024 GiB of the first unit."""
_LEAST_OF_UNITS: Final = tuple(0.9995 * 1024.0**step for step in range(_FIRST + 1, _FIRST + len(_UNITS)))
"""From how much on each of the units after the first suits a quantity [GiB]; the dashboard's numbers change their unit
there, too."""


def filled(template: str, quantities: Mapping[str, Any], rows: int) -> pa.Array:
    """Returns a template filled for some rows.

    Arrow joins the pieces, so that a million sentences cost no Python loop. Raises KeyError for a placeholder without a
    quantity.

    Args:
        template: with placeholders in braces.
        quantities: one value for all rows, or an array [rows], by placeholder.
        rows: how many [count].
    """
    parts: list[pa.Array | pa.Scalar] = []
    for text, name in pieces(template):
        parts.append(pa.scalar(text))
        if name is not None:
            parts.append(_as_text(quantities[name]))
    if all(isinstance(part, pa.Scalar) for part in parts):
        return pa.array(["".join(part.as_py() for part in parts)] * rows, pa.string())
    return pc.binary_join_element_wise(*parts, pa.scalar(""))


def pieces(template: str) -> list[tuple[str, str | None]]:
    """Cuts a template into (text, placeholder after it) pairs.

    Args:
        template: with placeholders in braces.
    """
    result: list[tuple[str, str | None]] = []
    while "{" in template:
        text, _, rest = template.partition("{")
        name, _, template = rest.partition("}")
        result.append((text, name))
    return [*result, (template, None)]


def _as_text(value: object) -> pa.Array | pa.Scalar:
    if isinstance(value, str):
        return pa.scalar(value)
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return value
    if isinstance(value, Sequence):
        return pa.array([str(item) for item in value], pa.string())
    array = np.asarray(value)
    if array.ndim == 0:
        return pa.scalar(write_amount(array.item()))
    if array.dtype.kind == "f":
        array = _three_digits(array)
    # Few different numbers are left, so that only those are written one by one.
    known, positions = np.unique(array, return_inverse=True)
    words = pa.array([write_amount(item) for item in known.tolist()], pa.string())
    return words.take(pa.array(positions))


def _three_digits(values: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.float64]:
    """Numbers rounded to three significant digits, never before the decimal point."""
    size = np.abs(values, dtype=np.float64)
    with np.errstate(divide="ignore"):
        decimals = np.clip(2 - np.floor(np.log10(size)), 0, 12)
    unit = 10.0 ** np.where(np.isfinite(decimals), decimals, 0)
    return np.round(values * unit) / unit


def write_amount(value: object) -> str:
    """Return a number for a sentence: whole ones with thousands separators, others with three digits.

    Args:
        value: any number.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) or not math.isfinite(value):
        return f"{value:,}"
    if 0 < abs(value) < _LEAST:
        return f"under {_LEAST}"
    rounded = float(_three_digits(np.array([value]))[0])
    if rounded == int(rounded):
        return f"{rounded:,.0f}"
    return f"{rounded:,.{max(0, 2 - math.floor(math.log10(abs(rounded))))}f}".rstrip("0")


def excess(need: float, have: float) -> dict[str, str]:
    """Return the texts of a shortage: `need`, `have` and `short`, from GiB, each in its own unit.

    Need and have get enough digits to show their difference.

    Args:
        need: required memory [GiB].
        have: memory capacity [GiB].
    """
    short = need - have
    told = {}
    for name, value in (("need", need), ("have", have)):
        difference = short / 1024.0 ** _unit_step(value)
        decimals = min(math.ceil(-math.log10(difference)), 6) if 0 < difference < 1 else 0
        told[name] = _in_unit(value, decimals)
    return {**told, "short": _in_unit(short)}


def excesses(need: npt.NDArray[np.float64], have: float) -> dict[str, pa.Array]:
    """Return the texts of `excess` for many rows, each an array [rows].

    Args:
        need: required memory of each row [rows] [GiB].
        have: memory capacity [GiB].
    """
    short = need - have
    usual = {"need": need, "have": np.broadcast_to(np.float64(have), need.shape), "short": short}
    # Few executions lack so little of their unit, and many of them lack the same; only those are written one by one.
    few = short < 1024.0 ** np.maximum(_unit_steps(need), 0)
    known, positions = np.unique(need[few], return_inverse=True)
    told = [excess(value, have) for value in known.tolist()]
    place = np.arange(len(need))
    place[few] = len(need) + positions
    result = {}
    for name, values in usual.items():
        steps = _unit_steps(values)
        units = pa.array(_UNITS).take(pa.array(steps - _FIRST))
        words = pc.binary_join_element_wise(_write_quantities(values / 1024.0**steps), units, pa.scalar(" "))
        each = pa.array([one[name] for one in told], pa.string())
        result[name] = pa.concat_arrays([words, each]).take(pa.array(place))
    return result


def _in_unit(gib: float, decimals: int = 0) -> str:
    """A quantity [GiB] in the unit that suits it: "2.21 TiB", "80 GiB", "18.7 MiB"."""
    step = _unit_step(gib)
    value = gib / 1024.0**step
    return f"{_write_quantity(round(value) if step == _FIRST else value, decimals)} {_UNITS[step - _FIRST]}"


def _unit_steps(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """`_unit_step` of many quantities [GiB] [rows]."""
    found = np.full(values.shape, _FIRST)
    for least in _LEAST_OF_UNITS:
        found += values >= least
    return np.where(values > 0, found, 0)


def _unit_step(gib: float) -> int:
    """Return the largest unit in which a quantity [GiB] is at least 1 at three digits, as its power of 1,024; 0 (GiB)
    for zero."""
    return _FIRST + sum(gib >= least for least in _LEAST_OF_UNITS) if gib > 0 else 0


def _write_quantity(value: float, decimals: int = 0) -> str:
    """A quantity that has a unit, as the dashboard writes it: three digits, and no decimals where it is whole.

    decimals: at least so many; whole quantities have them, too.
    """
    if not math.isfinite(value) or value == math.floor(value):
        return f"{value:,.{decimals}f}"
    size = math.floor(math.log10(float(f"{abs(value):.2e}")))
    return f"{value:,.{max(decimals, 2 - size, 0)}f}"


def _write_quantities(values: npt.NDArray[np.float64]) -> pa.Array:
    """`_write_quantity` of many values [rows]."""
    whole = values == np.floor(values)
    exact = _write_distinct(np.where(whole, values, 0.0), _write_quantity)
    return pc.if_else(
        pa.array(whole), exact, _write_distinct(_three_digits(np.where(whole, 1.0, values)), _write_rounded)
    )


def _write_distinct(values: npt.NDArray[np.float64], written: Callable[[float], str]) -> pa.Array:
    """Values as text, of which few differ: only those are written one by one."""
    known, positions = np.unique(values, return_inverse=True)
    return pa.array([written(each) for each in known.tolist()], pa.string()).take(pa.array(positions))


def _write_rounded(value: float) -> str:
    """`_write_quantity` of what was rounded to this and was not whole."""
    if not math.isfinite(value):
        return f"{value:,}"
    size = math.floor(math.log10(abs(value)))
    return f"{value:,.{max(2 - size, 0)}f}"


def network_subjects(system: System) -> list[str]:
    """Returns what each network of a system is called at the beginning of a sentence: "NVLink", "The outer network".

    Args:
        system: whose networks are meant.
    """
    return [words[:1].upper() + words[1:] for words in network_words(system)]
