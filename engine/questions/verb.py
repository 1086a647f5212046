"""Verb of the question interface: a name, schemas of question and answer, and the function between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from engine.questions.errors import QuestionError
from models.documents import Accepts

if TYPE_CHECKING:
    from engine.questions.bounds import Context

__all__ = ["Document", "Execution", "Named", "QuestionError", "Row", "Verb"]


class Document(BaseModel):
    """A JSON object with these keys and no others."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


Named = Annotated[str | dict[str, Any], Accepts("a name of the library or a whole document")]
"""A model, system or calibration: a name of the library, or a document of one, never a path."""

Row = dict[str, bool | int | float | str | None]
"""An execution with fields and statistics by name; null for infinite or undefined numbers. See `list_columns`."""

Execution = Annotated[
    dict[str, bool | int | float | str | None],
    Accepts("an object with values by field name"),
    Field(description="Values by field name, such as a row of `best` or `explore`; `list_columns` has the fields."),
]
"""An execution that is asked about."""


@dataclass(frozen=True, slots=True)
class Verb:
    """One kind of question. `about` describes its purpose to a caller who chooses among verbs."""

    name: str
    title: str
    about: str
    asks: type[Document]
    answers: type[Document]
    run: Callable[[Any, Context], dict[str, Any]]

    def question_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the question."""
        return self.asks.model_json_schema()

    def answer_schema(self) -> dict[str, Any]:
        """Return the JSON schema of the answer."""
        return self.answers.model_json_schema()
