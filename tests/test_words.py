"""Names and first words that a reader has to read twice, counted; each share may only fall.

Prose is kept by review. These counts only keep a lapse from coming back. Lower a limit when you rename.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("engine", "dashboard", "hardware", "models")

FIRST_WORDS = re.compile(r"(What|Whatever|Who|Whoever|How|Where|Whether|Why|Which|Of|Those)\b")
"""Beginnings of a docstring that make a noun of a clause."""
SHAPES = re.compile(
    r"\b(those (that|of|who|which)|what (there )?(is|are|of|it|they|has|stands)|whoever|whatever|nobody|somebody"
    r"|is none|are none|none that|none too|told|tells|anew)\b",
    re.IGNORECASE,
)
"""Turns of phrase that plain English says more directly."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def sources() -> dict[Path, str]:
    """Return the text of each module of the product."""
    paths = [ROOT / "app.py", *(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))]
    return {path: path.read_text(encoding="utf-8") for path in sorted(paths)}


@cache
def nodes() -> list[ast.AST]:
    """Return every node of every module."""
    return [node for text in sources().values() for node in ast.walk(ast.parse(text))]


@cache
def functions() -> list[str]:
    """Return names of functions and methods, without those of Python's own protocols."""
    return [node.name for node in nodes() if isinstance(node, Function) and not node.name.startswith("__")]


def texts(node: ast.AST) -> Iterator[str]:
    """Yield the docstrings in the body of a node: its own, and those below constants and fields."""
    body = getattr(node, "body", None)
    for each in body if isinstance(body, list) else []:
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str):
            yield " ".join(each.value.value.split())


@cache
def docstrings() -> list[str]:
    """Return every docstring, on one line each."""
    return [text for node in nodes() for text in texts(node)]


def count_one_word_functions() -> int:
    """Return how many functions have a name of one word."""
    return sum("_" not in name.strip("_") for name in functions())


def count_repeated_classes() -> int:
    """Return how many class names stand for two or more classes."""
    names = Counter(node.name for node in nodes() if isinstance(node, ast.ClassDef))
    return sum(count > 1 for count in names.values())


def count_first_words() -> int:
    """Return how many docstrings begin with a clause."""
    return sum(FIRST_WORDS.match(text) is not None for text in docstrings())


def count_shapes() -> int:
    """Return how many docstrings have a turn of phrase of `SHAPES`."""
    return sum(SHAPES.search(text) is not None for text in docstrings())


def count_unformatted() -> int:
    """Return how many statements the formatter leaves alone."""
    return sum(text.count("# fmt: skip") for text in sources().values())


MOST = {
    count_one_word_functions: (0.334, functions),
    count_repeated_classes: (0.0015, functions),
    count_first_words: (0.0, docstrings),
    count_shapes: (0.0009, docstrings),
    count_unformatted: (0.0, functions),
}
"""Largest share that passes, and of what."""


@pytest.mark.parametrize("count", MOST, ids=lambda count: count.__name__)
def test_words_only_become_plainer(count):
    share, whole = MOST[count]
    assert count() <= share * len(whole())


if __name__ == "__main__":
    print(f"{len(functions()):,} functions, {len(docstrings()):,} docstrings")
    for each in MOST:
        share, whole = MOST[each]
        print(f"{each.__name__}: {each():,}, {each() / len(whole()):.2%} (at most {share:.2%})")
