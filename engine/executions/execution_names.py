"""Short name of an execution, by its degrees of parallelism."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["DEGREES", "execution_name"]

DEGREES: Final[Mapping[str, str]] = {
    "tensor_par": "TP",
    "pipeline_par": "PP",
    "data_par": "DP",
    "context_par": "CP",
    "expert_par": "EP",
    "expert_tensor_par": "ETP",
}
"""Degrees of parallelism by field, as names have them."""
_ALWAYS: Final = ("tensor_par", "pipeline_par", "data_par")
_INSIDE: Final = ("expert_par", "expert_tensor_par")
"""Degrees that split the processors of others once more, so that they are no factor of all processors."""


def execution_name(execution: Mapping[Any, Any]) -> str:
    """Return the degrees of an execution: "TP 8 × PP 4 × DP 16", and "× CP 2 · EP 8" if these are not 1.

    The factors multiply to the processors. Missing degrees are left out.

    Args:
        execution: fields by name; absent, None or not a number for a missing degree.
    """
    degrees = {name: value for name in DEGREES if (value := _parse_degree(execution.get(name))) is not None}
    shown = [name for name, value in degrees.items() if value != 1 or name in _ALWAYS]
    factors = " × ".join(f"{DEGREES[name]} {degrees[name]:,}" for name in shown if name not in _INSIDE)
    inside = [f"{DEGREES[name]} {degrees[name]:,}" for name in shown if name in _INSIDE]
    return " · ".join([*filter(None, [factors]), *inside])


def _parse_degree(value: Any) -> int | None:
    return None if value is None or (isinstance(value, float) and math.isnan(value)) else int(value)
