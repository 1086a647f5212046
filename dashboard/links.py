"""A scenario as the parameters of a link, and back.

The model and the system travel by library name, the limits as compact text such as
`tensor_par:1,2,4;pipeline_par:..8;weight_offload:off`. A scenario whose model or system is in no library travels as
one compressed document instead. What a link says is never trusted: every part is checked, and a part that cannot be
read gives way to the default with a sentence that says so.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

import hardware
import models
from engine import LimitError, Scenario, ScenarioError, SpaceError
from engine.columns import by_name
from engine.limits import OPTIONS, normalise

__all__ = [
    "DEFAULT",
    "NAMES",
    "LinkError",
    "Reading",
    "limits_from_text",
    "limits_to_text",
    "parameters_of",
    "read_scenario",
]

DEFAULT: Final[Mapping[str, str]] = {
    "model": "gpt3-175B",
    "system": "h100_80g_nvl8",
    "procs": "512",
    "batch": "512",
    "type": "float16",
    "limits": "",
}
"""The scenario of a link that says nothing: 6,582,816 executions."""

NAMES: Final = (*DEFAULT, "scenario")
"""Every parameter that tells scenarios apart."""

LONGEST_LINK: Final = 30_000
"""Characters of a compressed scenario that are looked at; browsers and proxies seldom pass on more."""
LARGEST_DOCUMENT: Final = 1_000_000
"""Bytes that a compressed scenario may unfold to."""
LONGEST_LIMITS: Final = 4_000
"""Characters of limits that are looked at."""
MOST_BATCHES: Final = 2_000
"""Batch sizes that a link may ask to try."""

_SHOWN: Final = 60
_RANGE: Final = re.compile(r"(\d{0,12})\.\.(\d{0,12})")
_NUMBER: Final = re.compile(r"\d{1,12}")
_SWITCH: Final = {"on": True, "off": False}

Part = TypeVar("Part")


class LinkError(ValueError):
    """A part of a link cannot be read; the message says which and what would be accepted."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a link says: the scenario, and a sentence per part that could not be taken as it stands."""

    scenario: Scenario
    problems: tuple[str, ...] = ()


def read_scenario(parameters: Mapping[str, str]) -> Reading:
    """The scenario of a link; parts that cannot be read are the default's, and `problems` says so. Never raises."""
    return _read(tuple(sorted((name, parameters[name]) for name in NAMES if parameters.get(name))))


@lru_cache(maxsize=256)
def _read(given: tuple[tuple[str, str], ...]) -> Reading:
    parameters = dict(given)
    problems: list[str] = []

    def part(name: str, read: Callable[[str], Part]) -> Part:
        text = parameters.get(name, DEFAULT[name])
        try:
            return read(text)
        except (LinkError, LimitError, models.ModelFileError, hardware.SystemFileError) as problem:
            problems.append(f"{_sentence(problem)} Showing {name} {DEFAULT[name] or 'without limits'} instead.")
            return read(DEFAULT[name])

    try:
        if "scenario" in parameters:
            return Reading(_checked(_unpacked(parameters["scenario"])))
        scenario = Scenario.of(
            part("model", _model),
            part("system", _system),
            num_procs=part("procs", lambda text: _whole("procs", text)),
            max_batch_size=part("batch", lambda text: _whole("batch", text)),
            datatype=parameters.get("type", DEFAULT["type"]),
            limits=part("limits", limits_from_text),
        )
        if scenario.datatype not in scenario.system.matrix:
            first = next(iter(scenario.system.matrix))
            if "type" in parameters:
                accepted = ", ".join(scenario.system.matrix)
                problems.append(
                    f"{scenario.system.name} has no rates for {_short(scenario.datatype)}, only for {accepted}. "
                    f"Showing {first} instead."
                )
            scenario = Scenario.of(
                scenario.model,
                scenario.system,
                num_procs=scenario.num_procs,
                max_batch_size=scenario.max_batch_size,
                datatype=first,
                limits=scenario.limits,
            )
        return Reading(_checked(scenario), tuple(problems))
    except (
        LinkError, LimitError, SpaceError, ScenarioError, models.ModelFileError, hardware.SystemFileError,
    ) as problem:  # fmt: skip
        problems.append(f"{_sentence(problem)} Showing the default scenario instead.")
        return Reading(_default(), tuple(problems))


@lru_cache(maxsize=1)
def _default() -> Scenario:
    return Scenario.of(
        DEFAULT["model"],
        DEFAULT["system"],
        num_procs=int(DEFAULT["procs"]),
        max_batch_size=int(DEFAULT["batch"]),
        datatype=DEFAULT["type"],
    )


def parameters_of(scenario: Scenario) -> dict[str, str]:
    """The parameters of a link to a scenario; reading them gives an equal scenario."""
    named = _in_library(models.load, scenario.model) and _in_library(hardware.load, scenario.system)
    if not named:
        return {"scenario": _packed(scenario)}
    result = {
        "model": scenario.model.name,
        "system": scenario.system.name,
        "procs": str(scenario.num_procs),
        "batch": str(scenario.max_batch_size),
        "type": scenario.datatype,
    }
    if scenario.limits:
        result["limits"] = limits_to_text(scenario.limits)
    return result


def limits_to_text(limits: Mapping[str, Any]) -> str:
    """Normalised limits as compact text."""
    return ";".join(f"{name}:{_limit_to_text(limit)}" for name, limit in limits.items())


def _limit_to_text(limit: Any) -> str:
    if isinstance(limit, Mapping):
        return f"{limit['min']}..{limit['max']}"
    values = limit if isinstance(limit, list) else [limit]
    return ",".join("on" if value is True else "off" if value is False else str(value) for value in values)


def limits_from_text(text: str) -> dict[str, Any]:
    """Normalised limits from compact text. Raises `LinkError` or `engine.LimitError`."""
    if len(text) > LONGEST_LIMITS:
        raise LinkError(f"The limits have {len(text):,} characters; up to {LONGEST_LIMITS:,} are read.")
    limits: dict[str, Any] = {}
    for piece in filter(None, (piece.strip() for piece in text.split(";"))):
        name, colon, values = piece.partition(":")
        if not colon or not values or name in limits:
            raise LinkError(
                f"The limit {_short(piece)} cannot be read; limits look like tensor_par:1,2,4;weight_offload:off, "
                "each field once."
            )
        limits[name] = _limit_from_text(name, values)
    return normalise(limits)


def _limit_from_text(name: str, text: str) -> Any:
    if name in OPTIONS:
        return _SWITCH.get(text, text)
    span = _RANGE.fullmatch(text)
    if span is not None:
        ends = {"min": span.group(1), "max": span.group(2)}
        return {end: int(digits) for end, digits in ends.items() if digits}
    try:
        kind = by_name(name).dtype
    except ValueError:
        return text  # the name is refused by `normalise`, in its own words
    if kind == "str":
        return text.split(",")
    return [
        int(value) if _NUMBER.fullmatch(value) and kind == "int64" else _SWITCH.get(value, _short(value))
        for value in text.split(",")
    ]


def _model(name: str) -> models.Model:
    if name not in models.names():
        return models.load(_name("model", name))  # says which names are alike
    return models.load(name)


def _system(name: str) -> hardware.System:
    if name not in hardware.names():
        return hardware.load(_name("system", name))
    return hardware.load(name)


def _name(what: str, text: str) -> str:
    """A text that can only be a library name: a link must not make the server open files."""
    if re.fullmatch(r"[\w][\w.+-]{0,80}", text) is None or text.endswith(".json"):
        raise LinkError(f"The {what} {_short(text)} is not a name; a link names one of the library.")
    return text


def _whole(name: str, text: str) -> int:
    if _NUMBER.fullmatch(text) is None or int(text) < 1:
        raise LinkError(f"{name} is {_short(text)}; it must be a whole number of at least 1.")
    return int(text)


def _checked(scenario: Scenario) -> Scenario:
    """The scenario, if its space can be numbered. Raises what `Scenario.space` raises, and `LinkError`."""
    batches = scenario.limits.get("batch_size")
    if isinstance(batches, Mapping):
        tried = min(batches["max"], scenario.max_batch_size) - batches["min"] + 1
    else:
        tried = len(batches or ())
    if tried > MOST_BATCHES:
        raise LinkError(f"The limits ask for {tried:,} batch sizes; up to {MOST_BATCHES:,} can be tried at once.")
    _ = scenario.space
    return scenario


def _in_library(load: Callable[[str], Any], thing: Any) -> bool:
    """Whether a library holds exactly this under its name."""
    try:
        return bool(load(_name("document", thing.name)) == thing)
    except (LinkError, models.ModelFileError, hardware.SystemFileError):
        return False


def _packed(scenario: Scenario) -> str:
    text = json.dumps(scenario.to_document(), separators=(",", ":"), ensure_ascii=False)
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def _unpacked(text: str) -> Scenario:
    if len(text) > LONGEST_LINK:
        raise LinkError(f"The link holds a scenario of {len(text):,} characters; up to {LONGEST_LINK:,} are read.")
    try:
        packed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        unfolding = zlib.decompressobj()
        plain = unfolding.decompress(packed, LARGEST_DOCUMENT)
        if unfolding.unconsumed_tail:
            raise LinkError(f"The link's scenario unfolds to more than {LARGEST_DOCUMENT:,} bytes and is not read.")
        document = json.loads(plain)
    except (binascii.Error, zlib.error, UnicodeError, RecursionError, json.JSONDecodeError) as problem:
        raise LinkError("The link's scenario is damaged: it is not a complete copy of a shared link.") from problem
    except ValueError as problem:
        if isinstance(problem, LinkError):
            raise
        raise LinkError("The link's scenario is damaged: it is not a complete copy of a shared link.") from problem
    return Scenario.from_document(document, "The link's scenario")


def _sentence(problem: Exception) -> str:
    text = " ".join(str(problem).split())
    text = text[:400] if len(text) <= 400 else f"{text[:399]}…"
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "…")) else f"{text}."


def _short(text: str) -> str:
    """A text of a link as a message shows it."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
