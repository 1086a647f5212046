"""Fields of questions: label, unit, bounds, choices, default and help, read off the documents that declare them.

Command options, parameters of links and fields of pages are all made from these, so that a field is declared once.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from models.documents import Number, Whole

__all__ = ["REQUIRED", "Asked", "FieldKind", "QuestionField", "question_field", "question_fields"]


class _Required:
    """Default of a field that must be given."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()


class FieldKind(StrEnum):
    """Kind of value of a field."""

    FLAG = "flag"
    WHOLE = "whole"
    DECIMAL = "decimal"
    CHOICE = "choice"
    TEXT = "text"
    NAMED = "named"
    """A name of the library, or a document of a model, system or calibration."""
    LIMITS = "limits"
    """Limits by field of executions; options of commands have FIELD=VALUES, and may be repeated."""
    VALUES = "values"
    """Values by field of executions; options of commands have FIELD=VALUE, and may be repeated."""
    DOCUMENT = "document"
    """An object or a list of objects: in JSON and files only."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """Annotation of a field of a question: how people see it, on pages, in commands and in links."""

    label: str = ""
    """At most four words; made of the field's name where empty."""
    unit: str = ""
    """Such as "GiB" or "tokens"."""
    option: str = ""
    """Command option without dashes; made of the field's name, less a unit at its end, where empty."""
    other_option: str = ""
    """Second spelling of the command option."""
    parameter: str = ""
    """Parameter of links, after the page's name; the field's name where empty."""
    option_unit: str = ""
    """Unit of the command option, where it is another than the document's."""
    parameter_unit: str = ""
    """Unit in links and on pages, where it is another than the document's, such as "ms"."""
    words: Mapping[Any, str] = field(default_factory=dict)
    """Words on screen by choice."""
    repeats: bool = False
    """True if the command option is given once for each entry of a list, instead of once with commas."""
    kind: FieldKind | None = None
    """Kind of limits and of values, which the type does not tell apart; made of the type where None."""
    metavar: str = ""
    """Placeholder of the command option, such as "METRIC"; made of the kind where empty."""
    option_help: str = ""
    """Help of the command option, where the document's speaks of JSON; the document's where empty."""


@dataclass(frozen=True, slots=True)
class QuestionField:
    """One field of a question, as its document declares it."""

    name: str
    kind: FieldKind
    label: str
    unit: str
    help: str
    default: Any
    """`REQUIRED` where the person must give one."""
    can_be_none: bool
    is_list: bool
    least: float | None
    most: float | None
    choices: tuple[Any, ...]
    words: Mapping[Any, str]
    option: str
    other_option: str
    parameter: str
    option_unit: str
    parameter_unit: str
    repeats: bool
    metavar: str
    option_help: str
    nested: type[BaseModel] | None
    """Class of the document that the field holds, where it is one."""

    @property
    def is_required(self) -> bool:
        """True if the field has no default."""
        return self.default is REQUIRED

    @property
    def is_fixed(self) -> bool:
        """True if there is one value only, such as the format of a document."""
        return len(self.choices) == 1

    @property
    def takes_zero(self) -> bool:
        """True for a number that may be zero."""
        return self.least is not None and self.least <= 0

    @property
    def option_factor(self) -> float:
        """Value in the document of one unit of the command option."""
        return _unit_ratio(self.option_unit, self.unit)

    @property
    def parameter_factor(self) -> float:
        """Value in the document of one unit in links and on pages."""
        return _unit_ratio(self.parameter_unit, self.unit)


def _unit_ratio(unit: str, other: str) -> float:
    return 1.0 if unit == other else _SECONDS[unit] / _SECONDS[other]


_SECONDS: Final = {"µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "days": 86400.0}
"""Length of units of time [s]."""

_UNITS: Final = ("_gb_per_s", "_tflops", "_gib", "_gb", "_ms", "_us", "_s")
"""Endings of names that say the unit, and are left out of options and labels."""


@cache
def question_fields(document: type[BaseModel]) -> Mapping[str, QuestionField]:
    """Return the fields of a question by name, in their order.

    Args:
        document: class of the question.
    """
    return {name: _read_field(name, declared) for name, declared in document.model_fields.items()}


def question_field(document: type[BaseModel], name: str) -> QuestionField:
    """Return one field of a question.

    Args:
        document: class of the question.
        name: of the field.

    Raises `KeyError` if the document has no such field.
    """
    return question_fields(document)[name]


def _read_field(name: str, declared: Any) -> QuestionField:
    parts = [*declared.metadata, *_walk_annotation(declared.annotation)]
    asked = next((part for part in parts if isinstance(part, Asked)), Asked())
    bounds = next((part for part in parts if isinstance(part, Whole | Number)), None)
    choices = next((get_args(part) for part in parts if get_origin(part) is Literal), ())
    bare = next((name.removesuffix(unit) for unit in _UNITS if name.endswith(unit)), name)
    return QuestionField(
        name=name,
        kind=asked.kind or _field_kind(parts, choices),
        label=asked.label or bare.replace("_", " ").capitalize(),
        unit=asked.unit,
        help=declared.description or "",
        default=REQUIRED if declared.is_required() else declared.get_default(call_default_factory=True),
        can_be_none=type(None) in parts,
        is_list=list in parts,
        least=None if bounds is None else bounds.low,
        most=None if bounds is None else bounds.high,
        choices=choices,
        words=asked.words,
        option=asked.option or bare.replace("_", "-"),
        other_option=asked.other_option,
        parameter=asked.parameter or name,
        option_unit=asked.option_unit or asked.unit,
        parameter_unit=asked.parameter_unit or asked.unit,
        repeats=asked.repeats,
        metavar=asked.metavar,
        option_help=asked.option_help or declared.description or "",
        nested=next((part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)), None),
    )


def _field_kind(parts: list[Any], choices: tuple[Any, ...]) -> FieldKind:
    if choices:
        return FieldKind.CHOICE
    if str in parts and dict in parts:
        return FieldKind.NAMED
    if dict in parts or any(isinstance(part, type) and issubclass(part, BaseModel) for part in parts):
        return FieldKind.DOCUMENT
    simple = {bool: FieldKind.FLAG, int: FieldKind.WHOLE, float: FieldKind.DECIMAL, str: FieldKind.TEXT}
    return next((kind for type_, kind in simple.items() if type_ in parts), FieldKind.DOCUMENT)


def _walk_annotation(annotation: Any) -> Iterator[Any]:
    """Yield the types and the metadata of which an annotation is made, without keys and values of dictionaries."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *metadata = get_args(annotation)
        yield from metadata
        yield from _walk_annotation(inner)
    elif origin in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from _walk_annotation(each)
    elif origin in (list, tuple):
        yield list
        yield from _walk_annotation(get_args(annotation)[0])
    elif origin is dict:
        yield dict
    else:
        yield annotation
