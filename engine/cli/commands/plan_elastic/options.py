"""What the commands `plan elastic ...` share."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["numbers", "one_form"]


def one_form(csv: bool, json: bool) -> None:
    """Refuses two forms of output at once.

    Raises `engine.planners.contract.PlanError` where both are asked for.
    """
    from engine.planners.contract import PlanError

    if csv and json:
        raise PlanError("Give --csv or --json, not both.")


def numbers(text: str) -> Sequence[float]:
    """Returns numbers written as 1..16 or 1,2,4.

    Args:
        text: as typed.

    Raises `engine.planners.contract.PlanError` where it is neither.
    """
    from engine.planners.contract import PlanError

    try:
        if ".." in text:
            low, high = (int(part) for part in text.split("..", 1))
            return range(low, high + 1)
        parts = [float(part) for part in text.split(",")]
    except ValueError:
        raise PlanError(f"{text[:40]!r} are no values; write 1..16 or 1,2,4.") from None
    return [int(part) if part == int(part) else part for part in parts if part == part and abs(part) < 1e15]
