"""Arguments and options of commands, made of the documents of questions: a field is declared once, in its document."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from pydantic import ValidationError

from engine.questions.fields import FieldKind, QuestionField, question_fields
from engine.questions.verb import Document, QuestionError
from models.documents import DocumentError, read_json, sentence

__all__ = ["asks", "build_question", "name_options", "read_named"]

Question = TypeVar("Question", bound=Document)

_METAVARS = {FieldKind.WHOLE: "N", FieldKind.DECIMAL: "X", FieldKind.TEXT: "TEXT", FieldKind.NAMED: "NAME|FILE"}
_TYPES: Mapping[FieldKind, type] = {
    FieldKind.FLAG: bool,
    FieldKind.WHOLE: int,
    FieldKind.DECIMAL: float,
    FieldKind.TEXT: str,
    FieldKind.NAMED: str,
}


def asks(
    document: type[Question], *, arguments: Collection[str] = (), leave_out: Collection[str] = ()
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that turns a function of a question into a command with the question's options.

    The function takes the question first; its own parameters, declared for Typer, come after the question's. What it
    gives for a field that is left out of the options is set in the function, with `build_question`.

    Args:
        document: class of the question.
        arguments: fields that are arguments, in their order, not options; documents are JSON files.
        leave_out: fields without an option: those that the command reads in its own way, such as from a file.
    """
    fields = question_fields(document)
    asked = [
        field
        for name, field in fields.items()
        if name in arguments or (name not in leave_out and field.kind is not FieldKind.DOCUMENT)
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        first = [_command_parameter(fields[name], is_argument=True) for name in arguments]
        rest = [_command_parameter(field, is_argument=False) for field in asked if field.name not in arguments]

        @wraps(command)
        def run(**given: Any) -> None:
            said = {field.name: given.pop(field.name) for field in asked}
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
    given = {name: _document_value(fields[name], value) for name, value in said.items() if value is not None}
    try:
        return document.model_validate(given)
    except ValidationError as problem:
        place = problem.errors(include_url=False)[0]["loc"]
        field = fields.get(str(place[0])) if place else None
        where = "The command" if field is None else f"--{field.option}"
        told = sentence(problem, document, where)
        raise QuestionError(told.replace(f"{where}: {str(place[0])!r}", where) if field else told) from None


@contextmanager
def name_options(document: type[Document]) -> Iterator[None]:
    """Name the options of a command in its errors, in place of the fields of its question in backticks.

    Args:
        document: class of the question.
    """
    try:
        yield
    except QuestionError as problem:
        text = str(problem)
        for field in question_fields(document).values():
            text = text.replace(f"`{field.name}`", f"--{field.option}")
        raise QuestionError(text) from None


def _command_parameter(field: QuestionField, *, is_argument: bool) -> inspect.Parameter:
    """Return a field as Typer reads the parameter of a function."""
    type_, is_optional = _option_type(field), field.default is None
    metavar = field.option_unit.upper() if field.unit else _METAVARS.get(field.kind)
    if field.choices:
        metavar = "|".join(map(str, field.choices))
    if field.is_list:
        metavar = f"{metavar},..."
    unit = f" [{field.option_unit}]" if field.unit and f"[{field.option_unit}]" not in field.help else ""
    text = f"{(field.help or field.label).removesuffix('.')}{unit}."
    declared: Any
    if is_argument:
        named = "FILE..." if field.kind is FieldKind.DOCUMENT and field.is_list else field.name.upper()
        declared = typer.Argument(metavar=named, help=text, show_default=not field.is_required)
    elif field.kind is FieldKind.FLAG:
        both = field.default is not False
        declared = typer.Option(f"--{field.option}" + (f"/--no-{field.option}" if both else ""), help=text)
    else:
        names = [f"--{name}" for name in (field.option, field.other_option) if name]
        declared = typer.Option(*names, metavar=metavar, help=text)
    annotation: Any = Annotated[type_ | None if is_optional else type_, declared]
    default = inspect.Parameter.empty if field.is_required else _option_default(field)
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _option_type(field: QuestionField) -> Any:
    if field.kind is FieldKind.DOCUMENT:
        return list[Path] if field.is_list else Path
    if field.is_list:
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
    if field.kind is FieldKind.DOCUMENT:
        noun = field.label.lower().removesuffix("s")
        read = [read_json(path, noun, DocumentError) for path in (value if field.is_list else [value])]
        return read if field.is_list else read[0]
    if field.is_list and isinstance(value, str):
        return [_list_entry(field, each.strip()) for each in value.split(",") if each.strip()]
    if field.kind is FieldKind.DECIMAL and isinstance(value, float):
        return value * field.option_factor
    if field.kind is FieldKind.NAMED and isinstance(value, str):
        return read_named(value, field.label.lower())
    return value


def read_named(text: str, noun: str) -> Any:
    """Return a name of the library, or the document in a JSON file.

    Args:
        text: a name, or the path of a file that ends in .json.
        noun: what the document is, for messages.

    Raises `models.documents.DocumentError` for a file that cannot be read.
    """
    return read_json(Path(text), noun, DocumentError) if Path(text).suffix == ".json" else text


def _list_entry(field: QuestionField, text: str) -> Any:
    """Return an entry of a list; text that is no number is left for the document to refuse."""
    if field.kind not in (FieldKind.WHOLE, FieldKind.DECIMAL) and not all(isinstance(c, int) for c in field.choices):
        return text
    try:
        return int(text) if field.kind is not FieldKind.DECIMAL else float(text) * field.option_factor
    except ValueError:
        return text
