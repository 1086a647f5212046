"""Options that several commands share, each worded once."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from engine.columns.fields import EXTENSION_ROWS

__all__ = ["EXTENSION_NAMES", "JsonOption"]

EXTENSION_NAMES: Final = ", ".join(row[0] for row in EXTENSION_ROWS)
"""The fields that only the calibrated cost model has, for help."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
