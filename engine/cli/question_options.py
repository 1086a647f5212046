"""Arguments and options of commands, made of the documents of questions: a field is declared once, in its document."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar

import typer
from pydantic import ValidationError

from engine.questions.fields import FieldKind, QuestionField, question_fields
from engine.questions.verb import Document, QuestionError
from models.documents import DocumentError, read_json, sentence

__all__ = ["Reader", "asks", "build_question"]

Question = TypeVar("Question", bound=Document)

_METAVARS = {FieldKind.WHOLE: "N", FieldKind.DECIMAL: "X", FieldKind.TEXT: "TEXT", FieldKind.NAMED: "NAME|FILE"}
_TYPES: Mapping[FieldKind, type] = {
    FieldKind.FLAG: bool,
    FieldKind.WHOLE: int,
    FieldKind.DECIMAL: float,
    FieldKind.TEXT: str,
    FieldKind.NAMED: str,
}


MOST_VALUES: Final = 20_000
"""Values of a range in an option at most."""
_RANGE: Final = re.compile(r"(\d{1,9})\.\.(\d{1,9})")

Reader = Callable[[str], Any]
"""Returns the value of a field, as the document has it, from the text of an option."""


def asks(
    document: type[Question],
    *,
    arguments: Collection[str] = (),
    leave_out: Collection[str] = (),
    readers: Mapping[str, Reader] = MappingProxyType({}),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that turns a function of a question into a command with the question's options.

    The function takes the question first; its own parameters, declared for Typer, come after the question's. What it
    gives for a field that is left out of the options is set in the function, with `build_question`.

    Args:
        document: class of the question.
        arguments: fields that are arguments, in their order, not options.
        leave_out: fields without an option: those that the command reads in its own way, such as from a file.
        readers: by field, what makes its value of the option's text, such as the content of a file.
    """
    fields = question_fields(document)
    asked = [
        field
        for name, field in fields.items()
        if name not in leave_out and (field.kind is not FieldKind.DOCUMENT or name in readers)
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        first = [_command_parameter(fields[name], is_argument=True) for name in arguments]
        rest = [
            _command_parameter(field, is_argument=False, is_file=field.name in readers)
            for field in asked
            if field.name not in arguments
        ]

        @wraps(command)
        def run(**given: Any) -> None:
            said = {field.name: given.pop(field.name) for field in asked}
            for name, read in readers.items():
                said[name] = _read_option(said[name], read)
            command(build_question(document, said), **given)

        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*first, *rest, *own)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def build_question(document: type[Question], said: Mapping[str, Any]) -> Question:
    """Return the question of values as commands have them: files are read, lists parsed, units converted.

    Args:
        document: class of the question.
        said: values by name of the field; None stands for the default.

    Raises `QuestionError` with a sentence that names the option.
    """
    fields = question_fields(document)
    given = {
        name: _document_value(fields[name], value)
        for name, value in said.items()
        if value is not None and not (fields[name].repeats and not value)
    }
    try:
        return document.model_validate(given)
    except ValidationError as problem:
        place = problem.errors(include_url=False)[0]["loc"]
        field = fields.get(str(place[0])) if place else None
        where = "The command" if field is None else f"--{field.option}"
        told = sentence(problem, document, where)
        raise QuestionError(told.replace(f"{where}: {str(place[0])!r}", where) if field else told) from None


def _command_parameter(field: QuestionField, *, is_argument: bool, is_file: bool = False) -> inspect.Parameter:
    """Return a field as Typer reads the parameter of a function."""
    type_, is_optional = _option_type(field), field.default is None
    metavar = field.option_unit.upper() if field.unit else _METAVARS.get(field.kind)
    if field.choices:
        metavar = "|".join(map(str, field.choices))
    if is_file and not field.repeats:
        metavar = "FILE" if field.kind is FieldKind.DOCUMENT else "NAME|FILE"
    elif field.repeats:
        metavar = metavar or "TEXT"
    elif field.is_list:
        metavar = f"{metavar},..."
    unit = f" [{field.option_unit}]" if field.unit and f"[{field.option_unit}]" not in field.help else ""
    text = f"{(field.help or field.label).removesuffix('.')}{unit}."
    declared: Any
    if is_argument:
        declared = typer.Argument(metavar=field.name.upper(), help=text, show_default=not field.is_required)
    elif field.kind is FieldKind.FLAG:
        both = field.default is not False
        names = f"--{field.option}/--no-{field.option}" if both else f"--{field.option}"
        declared = typer.Option(names, help=text)
    else:
        declared = typer.Option(f"--{field.option}", metavar=metavar, help=text)
    annotation: Any = Annotated[type_ | None if is_optional else type_, declared]
    default = inspect.Parameter.empty if field.is_required else _option_default(field)
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _read_option(value: Any, read: Reader) -> Any:
    """Return the value of an option; entries of an option that is given several times are joined."""
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        return read(value)
    parts = [read(each) for each in value]
    return [entry for part in parts for entry in (part if isinstance(part, list) else [part])]


def _option_type(field: QuestionField) -> Any:
    if field.repeats:
        return list[str if field.choices else _TYPES.get(field.kind, str)]  # type: ignore[misc]
    if field.is_list or field.kind is FieldKind.DOCUMENT:
        return str
    if field.choices:
        return int if all(isinstance(each, int) for each in field.choices) else str
    return _TYPES[field.kind]


def _option_default(field: QuestionField) -> Any:
    default = field.default
    if isinstance(default, (list, tuple)):
        return ",".join(map(str, default))
    return default / field.option_factor if isinstance(default, float) else default


def _document_value(field: QuestionField, value: Any) -> Any:
    """Return the value of an option as the document has it."""
    if field.is_list and isinstance(value, str):
        if ".." in value and field.kind in (FieldKind.WHOLE, FieldKind.DECIMAL):
            ends = _RANGE.fullmatch(value.strip())
            if ends is None or int(ends[2]) - int(ends[1]) >= MOST_VALUES:
                raise QuestionError(f"--{field.option}: {value[:40]!r} are no values; write 1..16 or 1,2,4.")
            return [_list_entry(field, str(each)) for each in range(int(ends[1]), int(ends[2]) + 1)]
        return [_list_entry(field, each.strip()) for each in value.split(",") if each.strip()]
    if field.kind is FieldKind.DECIMAL and isinstance(value, float):
        return value * field.option_factor
    if field.kind is FieldKind.NAMED and isinstance(value, str) and Path(value).suffix == ".json":
        return read_json(Path(value), field.label.lower(), DocumentError)
    return value


def _list_entry(field: QuestionField, text: str) -> Any:
    """Return an entry of a list; text that is no number is left for the document to refuse."""
    if field.kind not in (FieldKind.WHOLE, FieldKind.DECIMAL) and not all(isinstance(c, int) for c in field.choices):
        return text
    try:
        return int(text) if field.kind is not FieldKind.DECIMAL else float(text) * field.option_factor
    except ValueError:
        return text
