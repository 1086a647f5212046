"""Parameters of the Execution page in links without its training run, declared once."""

from __future__ import annotations

from typing import Annotated

from engine.questions.fields import Asked
from engine.questions.verb import Document

__all__ = ["ExecutionLink"]


class ExecutionLink(Document):
    """Execution to compare with, and the shown parts of the page's own."""

    b: Annotated[str, Asked("Execution B")] = ""
    figure: Annotated[str, Asked("Figure of the formula")] = "total_time"
    block: Annotated[str, Asked("Kind of block")] = ""
