"""Syntax trees of shell scripts, made by `tree-sitter-bash` with bounds on its work."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from engine.launch.contract import LaunchError

__all__ = ["SIMPLE_STATEMENTS", "STATEMENTS", "Node", "children_of", "first_fault", "parse"]

if TYPE_CHECKING:
    import tree_sitter

    Node = tree_sitter.Node
else:
    Node = Any  # the parser is loaded by the first script that is read

MOST_STEPS: Final = 60_000
"""Reports of progress of the parser, some 50 characters each; the longest file that is read has 41,000."""
MOST_FAULTY_STEPS: Final = 2_000
"""Reports after a fault of syntax: from there on the parser tries several readings at once."""
_ESCAPED: Final = re.compile(rb"\\.", re.DOTALL)
MANY: Final = 1_000
SIMPLE_STATEMENTS: Final = frozenset(
    {"command", "declaration_command", "unset_command", "variable_assignment", "variable_assignments"}
)
STATEMENTS: Final = SIMPLE_STATEMENTS | {
    "test_command",
    "list",
    "negated_command",
    "pipeline",
    "compound_statement",
    "subshell",
    "redirected_statement",
    "if_statement",
    "case_statement",
    "for_statement",
    "c_style_for_statement",
    "while_statement",
    "function_definition",
    "do_group",
    "program",
    "ERROR",
}


@lru_cache(maxsize=1)
def _bash_language() -> tree_sitter.Language:
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Language(tree_sitter_bash.language())


def parse(text: bytes) -> Node:
    """Returns the root of a script's syntax tree.

    Args:
        text: of the script, in UTF-8.

    Raises `LaunchError` for a text that takes too much work.
    """
    import tree_sitter

    steps = faulty = 0

    def stops(_offset: int, has_error: bool) -> bool:
        nonlocal steps, faulty
        steps += 1
        faulty += has_error
        return steps > MOST_STEPS or faulty > MOST_FAULTY_STEPS

    # The parser takes a space behind a backslash for white space, not for a letter of a word.
    text = _ESCAPED.sub(lambda found: b"__" if found[0] == b"\\ " else found[0], text)
    try:
        tree = tree_sitter.Parser(_bash_language()).parse(
            lambda offset, _point: text[offset : offset + 65536], progress_callback=stops
        )
    except ValueError:
        raise LaunchError(
            "The script is too long, or too far from shell syntax, to be read; give the command that it starts."
        ) from None
    return tree.root_node


def first_fault(root: Node) -> int:
    """Returns the line of the first fault of syntax in a tree that has one."""
    node = root
    while True:
        inner = next((each for each in children_of(node) if each.has_error or each.is_missing), None)
        if inner is None or node.is_error or node.is_missing:
            return node.start_point.row + 1
        node = inner


def children_of(node: Node) -> Iterator[Node]:
    """Yields the children of a node, one after the other where they are many."""
    if node.child_count < MANY:
        yield from node.children
        return
    cursor = node.walk()
    more = cursor.goto_first_child()
    while more:
        if cursor.node is not None:
            yield cursor.node
        more = cursor.goto_next_sibling()
