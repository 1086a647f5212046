"""Systems from JSON: our own format, Calculon's, the library; and back to both formats."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from hardware.editing import SystemFileError
from hardware.schema import System
from hardware.variants import SEPARATOR, variants
from models.documents import Library, check_format, did_you_mean, name_from_stem, sentence, shown

FORMAT = "shardscape-system/1"
_CALCULON_KEYS = ("matrix", "vector", "mem1", "mem2", "processing_mode", "networks")


def load_document(document: object, where: str = "the document", name: str | None = None) -> System:
    """Returns the system that a parsed JSON document describes, in our own format or Calculon's.

    `where` names the document in messages. A Calculon document has no name of its own and gets `name`, or else the stem
    of `where`.

    Args:
        document: a parsed JSON value of any kind.
        where: name of the document in messages.
        name: for a document that has no name of its own; the stem of `where` where None.

    Raises `SystemFileError` naming the field at fault.
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
        content.update(name=called, title=called, source="a Calculon system file", cost_model="calculon")
        return System.model_validate(content, by_name=False, by_alias=True)
    except ValidationError as problem:
        raise SystemFileError(sentence(problem, System, where, by_alias=calculon)) from None


def to_document(system: System) -> dict[str, Any]:
    """Returns the system as a JSON document in our own format, which `load_document` turns into an equal system.

    Args:
        system: one that was read or made.
    """
    return {"format": FORMAT, **system.model_dump(mode="json", by_alias=False)}


def to_calculon(system: System) -> dict[str, Any]:
    """Returns the system as a Calculon system file; names, sources and assumptions have no place there.

    Args:
        system: one that was read or made.
    """
    document = system.model_dump(mode="json", by_alias=True, include=set(_CALCULON_KEYS))
    for network in document["networks"]:
        network["ops"] = {name: [each["scalar"], each["offset"]] for name, each in network["ops"].items()}
        for ours in ("name", "within_node"):
            network.pop(ours, None)
    return document


_LIBRARY: Library[System] = Library("hardware", "system", SystemFileError, load_document)


def names(*, with_variants: bool = False) -> list[str]:
    """Returns the names of the systems in the library, in alphabetical order; each followed by its variants where
    wanted.

    Args:
        with_variants: whether each name is followed by its variants' names.
    """
    found = _LIBRARY.names()
    if not with_variants:
        return found
    return [each for name in found for each in (name, *variant_names(name))]


def variant_names(name: str) -> list[str]:
    """Returns the names of the variants of a library system, such as "a100_80g_sxm@50g"; none for a system without.

    Args:
        name: of a library system.
    """
    return [f"{name}{SEPARATOR}{short}" for short in variants().get(name, {})]


def load(name_or_path: str | os.PathLike[str]) -> System:
    """Returns the system of a library name, of a variant's, or of a JSON file in our own format or Calculon's.

    A text with a path separator or ending in ".json" is a path, anything else a name: "a100_80g_sxm", or
    "a100_80g_sxm@50g" for one of its `variant_names`.

    Args:
        name_or_path: of the library, or of a file.

    Raises `SystemFileError` for an unknown name, and for a file that is no system.
    """
    if isinstance(name_or_path, str) and SEPARATOR in name_or_path:
        name, _, short = name_or_path.rpartition(SEPARATOR)
        if name in _LIBRARY.names():
            return _load_variant(name, short)
    return _LIBRARY.load(name_or_path)


@functools.lru_cache(maxsize=256)
def _load_variant(name: str, short: str) -> System:
    known = variants().get(name, {})
    if short not in known:
        has = f"there are {', '.join(variant_names(name))}" if known else "it has none"
        raise SystemFileError(
            f"The system '{name}' has no variant {shown(short)}{did_you_mean(short, list(known))}; {has}."
        )
    return known[short].of(_LIBRARY.load(name), f"{name}{SEPARATOR}{short}")


SystemLike = str | os.PathLike[str] | System


def system_of(system: SystemLike) -> System:
    """Returns the system itself, or the one of a library name or path.

    Args:
        system: name, path or system itself.

    Raises `SystemFileError` as `load` does.
    """
    return system if isinstance(system, System) else load(system)
