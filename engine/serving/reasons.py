"""Every way a deployment can be invalid or infeasible, declared in `reasons.csv` in the order of checking.

`invalid` makes no sense for the model, `infeasible` cannot run on the system or misses a limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from engine.executions.reasons import Reason, read_reasons

__all__ = ["FITS", "REASONS", "by_code", "code_of", "number_of", "sentence"]

FITS: Final = 0
"""Reason number of a deployment that nothing is wrong with."""


REASONS: Final = read_reasons("engine.serving")
"""Reasons in the order of checking."""

_NUMBERS: Final[Mapping[str, int]] = {reason.code: position for position, reason in enumerate(REASONS, start=1)}


def number_of(code: str) -> int:
    """Returns the small integer that arrays carry for a reason code.

    Args:
        code: stable word for a reason, such as "context_too_long".
    """
    return _NUMBERS[code]


def code_of(number: int) -> str:
    """Returns the stable code of a reason number, "" for 0.

    Args:
        number: of a reason; 0 for none.
    """
    return "" if number == FITS else REASONS[number - 1].code


def by_code(code: str) -> Reason:
    """Returns the reason of a code.

    Args:
        code: stable word for a reason, such as "context_too_long".

    Raises KeyError for a code that there is not.
    """
    return REASONS[_NUMBERS[code] - 1]


def sentence(code: str, quantities: Mapping[str, Any]) -> str:
    """Returns the sentence of one deployment; `quantities` gives each placeholder of the template.

    Args:
        code: stable word for a reason, such as "context_too_long".
        quantities: value of each placeholder in the template, by name.
    """
    return by_code(code).template.format(**quantities)
