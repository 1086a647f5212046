"""Formulas of single figures as data: an expression over named quantities, each with its value and meaning."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from engine.columns import Column, UnknownColumn, by_name

__all__ = ["Expression", "Symbol", "Untold", "evaluate_text", "symbol_of_column", "symbols_in"]


@dataclass(frozen=True, slots=True)
class Symbol:
    """Quantity of an expression: its value, its meaning, and the column whose unit it has (None: a plain number)."""

    value: float
    meaning: str
    like: Column | None = None


@dataclass(frozen=True, slots=True)
class Expression:
    """Expression of a figure of one execution over other quantities.

    `text` is of numbers, names, + - * /, max and min; `symbols` has every name in it, in the order in which they are
    read; `source` is the source of the formula.
    """

    text: str
    symbols: Mapping[str, Symbol]
    source: str

    @property
    def value(self) -> float:
        """Return the value of the expression, equal to the figure."""
        return evaluate_text(self.text, {name: symbol.value for name, symbol in self.symbols.items()})


class Untold(NamedTuple):
    """Figure without an expression over other figures: a sentence on its computation.

    `summed` names what the figure adds up, such as "sum over the layers of fw_flops"; it is empty for other figures.
    """

    sentence: str
    summed: str = ""


def symbol_of_column(name: str, execution: Mapping[Any, Any]) -> Symbol:
    """Returns the symbol of a field or statistic of an execution.

    Args:
        name: the field or statistic.
        execution: its fields and statistics by name.

    Raises KeyError for a name that is no column, which is a mistake in a table of formulas.
    """
    try:
        column = by_name(name)
    except UnknownColumn as problem:
        raise KeyError(name) from problem
    return Symbol(float(execution[name]), column.label, column)


def symbols_in(text: str) -> list[str]:
    """Returns the names in an expression in the order in which they are read, each once.

    Args:
        text: the expression, such as "blocks * microbatches".
    """
    found = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)]
    names = dict.fromkeys(node.id for node in sorted(found, key=lambda node: (node.lineno, node.col_offset)))
    return [name for name in names if name not in ("max", "min")]


_OPERATORS: Final[dict[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def evaluate_text(text: str, values: Mapping[str, float]) -> float:
    """Returns the value of an expression of numbers, names, + - * /, max and min; division by zero is infinite.

    Args:
        text: the expression.
        values: a number for each of its names.
    """

    def value(node: ast.expr) -> float:
        if isinstance(node, ast.BinOp):
            left, right = value(node.left), value(node.right)
            if isinstance(node.op, ast.Div) and right == 0:
                return math.inf
            return _OPERATORS[type(node.op)](left, right)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return (max if node.func.id == "max" else min)(value(argument) for argument in node.args)
        if isinstance(node, ast.Name):
            return values[node.id]
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            return float(node.value)
        raise ValueError(f"{ast.unparse(node)} has no place in a formula")

    return value(ast.parse(text, mode="eval").body)
