"""Execution whose figures are shown: the one rule for pages, commands, JSON and exports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

__all__ = ["FIGURES_OF", "NOTHING_RECOMMENDED", "FiguresOf", "ShownExecution", "choose_shown"]

FiguresOf = Literal["recommended", "fastest"]
"""Execution whose figures count."""
FIGURES_OF: Final[Mapping[FiguresOf, str]] = {"recommended": "Recommended", "fastest": "Fastest"}
"""Words on screen by choice."""
NOTHING_RECOMMENDED: Final = (
    "Nothing is recommended: every feasible execution offloads, may not fit, or was never measured. "
    "Figures of the fastest."
)


class ShownExecution(NamedTuple):
    """Execution whose figures are shown."""

    execution: Mapping[str, Any]
    """Id, fields and figures."""
    figures_of: FiguresOf
    """Role of the execution; "fastest" also where there is no recommended one."""
    remark: str
    """Reason for showing another execution than the one asked for; empty otherwise."""

    @property
    def id(self) -> int:
        """Id of the execution."""
        return int(self.execution["id"])


def choose_shown(
    figures_of: FiguresOf, recommended: Mapping[str, Any] | None, fastest: Mapping[str, Any] | None
) -> ShownExecution | None:
    """Return the execution whose figures are shown; None if nothing runs.

    Args:
        figures_of: the choice.
        recommended: the recommended execution, or None; not looked at for the figures of the fastest.
        fastest: the fastest execution, of equal ones the simplest, or None.
    """
    if figures_of == "recommended" and recommended is not None:
        return ShownExecution(recommended, "recommended", "")
    if fastest is None:
        return None
    return ShownExecution(fastest, "fastest", NOTHING_RECOMMENDED if figures_of == "recommended" else "")
