"""A scenario as the parameters of a link, and back.

The model and the system travel by library name, the limits as compact text such as
`tensor_par:1,2,4;pipeline_par:..8;weight_offload:off`. A scenario whose model or system is in no library travels as
one compressed text instead (see `dashboard.link.packed_scenarios`). What a link says is never trusted: every part is
checked, and a part that cannot be read gives way to the default with a sentence that says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeVar

import hardware
import models
from dashboard.link.document_validation import Refused, checked, sentence
from dashboard.link.examples import EXAMPLES
from dashboard.link.packed_scenarios import LONGEST, packed, unpacked
from engine import CostModelError, LimitError, Scenario, ScenarioError, SpaceError
from engine.columns import ALL_FIELDS, by_name, choice_label
from engine.cost_models.registry import COST_MODELS, able, chosen_cost_model, cost_model_of, named
from engine.executions.frameworks.registry import ANY, FRAMEWORK_WORDS
from engine.executions.limits import FRAMEWORK, OPTIONS, framework_limit, normalise
from engine.executions.table import LARGEST
from models import datatypes
from models.documents import did_you_mean
from models.token_flops import CONVENTIONS, Convention

__all__ = [
    "DEFAULT",
    "NAMES",
    "LinkError",
    "LinkReading",
    "carried",
    "limits_from_text",
    "limits_to_text",
    "parameters_of",
    "read_scenario",
]

DEFAULT: Final[Mapping[str, str]] = {
    **EXAMPLES[0].parameters,
    "limits": "",  # a link that says anything says what is limited
    "cost": "",
    "calibration": "",
    "attention": "",
    "framework": "",
}
"""Values of missing parameters; a link without any parameter of a scenario shows the first example. Without `cost` it
is the system's cost model, without `attention` figures of utilisation count as the cost model does, and without
`framework` any framework may run the executions."""

NAMES: Final = (*DEFAULT, "scenario")
"""Every parameter that distinguishes scenarios."""

LONGEST_LIMITS: Final = 4_000
"""Characters of limits that are looked at."""

_INSTEAD: Final[Mapping[str, str]] = {
    "procs": DEFAULT["procs"],
    "batch": DEFAULT["batch"],
    "limits": "every choice",
    "cost": "the cost model of the system",
    "calibration": "the library's calibration",
    "attention": "figures as the cost model counts them",
    "framework": "executions of any framework",
}
"""Replacements of unreadable parts, in words; a model and a system by their titles."""
_MOST_TOLD: Final = 3
"""Most unreadable limits that are listed one by one."""
_LIMITED: Final = (*(column.name for column in ALL_FIELDS), *(name for name in OPTIONS if name != FRAMEWORK))
_SHOWN: Final = 60
_RANGE: Final = re.compile(r"(\d{0,12})\.\.(\d{0,12})")
_NUMBER: Final = re.compile(r"\d{1,12}")
_SWITCH: Final = {"on": True, "off": False}

Part = TypeVar("Part")


class LinkError(ValueError):
    """A part of a link cannot be read; the message says which and what would be accepted."""


@dataclass(frozen=True, slots=True)
class LinkReading:
    """Content of a link: the scenario, and a sentence per part that was replaced."""

    scenario: Scenario
    problems: tuple[str, ...] = ()


def read_scenario(parameters: Mapping[str, str]) -> LinkReading:
    """Returns the scenario of a link; parts that cannot be read are the default's, and `problems` says so. Never
    raises."""
    return _read_parameters(tuple(sorted((name, parameters[name]) for name in NAMES if parameters.get(name))))


@lru_cache(maxsize=256)
def _read_parameters(given: tuple[tuple[str, str], ...]) -> LinkReading:
    parameters = dict(given or EXAMPLES[0].parameters)
    problems: list[str] = []

    def part(name: str, read: Callable[[str], Part]) -> Part:
        text = parameters.get(name, DEFAULT[name])
        try:
            return read(text)
        except (
            LinkError,
            LimitError,
            models.ModelFileError,
            hardware.SystemFileError,
            hardware.CalibrationFileError,
        ) as problem:
            default = read(DEFAULT[name])
            instead = _INSTEAD.get(name) or getattr(default, "title", "") or DEFAULT[name]
            problems.append(f"{sentence(problem)} Showing {instead} instead.")
            return default

    try:
        if "scenario" in parameters:
            found = unpacked(parameters["scenario"])
            return LinkReading(found.scenario, (found.problem,) if found.problem else ())
        model, system = part("model", _load_model), part("system", _load_system)
        calibration = part("calibration", _load_calibration)
        asked = part("cost", _cost_model)
        if asked and (refused := named(asked).unsupported(model)):
            asked = able(model, asked).name
            problems.append(f"{' '.join(refused)} Showing the {asked} cost model instead.")
        if asked and calibration is not None and not named(asked).takes_calibration:
            problems.append(f"The cost model {asked}, which the link names, takes no calibration; that is left out.")
            calibration = None
        cost_model = able(model, chosen_cost_model(asked or None, system, calibration).name).name
        scenario = Scenario.of(
            model,
            system,
            num_procs=part("procs", lambda text: _read_whole("number of GPUs", text)),
            max_batch_size=part("batch", lambda text: _read_whole("batch", text)),
            datatype=parameters.get("type", DEFAULT["type"]),
            limits=part("limits", lambda text: _sound_limits(text, cost_model, problems)),
            cost_model=cost_model,
            calibration=calibration,
            attention=part("attention", _read_attention),
            framework=part("framework", lambda text: _read_framework(text, cost_model)),
        )
        if not scenario.system.has_rate(scenario.datatype):
            known = list(scenario.system.offered_datatypes)
            wanted = scenario.datatype if datatypes.is_known(scenario.datatype) else DEFAULT["type"]
            first = scenario.system.closest_datatype(wanted)
            if "type" in parameters:
                accepted = " and ".join(f"{choice_label('datatype', name)} ({name})" for name in known)
                problems.append(
                    f"The link's datatype is {_shorten_text(scenario.datatype)}, but "
                    f"{system.title or system.name} has rates for {accepted}. "
                    f"Showing {choice_label('datatype', first)} instead."
                )
            scenario = Scenario.of(
                scenario.model,
                scenario.system,
                num_procs=scenario.num_procs,
                max_batch_size=scenario.max_batch_size,
                datatype=first,
                limits=scenario.limits,
                cost_model=cost_model,
                calibration=calibration,
                attention=scenario.attention,
            )
        return LinkReading(checked(scenario), tuple(problems))
    except (
        LinkError,
        Refused,
        LimitError,
        SpaceError,
        ScenarioError,
        CostModelError,
        models.ModelFileError,
        hardware.SystemFileError,
    ) as problem:
        problems.append(f"{sentence(problem)} Showing the default scenario instead.")
        return LinkReading(_default_scenario(), tuple(problems))


@lru_cache(maxsize=1)
def _default_scenario() -> Scenario:
    return Scenario.of(
        DEFAULT["model"],
        DEFAULT["system"],
        num_procs=int(DEFAULT["procs"]),
        max_batch_size=int(DEFAULT["batch"]),
        datatype=DEFAULT["type"],
    )


def parameters_of(scenario: Scenario) -> dict[str, str]:
    """Returns the parameters of a link to a scenario; reading them gives an equal scenario."""
    calibration = scenario.calibration
    named = _in_library(models.load, scenario.model) and _in_library(hardware.load, scenario.system)
    named = named and (calibration is None or _in_library(hardware.load_calibration, calibration))
    if not named:
        return {"scenario": packed(scenario)}
    result = {
        "model": scenario.model.name,
        "system": scenario.system.name,
        "procs": str(scenario.num_procs),
        "batch": str(scenario.max_batch_size),
        "type": scenario.datatype,
    }
    if scenario.field_limits:
        result["limits"] = limits_to_text(scenario.field_limits)
    if scenario.framework != ANY:
        result["framework"] = scenario.framework
    # Links in which both the cost model and the system are of the time before there were several name none.
    if not (cost_model_of(scenario).columns.unnamed and scenario.system.cost_model == scenario.cost_model):
        result["cost"] = scenario.cost_model
    if calibration is not None:
        result["calibration"] = calibration.name
    if scenario.attention is not None:
        result["attention"] = scenario.attention
    return result


def carried(scenario: Scenario) -> Scenario:
    """Returns the scenario, if a link can carry it, in which every page has it. Raises `Refused`."""
    if read_scenario(parameters_of(scenario)).scenario != scenario:
        raise Refused(
            f"{scenario.model.name[:_SHOWN]} on {scenario.system.name[:_SHOWN]} is too long for the address of a "
            f"page: at most {LONGEST:,} characters when packed, {LONGEST_LIMITS:,} of limits."
        )
    return scenario


def limits_to_text(limits: Mapping[str, Any]) -> str:
    """Returns normalised limits as compact text."""
    return ";".join(f"{name}:{_limit_to_text(limit)}" for name, limit in limits.items())


def _limit_to_text(limit: Any) -> str:
    if isinstance(limit, Mapping):
        return f"{limit['min']}..{limit['max']}"
    values = limit if isinstance(limit, list) else [limit]
    return ",".join("on" if value is True else "off" if value is False else str(value) for value in values)


def _sound_limits(text: str, cost_model: str, problems: list[str]) -> dict[str, Any]:
    """Return the readable limits of a link; `problems` gets sentences about the others. Raises `LinkError`."""
    if len(text) > LONGEST_LIMITS:
        return limits_from_text(text, cost_model)  # refuses it
    kept: list[str] = []
    told: list[str] = []
    for piece in filter(None, (piece.strip() for piece in text.split(";"))):
        try:
            limits_from_text(";".join([*kept, piece]), cost_model)
        except (LinkError, LimitError) as problem:
            told.append(f"{sentence(problem)} This limit is left out.")
        else:
            kept.append(piece)
    problems += told[:_MOST_TOLD]
    if len(told) > _MOST_TOLD:
        problems.append(f"{len(told) - _MOST_TOLD:,} further limits of the link cannot be read and are left out.")
    return limits_from_text(";".join(kept), cost_model)


def limits_from_text(text: str, cost_model: str) -> dict[str, Any]:
    """Returns normalised limits on the fields of a cost model from compact text. Raises `LinkError` or
    `engine.LimitError`."""
    if len(text) > LONGEST_LIMITS:
        raise LinkError(f"The link's limits have {len(text):,} characters; up to {LONGEST_LIMITS:,} are read.")
    limits: dict[str, Any] = {}
    for piece in filter(None, (piece.strip() for piece in text.split(";"))):
        name, colon, values = piece.partition(":")
        if not colon or not values or name in limits:
            raise LinkError(
                f"The link's limit {_shorten_text(piece)} cannot be read; limits look like tensor_par:1,2,4 or "
                "pipeline_par:..8 or weight_offload:off, each field once."
            )
        if name not in _LIMITED:
            raise LinkError(
                f"The link limits {_shorten_text(name)}, which is no choice of an "
                f"execution{did_you_mean(name, _LIMITED)}."
            )
        limits[name] = _limit_from_text(name, values)
    return normalise(limits, cost_model)


def _limit_from_text(name: str, text: str) -> Any:
    if name in OPTIONS:
        return int(text) if OPTIONS[name] == "int64" and _NUMBER.fullmatch(text) else _SWITCH.get(text, text)
    span = _RANGE.fullmatch(text)
    if span is not None:
        ends = {"min": span.group(1), "max": span.group(2)}
        return {end: int(digits) for end, digits in ends.items() if digits}
    kind = by_name(name).dtype
    if kind == "str":
        return text.split(",")
    return [
        int(value) if _NUMBER.fullmatch(value) and kind == "int64" else _SWITCH.get(value, _shorten_text(value))
        for value in text.split(",")
    ]


def _load_model(name: str) -> models.Model:
    return models.load(_of_library("model", name, models.names()))


def _load_system(name: str) -> hardware.System:
    return hardware.load(_of_library("system", name, hardware.names()))


def _cost_model(text: str) -> str:
    if text and text not in COST_MODELS:
        raise LinkError(f"The link's cost model is {_shorten_text(text)}; it must be {' or '.join(COST_MODELS)}.")
    return text


def _read_attention(text: str) -> Convention | None:
    if not text:
        return None
    known = next((each for each in CONVENTIONS if each == text), None)
    if known is None:
        raise LinkError(f"The link's attention is {_shorten_text(text)}; it must be {' or '.join(CONVENTIONS)}.")
    return known


def _read_framework(text: str, cost_model: str) -> str | None:
    """Return the framework of a link, None without one. Raises `LinkError` or `engine.LimitError`."""
    if not text:
        return None
    if text not in FRAMEWORK_WORDS:
        near = did_you_mean(text, FRAMEWORK_WORDS)
        known = ", ".join(FRAMEWORK_WORDS)
        raise LinkError(f"The link's framework is {_shorten_text(text)}{near}; it must be one of {known}.")
    framework_limit(text, cost_model)
    return text


def _load_calibration(text: str) -> hardware.Calibration | None:
    if not text:
        return None
    return hardware.load_calibration(_of_library("calibration", text, hardware.calibration_names()))


def _of_library(what: str, text: str, known: Sequence[str]) -> str:
    """A name that a library has, or of a variant of one that it has (see `hardware.load`)."""
    name = _check_name(what, text)
    if name.partition("@")[0] not in known:
        raise LinkError(f"The link's {what} {_shorten_text(name)} is not in the library{did_you_mean(name, known)}.")
    return name


def _check_name(what: str, text: str) -> str:
    """A text that can only be a library name: a link must not make the server open files."""
    if re.fullmatch(r"[\w][\w.+@-]{0,80}", text) is None or text.endswith(".json"):
        raise LinkError(f"The link's {what} {_shorten_text(text)} is not a name of the library.")
    return text


def _read_whole(name: str, text: str) -> int:
    if _NUMBER.fullmatch(text) is None or not 1 <= int(text) <= LARGEST:
        raise LinkError(f"The link's {name} is {_shorten_text(text)}; it must be a whole number from 1 to {LARGEST:,}.")
    return int(text)


def _in_library(load: Callable[[str], Any], thing: Any) -> bool:
    """Return True if a library holds exactly this under its name."""
    try:
        return bool(load(_check_name("document", thing.name)) == thing)
    except (LinkError, models.ModelFileError, hardware.SystemFileError, hardware.CalibrationFileError):
        return False


def _shorten_text(text: str) -> str:
    """A text of a link as a message shows it."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
