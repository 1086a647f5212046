"""Strict JSON documents: reading, and one sentence on the first fault.

Nothing in here depends on models or systems.
"""

from __future__ import annotations

import difflib
import functools
import json
import os
import re
import reprlib
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from models.documents.bounds import check_numbers, check_values

MAX_FILE_BYTES = 2_000_000
"""Largest file that is read [bytes]. The largest real one is a few kilobytes; anything near this is not ours."""

OR_A_FILE = "; a file is given by a path ending in .json"
"""Addition to the message about an unknown name, where a path would be accepted."""

Entity = TypeVar("Entity", bound=BaseModel)
Scalar = bool | int | float | str | None


class DocumentError(ValueError):
    """A document that cannot be used; the message is one sentence for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class Whole:
    """Annotation of an integer from `low` to `high`; 3.0, true and "3" are not integers."""

    low: int
    high: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner = core_schema.int_schema(strict=True, ge=self.low, le=self.high)
        return _with_message(inner, f"a whole number from {self.low:,} to {self.high:,}")


@dataclass(frozen=True, slots=True)
class Number:
    """Annotation of a finite number from `low` to `high`; true and "3" are not numbers."""

    low: float
    high: float

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner = core_schema.float_schema(strict=True, ge=self.low, le=self.high, allow_inf_nan=False)
        return _with_message(inner, f"a number from {self.low:g} to {self.high:g}")


@dataclass(frozen=True, slots=True)
class Text:
    """Annotation of a text of `shortest` to `longest` characters."""

    longest: int
    shortest: int = 0

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        inner = core_schema.str_schema(strict=True, min_length=self.shortest, max_length=self.longest)
        return _with_message(inner, f"text of {self.shortest} to {self.longest:,} characters")


@dataclass(frozen=True, slots=True)
class Accepts:
    """Annotation that replaces pydantic's message about a value by the accepted values."""

    description: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return _with_message(handler(source), self.description)


def _with_message(inner: CoreSchema, description: str) -> CoreSchema:
    return core_schema.custom_error_schema(inner, "not_accepted", custom_error_message=description)


class Change(BaseModel):
    """One field in which an edited copy differs from its source."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)

    field: Annotated[str, Text(200, shortest=1)]
    """Path of the field, such as "mem1.capacity_gib" or "networks.0.size"."""
    old: Scalar
    """Value before; a list or an object as JSON text, a field that was not there as `None`."""
    new: Scalar
    """Value after, likewise."""


class _Shortened(reprlib.Repr):
    """`repr` for messages: short, JSON's words for true, false and null, and never an exception."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist, self.maxtuple = 2, 3, 6, 6
        self.maxstring, self.maxlong, self.maxother = 60, 40, 60

    def repr1(self, x: Any, level: int) -> str:
        if x is None or isinstance(x, bool):
            return json.dumps(x)
        try:
            return super().repr1(x, level)
        except Exception:  # a foreign __repr__, or an integer longer than Python prints
            return f"a {type(x).__name__}"


def shown(value: object) -> str:
    """Returns `value` as a message quotes it: at most about a hundred characters, on one line.

    Args:
        value: anything that a document can hold.
    """
    text = _Shortened().repr(value).encode("ascii", "backslashreplace").decode()
    text = re.sub(r"\s*\n\s*", " ", text)  # a table prints itself in lines
    return text if len(text) <= 120 else text[:117] + "..."


def near_matches(word: str, known: Sequence[str], alike: float | None = None) -> list[str]:
    """Returns up to three of `known` that look like `word`, letter case ignored: words that it begins first, then the
    closest.

    Args:
        word: what was written.
        known: words that would have been right.
        alike: least likeness [fraction of the letters of both that are in both, in order], also for words that it
            begins; None for a threshold that suits a few short words. Of hundreds of words some look a little like
            anything.
    """
    folded = {name.lower(): name for name in known}
    wanted = word[:100].lower()
    begun = [name for name in folded if len(wanted) > 1 and name.startswith(wanted)] if alike is None else []
    close = difflib.get_close_matches(wanted, folded, n=3, cutoff=0.55 if alike is None else alike)
    return [folded[match] for match in dict.fromkeys(begun + close)][:3]


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """Returns `; did you mean 'a' or 'b'?`-like text, empty where nothing is near.

    Args:
        word: what was written.
        known: words that would have been right.
    """
    matches = near_matches(word, known)
    return f"; did you mean {' or '.join(map(repr, matches))}" if matches else ""


def read_json(
    path: str | os.PathLike[str],
    noun: str,
    error: type[DocumentError],
    allows_infinity: Callable[[object], bool] | None = None,
) -> object:
    """Returns the JSON value in a file.

    Args:
        path: of the file.
        noun: what the document is called in messages, such as "model".
        error: class of the error to raise.
        allows_infinity: as for `parse_json`.

    Raises `error` where the file is missing, not a regular file, larger than `MAX_FILE_BYTES`, not UTF-8, not JSON,
    nested too deeply, or has a key twice in one object.
    """
    where = shown(os.fspath(path))[1:-1]
    try:
        # looked at before it is opened: opening a pipe would wait for ever
        mode = os.stat(path).st_mode
        if not stat.S_ISREG(mode):
            raise error(f"{where} is not a file, so it cannot be read as a {noun}.")
        with open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise error(f"There is no file {where} to read a {noun} from.") from None
    except (OSError, ValueError) as problem:
        if isinstance(problem, DocumentError):
            raise
        reason = getattr(problem, "strerror", None) or str(problem)
        raise error(f"{where} cannot be read: {reason}.") from None
    return parse_json(content, where, noun, error, allows_infinity)


def parse_json(
    content: bytes,
    where: str,
    noun: str,
    error: type[DocumentError],
    allows_infinity: Callable[[object], bool] | None = None,
) -> object:
    """Returns the JSON value in `content`, UTF-8, within the bounds of `models.documents.bounds`.

    Args:
        content: of a file, UTF-8 [bytes].
        where: name of the document in messages.
        noun: what the document is called in messages, such as "model".
        error: class of the error to raise.
        allows_infinity: says of a parsed document whether it may hold `Infinity` and `NaN`, which are no JSON but
            which Python writes; none may where None.

    Raises as `read_json` does.
    """
    if len(content) > MAX_FILE_BYTES:
        raise error(f"{where} is larger than {MAX_FILE_BYTES / 1e6:g} MB, far beyond any {noun} file.")

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        keys = dict(pairs)
        if len(keys) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise error(f"{where}: key {shown(twice)} appears twice in one object; keep one of them.")
        return keys

    constants: list[str] = []

    def constant(word: str) -> float:
        constants.append(word)
        return float(word)

    try:
        text = content.decode("utf-8-sig")
        check_numbers(text, where, error)
        found: object = json.loads(text, object_pairs_hook=unique, parse_constant=constant)
    except DocumentError:
        raise
    except UnicodeDecodeError as problem:
        raise error(f"{where} is not UTF-8 text (byte {problem.start}), so it is not a JSON {noun} file.") from None
    except json.JSONDecodeError as problem:
        raise error(
            f"{where} is not valid JSON: {problem.msg} at line {problem.lineno}, column {problem.colno}."
        ) from None
    except RecursionError:
        raise error(f"{where} is nested too deeply for a {noun} file.") from None
    if constants and not (allows_infinity is not None and allows_infinity(found)):
        raise error(f"{where}: {constants[0]} is not a number that JSON allows; write a finite number.")
    check_values(found, where, error)
    return found


def name_from_stem(stem: str) -> str:
    """Returns a name for a document that has none: the stem of its file, made printable.

    Args:
        stem: name of the file without its ending.
    """
    return stem.encode("utf-8", "replace").decode()[:255] or "unnamed"


def check_format(
    document: Mapping[str, object], where: str, accepted: str, noun: str, error: type[DocumentError]
) -> None:
    """Raises `error` unless the document's "format" is `accepted`, such as "shardscape-model/1".

    Args:
        document: a parsed JSON object.
        where: name of the document in messages.
        accepted: the format that is read, such as "shardscape-model/1".
        noun: what the document is called in messages, such as "model".
        error: class of the error to raise.
    """
    given = document.get("format")
    prefix, version = accepted.split("/")
    newer = re.fullmatch(re.escape(prefix) + r"/([0-9]{1,9})", given) if isinstance(given, str) else None
    if given == accepted:
        return
    if newer and int(newer[1]) > int(version):
        raise error(
            f"{where} is in {noun} format {newer[1]}, written by a newer Shardscape; this one reads format {version}."
        )
    raise error(f"{where}: 'format' is {shown(given)}; it must be '{accepted}' for a {noun}.")


def load_versioned(
    document: object, where: str, accepted: str, noun: str, schema: type[Entity], error: type[DocumentError]
) -> Entity:
    """Returns the entity that a parsed JSON document with a "format" describes; raises `error` in one sentence
    otherwise.

    `where` names the document in messages, `accepted` is its format, such as "shardscape-calibration/1", and `noun` its
    kind.

    Args:
        document: a parsed JSON value of any kind.
        where: name of the document in messages.
        accepted: the format that is read, such as "shardscape-model/1".
        noun: kind of document in messages, such as "model".
        schema: class of the described entity.
        error: class of the error to raise.
    """
    if not isinstance(document, Mapping):
        raise error(f"{where} is {shown(document)}; a {noun} must be an object with named keys.")
    check_format(document, where, accepted, noun, error)
    try:
        return schema.model_validate({name: value for name, value in document.items() if name != "format"})
    except ValidationError as problem:
        raise error(sentence(problem, schema, where)) from None


def sentence(
    problem: ValidationError, schema: type[BaseModel], where: str, *, by_alias: bool = False, hint: str = ""
) -> str:
    """Returns one sentence with file, key, value and accepted values, for the first of pydantic's errors.

    An unknown key is reported before anything else: a misspelt key is also a missing one, and says more.
    `hint` is added before the full stop.

    Args:
        problem: pydantic's errors.
        schema: class that the document was checked against.
        where: name of the document in messages.
        by_alias: whether keys are called by their aliases.
        hint: text that is added before the full stop.
    """
    errors = problem.errors(include_url=False)
    first = next((each for each in errors if each["type"] == "extra_forbidden"), errors[0])
    others = len(errors) - 1
    more = f" (and {others} more fault{'s' if others > 1 else ''})" if others else ""
    return f"{where}: {_describe_fault(first, schema, by_alias)}{more}{hint}."


def _describe_fault(error: ErrorDetails, schema: type[BaseModel], by_alias: bool) -> str:
    # pydantic appends "[key]" where the key of a mapping, not its value, is at fault
    location = tuple(part for part in error["loc"] if part != "[key]")
    value, context = error["input"], error.get("ctx", {})
    tags = _find_tags(schema, location)
    path = tuple(part for place, part in enumerate(location) if place not in tags)
    name = repr(_dotted_path(path)) if path else "the document"
    match error["type"]:
        case "extra_forbidden":
            accepted = _schema_keys(_container_schema(schema, location), by_alias)
            near = did_you_mean(str(location[-1]), accepted)
            return f"unknown key {shown(_dotted_path(path))}{near}; {_list_accepted_keys(accepted)}"
        case "missing":
            keys = _schema_keys(_container_schema(schema, location), by_alias)
            return f"key {name} is missing; {_list_accepted_keys(keys)}"
        case "union_tag_not_found":
            return f"{name} has no key {context.get('discriminator')}"
        case "union_tag_invalid":
            key = str(context.get("discriminator")).strip("'")
            return f"{key} of {name} is {shown(context.get('tag'))}; it must be {context.get('expected_tags')}"
        case "refused":
            return f"{name} {error['msg']}"
        case "not_accepted":
            wanted = error["msg"]
        case "too_short" | "too_long":
            bound = context.get("min_length", context.get("max_length"))
            word = "at least" if error["type"] == "too_short" else "at most"
            return f"{name} has {context.get('actual_length')} entries; it must have {word} {bound}"
        case "literal_error":
            wanted = str(context.get("expected"))
        case "bool_type":
            wanted = "true or false"
        case "tuple_type" | "list_type":
            wanted = "a list"
        case "model_type" | "dict_type" | "mapping_type" | "model_attributes_type":
            wanted = "an object with named keys"
        case _:
            wanted = error["msg"]
    return f"{name} is {shown(value)}; it must be {wanted}"


def _dotted_path(location: Sequence[str | int]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text if len(text) <= 120 else text[:117] + "..."


def _container_schema(schema: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel] | None:
    """The schema of the object that holds the last part of `location`."""
    return _walk_schemas(schema, location[:-1])[0]


def _find_tags(schema: type[BaseModel], location: Sequence[str | int]) -> set[int]:
    """The places in `location` that name the kind of an object, which pydantic adds where objects have kinds."""
    return _walk_schemas(schema, location)[1]


def _walk_schemas(schema: type[BaseModel], location: Sequence[str | int]) -> tuple[type[BaseModel] | None, set[int]]:
    within, tags = [schema], set()
    for place, part in enumerate(location):
        field = next(
            (
                each
                for name, each in (within[0].model_fields if within else {}).items()
                if part in (name, each.validation_alias)
            ),
            None,
        )
        kinds = [each for each in within if part in _kinds_of(each)]
        if len(within) > 1 and kinds:
            within = kinds
            tags.add(place)
        elif field is not None:
            within = _schemas_within(field.annotation)
    return (within[0] if within else None), tags


def _kinds_of(schema: type[BaseModel]) -> list[Any]:
    """The values of an object's fields that can have one value only."""
    choices = [get_args(each.annotation) for each in schema.model_fields.values() if each.is_required()]
    return [each[0] for each in choices if len(each) == 1 and isinstance(each[0], str)]


def _schemas_within(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for each in get_args(annotation) for found in _schemas_within(each)]


def _list_accepted_keys(keys: Sequence[str]) -> str:
    return f"accepted keys here: {', '.join(keys)}" if keys else "no key is accepted here"


def _schema_keys(schema: type[BaseModel] | None, by_alias: bool) -> list[str]:
    fields = {} if schema is None else schema.model_fields
    return [str((by_alias and field.validation_alias) or key) for key, field in fields.items()]


@dataclass(frozen=True)
class Library(Generic[Entity]):
    """The named documents shipped inside a package, and the one rule that separates names from paths.

    `convert(document, where, name)` makes the object; `name` is the name of a document without one of its own. `folder`
    is where in the package the documents are; `allows_infinity` is as for `parse_json`.
    """

    package: str
    noun: str
    error: type[DocumentError]
    convert: Callable[[object, str, str], Entity]
    folder: str = "library"
    allows_infinity: Callable[[object], bool] | None = None

    @functools.cached_property
    def _files(self) -> dict[str, Traversable]:
        folder = resources.files(self.package) / self.folder
        found = {file.name.removesuffix(".json"): file for file in folder.iterdir() if file.name.endswith(".json")}
        return dict(sorted(found.items(), key=lambda item: item[0].lower()))

    @functools.cached_property
    def _loaded(self) -> dict[str, Entity]:
        return {}

    def names(self) -> list[str]:
        """Returns all library names, in alphabetical order."""
        return list(self._files)

    def load(self, name_or_path: str | os.PathLike[str]) -> Entity:
        """Returns the object of a library name, or of a JSON file when given a path.

        A text that contains a path separator or ends in ".json" is a path; so is any `os.PathLike`.
        Library objects are read once. Raises `error`.
        """
        if isinstance(name_or_path, os.PathLike):
            return self._read(name_or_path)
        if not isinstance(name_or_path, str):
            raise self.error(f"{shown(name_or_path)} is neither the name of a {self.noun} nor a path to one.")
        if any(mark and mark in name_or_path for mark in (os.sep, os.altsep)) or name_or_path.endswith(".json"):
            return self._read(name_or_path)
        if name_or_path not in self._loaded:
            self._loaded[name_or_path] = self._from_library(name_or_path)
        return self._loaded[name_or_path]

    def _from_library(self, name: str) -> Entity:
        if name not in self._files:
            raise self.error(
                f"There is no {self.noun} named {shown(name)} in the library of {len(self._files)}"
                f"{did_you_mean(name, self.names())}{OR_A_FILE}."
            )
        file = self._files[name]
        document = parse_json(file.read_bytes(), file.name, self.noun, self.error)
        return self.convert(document, file.name, name)

    def _read(self, path: str | os.PathLike[str]) -> Entity:
        document = read_json(path, self.noun, self.error, self.allows_infinity)
        plain = os.fspath(path)
        text = plain if isinstance(plain, str) else os.fsdecode(plain)
        return self.convert(document, shown(text)[1:-1], Path(text).stem)
