"""Arguments and options of commands, made of the documents of questions: a field is declared once, in its document."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Generic, TypeVar, get_args, get_origin

import typer
from pydantic import BaseModel, ValidationError

from engine.cli.limits import parse_limits, parse_values
from engine.questions.fields import FieldKind, QuestionField, question_fields
from engine.questions.verb import Document, QuestionError
from models.documents import DocumentError, read_json, sentence

__all__ = ["Reader", "UnfinishedQuestion", "asks", "build_question", "name_options", "read_named"]

Question = TypeVar("Question", bound=Document)

_METAVARS = {
    FieldKind.WHOLE: "N",
    FieldKind.DECIMAL: "X",
    FieldKind.TEXT: "TEXT",
    FieldKind.NAMED: "NAME|FILE",
    FieldKind.VALUES: "FIELD=VALUE",
}
_TYPES: Mapping[FieldKind, type] = {
    FieldKind.FLAG: bool,
    FieldKind.WHOLE: int,
    FieldKind.DECIMAL: float,
    FieldKind.TEXT: str,
    FieldKind.NAMED: str,
}
_PAIRS: Mapping[FieldKind, Callable[[list[str]], dict[str, Any]]] = {
    FieldKind.LIMITS: parse_limits,
    FieldKind.VALUES: parse_values,
}
"""Parsers of options that are repeated, by kind."""


@dataclass(frozen=True, slots=True)
class UnfinishedQuestion(Generic[Question]):
    """Options of a command whose question has more fields, such as the rows of a file."""

    document: type[Question]
    said: Mapping[str, Any]
    """Values by field as commands have them; None where an option is missing."""

    def finish(self, **rest: Any) -> Question:
        """Return the question.

        Args:
            rest: values of other fields, in the document's units; None for the default.

        Raises `QuestionError` with a sentence that names the option.
        """
        return build_question(self.document, {**self.said, **rest})


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
    optional: Collection[str] = (),
    flatten: str = "",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that turns a function of a question into a command with the question's options.

    The parameter of the function that is annotated with the document, or the first, receives the question; the
    function's own parameters are declared for Typer. Decorators of several documents may be stacked. A parameter that
    is annotated with an `UnfinishedQuestion` of the document receives that: the function finishes the question with
    the fields that have no option.

    Args:
        document: class of the question.
        arguments: fields that are arguments, in their order, not options; documents are JSON files.
        leave_out: fields without an option, such as rows that the command reads from a file.
        readers: by field, what makes its value of the option's text, such as the content of a file.
        optional: required fields whose option may be missing; for unfinished questions.
        flatten: field that holds a document, whose fields become options. Its own option takes the document from a
            file; other options replace its values.
    """
    fields = question_fields(document)
    outer = [
        field
        for name, field in fields.items()
        if name not in leave_out and (field.kind is not FieldKind.DOCUMENT or name in readers)
    ]
    nested = fields[flatten].nested if flatten else None
    inner = (
        []
        if nested is None
        else [
            each
            for each in question_fields(nested).values()
            if each.kind is not FieldKind.DOCUMENT and not each.is_fixed
        ]
    )
    known = {field.name: field for field in (*inner, *outer)}
    optional = {*optional, *(field.name for field in inner)}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())
        place, is_finished = _question_place(own, document)
        slot = own.pop(place)
        declared = [
            _command_parameter(known[name], is_argument=True, is_optional=name in optional) for name in arguments
        ]
        declared += [
            _command_parameter(
                field, is_argument=False, is_optional=field.name in optional, is_file=field.name in readers
            )
            for field in (*inner, *outer)
            if field.name not in arguments
        ]
        if flatten:
            declared.append(_file_parameter(fields[flatten]))
        for each in declared:
            said_in = get_args(each.annotation)[1]
            said_in.help = _with_options(said_in.help, (*inner, *fields.values()), arguments)

        @wraps(command)
        def run(**given: Any) -> None:
            said = {field.name: given.pop(field.name) for field in outer}
            for name, read in readers.items():
                said[name] = _read_option(said[name], read)
            if nested is not None:
                parts = {field.name: given.pop(field.name) for field in inner}
                said[flatten] = _nested_values(nested, parts, given.pop(flatten), flatten, arguments)
            question = build_question(document, said, arguments) if is_finished else UnfinishedQuestion(document, said)
            command(**{slot.name: question}, **given)

        parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*declared, *own)]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return decorate


def build_question(
    document: type[Question], said: Mapping[str, Any], arguments: Collection[str] = (), *, option: str = ""
) -> Question:
    """Return the question of values as commands have them: files are read, lists parsed, units converted.

    Args:
        document: class of the question.
        said: values by name of the field; None stands for the default.
        arguments: fields that are arguments of the command, not options.
        option: that has all values of the document in one text; empty where each value has its own.

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
        said_wrong = (
            sentence(problem, document, f"--{option}") if option else _option_sentence(problem, document, arguments)
        )
        raise QuestionError(said_wrong) from None


def _option_sentence(problem: ValidationError, document: type[BaseModel], arguments: Collection[str]) -> str:
    """Return pydantic's first error as a sentence that names the option or the argument."""
    path = [str(part) for part in problem.errors(include_url=False)[0]["loc"]]
    field, depth = question_fields(document).get(path[0]) if path else None, 1
    if field is not None and field.kind is FieldKind.DOCUMENT and field.nested is not None and len(path) > 1:
        field, depth = question_fields(field.nested).get(path[1]), 2
    if field is None:
        return sentence(problem, document, "The command")
    where = _option_words(field, arguments)
    return _name_option(sentence(problem, document, where), where, ".".join(path[:depth]))


def _name_option(text: str, where: str, name: str) -> str:
    """Return a sentence that names the option, and the entry of its list, instead of the document's field."""
    begins = re.match(rf"{re.escape(where)}: '{re.escape(name)}(?:\[(\d+)\])?'", text)
    if begins is None:
        return text
    entry = "" if begins[1] is None else f", entry {int(begins[1]) + 1},"
    return f"{where}{entry}{text[begins.end() :]}"


def _option_words(field: QuestionField, arguments: Collection[str]) -> str:
    return field.name.upper() if field.name in arguments else f"--{field.option}"


def _question_place(parameters: list[inspect.Parameter], document: type[BaseModel]) -> tuple[int, bool]:
    """Return the position of the parameter that receives the question, and True if it takes it finished."""
    for place, parameter in enumerate(parameters):
        if parameter.annotation is document:
            return place, True
        if get_origin(parameter.annotation) is UnfinishedQuestion and get_args(parameter.annotation)[0] is document:
            return place, False
    return 0, True


def _nested_values(
    document: type[BaseModel], said: Mapping[str, Any], file: Path | None, name: str, arguments: Collection[str]
) -> dict[str, Any]:
    """Return the values of a nested document: its file, with values of options in place of the file's.

    Raises `QuestionError` if a required value is missing, and `DocumentError` if the file is no such document.
    """
    fields = question_fields(document)
    found: dict[str, Any] = {}
    if file is not None:
        read: Any = read_json(file, name, DocumentError)
        try:
            document.model_validate(read)
        except ValidationError as problem:
            raise QuestionError(sentence(problem, document, str(file))) from None
        found = dict(read)
    for each, value in said.items():
        if value is None or value == []:
            continue
        new = _document_value(fields[each], value)
        found[each] = {**found.get(each, {}), **new} if fields[each].kind in _PAIRS else new
    if missing := [
        _option_words(field, arguments) for field in fields.values() if field.is_required and field.name not in found
    ]:
        raise QuestionError(
            f"Without {', '.join(missing)} there is no {name}; give all of them, or a saved {name} with --{name} FILE."
        )
    return found


def _file_parameter(field: QuestionField) -> inspect.Parameter:
    """Return the option that takes a document from a file."""
    text = f"A saved {field.name}, for all of these; what is given besides replaces it."
    declared = typer.Option(f"--{field.option}", metavar="FILE", help=text)
    return inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, declared]
    )


@contextmanager
def name_options(document: type[Document]) -> Iterator[None]:
    """Name the options of a command in its errors, in place of the fields of its question in backticks.

    Args:
        document: class of the question.
    """
    try:
        yield
    except QuestionError as problem:
        raise QuestionError(_with_options(str(problem), question_fields(document).values())) from None


def _with_options(text: str, fields: Iterable[QuestionField], arguments: Collection[str] = ()) -> str:
    """Return a text with options and arguments in place of the fields in backticks."""
    for field in fields:
        text = text.replace(f"`{field.name}`", _option_words(field, arguments))
    return text


def _command_parameter(
    field: QuestionField, *, is_argument: bool, is_optional: bool = False, is_file: bool = False
) -> inspect.Parameter:
    """Return a field as Typer reads the parameter of a function."""
    type_, is_optional = _option_type(field), is_optional or field.default is None or field.kind in _PAIRS
    metavar = field.metavar or (field.option_unit.upper() if field.unit else _METAVARS.get(field.kind))
    if field.choices:
        metavar = "|".join(map(str, field.choices))
    if is_file and not field.repeats:
        metavar = field.metavar or ("FILE" if field.kind is FieldKind.DOCUMENT else "NAME|FILE")
    elif field.repeats:
        metavar = metavar or "TEXT"
    elif field.is_list:
        metavar = f"{metavar},..."
    unit = f" [{field.option_unit}]" if field.unit and f"[{field.option_unit}]" not in field.option_help else ""
    text = f"{(field.option_help or field.label).removesuffix('.')}{unit}."
    if _takes_none(field):
        text = f"{text.removesuffix('.')}, or none."
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
    default = None if is_optional else inspect.Parameter.empty if field.is_required else _option_default(field)
    return inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _read_option(value: Any, read: Reader) -> Any:
    """Return the value of an option; entries of an option that is given several times are joined."""
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        return read(value)
    parts = [read(each) for each in value]
    return [entry for part in parts for entry in (part if isinstance(part, list) else [part])]


def _takes_none(field: QuestionField) -> bool:
    """Return whether an option can say `none`: of a number that can be left out but has a default."""
    numbers = (FieldKind.WHOLE, FieldKind.DECIMAL)
    return field.can_be_none and field.default is not None and not field.is_required and field.kind in numbers


def _option_type(field: QuestionField) -> Any:
    if _takes_none(field):
        return str
    if field.kind in _PAIRS:
        return list[str]
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
    if _takes_none(field):
        return f"{default / field.option_factor:g}"
    return default / field.option_factor if isinstance(default, float) else default


def _document_value(field: QuestionField, value: Any) -> Any:
    """Return the value of an option as the document has it."""
    if field.kind in _PAIRS and isinstance(value, list):
        return _PAIRS[field.kind](value)
    if _takes_none(field) and isinstance(value, str):
        return None if value.strip().lower() == "none" else _list_entry(field, value)
    if field.is_list and isinstance(value, str):
        if ".." in value and field.kind in (FieldKind.WHOLE, FieldKind.DECIMAL):
            ends = _RANGE.fullmatch(value.strip())
            if ends is None or int(ends[2]) - int(ends[1]) >= MOST_VALUES:
                raise QuestionError(f"--{field.option}: {value[:40]!r} are no values; write 1..16 or 1,2,4.")
            return [_list_entry(field, str(each)) for each in range(int(ends[1]), int(ends[2]) + 1)]
        return [_list_entry(field, each.strip()) for each in value.split(",") if each.strip()]
    if field.kind is FieldKind.DECIMAL and isinstance(value, float):
        return value * field.option_factor
    if field.kind is FieldKind.NAMED and isinstance(value, str):
        return read_named(value, field.name)
    return value


def read_named(text: str, name: str) -> Any:
    """Return a name of the library, or the document of a model, system or calibration in a file of any known format.

    Args:
        text: a name; a path where it ends in .json or has a separator.
        name: "model", "system", "calibration" or "factors"; another word is used in messages only.

    Raises `models.documents.DocumentError` for a file that cannot be read.
    """
    import hardware
    import models

    if not (any(mark in text for mark in "/\\") or text.endswith(".json")):
        return text
    if name == "model":
        return models.to_document(models.load(text))
    if name == "system":
        return hardware.to_document(hardware.load(text))
    if name in ("calibration", "factors"):
        return hardware.calibration_document(hardware.load_calibration(text))
    return read_json(Path(text), name.replace("_", " "), DocumentError)


def _list_entry(field: QuestionField, text: str) -> Any:
    """Return an entry of a list; text that is no number is left for the document to refuse."""
    if field.kind not in (FieldKind.WHOLE, FieldKind.DECIMAL) and not all(isinstance(c, int) for c in field.choices):
        return text
    try:
        return int(text) if field.kind is not FieldKind.DECIMAL else float(text) * field.option_factor
    except ValueError:
        return text
