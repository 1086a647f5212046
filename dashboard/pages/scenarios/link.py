"""Parameters of the Scenarios page in links, declared once."""

from __future__ import annotations

from typing import Annotated, Literal

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["ScenariosLink"]


class ScenariosLink(Document):
    """Entries that are listed and picked."""

    kind: Annotated[
        Literal["all", "saved", "explored", "studies"],
        Asked("Kind", words={"all": "All", "saved": "Saved", "explored": "Explored", "studies": "Studies"}),
    ] = "all"
    pick: Annotated[str, Asked("Picked entries")] = ""
