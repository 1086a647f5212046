"""Model cards from JSON: our own format, the artifact's keys, the library; edited copies, and back to files."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, Final

from pydantic import ValidationError

import hardware
import models
from engine.planners.elastic.cards.schema import CardError, ModelCard
from models.documents import (
    Library,
    changed_document,
    check_format,
    name_from_stem,
    sentence,
    shown,
)

__all__ = [
    "FORMAT",
    "card_names",
    "changed_card",
    "load_card",
    "load_card_document",
    "save_card",
    "sent_card",
    "to_document",
]

FORMAT: Final = "shardscape-elastic-card/1"


def load_card_document(document: object, where: str = "the model card", name: str | None = None) -> ModelCard:
    """Returns the card that a parsed JSON document describes, in our own format or with the artifact's keys.

    A document with several cards by name, such as the artifact's deployed parameters, gives the one called `name`.

    Args:
        document: a parsed JSON value of any kind.
        where: name of the document in messages.
        name: for a document that has no name of its own; the stem of `where` where None.

    Raises `CardError` naming the field at fault.
    """
    if not isinstance(document, Mapping):
        raise CardError(f"{where} is {shown(document)}; a model card must be an object with named keys.")
    content: dict[str, Any] = {str(key): value for key, value in document.items()}
    if "format" in content:
        check_format(content, where, FORMAT, "model card", CardError)
        del content["format"]
    elif name in content and isinstance(content[str(name)], Mapping):
        content = dict(content[str(name)])
    elif content and all(isinstance(each, Mapping) for each in content.values()):
        listed = ", ".join(list(content)[:12])
        raise CardError(f"{where} holds several model cards ({listed}); give the name of one of them.")
    content.setdefault("name", name_from_stem(name or PurePath(where).stem))
    try:
        return ModelCard.model_validate(content)
    except ValidationError as problem:
        raise CardError(sentence(problem, ModelCard, where)) from None


_LIBRARY: Library[ModelCard] = Library(
    "engine.planners.elastic.cards", "model card", CardError, load_card_document, "library"
)


def card_names() -> list[str]:
    """Returns the names of all model cards of the library, in alphabetical order."""
    return _LIBRARY.names()


def load_card(card: ModelCard | Mapping[str, Any] | str | os.PathLike[str]) -> ModelCard:
    """Returns a model card from a card, a parsed document, a name of the library, or the path of a JSON file.

    Args:
        card: any of these.

    Raises `CardError` for anything else, or an invalid card.
    """
    if isinstance(card, ModelCard):
        return card
    if isinstance(card, Mapping):
        return load_card_document(card)
    return _LIBRARY.load(card)


def sent_card(document: object, where: str = "the model card") -> ModelCard:
    """Returns the card of an uploaded document. Its model and system must be library names, never paths, and a card
    named like one of the library is renamed, so that no library trace counts as its measurements.

    Args:
        document: a parsed JSON value of any kind.
        where: name of the document in messages.

    Raises `CardError` naming the field at fault.
    """
    card = load_card_document(document, where)
    for what, given, known in (
        ("model", card.library_model, models.names()),
        ("system", card.system, hardware.names(with_variants=True)),
    ):
        if given is not None and given not in known:
            raise CardError(f"The card's {what} {given[:60]!r} is none of the library.")
    return card.model_copy(update={"name": f"my {card.name}"}) if card.name in card_names() else card


def to_document(card: ModelCard) -> dict[str, Any]:
    """Returns the card as a JSON document in our own format, which `load_card_document` turns into an equal card.

    Args:
        card: one that was read or made.
    """
    return {"format": FORMAT, **card.model_dump(mode="json", by_alias=False)}


def changed_card(card: ModelCard, changes: Mapping[str, Any], name: str | None = None) -> ModelCard:
    """Returns a copy of a card with values at dotted paths replaced, such as `{"performance.k_bwd": 2.1}`.

    Args:
        card: stays as it is.
        changes: new values by dotted path.
        name: of the copy; that of the card where None.

    Raises `CardError` for a path that leads nowhere, or a value that is not accepted there.
    """
    document = changed_document(to_document(card), changes, "model card", CardError)
    if name is not None:
        document["name"] = name
    return load_card_document(document, f"The model card {shown(card.name)}")


def save_card(card: ModelCard, path: str | os.PathLike[str]) -> None:
    """Writes the card as a JSON file, which `load_card` reads.

    Args:
        card: to write.
        path: of the file; an existing file is replaced.

    Raises `CardError` where it cannot be written.
    """
    text = json.dumps(to_document(card), indent=1, ensure_ascii=False) + "\n"
    try:
        Path(path).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CardError(f"{shown(os.fspath(path))[1:-1]} cannot be written: {reason}.") from None
