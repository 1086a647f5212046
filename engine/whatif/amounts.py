"""Changes as people write them: a new value, an amount, a share or a factor, with a unit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from engine.scenarios.scenario import Scenario
from engine.whatif.parameters import ChangeError, Parameter, parameter
from models.documents import shown

__all__ = ["parse_amount", "parse_amounts", "unit_example"]

GIB_PER_GB: Final = 1e9 / 2**30
"""Memory in decimal units, as datasheets have it, in GiB."""
UNITS: Final[Mapping[str, Mapping[str, float]]] = {
    "GB/s": {"GB/s": 1.0, "TB/s": 1e3, "MB/s": 1e-3, "Gbit/s": 1 / 8, "Tbit/s": 125.0},
    "GiB": {"GiB": 1.0, "TiB": 1024.0, "MiB": 1 / 1024, "GB": GIB_PER_GB, "TB": 1e3 * GIB_PER_GB},
    "TFLOP/s": {"TFLOP/s": 1.0, "PFLOP/s": 1e3, "GFLOP/s": 1e-3, "TFLOPS": 1.0, "PFLOPS": 1e3},
    "µs": {"µs": 1.0, "us": 1.0, "ns": 1e-3, "ms": 1e3},
    "W": {"W": 1.0, "kW": 1e3},
}
"""Units that a value may have, by the unit of the parameter: their value in it."""
_EXAMPLES: Final = {"GB/s": "+1 TB/s", "GiB": "+32 GB", "TFLOP/s": "+100 TFLOP/s", "µs": "-1 µs", "W": "+100 W"}
_WRITTEN: Final = re.compile(
    r"\s*([-+\u2212xX×*/÷]?)\s*([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?)\s*([^\d\s].{0,19})?\s*"
)
_LONGEST: Final = 60


def unit_example(which: Parameter) -> str:
    """Return an amount of a parameter as an example: "+1 TB/s"; of whole numbers without a unit of their own "x2".

    Args:
        which: the parameter.
    """
    return _EXAMPLES.get(which.unit, "x2")


def parse_amount(which: Parameter, text: str) -> float:
    """Return the new value of a parameter [its unit] from text: "6700", "6.7 TB/s", "+1 TB/s", "-10 %" or "x2".

    A sign makes it an amount on top of the scenario's value, a percentage a share of that, and x, * or / a factor.

    Args:
        which: the parameter, with the scenario's value.
        text: the change.

    Raises `ChangeError` for another text, and for a unit that the parameter does not have.
    """
    found = _WRITTEN.fullmatch(text[:_LONGEST]) if len(text) <= _LONGEST else None
    if found is None:
        raise ChangeError(
            f"{which.label} {shown(text)} is no change; write a value such as {which.value:g}, an amount such as "
            f"{unit_example(which)}, a share such as +10 %, or a factor such as x2."
        )
    sign, number, unit = found[1], float(found[2]), (found[3] or "").strip()
    if sign in ("x", "X", "×", "*", "/", "÷") and sign:
        if unit or number == 0.0:
            raise ChangeError(f"{which.label} {shown(text)}: a factor is a number above 0 without a unit, such as x2.")
        return which.value / number if sign in "/÷" else which.value * number
    if unit == "%":
        if not sign:
            raise ChangeError(f"{which.label} {shown(text)}: a share needs a sign, such as +10 %.")
        amount = which.value * number / 100.0
    else:
        amount = number * _unit_value(which, unit)
    return amount if not sign else which.value + amount if sign == "+" else which.value - amount


def parse_amounts(scenario: Scenario, changes: Mapping[str, float | str]) -> dict[str, float]:
    """Return the new values of parameters, from numbers and from text; see `parse_amount`.

    Args:
        scenario: the scenario before any change.
        changes: numbers [unit of the parameter] or text, by name of `engine.whatif.parameters`.

    Raises `ChangeError`.
    """
    return {
        name: parse_amount(parameter(scenario, name), value) if isinstance(value, str) else float(value)
        for name, value in changes.items()
    }


def _unit_value(which: Parameter, unit: str) -> float:
    """Return the value of a unit in the parameter's."""
    known = UNITS.get(which.unit, {which.unit: 1.0, which.unit.removesuffix("s"): 1.0})
    value = 1.0 if not unit else known.get(unit)
    if value is None:
        raise ChangeError(f"{which.label} is in {which.unit}, not in {shown(unit)}; use {', '.join(known)}.")
    return value
