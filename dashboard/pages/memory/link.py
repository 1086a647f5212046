"""Parameters of the Memory page in links, declared once."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from engine.questions.fields import Asked
from engine.questions.verb import Document
from models.documents import Whole

__all__ = ["MOST_GIB", "PAGE_NAME", "MemoryLink"]

PAGE_NAME: Final = "memory"
MOST_GIB: Final = 65_536
"""End of the slider of capacities: descriptions may have any capacity, and each step of the slider takes room."""


class MemoryLink(Document):
    """Parameters of the page: the capacity to try, and display options of the best of each cell."""

    tier: Annotated[Literal["hbm", "host"], Asked("Memory", words={"hbm": "HBM", "host": "Host memory"})] = "hbm"
    hbm: Annotated[Annotated[int, Whole(1, MOST_GIB)] | None, Asked("HBM")] = None
    sort: Annotated[
        Literal["rate", "need", "degrees"],
        Asked("Order", words={"rate": "Fastest first", "need": "Most memory first", "degrees": "By TP and PP"}),
    ] = "rate"
