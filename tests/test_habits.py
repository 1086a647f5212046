"""Tests ask the product as its users do; the exceptions are counted, and their numbers may only fall.

A page is asked through what it draws, and its package; a size or limit through `engine.WorkSizes`, a setting of the
server or an argument. Lower a limit when you mend a test.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
PRODUCT = ("dashboard", "engine", "hardware", "models")
PAGES = "dashboard.pages"
PATCHES = (".setattr", "patch", "patch.object", "patch.dict")


def imported_names(tree: ast.AST) -> dict[str, str]:
    """Return the full names of what a test file imports, by its names there."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.asname or each.name.split(".")[0]: each.name for each in node.names if each.asname}
            names |= {each.name.split(".")[0]: each.name.split(".")[0] for each in node.names if not each.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
    return names


def page_internals(text: str) -> Iterator[int]:
    """Yield the lines that import a module of a page, below the page's package."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        else:
            continue
        files = (module for module in modules if module.startswith(f"{PAGES}.") and module.count(".") > 2)
        if any((TESTS.parent / module.replace(".", "/")).with_suffix(".py").is_file() for module in files):
            yield node.lineno


def patches(text: str) -> Iterator[int]:
    """Yield the lines that replace a part of the product, or of something that the file does not import."""
    tree = ast.parse(text)
    names = imported_names(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args or not ast.unparse(node.func).endswith(PATCHES):
            continue
        target = node.args[0]
        if isinstance(target, ast.Constant):
            name = str(target.value)
        else:
            head, _, rest = ast.unparse(target).partition(".")
            name = f"{names.get(head, PRODUCT[0])}.{rest}"
        if name.split(".")[0] in PRODUCT:
            yield node.lineno


def test_patches_and_imports_are_found() -> None:
    text = (
        "import os\nfrom dashboard.pages.explore import axes\nfrom engine import store\n"
        "monkeypatch.setattr(store, 'ROWS', 1)\nmonkeypatch.setattr(os, 'fsync', None)\n"
        "with patch('dashboard.link.state.page'), mock.patch.object(axes, 'x', 1), patch('os.fsync'):\n    pass\n"
        "patch.setattr(thing.of_a_test, 'x', 1)\n"
    )
    assert list(page_internals(text)) == [2]
    assert sorted(patches(text)) == [4, 6, 6, 8]


def test_the_exceptions_do_not_grow() -> None:
    found = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")}
    internals = [f"{path.relative_to(TESTS)}:{line}" for path, text in found.items() for line in page_internals(text)]
    patched = [f"{path.relative_to(TESTS)}:{line}" for path, text in found.items() for line in patches(text)]
    assert len(internals) <= 42, internals
    assert len(patched) <= 62, patched
