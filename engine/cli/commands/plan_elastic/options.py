"""Shared options of the commands `plan elastic ...`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

__all__ = [
    "BandwidthOption",
    "BasisOption",
    "CardArgument",
    "CsvOption",
    "JsonOption",
    "MeasuredOption",
    "RestrictedOption",
    "ThreadsOption",
    "VariantOption",
    "parse_numbers",
]


def _one_form(context: typer.Context, value: bool) -> bool:
    """Refuses two forms of output at once: whichever of both options is read second finds the other one given."""
    from engine.planners.contract import PlanError

    if value and (context.params.get("csv") or context.params.get("json")):
        raise PlanError("Give --csv or --json, not both.")
    return value


def _parse_restricted(value: bool | None) -> bool | None:
    """Return False if every plan is wanted, None to use the card's table of allowed plans."""
    return False if value else None


CardArgument = Annotated[str, typer.Argument(metavar="CARD", help="Model card: library name or JSON file.")]
ThreadsOption = Annotated[int, typer.Option("--threads", metavar="C", help="CPU threads per GPU.")]
BandwidthOption = Annotated[
    float, typer.Option("--bandwidth", metavar="B", help="Limit between nodes, 0 for none; GB/s of a GPU in physical.")
]
VariantOption = Annotated[
    str, typer.Option("--variant", metavar="artifact|physical", help="Performance model: the artifact's or our own.")
]
RestrictedOption = Annotated[
    bool | None,
    typer.Option("--every-plan", callback=_parse_restricted, help="Ignore the card's table of allowed plans."),
]
CsvOption = Annotated[bool, typer.Option("--csv", callback=_one_form, help="Print CSV.")]
JsonOption = Annotated[bool, typer.Option("--json", callback=_one_form, help="Print JSON.")]
BasisOption = Annotated[
    str | None,
    typer.Option("--basis", metavar="measured|predicted", help="Times that count; measured by default."),
]
MeasuredOption = Annotated[
    str | None, typer.Option("--measured", metavar="NAME|FILE", help="Measurements; those of the card by default.")
]


def parse_numbers(text: str) -> Sequence[float]:
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
