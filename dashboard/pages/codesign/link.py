"""Parameters of the Co-design page in links, that are not fields of its question."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["PAGE_NAME", "CodesignLink"]

PAGE_NAME: Final = "codesign"


class CodesignLink(Document):
    """Study, quantities and pictures of its designs."""

    study: Annotated[str, Asked("Study")] = ""
    own: Annotated[str, Asked("Study of one's own")] = ""
    up: Annotated[str, Asked("Best in")] = Field(default="")
    across: Annotated[str, Asked("Against")] = Field(default="")
    picture: Annotated[
        Literal["front", "parallel", "map"],
        Asked("Picture", words={"front": "Front", "parallel": "All choices", "map": "Two choices"}),
    ] = "front"
    x: Annotated[str, Asked("Across")] = ""
    y: Annotated[str, Asked("Up")] = ""
    design: Annotated[str, Asked("Design")] = ""
    beside: Annotated[str, Asked("Second design")] = ""
    kept: Annotated[str, Asked("Filters of designs")] = ""
    worth: Annotated[bool, Asked("Search around this design")] = Field(
        default=False,
        description="Raises each rate and capacity of the design by ten per cent, or lowers a latency, one at a "
        "time, and searches again.",
    )
