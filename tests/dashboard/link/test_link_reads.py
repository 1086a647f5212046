"""A page is drawn from its parsed view: the link is read at the door of a page, in functions named `parse`, only."""

from __future__ import annotations

import ast
from pathlib import Path

import dashboard

READS = {"url_value", "selected_cell", "selected_id", "own_id", "current_scenario", "query_params"}
"""Names through which the link is read, all of `dashboard.link`."""


def reads_outside_parse(path: Path) -> list[str]:
    """Return the reads of the link in a file that are not inside a function whose name begins with parse."""
    found: list[str] = []

    def walk(node: ast.AST, is_parsing: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inside = is_parsing or (isinstance(child, ast.FunctionDef) and child.name.lstrip("_").startswith("parse"))
            if isinstance(child, ast.Call) and not inside:
                function = child.func
                name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
                if name in READS:
                    found.append(f"{path.parent.name}/{path.name}:{child.lineno} {name}")
            walk(child, inside)

    walk(ast.parse(path.read_text()), False)
    return found


def test_pages_read_the_link_at_their_door() -> None:
    root = Path(dashboard.__file__).parent
    files = [path for room in ("pages", "widgets", "shell") for path in sorted((root / room).rglob("*.py"))]
    found = [each for path in files for each in reads_outside_parse(path)]
    assert not found, "\n".join(found)
