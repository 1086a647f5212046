"""Formulas with the numbers put in: what a figure is made of, each part with its value and unit."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.words.numbers import format_value, plain
from engine.columns import Column
from engine.cost_models.formulas import Expression, Symbol

__all__ = ["Formula", "formula", "write_expression"]


@dataclass(frozen=True, slots=True)
class Formula:
    """Formula of a figure of one execution, with its numbers."""

    column: Column
    expression: str
    """With names, for people: "blocks × microbatches × block_fw_time"."""
    numbers: str
    """The same with the numbers put in."""
    value: float
    """Value of the expression; equal to the figure."""
    parts: tuple[tuple[str, str, str], ...]
    """(name, value with unit, meaning) of everything in the expression."""
    source: str


def formula(column: Column, found: Expression) -> Formula:
    """Returns an expression of a figure as people write it."""
    texts = {name: _symbol_text(symbol) for name, symbol in found.symbols.items()}
    return Formula(
        column=column,
        expression=write_expression(found.text, {}),
        numbers=write_expression(found.text, texts),
        value=found.value,
        parts=tuple((name, texts[name], symbol.meaning) for name, symbol in found.symbols.items()),
        source=found.source,
    )


def _symbol_text(symbol: Symbol) -> str:
    """A quantity with its unit."""
    return plain(symbol.value) if symbol.like is None else format_value(symbol.like, symbol.value)


def write_expression(text: str, numbers: Mapping[str, str]) -> str:
    """Returns an expression as people write it, with names or with numbers."""
    tree = ast.parse(text, mode="eval").body

    def write(node: ast.expr, inside: bool = False) -> str:
        if isinstance(node, ast.BinOp):
            signs: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "−", ast.Mult: "×", ast.Div: "÷"}
            tight = isinstance(node.op, ast.Mult | ast.Div)
            left, right = write(node.left, tight), write(node.right, tight or isinstance(node.op, ast.Sub))
            joined = f"{left} {signs[type(node.op)]} {right}"
            return f"({joined})" if inside and not tight else joined
        if isinstance(node, ast.Call):
            return f"{ast.unparse(node.func)}({', '.join(write(argument) for argument in node.args)})"
        name = ast.unparse(node)
        return numbers.get(name, name)

    return write(tree)
