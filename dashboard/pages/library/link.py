"""Parameters of the Library page in links, declared once."""

from __future__ import annotations

from typing import Annotated, Literal

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["LibraryLink"]


class LibraryLink(Document):
    """Entries that are listed, the open one, and the one that is edited."""

    kind: Annotated[Literal["models", "systems"], Asked("Kind", words={"models": "Models", "systems": "Systems"})] = (
        "models"
    )
    item: Annotated[str, Asked("Entry")] = ""
    edit: Annotated[str, Asked("Entry to edit")] = ""
