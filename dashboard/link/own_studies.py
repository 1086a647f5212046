"""Co-design studies of one's own: as a document for files, kept under a title, and short enough for a link."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dashboard.link.document_validation import Refused, checked_title, parse, sentence
from dashboard.link.text_encoding import LONGEST, folded, unfolded
from engine.codesign import FORMAT, Study, said_of
from models.documents import shown

__all__ = [
    "KEPT",
    "OWN",
    "OWN_TEXT",
    "SavedStudy",
    "document_of",
    "kept_document",
    "kept_parameters",
    "packed_study",
    "saved_study_of",
    "study_of",
    "unpacked_study",
]

OWN: Final = "own"
"""Link value for a study of one's own, whose document is in another parameter."""
KEPT: Final = "kept-"
"""Prefix of a link's value before the ident of a study that is kept on the server."""
OWN_TEXT: Final = "_codesign_own"
"""Key of the session's own study as JSON text, for one that is too long for a link."""
SAVED_FORMAT: Final = "shardscape-saved-study/1"


@dataclass(frozen=True, slots=True)
class SavedStudy:
    """A co-design study that a user saved under a title."""

    title: str
    study: Study
    saved_at: float
    """When it was saved first [s since 1970]."""
    ident: str = ""


def document_of(study: Study) -> str:
    """Returns a study as JSON text, its models and systems by name where they are the library's."""
    how: dict[str, Any] = {"mode": "json", "by_alias": True, "exclude_none": True, "exclude_defaults": True}
    said = study.document.model_dump(**how, exclude={"costs"})
    costs = said_of(study.document.costs)
    return json.dumps({"format": FORMAT, **said, **({"costs": costs} if costs else {})}, indent=2)


def study_of(document: object, where: str) -> Study:
    """Returns the study of a parsed document.

    document: parsed JSON. where: its name in messages. Raises `Refused`.
    """
    try:
        return Study.from_document(document, where)
    except ValueError as problem:  # a StudyError, or of a model, a system or a calibration
        raise Refused(sentence(problem)) from None


def packed_study(study: Study) -> str | None:
    """Returns a study as a short text for a link; None where it is too long for any."""
    text = folded(json.dumps(json.loads(document_of(study)), separators=(",", ":")))
    return text if len(text) <= LONGEST else None


def kept_parameters(ident: str) -> dict[str, str | None]:
    """Returns the parameters of a link to a kept study; None removes parameters of another study."""
    return {"codesign_study": f"{KEPT}{ident}", "codesign_own": None, "codesign_design": None}


def unpacked_study(text: str) -> Study:
    """Returns the study in a link. Raises `Refused`."""
    where = "The link's study"
    return study_of(parse(unfolded(text, "study"), where, "study"), where)


def kept_document(saved: SavedStudy) -> dict[str, Any]:
    """Returns a kept study as a JSON document, which `saved_study_of` reads."""
    return {
        "format": SAVED_FORMAT,
        "title": saved.title,
        "saved_at": saved.saved_at,
        "study": json.loads(document_of(saved.study)),
    }


def saved_study_of(document: object, where: str) -> SavedStudy:
    """Returns the kept study of a document.

    document: parsed JSON. where: its name in messages. Raises `Refused`.
    """
    if not isinstance(document, Mapping) or document.get("format") != SAVED_FORMAT:
        given = document.get("format") if isinstance(document, Mapping) else document
        raise Refused(sentence(f"{where} has the format {shown(given)}; this version reads {SAVED_FORMAT}"))
    title, saved_at = document.get("title"), document.get("saved_at")
    if not isinstance(title, str) or isinstance(saved_at, bool) or not isinstance(saved_at, int | float):
        raise Refused(f"{where} lacks a title or the time it was saved at.")
    return SavedStudy(checked_title(title), study_of(document.get("study"), where), float(saved_at))
