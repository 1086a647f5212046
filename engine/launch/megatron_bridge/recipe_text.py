"""Keys and values of recipes as text: Python that assigns to a configuration, words KEY=VALUE, YAML. Nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from engine.launch.megatron_bridge.keys import KEYS, PRECISIONS, SHORT

__all__ = ["from_python", "from_words", "from_yaml"]

_ROOMS: Final = frozenset({"model", "train", "ddp", "optimizer", "comm_overlap", "mixed_precision", "dataset", "dist",
                           "checkpoint", "rng", "tokenizer", "scheduler", "logger", "validation"})  # fmt: skip
_CALLS: Final = {
    "MegatronStrategy": "model", "DistributedDataParallelConfig": "ddp", "MegatronCommOverlapCallback": "comm_overlap",
    "CommOverlapConfig": "comm_overlap", "GPTModelProvider": "model", "MLAModelProvider": "model",
    "TrainingConfig": "train", "OptimizerConfig": "optimizer", "MixedPrecisionConfig": "mixed_precision",
}  # fmt: skip
_LINE: Final = re.compile(r"^( *)([A-Za-z_][A-Za-z0-9_]{0,80}):[ \t]*(.*?)[ \t]*$")
MOST_DEPTH: Final = 200


def from_words(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns keys and values of the words behind the program's name, and those that say nothing here.

    Args:
        words: such as "model.sequence_parallel=true", "-tp", "4", "--recipe", "NAME".
    """
    short: dict[str, Any] = {}
    found: dict[str, Any] = {}
    unread: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        name, equals, value = word.partition("=")
        following = words[place] if place < len(words) and not words[place].startswith("-") else None
        if name in SHORT or name.startswith("--"):
            if not equals and following is not None and "=" not in following:
                value = following
                place += 1
            if name in SHORT:
                short[SHORT[name]] = value
            else:
                found[name] = value
        elif equals:
            found[name.lstrip("+~")] = value
        else:
            unread.append(f"{word[:80]} is no KEY=VALUE.")
    return {**short, **found}, unread


def from_python(text: str) -> tuple[dict[str, Any], list[str]] | None:
    """Returns keys and values that Python text assigns, and remarks; None for what is no Python.

    Of several functions the last that assigns anything counts, after what stands outside of functions.

    Args:
        text: of a recipe.
    """
    if _nesting(text) > MOST_DEPTH:
        return None
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    outside = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]
    found = dict(_assigned(outside))
    remarks: list[str] = []
    inside = [(each, values) for each in functions if (values := dict(_assigned(each.body)))]
    if inside:
        function, values = inside[-1]
        found |= values
        if function.name.endswith("_config") or "--recipe" not in found:
            found["--recipe"] = function.name
        if len(inside) > 1:
            remarks.append(f"The file has {len(inside)} recipes; the last, {function.name}, is read.")
    return found, remarks


def _nesting(text: str) -> int:
    depth = deepest = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _assigned(statements: Sequence[ast.stmt]) -> Iterator[tuple[str, Any]]:
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                key = _path(node.targets[0])
                if key is not None:
                    yield from _value(key, node.value)
                elif isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.Call):
                    name = _path(node.value.func, whole=True) or ""
                    if name.endswith("_config") and not name.startswith("_"):
                        yield "--recipe", name.rpartition(".")[2]
            elif isinstance(node, ast.Call):
                room = _CALLS.get((_path(node.func, whole=True) or "").rpartition(".")[2])
                for keyword in node.keywords if room else ():
                    if keyword.arg:
                        yield from _value(f"{room}.{keyword.arg}", keyword.value)


def _path(node: ast.expr, whole: bool = False) -> str | None:
    """The path of an attribute without the name of the configuration, None where it is none of one."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    if whole:
        return ".".join([node.id, *reversed(parts)])
    if node.id in _ROOMS and parts:
        parts.append(node.id)
    return ".".join(reversed(parts)) if parts and parts[-1] in _ROOMS else None


def _value(key: str, node: ast.expr) -> Iterator[tuple[str, Any]]:
    if isinstance(node, ast.Call):
        name = (_path(node.func, whole=True) or "").rpartition(".")[2]
        if name in PRECISIONS or key == "mixed_precision" or (key in _ROOMS and not node.keywords):
            yield key, name
        for keyword in node.keywords:
            if keyword.arg and key in _ROOMS:
                yield from _value(f"{key}.{keyword.arg}", keyword.value)
        return
    if isinstance(node, ast.Attribute):
        yield key, node.attr  # torch.bfloat16, AttnBackend.flash, torch.nn.functional.silu
        return
    try:
        yield key, ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        if isinstance(node, ast.BinOp | ast.List):
            yield key, ast.unparse(node)[:10_000]


def from_yaml(text: str) -> dict[str, Any] | None:
    """Returns keys and values of the YAML in which Megatron-Bridge writes a configuration down; None where there are
    none.

    Args:
        text: of the file; lists stand in brackets or behind dashes.
    """
    found: dict[str, Any] = {}
    stack: list[tuple[int, str]] = []
    last = ""
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("- ") and last:
            items = found.get(last)
            found[last] = [*(items if isinstance(items, list) else []), _scalar(stripped[2:])]
            continue
        match = _LINE.match(line)
        if match is None:
            continue
        indent = len(match[1])
        while stack and stack[-1][0] >= indent:
            stack.pop()
        path = ".".join([*(name for _, name in stack), match[2]])
        stack.append((indent, match[2]))
        last = path
        value = match[3].split(" #")[0].strip()
        if value:
            found[path] = _scalar(value)
    return found if any(key in found for key in KEYS.values()) else None


def _scalar(text: str) -> Any:
    word = text.strip().strip("'\"")
    if text.startswith("["):
        return [each.strip().strip("'\"") for each in text.strip("[] ").split(",") if each.strip()]
    return {"true": True, "false": False, "null": None, "~": None}.get(word.lower(), word)
