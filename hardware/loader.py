"""Systems from JSON: our own format, Calculon's, the library; and back to both formats."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from hardware.schema import System
from models.documents import DocumentError, Library, check_format, name_from_stem, sentence, shown

FORMAT = "shardscape-system/1"
_CALCULON_KEYS = ("matrix", "vector", "mem1", "mem2", "processing_mode", "networks")


class SystemFileError(DocumentError):
    """A system that cannot be used: an unknown name, an unreadable file, or a document that is not a system."""


def load_document(document: object, where: str = "the document", name: str | None = None) -> System:
    """The system that a parsed JSON document describes, in our own format or Calculon's.

    `where` names the document in messages. A Calculon document has no name of its own and gets `name`, or else the stem
    of `where`. Raises `SystemFileError`.
    """
    if not isinstance(document, Mapping):
        raise SystemFileError(f"{where} is {shown(document)}; a system must be an object with named keys.")
    content: dict[str, Any] = dict(document)
    calculon = "format" not in content
    try:
        if not calculon:
            check_format(content, where, FORMAT, "system", SystemFileError)
            del content["format"]
            return System.model_validate(content, by_name=True, by_alias=False)
        unknown = [f"unknown key {shown(key)}" for key in content if key not in _CALCULON_KEYS]
        missing = [f"key '{key}' is missing" for key in _CALCULON_KEYS if key not in content]
        if fault := next(iter(unknown + missing), None):
            raise SystemFileError(
                f"{where}: {fault}; accepted keys here: {', '.join(_CALCULON_KEYS)} "
                f'(read as a Calculon system; our own format has "format": "{FORMAT}").'
            )
        called = name_from_stem(name or PurePath(where).stem)
        content.update(name=called, title=called, source="a Calculon system file")
        return System.model_validate(content, by_name=False, by_alias=True)
    except ValidationError as problem:
        raise SystemFileError(sentence(problem, System, where, by_alias=calculon)) from None


def to_document(system: System) -> dict[str, Any]:
    """The system as a JSON document in our own format, which `load_document` turns into an equal system."""
    return {"format": FORMAT, **system.model_dump(mode="json", by_alias=False)}


def to_calculon(system: System) -> dict[str, Any]:
    """The system as a Calculon system file; names, sources and assumptions have no place there."""
    document = system.model_dump(mode="json", by_alias=True, include=set(_CALCULON_KEYS))
    for network in document["networks"]:
        network["ops"] = {name: [each["scalar"], each["offset"]] for name, each in network["ops"].items()}
    return document


_LIBRARY: Library[System] = Library("hardware", "system", SystemFileError, load_document)


def names() -> list[str]:
    """Names of the systems in the library, in alphabetical order."""
    return _LIBRARY.names()


def load(name_or_path: str | os.PathLike[str]) -> System:
    """The system of a library name, or of a JSON file in our own format or Calculon's.

    A text with a path separator or ending in ".json" is a path, anything else a name. Raises `SystemFileError`.
    """
    return _LIBRARY.load(name_or_path)
