"""Models from JSON: our own format, Calculon's six keys, Hugging Face's, the library; and back to the first two."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from models.architecture import Architecture, Tokens
from models.documents import (
    Library,
    changed_document,
    changes_between,
    check_format,
    lineage,
    marked,
    name_from_stem,
    sentence,
    shown,
    within,
)
from models.hugging_face import from_hugging_face, is_hugging_face
from models.layers import LayerPattern, ParameterCounts
from models.schema import BlockShape, Changes, Line, Lines, Model, ModelFileError, Name, ShortText
from models.tuning import ModelTuning

FORMAT = "shardscape-model/1"


class _Described(BaseModel):
    """Fields that every document in our own format has next to its shape."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    name: Name
    title: Line = ""
    family: ShortText = ""
    source: Line = ""
    seq_size: Tokens
    seq_size_basis: Line = ""
    tower: LayerPattern | None = None
    unverified_fields: Lines = ()
    notes: Lines = ()
    left_out: Lines = ()
    derived_from: Line = ""
    changes: Changes = ()
    tuning: ModelTuning | None = None


class _ArchitectureDocument(_Described):
    architecture: Architecture


class _LayersDocument(_Described):
    layers: LayerPattern


class _BlockDocument(_Described, BlockShape):
    """A document has the six numbers next to the name; an architecture may explain them."""

    architecture: Architecture | None = None


_DERIVED = tuple(key for key in BlockShape.model_fields if key != "seq_size")


def load_document(document: object, where: str = "the document", name: str | None = None) -> Model:
    """Returns the model that a parsed JSON document describes: in our own format, Calculon's, or a Hugging Face
    config.json.

    `where` names the document in messages. A document without a name of its own gets `name`, or else the stem of
    `where`.

    Args:
        document: a parsed JSON value of any kind.
        where: name of the document in messages.
        name: for a document that has no name of its own; the stem of `where` where None.

    Raises `ModelFileError` naming the field at fault.
    """
    if not isinstance(document, Mapping):
        raise ModelFileError(f"{where} is {shown(document)}; a model must be an object with named keys.")
    content: dict[str, Any] = dict(document)
    called = name_from_stem(name or PurePath(where).stem)
    if is_hugging_face(content):
        # Every config is named config.json, and by a browser that has one already "config (1).json".
        nameless = re.fullmatch(r"config(uration)?[ ._-]*(\(?\d*\)?)", called, re.IGNORECASE)
        return from_hugging_face(content, None if nameless else called, where=where)
    schema: type[BaseModel] = BlockShape
    try:
        if "format" not in content:
            shape = BlockShape.model_validate(content)
            source = "a Calculon application file"
            return Model(name=called, title=called, source=source, seq_size=shape.seq_size, calculon=shape)
        check_format(content, where, FORMAT, "model", ModelFileError)
        del content["format"]
        derived = ("architecture" in content or "layers" in content) and not any(key in content for key in _DERIVED)
        shapes: type[BaseModel] = _LayersDocument if "layers" in content else _ArchitectureDocument
        schema = shapes if derived else _BlockDocument
        values = dict(schema.model_validate(content))
        given = None if derived else {key: values[key] for key in BlockShape.model_fields}
        for key in _DERIVED:
            values.pop(key, None)
        schema = Model
        return Model.model_validate({**values, "calculon": given})
    except ValidationError as problem:
        hint = ""
        if schema is BlockShape:
            hint = f' (read as a Calculon model; our own format has "format": "{FORMAT}")'
        raise ModelFileError(sentence(problem, schema, where, hint=hint)) from None


def to_document(model: Model) -> dict[str, Any]:
    """Returns the model as a JSON document in our own format, which `load_document` turns into an equal model.

    Args:
        model: one that was read or made.
    """
    document = {"format": FORMAT, **model.model_dump(mode="json", exclude_defaults=True)}
    given = document.pop("calculon", {})
    return {**document, **given}


def to_calculon(model: Model) -> dict[str, int]:
    """Returns the six keys of a Calculon application file; names and sources have no place there.

    Args:
        model: one that was read or made.

    Raises `ModelFileError` where they cannot stand for the model's architecture.
    """
    return model.require_block().model_dump()


def edited(model: Model, changes: Mapping[str, Any], *, name: str | None = None, title: str | None = None) -> Model:
    """Returns a copy of a model with values at paths such as "seq_size" or "architecture.layers" replaced.

    The copy names its original in `derived_from` and all differences from it in `changes`, also after several edits. A
    replaced value is no longer marked as unverified. Without a `name` it gets the original's with " (edited)".

    Args:
        model: to copy; it does not change.
        changes: new values by path, such as "seq_size" or "architecture.layers".
        name: of the copy; the original's with " (edited)" where None.
        title: of the copy; the original's where None.

    Raises `ModelFileError` for a path that leads nowhere or a value no model can have.
    """
    before = _full_document(model)
    document = changed_document(before, changes, "model", ModelFileError)
    document["name"] = name or (model.name if model.derived_from else f"{model.name} (edited)")
    document["title"] = document["title"] if title is None else title
    document["derived_from"] = model.derived_from or model.name
    copied = load_document({"format": FORMAT, **document}, shown(document["name"])[1:-1])
    since = lineage(model.changes, changes_between(before, _full_document(copied), changes))
    unverified = tuple(
        field for field in model.unverified_fields if not any(within(each.field, marked(field)) for each in since)
    )
    return copied.model_copy(update={"changes": since, "unverified_fields": unverified})


def _full_document(model: Model) -> dict[str, Any]:
    """The model with every field of its document that can be edited, also those at their default."""
    document = model.model_dump(mode="json", exclude={"name", "derived_from", "changes"})
    given = document.pop("calculon") or {}
    for shape in ("architecture", "layers"):
        if document[shape] is None:
            del document[shape]
    return {**document, **given}


def tuned(model: Model, values: Mapping[str, Any]) -> Model:
    """Return a model with another trained part, loss or packing of samples; the model itself where nothing differs.

    Args:
        model: the model.
        values: fields of `ModelTuning` by name; others stay as the model has them.

    Raises `ModelFileError` for a value that the model cannot have.
    """
    before = {} if model.tuning is None else dict(model.tuning)
    title = model.title or model.name
    if model.tuning is not None:
        title = title.removesuffix(f", {model.tuning.describe()}")
    try:
        found = ModelTuning.model_validate({**before, **values})
        tuning = None if found == ModelTuning() else found
        if tuning == model.tuning:
            return model
        if tuning is not None:
            title = f"{title}, {tuning.describe()}"
        same = {name: getattr(model, name) for name in Model.model_fields}  # without properties that it has worked out
        return Model.model_validate({**same, "tuning": tuning, "title": title})
    except ValidationError as problem:
        raise ModelFileError(sentence(problem, ModelTuning, model.name).replace(": the document ", " ", 1)) from None


_LIBRARY: Library[Model] = Library("models", "model", ModelFileError, load_document, allows_infinity=is_hugging_face)


def names() -> list[str]:
    """Returns the names of the models in the library, in alphabetical order."""
    return _LIBRARY.names()


def plain_names() -> list[str]:
    """Return the names of the library's models without a pattern of layers, in alphabetical order."""
    return [name for name in names() if load(name).layers is None]


def load(name_or_path: str | os.PathLike[str]) -> Model:
    """Returns the model of a library name, or of a JSON file in our own format, Calculon's, or Hugging Face's
    config.json.

    A text with a path separator or ending in ".json" is a path, anything else a name.

    Args:
        name_or_path: of the library, or of a file.

    Raises `ModelFileError` for an unknown name, and for a file that is no model.
    """
    return _LIBRARY.load(name_or_path)


ModelLike = str | os.PathLike[str] | Model


def parameter_counts(model: ModelLike) -> ParameterCounts:
    """Return the weights of a model, in all and by kind of layer, and the bytes that a sequence keeps of it.

    Args:
        model: name, path or model itself.

    Raises `ModelFileError` as `load` does, and for a model of six block numbers, whose weights are not recorded.
    """
    found = model_of(model)
    if found.counts is None:
        raise ModelFileError(f"{found.name} has block numbers only; its published shape is not recorded.")
    return found.counts


def model_of(model: ModelLike) -> Model:
    """Returns the model itself, or the one of a library name or path.

    Args:
        model: name, path or model itself.

    Raises `ModelFileError` as `load` does.
    """
    return model if isinstance(model, Model) else load(model)
