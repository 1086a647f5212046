"""Keys that a recipe in Python sets, read from its syntax tree without running it."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from engine.launch.contract import LaunchError, Origin, UnknownValue
from engine.launch.megatron_bridge.keys import KEYS, PRECISIONS
from engine.launch.megatron_bridge.nemo_keys import NEMO_PRECISIONS, known_nemo_key, with_keys_of_bridge
from models.documents import shown

__all__ = ["ROOMS", "RecipeKeys", "from_python"]

ROOMS: Final = frozenset(
    {
        "model",
        "train",
        "ddp",
        "optimizer",
        "comm_overlap",
        "mixed_precision",
        "dataset",
        "dist",
        "checkpoint",
        "rng",
        "tokenizer",
        "scheduler",
        "logger",
        "validation",
        "trainer",
        "data",
        "optim",
    }
)


_CALLS: Final = {
    "MegatronStrategy": "model",
    "DistributedDataParallelConfig": "ddp",
    "MegatronCommOverlapCallback": "comm_overlap",
    "CommOverlapConfig": "comm_overlap",
    "GPTModelProvider": "model",
    "MLAModelProvider": "model",
    "TrainingConfig": "train",
    "OptimizerConfig": "optimizer",
    "MixedPrecisionConfig": "mixed_precision",
    "MegatronMixedPrecision": "mixed_precision",
    "MockDataModule": "data",
    "PreTrainingDataModule": "data",
    "Trainer": "trainer",
}


_WRAPPERS: Final = frozenset({"Config", "Partial", "partial"})


_MODEL_CLASS: Final = re.compile(r"([A-Z][A-Za-z0-9]{1,40})Config(\d[0-9A-Za-z_]{0,40})$")


_RECIPE: Final = re.compile(r"(_config|recipe)s?$|^(pretrain|finetune)\b|_(pretrain|finetune|sft|lora|peft)_")


_OTHER_TASKS: Final = re.compile(r"finetune|sft|lora|peft|distill|inference|export")


BASE: Final = "--base"
"""Key of a recipe that is elsewhere and whose values count where no other key states them; always unknown."""


MOST_DEPTH: Final = 200


MOST_FUNCTIONS: Final = 500


MOST_CONDITIONS: Final = 1_000
"""Conditions of a function that are open; each copies the keys that were assigned before it."""


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
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Gt: operator.gt,
    ast.Lt: operator.lt,
    ast.GtE: operator.ge,
    ast.LtE: operator.le,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


@dataclass
class RecipeKeys:
    """Keys and values of a recipe, where they stand, and what could not be read."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, Origin] = field(default_factory=dict)
    remarks: dict[str, None] = field(default_factory=dict)
    unread: dict[str, None] = field(default_factory=dict)
    recipes: tuple[str, ...] = ()
    """Names of the recipes of which the file has several."""

    def renamed(self) -> RecipeKeys:
        """Return the same keys with NeMo's names replaced by Megatron-Bridge's."""
        self.values, self.origins = with_keys_of_bridge(self.values, self.origins)
        return self


def from_python(text: str, name: str = "", recipe: str | None = None) -> RecipeKeys | None:
    """Return keys and values that Python text assigns; None for text that is not Python.

    Of several recipes the requested one counts, else the first for pretraining, after the statements outside of
    functions and in functions that are not recipes.

    Args:
        text: text of a recipe.
        name: file name.
        recipe: name of a function.

    Raises LaunchError for a recipe that the file does not have.
    """
    if _nesting_depth(text) > MOST_DEPTH:
        return None
    try:
        return _read_tree(ast.parse(text), name, recipe, "MegatronStrategy" in text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        if isinstance(problem, LaunchError):
            raise
        return None


def _read_tree(tree: ast.Module, file: str, recipe: str | None, together: bool) -> RecipeKeys:
    """Return the result of `from_python`. together: whether helper functions make one recipe, as in NeMo 2."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    if len(functions) > MOST_FUNCTIONS:
        raise LaunchError(f"{shown(file)[1:-1]} has {len(functions):,} functions; at most {MOST_FUNCTIONS} are read.")
    outside = _Python(file, {})
    outside.run([node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)])
    assigning = [name for name, node in functions.items() if _Python(file, outside.names, node).tried(node)]
    recipes = [name for name in assigning if _RECIPE.search(name) and not name.startswith("_")] or (
        [] if together else [name for name in assigning if not name.startswith("_")] or assigning
    )
    chosen = _choose_recipe(recipes, recipe, file)
    keys = outside.keys
    if chosen is not None:
        own = _called_parameters(tree, functions, chosen, file, outside.names)
        bound = _bound_parameters(functions[chosen], functions, _Python(file, outside.names, functions[chosen], own))
        bound[chosen] = own
    else:
        bound = {}
    helpers = [name for name in assigning if name not in recipes and "performance_optim" not in name]
    if not together:
        helpers = [name for name in helpers if name in bound]
    for name in (*helpers, *([chosen] if chosen is not None else [])):
        reader = _Python(file, outside.names, functions[name], bound.get(name, {}))
        reader.run(functions[name].body)
        keys.values |= reader.keys.values
        keys.origins |= reader.keys.origins
        keys.remarks |= reader.keys.remarks
        keys.unread |= reader.keys.unread
    if chosen is not None and not together and (chosen.endswith("_config") or "--recipe" not in keys.values):
        keys.values["--recipe"] = chosen
    if len(recipes) > 1 and chosen is not None:
        keys.recipes = tuple(recipes)
        others = ", ".join(name for name in recipes if name != chosen)[:400]
        keys.remarks[f"The file has {len(recipes)} recipes; {chosen} is read. Others: {others}."] = None
    return keys.renamed()


def _choose_recipe(recipes: Sequence[str], asked: str | None, file: str) -> str | None:
    if asked is not None and asked not in recipes:
        known = ", ".join(recipes) or "none"
        raise LaunchError(f"{shown(file)[1:-1]} has no recipe {shown(asked)}; it has {known[:400]}.")
    if asked is not None or not recipes:
        return asked
    training = [name for name in recipes if not _OTHER_TASKS.search(name)] or list(recipes)
    return next((name for name in training if "pretrain" in name), training[-1])


def _bound_parameters(
    node: ast.FunctionDef, functions: Mapping[str, ast.FunctionDef], reader: _Python
) -> dict[str, dict[str, Any]]:
    """By function that a recipe calls, the values of the parameters that it gives; unknown ones are `_OPEN`."""
    found: dict[str, dict[str, Any]] = {}
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in functions:
            parameters = [each.arg for each in functions[call.func.id].args.args]
            values = dict(zip(parameters, (reader.known(each) for each in call.args), strict=False))
            values |= {each.arg: reader.known(each.value) for each in call.keywords if each.arg}
            found.setdefault(call.func.id, values)
    return found


def _called_parameters(
    tree: ast.Module, functions: Mapping[str, ast.FunctionDef], recipe: str, file: str, names: Mapping[str, Any]
) -> dict[str, Any]:
    """Values that calls in the file give to parameters of a recipe; `_OPEN` where calls differ or are not known."""
    arguments = functions[recipe].args
    named = [each.arg for each in (*arguments.posonlyargs, *arguments.args)]
    every = [*named, *(each.arg for each in arguments.kwonlyargs)]
    defaults = _default_parameters(arguments)
    calls: list[dict[str, Any]] = []
    for node in tree.body:
        if node is functions[recipe]:
            continue
        reader: _Python | None = None
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            path = (_attribute_path(call.func, whole=True) or "").rpartition(".")[2]
            wraps = path in _WRAPPERS and bool(call.args)
            if (_attribute_path(call.args[0], whole=True) if wraps else path) != recipe:
                continue
            if reader is None:
                function = node if isinstance(node, ast.FunctionDef) else None
                reader = _Python(file, names, function)
                if function is not None:
                    reader.run(function.body)
            given = call.args[wraps:]
            is_spread = any(isinstance(each, ast.Starred) for each in given) or None in {
                each.arg for each in call.keywords
            }
            values: dict[str, Any] = {**defaults, **dict.fromkeys(every if is_spread else (), _OPEN)}
            values |= zip(named, (_OPEN if is_spread else reader.known(each) for each in given), strict=False)
            values |= {each.arg: reader.known(each.value) for each in call.keywords if each.arg in every}
            calls.append(values)
    return {
        name: calls[0].get(name, _OPEN) if all(each.get(name) == calls[0].get(name) for each in calls) else _OPEN
        for name in every
        if calls and (name in defaults or any(name in each for each in calls))
    }


def _default_parameters(arguments: ast.arguments) -> dict[str, Any]:
    """Parameters that have a default, with it."""
    named = [*arguments.posonlyargs, *arguments.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = []
    if arguments.defaults:
        pairs += zip(named[-len(arguments.defaults) :], arguments.defaults, strict=True)
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {each.arg: value.value for each, value in pairs if isinstance(value, ast.Constant)}


def _nesting_depth(text: str) -> int:
    depth = deepest = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        deepest = max(deepest, depth)
    return deepest


class _Python:
    """Statements of Python, gone through in order with what names stand for."""

    def __init__(
        self,
        file: str,
        names: Mapping[str, Any],
        function: ast.FunctionDef | None = None,
        bound: Mapping[str, Any] | None = None,
    ) -> None:
        self.file = file
        self.names: dict[str, Any] = dict(names)
        self.keys = RecipeKeys()
        self._conditions = 0
        if function is not None:
            for each in (*function.args.args, *function.args.kwonlyargs):
                self.names.pop(each.arg, None)
            self.names |= _default_parameters(function.args)
        for name, value in (bound or {}).items():
            self.names.pop(name, None)
            if value is not _OPEN:
                self.names[name] = value

    def tried(self, function: ast.FunctionDef) -> bool:
        """Returns whether a function assigns any key."""
        self.run(function.body)
        return bool(self.keys.values)

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Goes through statements; their keys are in `keys` then."""
        for node in statements:
            self._statement(node)

    def _statement(self, node: ast.AST) -> None:
        if isinstance(node, ast.If):
            holds = self.known(node.test)
            if holds is _OPEN:
                self._either(node)
            else:
                self.run(node.body if holds else node.orelse)
        elif isinstance(node, ast.For | ast.AsyncFor):
            for each in ast.walk(node.target):
                if isinstance(each, ast.Name):
                    self.names.pop(each.id, None)
            self.run([*node.body, *node.orelse])
        else:
            stack: list[ast.AST] = [node]
            while stack:
                each = stack.pop()
                if isinstance(each, ast.If | ast.For) and each is not node:
                    self._statement(each)
                    continue
                stack += [*reversed([*ast.iter_child_nodes(each)])]
                if isinstance(each, ast.Assign) and len(each.targets) == 1:
                    self._assign(each.targets[0], each.value)
                elif isinstance(each, ast.AnnAssign) and each.value is not None:
                    self._assign(each.target, each.value)
                elif isinstance(each, ast.AugAssign):
                    self._put_unknown(_attribute_path(each.target), each)
                elif isinstance(each, ast.Call):
                    self._call(each)

    def _either(self, node: ast.If) -> None:
        """Both branches of a condition that is open: keys that they leave different are unknown."""
        self._conditions += 1
        if self._conditions > MOST_CONDITIONS:
            raise LaunchError(f"{shown(self.file)[1:-1]} has more than {MOST_CONDITIONS:,} conditions that are open.")
        told = ast.unparse(node.test)[:100]
        before, names = dict(self.keys.values), dict(self.names)
        self.run(node.body)
        first, first_names = self.keys.values, self.names
        self.keys.values, self.names = dict(before), dict(names)
        self.run(node.orelse)
        second = self.keys.values
        absent = object()
        for key in {**first, **second}:
            if first.get(key, absent) == second.get(key, absent):
                continue
            self.keys.values[key] = UnknownValue(f"if {told}"[:160], node.lineno, self.file)
            if with_keys_of_bridge({key: None}, {})[0].keys() & {*KEYS.values()}:
                self.keys.remarks[f"Whether {told} is open; what it decides is left open."] = None
        self.names = {
            name: value for name, value in first_names.items() if name in self.names and self.names[name] == value
        }

    def _put(self, key: str, value: Any, node: ast.AST) -> None:
        inner = key.removeprefix("trainer.strategy.")
        if inner != key:  # of NeMo 2: the same as an argument of MegatronStrategy, so that the later one counts
            key = inner if inner.startswith("ddp.") else f"model.{inner}"
        self.keys.values[key] = value
        self.keys.origins[key] = Origin("stated", key, self.file, getattr(node, "lineno", 0))

    def _put_base(self, recipe: str, node: ast.AST) -> None:
        self._put("--recipe", recipe, node)
        if not recipe.startswith("vanilla_"):  # these set what the framework sets
            line = getattr(node, "lineno", 0)
            self._put(BASE, UnknownValue(f"recipe {recipe[:100]}", line, self.file), node)

    def _put_unknown(self, key: str | None, node: ast.AST) -> None:
        if key is not None and known_nemo_key(key):
            told = ast.unparse(node)[:80]
            self._put(key, UnknownValue(told, getattr(node, "lineno", 0), self.file), node)
            self.keys.unread[f"{key} = {told}: what this is does not stand there."] = None

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        key = _attribute_path(target)
        if key is not None:
            self.value(key, value)
        elif isinstance(target, ast.Name):
            known = self.known(value)
            self.names.pop(target.id, None)
            if known is not _OPEN:
                self.names[target.id] = known
            elif isinstance(value, ast.Call):
                name = _attribute_path(value.func, whole=True) or ""
                if name.endswith("_config") and not name.startswith("_"):
                    self._put_base(name.rpartition(".")[2], value)

    def _call(self, node: ast.Call) -> None:
        path = _attribute_path(node.func, whole=True) or ""
        name = path.rpartition(".")[2]
        if name in _WRAPPERS and node.args:
            name = (_attribute_path(node.args[0], whole=True) or "").rpartition(".")[2]
        room = _CALLS.get(name)
        if match := _MODEL_CLASS.fullmatch(name):
            room = "model"
            self._put("--recipe", f"{match[1]}_{match[2]}".lower(), node)
        elif name.startswith("distributed_fused_adam"):
            self._put("optimizer.use_distributed_optimizer", True, node)
        elif name == "pretrain_recipe" and path.count("."):
            self._put_base(path.split(".")[-2], node)
            for keyword in node.keywords:
                key = {"num_nodes": "--nodes", "num_gpus_per_node": "--gpus_per_node"}.get(keyword.arg or "")
                if key is not None:
                    self.value(key, keyword.value)
        for keyword in node.keywords if room else ():
            if room == "mixed_precision" and keyword.arg == "precision":
                self.value("trainer.precision", keyword.value)
            elif keyword.arg and not (room == "trainer" and not known_nemo_key(f"trainer.{keyword.arg}")):
                self.value(f"{room}.{keyword.arg}", keyword.value)

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

    def value(self, key: str, node: ast.expr) -> None:
        """Store a key with its assigned value, or the keys within it."""
        if isinstance(node, ast.Call):
            self._value_of_call(key, node)
            return
        if isinstance(node, ast.Attribute) and _CONSTANT.match(_attribute_path(node, whole=True) or ""):
            self._put(key, node.attr, node)
            return
        known = self.known(node)
        if known is not _OPEN:
            self._put(key, known, node)
        elif isinstance(node, ast.BinOp | ast.List) and not any(
            isinstance(each, ast.Name | ast.Call | ast.JoinedStr) for each in ast.walk(node)
        ):
            self._put(key, ast.unparse(node)[:10_000], node)
        else:
            self._put_unknown(key, node)

    def _value_of_call(self, key: str, node: ast.Call) -> None:
        name = (_attribute_path(node.func, whole=True) or "").rpartition(".")[2]
        if name in _WRAPPERS and node.args:
            name = (_attribute_path(node.args[0], whole=True) or "").rpartition(".")[2]
        if name in PRECISIONS or name in NEMO_PRECISIONS:
            self._put(key, name, node)
        elif key == "mixed_precision" and name not in _CALLS:
            self._put_unknown(key, node)
        elif key in ROOMS and not node.keywords and name not in _WRAPPERS:
            self._put(key, name, node)
        if key in ROOMS:
            for keyword in node.keywords:
                if keyword.arg:
                    self.value(f"{key}.{keyword.arg}", keyword.value)
        elif key not in self.keys.values and name not in _CALLS:
            self._put_unknown(key, node)


def _attribute_path(node: ast.expr, whole: bool = False) -> str | None:
    """Return the path of an attribute without the name of the configuration, None for other expressions."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    if whole:
        return ".".join([node.id, *reversed(parts)])
    if node.id in ROOMS and parts:
        parts.append(node.id)
    return ".".join(reversed(parts)) if parts and parts[-1] in ROOMS else None
