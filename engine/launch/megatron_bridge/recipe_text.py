"""Keys and values of recipes as text: Python that assigns to a configuration, words KEY=VALUE, YAML. Nothing is run.

Names within Python stand for what the file assigns to them, defaults of parameters included. Recipes of NeMo 2
configure classes, as calls of them or as `run.Config(CLASS, ...)`; YAML of NeMo 1 has keys of its own.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from engine.launch.contract import Origin
from engine.launch.megatron_bridge.keys import KEYS, PRECISIONS, SHORT
from engine.launch.shell import Word
from engine.launch.words_of_flags import origin_of, unread_word, value_of, word_after

__all__ = ["from_python", "from_words", "from_yaml"]

_ROOMS: Final = frozenset({"model", "train", "ddp", "optimizer", "comm_overlap", "mixed_precision", "dataset", "dist",
                           "checkpoint", "rng", "tokenizer", "scheduler", "logger", "validation", "trainer",
                           "data"})  # fmt: skip
_CALLS: Final = {
    "MegatronStrategy": "model", "DistributedDataParallelConfig": "ddp", "MegatronCommOverlapCallback": "comm_overlap",
    "CommOverlapConfig": "comm_overlap", "GPTModelProvider": "model", "MLAModelProvider": "model",
    "TrainingConfig": "train", "OptimizerConfig": "optimizer", "MixedPrecisionConfig": "mixed_precision",
    "MockDataModule": "data", "PreTrainingDataModule": "data", "Trainer": "trainer",
}  # fmt: skip
_WRAPPERS: Final = frozenset({"Config", "Partial", "partial"})
_NEMO: Final = {
    "data.global_batch_size": "train.global_batch_size", "data.micro_batch_size": "train.micro_batch_size",
    "data.seq_length": "dataset.seq_length", "model.global_batch_size": "train.global_batch_size",
    "model.micro_batch_size": "train.micro_batch_size", "model.encoder_seq_length": "model.seq_length",
    "model.activations_checkpoint_granularity": "model.recompute_granularity",
    "model.activations_checkpoint_method": "model.recompute_method",
    "model.activations_checkpoint_num_layers": "model.recompute_num_layers",
    "model.ub_tp_comm_overlap": "comm_overlap.tp_comm_overlap", "model.optim.overlap_grad_sync":
    "ddp.overlap_grad_reduce", "model.optim.overlap_param_sync": "ddp.overlap_param_gather",
    "trainer.devices": "--gpus_per_node", "trainer.num_nodes": "--nodes", "trainer.precision": "mixed_precision",
    "trainer.plugins": "mixed_precision", "optimizer.use_distributed_optimizer": "ddp.use_distributed_optimizer",
}  # fmt: skip
"""Keys of NeMo by the key here that says the same."""
_NEMO_PRECISIONS: Final = {
    "bf16": "bf16_mixed", "bf16-mixed": "bf16_mixed", "16": "fp16_mixed", "16-mixed": "fp16_mixed",
    "bf16_with_fp8_mixed": "bf16_with_fp8_delayed_scaling_mixed",
}  # fmt: skip
_MODEL_CLASS: Final = re.compile(r"([A-Z][A-Za-z0-9]{1,40})Config(\d[0-9A-Za-z_]{0,40})$")
_LINE: Final = re.compile(r"^( *)([A-Za-z_][A-Za-z0-9_]{0,80}):[ \t]*(.*?)[ \t]*$")
MOST_DEPTH: Final = 200
_CONSTANT: Final = re.compile(r"torch\.|F\.|(?:[a-z_0-9]+\.)*[A-Z]\w*\.[A-Za-z_0-9]+$")
"""Paths whose last name is a value: torch.bfloat16, AttnBackend.flash, torch.nn.functional.silu."""
_OPEN: Final = object()
_OPERATORS: Final = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
}
_COMPARED: Final = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Gt: operator.gt, ast.Lt: operator.lt, ast.GtE: operator.ge,
    ast.LtE: operator.le, ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip


def from_words(words: Sequence[Word]) -> tuple[dict[str, Any], dict[str, Origin], list[str]]:
    """Returns keys and values of the words behind the program's name, where each comes from, and what is no key.

    Args:
        words: such as "model.sequence_parallel=true", "-tp", "4", "--recipe", "NAME".
    """
    short: dict[str, Any] = {}
    found: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    unread: list[str] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        name, equals, _ = word.text.partition("=")
        value = word_after(word, len(name) + 1)
        if name in SHORT or name.startswith("--"):
            key = SHORT.get(name, name)
            following = words[place] if place < len(words) and not words[place].text.startswith("-") else None
            if not equals and following is not None and "=" not in following.text:
                value = following
                place += 1
            (short if name in SHORT else found)[key] = value_of(value)
            origins[key] = origin_of(name, [value])
        elif equals:
            key = name.lstrip("+~")
            found[key], origins[key] = value_of(value), origin_of(f"{key}=", [value])
        else:
            unread.append(unread_word(word) or f"{word.text[:80]} is no KEY=VALUE.")
    return {**short, **found}, origins, unread


def from_python(text: str) -> tuple[dict[str, Any], list[str], list[str]] | None:
    """Returns keys and values that Python text assigns, remarks, and what is assigned but not known; None for what is
    no Python.

    Of several functions the last that assigns anything counts, after what stands outside of functions; those of NeMo 2,
    which make one recipe, count together.

    Args:
        text: of a recipe.
    """
    if _nesting(text) > MOST_DEPTH:
        return None
    try:
        return _read(ast.parse(text), "MegatronStrategy" in text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _read(tree: ast.Module, together: bool) -> tuple[dict[str, Any], list[str], list[str]]:
    """What `from_python` returns. together: whether the functions make one recipe."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    reader = _Python()
    found = dict(reader.assigned([node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)]))
    inside = []
    for each in functions:
        within = _Python({**reader.names, **_defaults(each.args)})
        if values := dict(within.assigned(each.body)):
            inside.append((each, values, within))
    if together:
        for _, values, within in inside:
            found |= values
            reader.also(within)
    elif inside:
        function, values, within = inside[-1]
        found |= values
        reader.also(within)
        if function.name.endswith("_config") or "--recipe" not in found:
            found["--recipe"] = function.name
        if len(inside) > 1:
            reader.remarks[f"The file has {len(inside)} recipes; the last, {function.name}, is read."] = None
    return _of_nemo(found), [*reader.remarks], [*reader.unread]


def _defaults(arguments: ast.arguments) -> dict[str, Any]:
    """Parameters that have a default, with it."""
    named = [*arguments.posonlyargs, *arguments.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = []
    if arguments.defaults:
        pairs += zip(named[-len(arguments.defaults) :], arguments.defaults, strict=True)
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {each.arg: value.value for each, value in pairs if isinstance(value, ast.Constant)}


def _of_nemo(found: dict[str, Any]) -> dict[str, Any]:
    """Keys and values with the keys of NeMo by those that Megatron-Bridge has for them."""
    kept: dict[str, Any] = {}
    for key, value in found.items():
        inner = key.removeprefix("trainer.strategy.")
        renamed = key if inner == key else inner if inner.startswith("ddp.") else f"model.{inner}"
        renamed = _NEMO.get(renamed, renamed)
        if renamed != key and renamed == "mixed_precision":
            value = _NEMO_PRECISIONS.get(str(value), value)
        if key == "model.optim.name":
            renamed, value = (
                "ddp.use_distributed_optimizer",
                str(value).startswith(("distributed", "mcore_distributed")),
            )
        if renamed == key or renamed not in found:
            kept[renamed] = value
    return kept


def _nesting(text: str) -> int:
    depth = deepest = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    return deepest


class _Python:
    """Statements of Python, gone through in order with what names stand for."""

    def __init__(self, names: Mapping[str, Any] | None = None) -> None:
        self.names: dict[str, Any] = dict(names or {})
        self.remarks: dict[str, None] = {}
        self.unread: dict[str, None] = {}

    def also(self, other: _Python) -> None:
        """Takes over what another function could not say."""
        self.remarks |= other.remarks
        self.unread |= other.unread

    def assigned(self, statements: Sequence[ast.stmt]) -> Iterator[tuple[str, Any]]:
        """Yields keys and their values in order."""
        stack: list[ast.AST] = [*reversed(statements)]
        while stack:
            node = stack.pop()
            if isinstance(node, ast.If):
                holds = self.known(node.test)
                if holds is _OPEN:
                    told = ast.unparse(node.test)[:100]
                    if any(isinstance(each, ast.Assign) for each in ast.walk(node)):
                        self.remarks[
                            f"Whether {told} is open; what stands below it is read, the last one counting."
                        ] = None
                    stack += [*reversed([*node.body, *node.orelse])]
                else:
                    stack += [*reversed(node.body if holds else node.orelse)]
                continue
            stack += [*reversed([*ast.iter_child_nodes(node)])]
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                yield from self._assignment(node.targets[0], node.value)
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                yield from self._assignment(node.target, node.value)
            elif isinstance(node, ast.Call):
                yield from self._call(node)

    def _assignment(self, target: ast.expr, value: ast.expr) -> Iterator[tuple[str, Any]]:
        key = _path(target)
        if key is not None:
            yield from self.value(key, value)
        elif isinstance(target, ast.Name):
            known = self.known(value)
            self.names.pop(target.id, None)
            if known is not _OPEN:
                self.names[target.id] = known
            elif isinstance(value, ast.Call):
                name = _path(value.func, whole=True) or ""
                if name.endswith("_config") and not name.startswith("_"):
                    yield "--recipe", name.rpartition(".")[2]

    def _call(self, node: ast.Call) -> Iterator[tuple[str, Any]]:
        path = _path(node.func, whole=True) or ""
        name = path.rpartition(".")[2]
        if name in _WRAPPERS and node.args:
            name = (_path(node.args[0], whole=True) or "").rpartition(".")[2]
        room = _CALLS.get(name)
        if match := _MODEL_CLASS.fullmatch(name):
            room = "model"
            yield "--recipe", f"{match[1]}_{match[2]}".lower()
        elif name.startswith("distributed_fused_adam"):
            yield "optimizer.use_distributed_optimizer", True
        elif name == "pretrain_recipe" and path.count("."):
            yield "--recipe", path.split(".")[-2]
            for keyword in node.keywords:
                key = {"num_nodes": "--nodes", "num_gpus_per_node": "--gpus_per_node"}.get(keyword.arg or "")
                if key is not None:
                    yield from self.value(key, keyword.value)
        for keyword in node.keywords if room else ():
            if keyword.arg and not (room == "trainer" and f"trainer.{keyword.arg}" not in _NEMO):
                yield from self.value(f"{room}.{keyword.arg}", keyword.value)

    def known(self, node: ast.expr) -> Any:
        """Returns what an expression is, `_OPEN` where that takes more than its words."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, _OPEN)
        if isinstance(node, ast.BinOp) and (work := _OPERATORS.get(type(node.op))) is not None:
            sides = [self.known(node.left), self.known(node.right)]
            if all(isinstance(side, int) and abs(side) < 10**9 for side in sides) and sides[1]:
                return work(*sides)
            return _OPEN
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.known(node.operand)
            return inner if inner is _OPEN else not inner
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = [self.known(node.left), self.known(node.comparators[0])]
            test = _COMPARED.get(type(node.ops[0]))
            if test is None or _OPEN in sides:
                return _OPEN
            try:
                return test(*sides)
            except TypeError:
                return _OPEN
        if isinstance(node, ast.IfExp):
            holds = self.known(node.test)
            return _OPEN if holds is _OPEN else self.known(node.body if holds else node.orelse)
        try:
            return ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            return _OPEN

    def value(self, key: str, node: ast.expr) -> Iterator[tuple[str, Any]]:
        """Yields a key with what is assigned to it, or the keys within."""
        if isinstance(node, ast.Call):
            name = (_path(node.func, whole=True) or "").rpartition(".")[2]
            if (
                name in PRECISIONS
                or name in _NEMO_PRECISIONS
                or key == "mixed_precision"
                or (key in _ROOMS and not node.keywords)
            ):
                yield key, name
            for keyword in node.keywords:
                if keyword.arg and key in _ROOMS:
                    yield from self.value(f"{key}.{keyword.arg}", keyword.value)
            if key not in _ROOMS:
                self.open(key, node)
            return
        if isinstance(node, ast.Attribute) and _CONSTANT.match(_path(node, whole=True) or ""):
            yield key, node.attr
            return
        known = self.known(node)
        if known is not _OPEN:
            yield key, known
        elif isinstance(node, ast.BinOp | ast.List) and not any(isinstance(each, ast.Name) for each in ast.walk(node)):
            yield key, ast.unparse(node)[:10_000]
        else:
            self.open(key, node)

    def open(self, key: str, node: ast.expr) -> None:
        """Notes what is assigned to a key and not known, where something depends on the key."""
        if not _of_nemo({key: None}).keys().isdisjoint(KEYS.values()):
            self.unread[f"{key} = {ast.unparse(node)[:80]}: what this is does not stand there."] = None


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
    found = _of_nemo(found)
    return found if any(key in found for key in KEYS.values()) else None


def _scalar(text: str) -> Any:
    word = text.strip().strip("'\"")
    if text.startswith("["):
        return [each.strip().strip("'\"") for each in text.strip("[] ").split(",") if each.strip()]
    return {"true": True, "false": False, "null": None, "~": None}.get(word.lower(), word)
