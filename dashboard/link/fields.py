"""Fields of a page's view in the link, read by the documents that declare them.

A page parses the link once, at its door, with one `LinkReader` for its question and one for its display options.
Widgets then draw `LinkField`s: value, default, options, bounds, label and help.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar

from pydantic import ValidationError

from dashboard.link import state, vocabulary
from engine.questions.fields import FieldKind, QuestionField, question_fields
from engine.questions.verb import Document
from models.documents import sentence

__all__ = ["DECIMAL", "WHOLE", "LinkField", "LinkReader", "write_fields"]

WHOLE: Final = re.compile(r"[1-9]\d{0,6}")
"""Whole numbers in links."""
DECIMAL: Final = re.compile(r"(?!0+(\.0+)?$)\d{1,7}(\.\d{1,4})?")
"""Positive numbers in links."""
ZERO: Final = r"0(?:\.0{1,4})?"
"""Zero in links, of fields whose numbers may be zero."""
NONE: Final = "none"
"""Text in links for no value of a field that has one by default."""
_FLAGS: Final = {"on": "On", "off": "Off"}

Read = TypeVar("Read", bound=Document)


@dataclass(frozen=True, slots=True)
class LinkField:
    """A field of a page as the link has it. `value` and `default` are in the units of links and pages."""

    declared: QuestionField
    parameter: str
    value: Any
    default: Any
    options: Mapping[Any, str]
    """Words on screen by value; empty for numbers and texts."""
    most: float | None = None
    """Largest number."""

    @property
    def label(self) -> str:
        """Label with the unit, as pages show it."""
        unit = self.declared.parameter_unit
        return (
            f"{self.declared.label}, {unit}"
            if unit and self.declared.kind is FieldKind.DECIMAL
            else self.declared.label
        )

    @property
    def is_clearable(self) -> bool:
        """True for a number that can be left out although it has a default."""
        numbers = (FieldKind.WHOLE, FieldKind.DECIMAL)
        has_default = self.declared.default is not None and not self.declared.is_required
        return self.declared.can_be_none and has_default and self.declared.kind in numbers

    def among(self, options: Mapping[Any, str], default: Any = None) -> LinkField:
        """Return the field with options that are known only once the page has an answer.

        An unknown value becomes the default or else the first option, and is reported above the page.

        Args:
            options: words by value.
            default: one of them; the field's own or the first if None.
        """
        first = default if default is not None else self.default if self.default in options else next(iter(options))
        value = self.value or first
        if value not in options:
            text = str(value)
            state.complain(
                self.parameter, vocabulary.refused(self.parameter, text, str(first), list(map(str, options)))
            )
            value = first
        return replace(self, value=value, default=first, options=options)

    def with_default(self, default: Any) -> LinkField:
        """Return the field with a default that is known only once the page has an answer.

        Args:
            default: value of the field if the link has none.
        """
        return replace(self, value=default if self.value is None else self.value, default=default)

    def text(self, value: Any) -> str | None:
        """Return a value as the link has it; None for the default.

        Args:
            value: new value of a widget.
        """
        if value is None and self.is_clearable:
            return NONE
        if value is None or value == self.default or _is_close(value, self.default):
            return None
        return _link_text(value)


class LinkReader(Generic[Read]):
    """Reads the fields of one document from the link; used in the `parse` of a page only."""

    def __init__(self, document: type[Read], page: str) -> None:
        """Args:
        document: class of the document.
        page: name of the page, with which its parameters begin; empty for parameters with names of their own.
        """
        self.document, self.page = document, page
        self.fields: dict[str, LinkField] = {}

    def read(
        self,
        name: str,
        *,
        default: Any = None,
        options: Mapping[Any, str] | None = None,
        most: float | None = None,
        pattern: re.Pattern[str] | None = None,
    ) -> Any:
        """Return the value of a field, in the units of links; a fault is reported above the page.

        Args:
            name: of the field.
            default: value without the parameter, where it depends on other values; the document's default otherwise.
            options: words by value, where they depend on other values; the document's choices otherwise.
            most: largest number, where it depends on other values; the document's bound otherwise.
            pattern: of texts that are accepted, also of numbers.
        """
        declared = question_fields(self.document)[name]
        parameter = f"{self.page}_{declared.parameter}" if self.page else declared.parameter
        if default is None and not declared.is_required:
            default = _in_link_units(declared, declared.default)
        if declared.most is not None and most is None:
            most = declared.most / declared.parameter_factor
        known = (
            options if options is not None else {each: declared.words.get(each, str(each)) for each in declared.choices}
        )
        value = self._read_value(declared, parameter, default, known, most, pattern)
        self.fields[name] = LinkField(declared, parameter, value, default, known, most)
        return value

    def build(self, **given: Any) -> Read:
        """Return the document of all values that were read; fields that were not read have their defaults.

        Args:
            given: values of fields that are not in the link as they are, in the document's units.

        Raises `ValueError` with one sentence if the values do not go together.
        """
        values = {name: _in_document_units(field.declared, field.value) for name, field in self.fields.items()}
        try:
            return self.document.model_validate({**values, **given})
        except ValidationError as problem:
            raise ValueError(sentence(problem, self.document, "The link")) from None

    def _read_value(
        self,
        declared: QuestionField,
        parameter: str,
        default: Any,
        options: Mapping[Any, str],
        most: float | None,
        pattern: re.Pattern[str] | None,
    ) -> Any:
        if declared.kind is FieldKind.FLAG:
            return state.url_value(parameter, "on" if default else "off", tuple(_FLAGS)) == "on"
        if declared.is_list:
            texts = {_link_text(each): each for each in options}
            one = "|".join(map(re.escape, sorted(texts, key=len, reverse=True)))
            text = state.url_value(
                parameter, ",".join(map(_link_text, default or ())), re.compile(f"(?:{one})(?:,(?:{one}))*")
            )
            return [texts[each] for each in dict.fromkeys(text.split(",")) if each]
        if options:
            texts = {_link_text(each): each for each in options}
            return texts[state.url_value(parameter, _link_text(default), list(texts))]
        if declared.kind in (FieldKind.WHOLE, FieldKind.DECIMAL):
            return self._read_number(declared, parameter, default, most, pattern)
        text = state.url_value(parameter, default or "", pattern or re.compile(r".{0,200}"))
        return text if text or not declared.can_be_none else None

    @staticmethod
    def _read_number(
        declared: QuestionField, parameter: str, default: Any, most: float | None, pattern: re.Pattern[str] | None
    ) -> Any:
        is_whole = declared.kind is FieldKind.WHOLE
        unsaid = "" if default is None else _link_text(default)
        numbers = pattern or (WHOLE if is_whole else DECIMAL)
        if pattern is None and declared.takes_zero:
            numbers = re.compile(rf"{ZERO}|{numbers.pattern}")
        clears = LinkField(declared, parameter, default, default, {}).is_clearable
        accepted = re.compile(f"{numbers.pattern}|{NONE}") if clears else numbers
        text = state.url_value(parameter, unsaid, accepted)
        if clears and text == NONE:
            return None
        if text == unsaid:
            return default
        value: float = int(text) if is_whole else float(text)
        if most is not None and value > most:
            words = vocabulary.WORDS.get(parameter, parameter)
            state.complain(parameter, f"The link's {words} is {value:,}; it must be at most {most:,g}, as shown.")
            return type(value)(most)
        return value


def write_fields(values: Mapping[LinkField, Any] | None = None, **more: str | None) -> None:
    """Write new values of fields to the link in one step of the browser's history; for callbacks of widgets.

    Args:
        values: new values by field.
        more: texts of other parameters; None removes one.
    """
    written = {field.parameter: field.text(value) for field, value in (values or {}).items()}
    state.set_url_values({**more, **written})


def _is_close(value: Any, default: Any) -> bool:
    return isinstance(value, float) and isinstance(default, float | int) and abs(value - default) < 1e-9


def _link_text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    if isinstance(value, list | tuple):
        return ",".join(map(_link_text, value))
    return str(value)


def _in_link_units(declared: QuestionField, value: Any) -> Any:
    return value / declared.parameter_factor if isinstance(value, float) else value


def _in_document_units(declared: QuestionField, value: Any) -> Any:
    if declared.kind is FieldKind.DECIMAL and value is not None:
        return float(value) * declared.parameter_factor
    return value
