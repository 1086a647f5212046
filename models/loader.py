"""Models from JSON: our own format, Calculon's six keys, the library; and back to both formats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from models.documents import DocumentError, Library, check_format, name_from_stem, sentence, shown
from models.represent import block_shape
from models.schema import Architecture, BlockShape, Line, Model, Name, ShortText, Tokens

FORMAT = "shardscape-model/1"


class ModelFileError(DocumentError):
    """A model that cannot be used: an unknown name, an unreadable file, or a document that is not a model."""


class _ArchitectureDocument(BaseModel):
    """What a document with an architecture holds: everything else of a `Model` follows from it."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    name: Name
    title: Line = ""
    family: ShortText = ""
    source: Line = ""
    seq_size: Tokens
    seq_size_basis: Line = ""
    architecture: Architecture


def load_document(document: object, where: str = "the document", name: str | None = None) -> Model:
    """The model that a parsed JSON document describes, in our own format or Calculon's.

    `where` names the document in messages. A Calculon document has no name of its own and gets `name`, or else the stem
    of `where`. Raises `ModelFileError`.
    """
    if not isinstance(document, Mapping):
        raise ModelFileError(f"{where} is {shown(document)}; a model must be an object with named keys.")
    content: dict[str, Any] = dict(document)
    schema: type[BaseModel] = Model
    try:
        if "format" not in content:
            schema = BlockShape
            shape = BlockShape.model_validate(content)
            schema = Model
            called = name_from_stem(name or PurePath(where).stem)
            return Model.model_validate(
                {**shape.model_dump(), "name": called, "title": called, "source": "a Calculon application file"}
            )
        check_format(content, where, FORMAT, "model", ModelFileError)
        del content["format"]
        if "architecture" not in content:
            return Model.model_validate(content)
        schema = _ArchitectureDocument
        published = _ArchitectureDocument.model_validate(content)
        schema = Model
        return Model.model_validate({**dict(published), **block_shape(published.architecture)})
    except ValidationError as problem:
        hint = ""
        if schema is BlockShape:
            hint = f" (read as a Calculon model; our own format has \"format\": \"{FORMAT}\")"
        raise ModelFileError(sentence(problem, schema, where, hint=hint)) from None


def to_document(model: Model) -> dict[str, Any]:
    """The model as a JSON document in our own format, which `load_document` turns into an equal model."""
    document = {"format": FORMAT, "name": model.name, **model.model_dump(mode="json", exclude_none=True)}
    if model.architecture is not None:
        for key in block_shape(model.architecture):
            del document[key]
    return document


def to_calculon(model: Model) -> dict[str, int]:
    """The six keys of a Calculon application file; names and sources have no place there."""
    return {key: getattr(model, key) for key in BlockShape.model_fields}


_LIBRARY: Library[Model] = Library("models", "model", ModelFileError, load_document)


def names() -> list[str]:
    """Names of the models in the library, in alphabetical order."""
    return _LIBRARY.names()


def load(name_or_path: str | os.PathLike[str]) -> Model:
    """The model of a library name, or of a JSON file in our own format or Calculon's.

    A text with a path separator or ending in ".json" is a path, anything else a name. Raises `ModelFileError`.
    """
    return _LIBRARY.load(name_or_path)
