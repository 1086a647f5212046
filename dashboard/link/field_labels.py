"""Labels of fields in sentences for pages, in place of the names that documents have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.questions.fields import question_fields
from engine.questions.verb import Document, QuestionError

__all__ = ["name_labels"]


@contextmanager
def name_labels(document: type[Document]) -> Iterator[None]:
    """Name the labels of a page in errors, in place of the fields of its question in backticks.

    Args:
        document: class of the question.
    """
    try:
        yield
    except QuestionError as problem:
        text = str(problem)
        for field in question_fields(document).values():
            text = text.replace(f"`{field.name}`", field.label)
        raise QuestionError(text) from None
