"""Fields for numbers that are part of the link."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from dashboard.link import state, vocabulary
from dashboard.widgets.controls import given, key_for, whole, whole_field

__all__ = ["DECIMAL", "WHOLE", "whole_in_link"]

WHOLE: Final = re.compile(r"[1-9]\d{0,6}")
"""Whole numbers as links have them."""
DECIMAL: Final = re.compile(r"(?!0+(\.0+)?$)\d{1,7}(\.\d{1,4})?")
"""Positive numbers as links have them."""


def whole_in_link(
    parameter: str,
    label: str,
    default: int,
    most: int,
    help: str,
    *,
    width: int = 104,
    put: Callable[[str, str | None], None] = state.set_url_value,
) -> int:
    """Draws a field for a whole number; returns the number. A link with a larger number gets the largest and a message.

    Args:
        parameter: of the link.
        label: above the field.
        default: number without the parameter.
        most: the largest number, the smallest being 1.
        help: explanation of the number.
        width: of the field [px].
        put: sets the parameter, to None if the number is the default.
    """
    wanted = int(state.url_value(parameter, str(default), WHOLE))
    if wanted > most:
        state.complain(
            parameter, f"The link's {vocabulary.WORDS[parameter]} is {wanted:,}; it must be at most {most:,}, as shown."
        )
    value = min(wanted, most)
    key = key_for(f"_{parameter}", float(value))

    def changed() -> None:
        new = given(key)
        put(parameter, None if new in (None, default) else str(whole(new)))

    whole_field(label, 1, most, value, key, on_change=changed, help=help, width=width)
    return value
