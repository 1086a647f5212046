"""Every number in the calibrated physics says what unit it has and where it comes from, as the parameters do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
PHYSICS = sorted((ROOT / "engine/cost_models/calibrated/physics").rglob("*.py"))
ASSUMPTIONS = ROOT / "engine/serving/assumptions.py"
WITHOUT_FORMULAS = {"__init__", "case_cache", "inputs", "parameters"}
CITED = re.compile(r"\[[^\]]*\].*\bSource:\s+\S", re.DOTALL)
"""A unit in brackets, empty for none, and then a source."""


def numbers(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    """The numeric constants among statements, with the docstring that follows each, or ""."""
    for position, statement in enumerate(body):
        if isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            continue
        kinds = ast.Constant | ast.BinOp | ast.UnaryOp | ast.Tuple
        found = [each.value for each in ast.walk(value) if isinstance(each, ast.Constant)]
        if not isinstance(value, kinds) or not found or any(type(each) not in (int, float) for each in found):
            continue
        after = body[position + 1] if position + 1 < len(body) else None
        text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else ""
        yield ast.unparse(target), str(text)


def unsourced(body: list[ast.stmt]) -> list[str]:
    return [name for name, text in numbers(body) if not CITED.search(text)]


@pytest.mark.parametrize("file", PHYSICS, ids=lambda file: file.stem)
def test_modules_and_constants_cite_their_sources(file: Path) -> None:
    module = ast.parse(file.read_text(encoding="utf-8"))
    assert unsourced(module.body) == []
    assert file.stem in WITHOUT_FORMULAS or re.search(r"\bSources?: ", ast.get_docstring(module) or "")


def test_assumptions_of_serving_cite_their_sources() -> None:
    module = ast.parse(ASSUMPTIONS.read_text(encoding="utf-8"))
    (found,) = [each for each in module.body if isinstance(each, ast.ClassDef)]
    assert len(list(numbers(found.body))) > 5
    assert unsourced(found.body) == []


def test_a_number_without_unit_or_source_is_found() -> None:
    code = 'A = 2.0\n"""Bytes. Source: x."""\nB = -1 / 3\nC = (1, 2)\n"""Two [s]."""\nD = 4\n"""[s]. Source: x."""'
    assert unsourced(ast.parse(code).body) == ["A", "B", "C"]
