"""Models and systems to choose from, with their titles: the library's and the server's own."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

import hardware
import models
from dashboard.link.user_files import user_files
from dashboard.words.scenarios import system_titles
from hardware import System
from models import Model

__all__ = [
    "called",
    "known_models",
    "list_computing_systems",
    "list_model_titles",
    "list_system_titles",
    "model_of",
    "name_or_first",
    "named_model",
    "named_system",
    "system_of",
    "systems",
    "usable_models",
]


@lru_cache(maxsize=1)
def _library_models() -> list[str]:
    found = [models.load(name) for name in models.names()]
    return [model.name for model in sorted(found, key=lambda model: (model.family.lower(), model.title.lower()))]


def known_models() -> list[str]:
    """Returns names of all models: own ones first, then by family and title."""
    return [*sorted(user_files().models(), key=str.lower), *_library_models()]


def usable_models() -> list[str]:
    """Returns names of the models that a scenario can have, in the order of `known_models`.

    Models that Calculon's six numbers cannot represent use the calibrated cost model.
    """
    return known_models()


def systems() -> list[str]:
    """Returns names of the systems: own ones first."""
    return [*sorted(user_files().systems(), key=str.lower), *hardware.names()]


def model_of(name: str) -> Model:
    """Returns a model by name, of the library or kept here. Raises `models.ModelFileError`."""
    # The library first, whose names no own file may have: lists ask for every name in every run of a page.
    own = {} if name in models.names() else user_files().models()
    return own[name] if name in own else models.load(name)


def system_of(name: str) -> System:
    """Returns a system by name, of the library or kept here. Raises `hardware.SystemFileError`."""
    own = {} if name in hardware.names(with_variants=True) else user_files().systems()
    return own[name] if name in own else hardware.load(name)


def named_model(name: str) -> str | dict[str, Any]:
    """Return a model as questions have it: the name of the library, or the document of an own model.

    Raises `models.ModelFileError`.
    """
    return name if name in models.names() else models.to_document(model_of(name))


def named_system(name: str) -> str | dict[str, Any]:
    """Return a system as questions have it: the name of the library, or the document of an own system.

    Raises `hardware.SystemFileError`.
    """
    return name if name in hardware.names(with_variants=True) else hardware.to_document(system_of(name))


def list_model_titles() -> dict[str, str]:
    """Return titles of the usable models by name, for a list; the name of a model whose file cannot be read."""
    return {name: _model_title(name) for name in usable_models()}


def _model_title(name: str) -> str:
    try:
        return model_of(name).title or name
    except models.ModelFileError:
        return name


def list_system_titles() -> dict[str, str]:
    """Return short titles of the systems by name, for a list; the name of a system whose file cannot be read."""
    found = {}
    for name in systems():
        with suppress(hardware.SystemFileError):
            found[name] = system_of(name)
    return {name: name for name in systems()} | system_titles(found)


def list_computing_systems(datatype: str) -> dict[str, str]:
    """Return titles of the systems that compute in a datatype, by name; with those whose file cannot be read, which
    are refused once they are chosen.

    Args:
        datatype: name in the register.
    """
    return {name: title for name, title in list_system_titles().items() if _computes_in(name, datatype)}


def _computes_in(name: str, datatype: str) -> bool:
    try:
        return system_of(name).has_rate(datatype)
    except hardware.SystemFileError:
        return True


def name_or_first(name: str, titles: Mapping[str, str], usual: str | None = None) -> str:
    """Return a name if it can be chosen, else a usual one, else the first that can.

    Args:
        name: such as the scenario's.
        titles: of the choices by name; at least one.
        usual: name in place of the first.
    """
    if name in titles:
        return name
    return usual if usual is not None and usual in titles else next(iter(titles))


def called(name: str, kind: type[Model] | type[System]) -> str:
    """Returns the title of a model or system of the library by its name; the name itself if it has no title or is not
    in the library.

    The name may come from a document of unknown origin: it is looked up, and never opened as a path.
    """
    if kind is Model:
        known = name in models.names() or name in user_files().models()
        return (model_of(name).title if known else "") or name
    known = name in hardware.names(with_variants=True) or name in user_files().systems()
    return (system_of(name).title if known else "") or name
