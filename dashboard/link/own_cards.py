"""Model cards of one's own with what was measured of them: as a document for files, and short enough for a link."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import hardware
import models
from dashboard.link.document_validation import Refused, parse, sentence
from dashboard.link.folding import folded, unfolded
from engine.planners.contract import PlanError
from engine.planners.elastic import ModelCard, card_names, read_measurements
from engine.planners.elastic.cards import load_card_document, to_document
from models.documents import shown

__all__ = ["IN_LINKS", "OwnCard", "document_of", "own_card_of", "packed_card", "unpacked_card"]

FORMAT: Final = "shardscape-own-card/1"
IN_LINKS: Final = 12_000
"""Characters that a card with its measurements may have in a link, beside a scenario."""
_KEYS: Final = frozenset({"format", "card", "measurements"})


@dataclass(frozen=True, slots=True)
class OwnCard:
    """A model card of one's own, and the text of a CSV with what was measured of it, None where nothing was."""

    card: ModelCard
    measurements: str | None = None

    @property
    def name(self) -> str:
        """What it is called."""
        return self.card.name


def document_of(own: OwnCard) -> dict[str, Any]:
    """Returns a card with its measurements as a JSON document, which `own_card_of` reads."""
    return {"format": FORMAT, "card": to_document(own.card), "measurements": own.measurements}


def own_card_of(document: object, where: str) -> OwnCard:
    """Returns the card of a document: one with measurements, or a card alone, also with the artifact's keys.

    Its model and system have to be of the library: no name becomes a path. A card that is called as one of the library
    gets another name, so that no trace of the library stands for what was measured of it.

    document: parsed JSON. where: its name in messages. Raises `Refused`.
    """
    measurements = None
    if isinstance(document, Mapping) and document.get("format") == FORMAT:
        if unknown := sorted(str(key) for key in document.keys() - _KEYS):
            raise Refused(f"{where} has no field {shown(unknown[0])}; there are card and measurements.")
        measurements, document = document.get("measurements"), document.get("card")
    try:
        card = load_card_document(document, where)
        if measurements is not None:
            if not isinstance(measurements, str):
                raise Refused(f"{where} has measurements {shown(measurements)}; they must be the text of a CSV.")
            measurements = f"{measurements.rstrip()}\n"  # a line end makes it text: never the path of a file
            read_measurements(measurements, name=card.name)
    except PlanError as problem:
        raise Refused(sentence(problem)) from None
    for what, given, known in (
        ("model", card.library_model, models.names()),
        ("system", card.system, hardware.names(with_variants=True)),
    ):
        if given is not None and given not in known:
            raise Refused(f"The card's {what} {given[:60]!r} is none of the library.")
    if card.name in card_names():
        card = card.model_copy(update={"name": f"my {card.name}"})
    return OwnCard(card, measurements)


def packed_card(own: OwnCard) -> str | None:
    """Returns a card with its measurements as a short text for a link; None where it is too long for one."""
    text = folded(json.dumps(document_of(own), separators=(",", ":"), ensure_ascii=False, allow_nan=False))
    return text if len(text) <= IN_LINKS else None


def unpacked_card(text: str) -> OwnCard:
    """Returns the card in a link. Raises `Refused`."""
    where = "The link's model card"
    return own_card_of(parse(unfolded(text, "model card"), where), where)
