"""YAML of configurations, read by PyYAML's safe loader within bounds; expressions of other programs are unknown values.

A few lines of aliases become gigabytes: files of training frameworks may have none, and in manifests of serving engines
their values are counted before anything is built, like size and depth. A key that stands twice is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from engine.launch.contract import LaunchError, Origin, UnknownValue
from models.documents import shown

if TYPE_CHECKING:
    import yaml  # each reading function imports it: PyYAML is not loaded before a file is read

__all__ = ["YamlDocument", "flatten_table", "is_expression", "read_yaml", "read_yaml_documents"]

DEEPEST: Final = 60
MOST_NODES: Final = 50_000
MOST_DOCUMENTS: Final = 50
_MERGE: Final = "tag:yaml.org,2002:merge"
MOST_CHARACTERS: Final = 300_000
"""Longest YAML that is read; published configurations have some ten thousand."""
_EXPRESSION: Final = re.compile(r"\$\{[^}]*\}|\{\{.*\}\}|\{%.*%\}|\$\([^)]*\)|\$[A-Za-z_]\w*", re.DOTALL)
_TEMPLATE: Final = re.compile(r"(?<![\"'])\{\{([^{}\n]{0,200})\}\}")
_Place = tuple[str, ...]


@dataclass(frozen=True)
class YamlDocument:
    """YAML document: nested values, and the line of each key."""

    values: Mapping[str, Any]
    lines: Mapping[_Place, int]
    file: str

    def origin(self, *path: str) -> Origin:
        """Return the line of a key."""
        return Origin("stated", ".".join(path), self.file, self.lines.get(path, 0))


def is_expression(text: str) -> bool:
    """Returns whether a text holds something that another program puts in: `${oc.env:TP}`, `{{ tp }}`, `$TP`."""
    return _EXPRESSION.search(text) is not None


@lru_cache(maxsize=4)
def read_yaml(text: str, name: str) -> YamlDocument:
    """Return the first document of a YAML file if it is a table; else an empty one.

    Args:
        text: text of the file.
        name: file name.

    Raises LaunchError, naming the line, for invalid YAML, aliases, repeated keys and documents beyond the bounds.
    """
    import yaml

    file = shown(name)[1:-1]
    lines: dict[_Place, int] = {}
    with _named_faults(text, file):
        node = yaml.compose(_quoted_templates(text), Loader=_safe_loader())
        values = _build_value(node, (), lines, file) if node is not None else {}
    return YamlDocument(values if isinstance(values, dict) else {}, lines, file)


def read_yaml_documents(text: str, name: str) -> list[dict[str, Any]]:
    """Return the tables of a YAML file with several documents; aliases and merged tables (`<<`) are put in, and texts
    with expressions of other programs stay.

    Args:
        text: text of the file.
        name: file name.

    Raises LaunchError, naming the line, for invalid YAML, repeated keys and files beyond the bounds, aliases put in.
    """
    import yaml

    file = shown(name)[1:-1]
    with _named_faults(text, file, has_aliases=True):
        found: list[dict[str, Any]] = []
        for node in yaml.compose_all(text, Loader=_safe_loader()):
            if len(found) >= MOST_DOCUMENTS:
                raise LaunchError(f"{file} has more than {MOST_DOCUMENTS} documents; give those of one deployment.")
            if node is not None:
                _check_expansion(node, {}, file)
            values = None if node is None else _build_value(node, (), {}, file, keeps_expressions=True)
            if isinstance(values, dict):
                found.append(values)
    return found


@contextmanager
def _named_faults(text: str, file: str, has_aliases: bool = False) -> Iterator[None]:
    """Check bounds before YAML is built, and give every fault of the parser as one sentence."""
    import yaml

    if len(text) > MOST_CHARACTERS:
        raise LaunchError(f"{file} has {len(text):,} characters; YAML of up to {MOST_CHARACTERS:,} is read.")
    if text.count("{") - text.count("{{") > MOST_NODES or text.count("[") > MOST_NODES:
        raise LaunchError(f"{file} has more than {MOST_NODES:,} tables or lists.")
    try:
        _check_events(text, file, has_aliases)
        yield
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        told = str(getattr(problem, "problem", None) or "not understood").splitlines()[0][:160]
        raise LaunchError(f"{file} is not YAML ({place}{told}).") from None
    except (RecursionError, ValueError) as problem:
        if isinstance(problem, LaunchError):
            raise
        raise LaunchError(f"{file} is not YAML that can be read (nested too deep, or a value out of range).") from None


def _quoted_templates(text: str) -> str:
    """Text whose template expressions, which would be tables in braces, are plain words."""
    if "{{" not in text and "{%" not in text:
        return text
    kept = "\n".join("" if line.lstrip().startswith("{%") else line for line in text.split("\n"))
    return _TEMPLATE.sub(lambda found: f"$({found[1].replace(':', ' ').replace('#', ' ')})", kept)


def _safe_loader() -> Any:
    """The safe loader, in C where PyYAML was built with libyaml: ten times faster."""
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _check_events(text: str, file: str, has_aliases: bool) -> None:
    import yaml

    depth = 0
    for count, event in enumerate(yaml.parse(_quoted_templates(text), Loader=_safe_loader())):
        if not has_aliases and (isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None)):
            what = "alias" if isinstance(event, yaml.AliasEvent) else "anchor"
            raise LaunchError(f"{file} has an {what} (line {_line_of(event)}); write the value out.")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST or count > 4 * MOST_NODES:
            raise LaunchError(f"{file} is nested more than {DEEPEST} deep, or has more than {MOST_NODES:,} values.")


def _check_expansion(node: yaml.Node, known: dict[int, tuple[int, int]], file: str) -> tuple[int, int]:
    """Return the number of values and the depth of a node with its aliases put in; each node is visited once.

    Raises LaunchError where they are beyond the bounds, or an alias is inside its own value.
    """
    import yaml

    line = node.start_mark.line + 1
    if id(node) in known:
        if not known[id(node)][0]:
            raise LaunchError(f"{file} has an alias inside its own value (line {line}); write the value out.")
        return known[id(node)]
    known[id(node)] = 0, 0
    inner: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        inner = [each for pair in node.value for each in pair]
    elif isinstance(node, yaml.SequenceNode):
        inner = node.value
    sizes = [_check_expansion(each, known, file) for each in inner]
    count, depth = 1 + sum(size for size, _ in sizes), 1 + max((each for _, each in sizes), default=0)
    if count > MOST_NODES or depth > DEEPEST:
        raise LaunchError(
            f"{file} has more than {MOST_NODES:,} values, or is nested more than {DEEPEST} deep, once its aliases are "
            f"put in (line {line})."
        )
    known[id(node)] = count, depth
    return count, depth


def _line_of(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0


def _build_value(
    node: yaml.Node, path: _Place, lines: dict[_Place, int], file: str, keeps_expressions: bool = False
) -> Any:
    import yaml

    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                # Of several merged tables the first that has a key counts, and the table's own keys before all.
                tables = value_node.value if isinstance(value_node, yaml.SequenceNode) else [value_node]
                for each in tables:
                    values = _build_value(each, path, {}, file, keeps_expressions)
                    if not isinstance(values, dict):
                        raise LaunchError(f"{file} merges what is no table (line {key_node.start_mark.line + 1}).")
                    merged = {**values, **merged}
                continue
            key = str(key_node.value)[:200] if isinstance(key_node, yaml.ScalarNode) else "?"
            line = key_node.start_mark.line + 1
            if key in found:
                raise LaunchError(f"The key {shown(key)} stands there twice (line {line}); leave one of them out.")
            lines[*path, key] = line
            found[key] = _build_value(value_node, (*path, key), lines, file, keeps_expressions)
        return {**merged, **found}
    if isinstance(node, yaml.SequenceNode):
        return [_build_value(each, path, lines, file, keeps_expressions) for each in node.value]
    return _scalar_value(node, file, keeps_expressions)


def _scalar_value(node: yaml.Node, file: str, keeps_expressions: bool) -> Any:
    text, line = str(node.value), node.start_mark.line + 1
    if node.tag.startswith("!"):
        return UnknownValue(f"{node.tag} {text}".strip()[:160], line, file)
    if is_expression(text):
        if keeps_expressions:
            return text
        return UnknownValue(text[:160], line, file)
    kind = node.tag.rpartition(":")[2]
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("true", "yes", "on")
    if kind == "int":
        try:
            return int(text.replace("_", "")) if len(text) < 30 else text[:200]
        except ValueError:
            return text  # octal, sexagesimal: words, for whoever asks for a number
    if kind == "float":
        try:
            return float(text.replace("_", ""))
        except ValueError:
            return text
    return text


def flatten_table(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yields paths and values of nested tables; empty tables are left out.

    Args:
        values: nested.
    """
    for key, value in values.items():
        if isinstance(value, Mapping):
            for path, inner in flatten_table(value):
                yield (str(key), *path), inner
        else:
            yield (str(key),), value
