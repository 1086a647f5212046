"""Parameters of the Compare page in links, declared once. Scenarios B to D are read by the widget of comparisons."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["PAGE_NAME", "CompareLink"]

PAGE_NAME: Final = "compare"


class CompareLink(Document):
    """Parameters of the page: the compared scenarios besides the current one, and display options."""

    b: Annotated[str, Asked("Second scenario")] = ""
    c: Annotated[str, Asked("Third scenario")] = ""
    d: Annotated[str, Asked("Fourth scenario")] = ""
    metric: Annotated[str, Asked("Metric")] = ""
    domain: Annotated[
        Literal["near best", "from zero", "logarithmic"],
        Asked("Colours", words={"near best": "near the best", "from zero": "from zero", "logarithmic": "logarithmic"}),
    ] = "near best"
    pair: Annotated[str, Asked("Pair of scenarios")] = ""
