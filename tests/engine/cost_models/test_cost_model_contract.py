"""Nothing outside a cost model's own package asks which cost model it is: sources are searched for what would."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from engine.cost_models.registry import COST_MODELS

ROOT = Path(__file__).parent.parent.parent.parent
PACKAGES = {name: f"engine.cost_models.{name}" for name in COST_MODELS}
REGISTRY = "engine/cost_models/registry.py"
ABOUT = {f"engine/{room}": "calibrated" for room in ("serving", "calibrate", "validation", "measure")}
"""Rooms about the physics of one cost model, and of which one they may import the public names."""
SOURCES = sorted(
    path.relative_to(ROOT)
    for top in ("dashboard", "engine", "hardware", "models")
    for path in (ROOT / top).rglob("*.py")
)


def own(path: Path) -> set[str]:
    """The cost models whose package a file may name and import."""
    if path.as_posix() == REGISTRY:
        return set(PACKAGES)
    return {name for name in PACKAGES if path.is_relative_to(f"engine/cost_models/{name}")}


def about(path: Path) -> set[str]:
    """The cost models whose public names a file may import."""
    return {name for room, name in ABOUT.items() if path.is_relative_to(room)}


@lru_cache(maxsize=1)
def walked(tree: ast.AST) -> list[Any]:
    """Every node of a source, listed once for those who ask one after the other."""
    return list(ast.walk(tree))


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The modules that a source imports, and the name by which it knows what it takes."""
    for node in walked(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, (alias.asname or alias.name).split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from ((f"{node.module}.{alias.name}", alias.asname or alias.name) for alias in node.names)


def texts(node: ast.AST) -> set[str]:
    """The text constants in an expression, which may be a collection of them; not those that a call is given."""
    if isinstance(node, ast.Constant):
        return {node.value} if isinstance(node.value, str) else set()
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return {text for each in node.elts for text in texts(each)}
    return set()


def called(node: ast.AST, *names: str) -> list[ast.expr]:
    """The arguments of a call of one of these functions or methods; empty for anything else."""
    if not isinstance(node, ast.Call):
        return []
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return node.args if name in names else []


def asked(tree: ast.AST, names: set[str], packages: set[str]) -> Iterator[str]:
    """What of a source asks for one of these cost models: by name, as a key or pattern, or for a class of a package."""
    classes = {name for module, name in imported(tree) if any(module.startswith(f"{each}.") for each in packages)}
    for node in walked(tree):
        found: set[str] = set()
        if isinstance(node, ast.Compare):
            found = {text for each in (node.left, *node.comparators) for text in texts(each)}
        elif isinstance(node, ast.MatchValue):
            found = texts(node.value)
        elif isinstance(node, ast.Dict):  # one that tells what to do with each
            keys = [texts(each) if each is not None else set() for each in node.keys]
            found = {text for key in keys for text in key} if all(key & names for key in keys) else set()
        elif isinstance(node, ast.Subscript):
            found = texts(node.slice)
        elif arguments := called(node, "isinstance", "issubclass"):
            there = {each.id for each in ast.walk(arguments[1]) if isinstance(each, ast.Name)}
            yield from (f"line {node.lineno} asks for the class {name}" for name in sorted(there & classes))
        elif arguments := called(node, "startswith", "endswith"):
            found = {text for each in arguments for text in texts(each)}
        yield from (f"line {node.lineno} asks for {name!r}" for name in sorted(found & names))


def findings(path: Path, source: str | None = None) -> list[str]:
    """What of a file asks for a cost model, or imports one, that is not its own.

    source: what to take for its text.
    """
    text = source or (ROOT / path).read_text(encoding="utf-8")
    others = set(PACKAGES) - own(path)
    if not any(name in text for name in others):  # nor then its package: there is nothing to look for
        return []
    tree = ast.parse(text)
    public = {f"{PACKAGES[name]}.{each}" for name in about(path) for each in import_module(PACKAGES[name]).__all__}
    strange = [
        f"imports {module}"
        for module, _ in imported(tree)
        for name in sorted(others)
        if (module == PACKAGES[name] or module.startswith(f"{PACKAGES[name]}.")) and module not in public
    ]
    return [*asked(tree, others, {PACKAGES[name] for name in others}), *strange]


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("serving", "from engine.cost_models.calibrated.physics.layers.gemm import gemm"),
        ("serving", "from engine.cost_models.calibrated import physics"),
        ("serving", "import engine.cost_models.calibrated.physics.layers.gemm"),
        ("serving", "import engine.cost_models.calibrated"),
        ("measure", "from engine.cost_models.calculon import block"),
        ("whatif", "from engine.cost_models.calibrated import gemm"),
    ],
)
def test_rooms_about_a_cost_model_take_its_public_names_only(room: str, source: str) -> None:
    assert findings(Path("engine", room, "products.py"), source)
    assert not findings(Path("engine/serving/products.py"), "from engine.cost_models.calibrated import gemm")


def test_no_source_asks_which_cost_model_it_is() -> None:
    assert {str(path): found for path in SOURCES if (found := findings(path))} == {}


@pytest.mark.parametrize(
    "source",
    [
        'if scenario.cost_model == "calculon": pass',
        'if "calibrated" != name: pass',
        'exact = name in ("calculon", "calibrated")',
        'words = {"calibrated": 1}[name]',
        'rate = RATES["calculon"]',
        'match name:\n    case "calibrated": pass',
        'name.startswith("calibrated")',
        'cost_model: Literal["calibrated", "calculon"]',
        "from engine.cost_models.calculon.space import CalculonSpace as Own\nisinstance(space, Own)",
    ],
)
def test_what_asks_is_found(source: str) -> None:
    assert list(asked(ast.parse(source), set(PACKAGES), set(PACKAGES.values())))


@pytest.mark.parametrize(
    "source",
    [
        'told = "calibrated"',
        'evaluate(cost_model="calculon")',
        'document = {"name": name, "calculon": block}',
        "isinstance(space, Space)",
    ],
)
def test_what_names_without_asking_is_not(source: str) -> None:
    assert not list(asked(ast.parse(source), set(PACKAGES), set(PACKAGES.values())))
