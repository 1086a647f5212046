"""Every constant of the physics says what it is and where it comes from: in a docstring below it, or a comment."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = (
    "engine/calibrate",
    "engine/cost_models",
    "engine/economics",
    "engine/measure",
    "engine/planners",
    "engine/fine_tuning",
    "engine/lifetime",
    "engine/post_training",
    "engine/serving",
    "engine/simulate",
    "engine/validation",
    "hardware",
    "models",
)
"""Rooms whose constants enter figures, or bound them."""
SELF_EVIDENT = {-1, 0, 1, 2}
UNITS = {"KILO", "MEGA", "GIGA", "TERA", "MILLI", "MICRO", "MIB", "GIB"}
"""Names that say themselves which power of ten or of two they are."""


def values_in(node: ast.expr | None) -> list[float]:
    """Return the numbers that an expression of nothing but numbers evaluates to; none for other expressions."""
    try:
        found = eval(compile(ast.Expression(node), "", "eval"), {"__builtins__": {}}) if node is not None else ()
    except (NameError, TypeError, AttributeError):
        return []
    members = found if isinstance(found, tuple) else (found,)
    numbers = [each for each in members if isinstance(each, int | float) and not isinstance(each, bool)]
    return numbers if len(numbers) == len(members) else []


def names_of(statement: ast.Assign | ast.AnnAssign) -> set[str]:
    """Return the names that a statement assigns."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def unexplained(source: str) -> Iterator[str]:
    """Yield the line and names of every numeric constant of a module without docstring and comment."""
    lines, body = source.splitlines(), ast.parse(source).body
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or not values_in(statement.value):
            continue
        if set(values_in(statement.value)) <= SELF_EVIDENT or names_of(statement) <= UNITS:
            continue
        described = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        commented = "#" in lines[statement.end_lineno - 1] or lines[statement.lineno - 2].startswith("#")
        if not described and not commented:
            yield f"{statement.lineno} {', '.join(sorted(names_of(statement)))}"


@pytest.mark.parametrize("room", ROOMS)
def test_constants_of_the_physics_say_what_they_are(room):
    modules = sorted((ROOT / room).rglob("*.py"))
    assert modules
    assert not [f"{path.relative_to(ROOT)}:{each}" for path in modules for each in unexplained(path.read_text("utf-8"))]


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("LAUNCHES = 80.0\n", ["1 LAUNCHES"]),
        ("LOW, HIGH = 3, 60\n", ["1 HIGH, LOW"]),
        ("SHARE: Final = 2.0 / 3.0\n", ["1 SHARE"]),
        ('LAUNCHES = 80.0\n"""Kernels of both ends. Source: a count."""\n', []),
        ("LAUNCHES = 80.0  # a count\n", []),
        ("# A count.\nLAUNCHES = 80.0\n", []),
        ("GIGA, TERA = 1e9, 1e12\nNONE = -1\nNAMES = ('a',)\n", []),
    ],
)
def test_constants_are_found(source, found):
    assert list(unexplained(source)) == found
