"""Editable phrases of a study's sentence.

Text and document are equivalent: `changed` with a phrase's own text returns the same study.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dashboard.link.own_studies import document_of
from engine.codesign import Study, StudyError
from models.documents import shown

__all__ = ["Phrase", "changed", "phrases"]

Document = dict[str, Any]
_RANGE: Final = re.compile(r"(\S+) to (\S+) in (\d+)( log)?")
_FOLLOW: Final = re.compile(r"(\S+) follows (\S+)(?: \^ ?(\S+))?")
_BOUND: Final = re.compile(r"(\S+?)(?: at least (\S+))?(?: at most (\S+))?")
_RELATIVE: Final = " times own"
_PER: Final = " per processor"
_WEIGHT: Final = " × "


@dataclass(frozen=True, slots=True)
class Phrase:
    """One part of a study: the words before it in the sentence, its label, its text, and how to write it."""

    name: str
    before: str
    label: str
    text: str
    help: str
    lines: bool = False
    """Draw a multi-line field."""


def phrases(study: Study) -> list[Phrase]:
    """Returns the parts of a study, in the order of its sentence."""
    said = json.loads(document_of(study))
    return [
        Phrase(name, before, label, write(said, study), told, lines)
        for name, (before, label, told, lines, write, _) in _PARTS.items()
    ]


def changed(study: Study, name: str, text: str) -> Study:
    """Returns a study with another text for one of its parts. Raises ValueError with one sentence.

    Args:
        study: the study.
        name: name of the part.
        text: as `Phrase.text`.
    """
    said = json.loads(document_of(study))
    _PARTS[name][-1](said, text.strip(), study)
    return Study.from_document(said)


def _parse_number(text: str) -> float | int:
    plain = text.strip().replace("_", "")
    try:
        return int(plain) if re.fullmatch(r"[+-]?\d+", plain) else float(plain)
    except ValueError:
        raise StudyError(f"{shown(text.strip())} is not a number; write one such as 40 or 2.5e6.") from None


def _split_list(text: str) -> list[str]:
    return [each.strip() for each in text.replace("\n", ",").split(",") if each.strip()]


def _format_number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def _document_names(given: Sequence[Any], known: Sequence[Any]) -> list[str]:
    """Return names of models or systems; documents embedded in the study are replaced by their names."""
    return [each if isinstance(each, str) else one.name for each, one in zip(given, known, strict=True)]


def _embedded_documents(given: Sequence[Any], known: Sequence[Any]) -> Mapping[str, Any]:
    return {one.name: each for each, one in zip(given, known, strict=True) if not isinstance(each, str)}


def _models_text(said: Document, study: Study) -> str:
    names = _document_names([each["model"] for each in said["models"]], study.models)
    weights = [each.get("weight", 1) for each in said["models"]]
    return ", ".join(
        f"{name}{_WEIGHT}{_format_number(weight)}" if weight != 1 else name
        for name, weight in zip(names, weights, strict=True)
    )


def _models_read(said: Document, text: str, study: Study) -> None:
    whole = _embedded_documents([each["model"] for each in said["models"]], study.models)
    found = []
    for each in _split_list(text):
        name, _, weight = each.partition(_WEIGHT.strip())
        name = name.strip()
        found.append({"model": whole.get(name, name)} | ({"weight": _parse_number(weight)} if weight else {}))
    said["models"] = found


def _systems_read(said: Document, text: str, study: Study) -> None:
    whole = _embedded_documents(said["systems"], study.systems)
    said["systems"] = [whole.get(each, each) for each in _split_list(text)]


def _batches_text(said: Document, study: Study) -> str:
    return ", ".join(
        str(each["samples"]) if "samples" in each else f"{_format_number(each['per_processor'])}{_PER}"
        for each in said["batches"]
    )


def _batches_read(said: Document, text: str, study: Study) -> None:
    said["batches"] = [
        {"per_processor": _parse_number(each.removesuffix(_PER))}
        if each.endswith(_PER)
        else {"samples": _parse_number(each)}
        for each in _split_list(text)
    ]


def _edits_text(said: Document, study: Study) -> str:
    lines = []
    for each in said.get("edits", ()):
        several = isinstance(each["parameter"], list)
        if "values" in each:
            values = ", ".join(
                "/".join(map(_format_number, row)) if isinstance(row, list) else _format_number(row)
                for row in each["values"]
            )
        else:
            scale = " log" if each.get("scale") == "log" else ""
            values = f"{_format_number(each['from'])} to {_format_number(each['to'])} in {each['count']}{scale}"
        name = "/".join(each["parameter"]) if several else each["parameter"]
        lines.append(f"{name}: {values}{_RELATIVE if each.get('relative') else ''}")
    for each in said.get("follow", ()):
        power = each.get("exponent", 1.0)
        lines.append(
            f"{each['parameter']} follows {each['follows']}{f' ^ {_format_number(power)}' if power != 1 else ''}"
        )
    return "\n".join(lines)


def _edits_read(said: Document, text: str, study: Study) -> None:
    edits: list[Document] = []
    follow: list[Document] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        if (match := _FOLLOW.fullmatch(line)) is not None:
            follow.append({"parameter": match[1], "follows": match[2], "exponent": _parse_number(match[3] or "1")})
            continue
        name, colon, values = line.partition(":")
        if not colon:
            raise StudyError(
                f"{shown(line)} is not a change; write one such as hbm_capacity: 40, 80 or "
                "hbm_capacity: 20 to 160 in 8."
            )
        relative = values.rstrip().endswith(_RELATIVE)
        values = values.rstrip().removesuffix(_RELATIVE).strip()
        names = [each.strip() for each in name.split("/")]
        edit: Document = {"parameter": names if len(names) > 1 else names[0], "relative": relative}
        if (match := _RANGE.fullmatch(values)) is not None:
            edit |= {
                "from": _parse_number(match[1]),
                "to": _parse_number(match[2]),
                "count": _parse_number(match[3]),
                "scale": "log" if match[4] else "linear",
            }
        else:
            edit["values"] = [
                [_parse_number(one) for one in each.split("/")] if len(names) > 1 else _parse_number(each)
                for each in _split_list(values)
            ]
        edits.append(edit)
    said["edits"], said["follow"] = edits, follow


def _bounds_text(said: Document, study: Study) -> str:
    def bound(each: Document) -> str:
        least, most = (
            f" at {word} {_format_number(each[f'at_{word}'])}" if f"at_{word}" in each else ""
            for word in ("least", "most")
        )
        return f"{each['quantity']}{least}{most}"

    return "\n".join(map(bound, said.get("constraints", ())))


def _bounds_read(said: Document, text: str, study: Study) -> None:
    said["constraints"] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        match = _BOUND.fullmatch(line)
        if match is None or (match[2] is None and match[3] is None):
            raise StudyError(f"{shown(line)} is not a constraint; write one such as usd at most 2e7.")
        ends = {"at_least": match[2], "at_most": match[3]}
        said["constraints"].append(
            {"quantity": match[1]} | {end: _parse_number(value) for end, value in ends.items() if value is not None}
        )


def _list_phrase(key: str) -> tuple[Callable[[Document, Study], str], Callable[[Document, str, Study], None]]:
    """Return the writer and the reader of a phrase that is a plain list of texts or numbers."""

    def read(said: Document, text: str, study: Study) -> None:
        said[key] = [_parse_number(each) if key == "sizes" else each for each in _split_list(text)]

    return (lambda said, study: ", ".join(map(str, getattr(study.document, key)))), read


_PARTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "models": (
        "Train",
        "Models",
        "Names, with × and a weight in the mix if it is not 1.",
        False,
        _models_text,
        _models_read,
    ),
    "sizes": ("on", "Processors", "Sizes of the machine.", False, *_list_phrase("sizes")),
    "systems": (
        "×",
        "Systems",
        "Names of systems.",
        False,
        lambda said, study: ", ".join(_document_names(said["systems"], study.systems)),
        _systems_read,
    ),
    "datatypes": ("in", "Datatypes", "Names of datatypes.", False, *_list_phrase("datatypes")),
    "batches": (
        "with batches of",
        "Batches",
        "Samples of a step, or a number per processor: 2 per processor.",
        False,
        _batches_text,
        _batches_read,
    ),
    "edits": (
        "changing",
        "Changes",
        "One a line. hbm_capacity: 40, 80 or net1_bandwidth: 25 to 400 in 5 log; several "
        "at once host_capacity/host_bandwidth: 0/450, 512/900; multiples of what a system has with times own at "
        "the end; hbm_bandwidth follows hbm_capacity ^ 0.5.",
        True,
        _edits_text,
        _edits_read,
    ),
    "objectives": (
        "for the best in",
        "Objectives",
        "Up to three quantities, such as tokens_per_s, usd.",
        False,
        *_list_phrase("objectives"),
    ),
    "constraints": ("where", "Constraints", "One a line, such as usd at most 2e7.", True, _bounds_text, _bounds_read),
}
"""Name of a part -> (words before it, label, help, multi-line, function that writes its text, function that reads it).
"""
