"""Model cards of one's own with what was measured of them: as a document for files, and short enough for a link."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dashboard.link.document_validation import Refused, parse, sentence
from dashboard.link.text_encoding import folded, unfolded
from engine.planners.contract import PlanError
from engine.planners.elastic import ModelCard, read_measurements
from engine.planners.elastic.cards import sent_card, to_document
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
        """Name of the model card."""
        return self.card.name


def document_of(own: OwnCard) -> dict[str, Any]:
    """Returns a card with its measurements as a JSON document, which `own_card_of` reads."""
    return {"format": FORMAT, "card": to_document(own.card), "measurements": own.measurements}


def own_card_of(document: object, where: str) -> OwnCard:
    """Returns the card of a document: one with measurements, or a card alone, also with the artifact's keys.

    See `engine.planners.elastic.cards.sent_card`.

    document: parsed JSON. where: its name in messages. Raises `Refused`.
    """
    measurements = None
    if isinstance(document, Mapping) and document.get("format") == FORMAT:
        if unknown := sorted(str(key) for key in document.keys() - _KEYS):
            raise Refused(f"{where} has no field {shown(unknown[0])}; there are card and measurements.")
        measurements, document = document.get("measurements"), document.get("card")
    try:
        card = sent_card(document, where)
        if measurements is not None:
            if not isinstance(measurements, str):
                raise Refused(f"{where} has measurements {shown(measurements)}; they must be the text of a CSV.")
            measurements = f"{measurements.rstrip()}\n"  # a line end makes it text: never the path of a file
            read_measurements(measurements, name=card.name)
    except PlanError as problem:
        raise Refused(sentence(problem)) from None
    return OwnCard(card, measurements)


def packed_card(own: OwnCard) -> str | None:
    """Returns a card with its measurements as a short text for a link; None where it is too long for one."""
    text = folded(json.dumps(document_of(own), separators=(",", ":"), ensure_ascii=False, allow_nan=False))
    return text if len(text) <= IN_LINKS else None


def unpacked_card(text: str) -> OwnCard:
    """Returns the card in a link. Raises `Refused`."""
    where = "The link's model card"
    return own_card_of(parse(unfolded(text, "model card"), where, "model card"), where)
