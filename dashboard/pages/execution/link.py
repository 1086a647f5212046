"""Parameters of the Execution page in links besides those of a training run, declared once."""

from __future__ import annotations

from typing import Annotated

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["ExecutionLink"]


class ExecutionLink(Document):
    """The execution to compare with, and what is shown of the one that the page is about."""

    b: Annotated[str, Asked("Execution B")] = ""
    figure: Annotated[str, Asked("Figure of the formula")] = "total_time"
    block: Annotated[str, Asked("Kind of block")] = ""
