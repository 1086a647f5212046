"""Documents of unknown origin, such as scenarios: bounded before they are parsed, checked before they are used.

Every fault of a file or a link ends in one `Refused` with one short sentence; no other exception is raised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import hardware
import models
from dashboard.link.comparison import FORMAT as COMPARISON_FORMAT
from dashboard.link.comparison import LETTERS, Comparison
from engine import CostModelError, LimitError, Scenario, ScenarioError, SpaceError
from engine.codesign import Study, StudyError
from engine.cost_models.registry import chosen_cost_model
from engine.scenarios.scenario import FORMAT
from models.documents import DocumentError, parse_json, shown
from models.hugging_face import is_hugging_face

__all__ = [
    "LONGEST_TITLE",
    "MOST_BYTES",
    "MOST_MEGABYTES",
    "Refused",
    "checked",
    "checked_study",
    "checked_title",
    "comparison_of",
    "kind_of",
    "parse",
    "read",
    "scenario_of",
    "sentence",
]

MOST_BYTES: Final = 1_000_000
MOST_MEGABYTES: Final = MOST_BYTES // 1_000_000
"""Largest document that is parsed [bytes]; real ones have some thousands."""
MOST_BATCHES: Final = 2_000
"""Batch sizes that a document may ask to try."""
LONGEST_SENTENCE: Final = 400
LONGEST_TITLE: Final = 120
"""Longest name or title given by a user [characters]."""

Kind = Literal["scenario", "comparison", "model", "system", "study"]

PROBLEMS: Final = (
    DocumentError,
    LimitError,
    ScenarioError,
    SpaceError,
    StudyError,
    CostModelError,
    models.ModelFileError,
    hardware.SystemFileError,
)
"""Everything that reading a document may raise, each with a sentence."""

_SYSTEM_KEYS: Final = frozenset({"matrix", "vector", "mem1", "mem2", "networks", "processing_mode"})
_MODEL_KEYS: Final = frozenset(
    {"model_type", "architectures", "hidden", "feedforward", "attn_heads", "attn_size", "num_blocks"}
)


class Refused(ValueError):  # noqa: N818 - reads as a sentence where it is raised
    """A document that cannot be used; the message is one sentence."""


def sentence(problem: Exception | str) -> str:
    """Returns a message as one sentence on one line, capitalised and not too long."""
    text = " ".join(str(problem).split())
    text = text if len(text) <= LONGEST_SENTENCE else f"{text[: LONGEST_SENTENCE - 1]}…"
    first = text.partition(" ")[0]
    if first.isalpha():  # a name of a file or field stays as it is
        text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "…")) else f"{text}."


def checked_title(text: str) -> str:
    """Returns a title or name on one line. Raises `Refused`."""
    title = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    if not title or len(title) > LONGEST_TITLE:
        raise Refused(f"A name has 1 to {LONGEST_TITLE} characters; this one has {len(title):,}.")
    return title


def parse(content: bytes, where: str, noun: str = "scenario") -> object:
    """Returns the JSON value in `content`, no larger, deeper or fuller than a real document. Raises `Refused`."""
    if len(content) > MOST_BYTES:
        raise Refused(f"{where} has {len(content):,} bytes; a {noun} of up to {MOST_BYTES:,} is read.")
    try:
        return parse_json(content, where, noun, DocumentError, is_hugging_face)
    except DocumentError as problem:
        raise Refused(sentence(problem)) from None


def kind_of(document: object, where: str) -> Kind:
    """Returns the kind of a parsed document: by its format, else by its keys. Raises `Refused` for other documents."""
    if not isinstance(document, Mapping):
        raise Refused(
            sentence(
                f"{where} is {shown(document)}; it must be a JSON object that describes a model, system or scenario"
            )
        )
    given = document.get("format")
    if isinstance(given, str):
        kinds: tuple[Kind, ...] = ("scenario", "comparison", "model", "system", "study")
        for kind in kinds:
            if given.startswith(f"shardscape-{kind}/"):
                return kind
        raise Refused(
            f"{where} has the format {shown(given)}; read are shardscape-scenario, shardscape-comparison, "
            "shardscape-study, shardscape-model, shardscape-system, Calculon's files and a Hugging Face config.json."
        )
    if _SYSTEM_KEYS & document.keys():
        return "system"
    if _MODEL_KEYS & document.keys():
        return "model"
    if "tensor_par" in document:
        raise Refused(
            f"{where} is an execution, not a model, system or scenario; `shardscape evaluate` reads it with a model "
            "and a system."
        )
    raise Refused(
        f"{where} is no model, system or scenario that can be read: Calculon's and our own JSON, and a Hugging Face "
        "config.json are."
    )


def scenario_of(document: object, where: str) -> Scenario:
    """Returns the scenario of a parsed document, with a space that can be numbered. Raises `Refused`."""
    if isinstance(document, Mapping):
        _not_newer(document.get("format"), FORMAT, where)
    try:
        found = Scenario.from_document(document, where)
        try:
            return checked(found)
        except (*PROBLEMS, Refused) as problem:
            raise Refused(f"{where}: {problem}") from None
    except PROBLEMS as problem:
        raise Refused(sentence(problem)) from None


def comparison_of(document: object, where: str) -> Comparison:
    """Returns the comparison of a parsed document, of scenarios whose spaces can be numbered. Raises `Refused`."""
    if isinstance(document, Mapping):
        _not_newer(document.get("format"), COMPARISON_FORMAT, where)
    try:
        found = Comparison.from_document(document, where)
    except PROBLEMS as problem:
        raise Refused(sentence(problem)) from None
    for letter, scenario in zip(LETTERS, found.scenarios, strict=False):
        try:
            checked(scenario)
        except (*PROBLEMS, Refused) as problem:
            raise Refused(sentence(f"{where}, scenario {letter}: {problem}")) from None
    return found


def checked_study(content: bytes, file: str) -> dict[str, Any]:
    """Returns the parsed document of a co-design study that can be. Raises `Refused`.

    Args:
        content: of the file.
        file: its name.
    """
    where = shown(file)[1:-1]
    document: Any = parse(content, where, "study")
    try:
        Study.from_document(document, where)
    except PROBLEMS as problem:
        raise Refused(sentence(problem)) from None
    return dict(document)


def checked(scenario: Scenario) -> Scenario:
    """Returns the scenario, if its space can be numbered. Raises what `Scenario.space` raises, and `Refused`."""
    batches = scenario.limits.get("batch_size")
    if isinstance(batches, Mapping):
        tried = min(batches["max"], scenario.max_batch_size) - batches["min"] + 1
    else:
        tried = len(batches or ())
    if tried > MOST_BATCHES:
        raise Refused(f"The limits ask for {tried:,} batch sizes; up to {MOST_BATCHES:,} can be tried at once.")
    _ = scenario.space
    return scenario


def _not_newer(given: object, known: str, where: str) -> None:
    name, _, version = known.partition("/")
    found = re.fullmatch(re.escape(name) + r"/(\d{1,9})", given) if isinstance(given, str) else None
    if found is not None and int(found.group(1)) > int(version):
        raise Refused(
            f"{where} was written by a newer Shardscape (format {found.group(1)}); this one reads format {version}. "
            "Update this server to open it."
        )


def read(content: bytes, file: str) -> models.Model | hardware.System | Scenario | Comparison | Study:
    """Returns what an uploaded file describes: a model, a system, a scenario, a comparison or a co-design study, in any
    format that is read.

    file: its name; a document without a name of its own is called by its stem. Raises `Refused`.
    """
    where = shown(file)[1:-1]
    document: Any = parse(content, where, "model, system or scenario")
    kind = kind_of(document, where)
    if kind == "scenario":
        return scenario_of(document, where)
    if kind == "comparison":
        return comparison_of(document, where)
    try:
        if kind == "study":
            return Study.from_document(document, where)
        if kind == "model":
            return models.load_document(document, where)
        system = hardware.load_document(document, where)
        chosen_cost_model(None, system)
        return system
    except PROBLEMS as problem:
        raise Refused(sentence(problem)) from None
