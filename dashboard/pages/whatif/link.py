"""Parameters of the What-if page in links: the changes, and the choices of its studies."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["NAME", "PAGE_NAME", "RANGE", "WhatIfLink"]

PAGE_NAME: Final = "whatif"
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,30}")
"""Name of a parameter of a scenario."""
RANGE: Final = re.compile(r"(\d{1,12})\.\.(\d{1,12}):(\d{1,12})")
"""A range of sizes: "8..1024:8", from 8 to 1,024 in steps of 8."""


class WhatIfLink(Document):
    """Inputs of the page: the changes, and the choices of its studies."""

    changes: Annotated[str, Asked("Changes of What-if")] = ""
    input: Annotated[
        Literal["sliders", "exact", "amounts"],
        Asked("Kind of input", words={"sliders": "Sliders", "exact": "Exact", "amounts": "Amounts"}),
    ] = "sliders"
    around: Annotated[
        Literal["base", "whatif"],
        Asked("Base of the studies", words={"base": "Vary the original", "whatif": "Vary my changes"}),
    ] = "base"
    step: Annotated[
        Literal["10", "25", "2"], Asked("Step of a change", words={"10": "±10 %", "25": "±25 %", "2": "÷2 ×2"})
    ] = "10"
    one: Annotated[str, Asked("Parameter of the sweep")] = ""
    x: Annotated[str, Asked("Parameter across")] = ""
    y: Annotated[str, Asked("Parameter up")] = ""
    grid: Annotated[Literal["coarse", "fine"], Asked("Grid")] = "coarse"
    batch: Annotated[
        Literal["kept", "scaled"],
        Asked("Batch of the sizes", words={"kept": "Batch kept", "scaled": "Batch grows too"}),
    ] = "kept"
    size_show: Annotated[
        Literal["each", "total"], Asked("View of the sizes", words={"each": "Per GPU", "total": "Total"})
    ] = "each"
    table_models: Annotated[list[str], Asked("Other models")] = Field(default=[])
    table_sizes: Annotated[list[int], Asked("Other numbers of GPUs")] = Field(default=[])
    range: Annotated[str, Asked("Range of sizes")] = ""
