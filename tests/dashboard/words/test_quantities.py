"""Numbers keep their units: nothing cuts a number out of the text of a quantity, whatever its magnitude."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dashboard
import engine
from dashboard import words
from dashboard.charts.elements.markup import Tile, figure_strip
from dashboard.pages.explore.panel import rate_fact
from dashboard.queries.economics import derived_quantity, told
from dashboard.words import numbers
from dashboard.words.numbers import SPACE, Quantity, format_value, quantity, signed_percent, signed_quantity
from engine import economics
from engine.cli import output
from engine.columns import ALL, by_name

ROOTS = [Path(inspect.getfile(room)).parent for room in (dashboard, engine)]
OF_TEXT = {
    name
    for room in (numbers, output)
    for name, each in inspect.getmembers(room, inspect.isfunction)
    if each.__module__ == room.__name__ and inspect.signature(each).return_annotation in (str, "str")
}
OF_TEXT |= {"told", "told_value"}
OF_TEXT -= {"as_json", "text_table", "executions_table", "statistics_list", "_printable", "header"}
HOMES = ("dashboard.words.numbers", "dashboard.words.changes", "dashboard.queries.economics", "engine.cli.output")
CUTTING = {"split", "rsplit", "partition", "rpartition", "removesuffix", "removeprefix", "strip", "rstrip", "lstrip"}
"""Methods that leave a part of a text."""


def called(node: ast.AST) -> str:
    """The name of the function that is called."""
    if not isinstance(node, ast.Call):
        return ""
    return getattr(node.func, "id", getattr(node.func, "attr", ""))


def cut_quantities(tree: ast.AST) -> list[int]:
    """Lines that cut a part out of what a function of text about quantities returned, at once or by a name for it."""
    found = []
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in HOMES
        for alias in node.names
        if alias.name in OF_TEXT
    }
    for scope in [node for node in ast.walk(tree) if isinstance(node, (ast.Module, ast.FunctionDef))]:
        of_quantity = (
            {
                target.id
                for node in ast.walk(scope)
                if isinstance(node, ast.Assign) and called(node.value) in imported
                for target in node.targets
                if isinstance(target, ast.Name)
            }
            if isinstance(scope, ast.FunctionDef)
            else set()
        )

        def is_quantity(node: ast.AST, names: set[str] = of_quantity) -> bool:
            return called(node) in imported or (isinstance(node, ast.Name) and node.id in names)

        for node in ast.walk(scope):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                regular = getattr(node.func.value, "id", "") == "re" and any(map(is_quantity, node.args))
                if regular or (node.func.attr in CUTTING and is_quantity(node.func.value)):
                    found.append(node.lineno)
            elif isinstance(node, ast.Subscript) and is_quantity(node.value):
                found.append(node.lineno)
    return sorted(set(found))


def test_nothing_cuts_the_text_of_a_quantity() -> None:
    assert {"format_value", "percent", "signed_percent", "days", "format_quantity"} <= OF_TEXT
    home = "from dashboard.words.numbers import format_value, signed_percent\n"
    named = "def f(x):\n    text = format_value('a', x)\n    return text.split()[0]"
    assert cut_quantities(ast.parse(home + named)) == [4]
    assert cut_quantities(ast.parse("from dashboard.queries.economics import told\ny = told(it, 'usd', 3)[:4]")) == [2]
    assert cut_quantities(ast.parse(f"{home}import re\ny = re.sub('a', '', signed_percent(3))")) == [3]
    bad = {
        f"{file}:{line}"
        for root in ROOTS
        for file in root.rglob("*.py")
        for line in cut_quantities(ast.parse(file.read_text("utf-8")))
    }
    assert not bad


PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21, "bn": 1e9, "tn": 1e12}
SIZES = {
    "bytes": {f"{letter}B": 2.0 ** (10 * power) for power, letter in enumerate(["", "Ki", "Mi", "Gi", "Ti", "Pi"])},
    "s": {"ps": 1e-12, "ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0},
    "fraction": {"%": 0.01},
    "kWh": {"kWh": 1.0, "MWh": 1e3, "GWh": 1e6},
    "bytes/s": {f"{prefix}B/s": size for prefix, size in PREFIXES.items()},
}


def size_of(unit: str, base: str) -> float:
    """How large a unit with prefix is in the unit without."""
    if base in SIZES:
        return SIZES[base][unit]
    every = {f"{prefix}{gap}{base}": size for prefix, size in PREFIXES.items() for gap in ("", " ")}
    return every[unit]


def read(number: str) -> float:
    """The number that a text is."""
    text = number.replace(",", "").replace(numbers.MINUS, "-")
    if "×" in text:
        mantissa, power = text.replace(SPACE, "").split("×10")
        text = f"{mantissa}e{power.translate(str.maketrans('⁻⁰¹²³⁴⁵⁶⁷⁸⁹', '-0123456789'))}"
    return float(text)


COLUMNS = [each for each in ALL if each.dtype == "float64"]


@given(st.sampled_from(COLUMNS), st.floats(1e-13, 1e22))
def test_number_times_unit_is_the_value_at_every_magnitude(column: engine.columns.Column, value: float) -> None:
    found = quantity(column, value)
    size = size_of(found.unit, column.unit) if column.unit else 1.0
    assert read(found.number) * size == pytest.approx(value, rel=6e-3, abs=6e-4 if column.unit == "fraction" else 0.0)
    assert str(found) == format_value(column, value)


@given(st.floats(-1e6, 1e6))
def test_signed_shares_are_number_and_unit(share: float) -> None:
    found = signed_quantity(share)
    assert str(found) == signed_percent(share)
    assert "%" not in found.number


SCENARIO = engine.Scenario.of("gpt3-175B", "h100_80g_sxm", num_procs=64, max_batch_size=64, datatype="float16")


@pytest.mark.parametrize("per_gpu", [2.01e9, 2.01e12, 2.01e14, 2.01e15, 2.01e18])
def test_the_panel_says_what_the_tile_says(per_gpu: float) -> None:
    """2.01 PFLOP/s was "2.01 TFLOP/s per GPU" in the panel of a cell."""
    factor = float(economics.derived_of(SCENARIO)["tflops_per_gpu"].of(1.0))
    rate = per_gpu / factor
    label, number = rate_fact(derived_quantity(SCENARIO, "tflops_per_gpu", rate), "TFLOP/s", " per GPU")
    unit = label.removesuffix(" per GPU")
    assert read(number) * size_of(unit, "FLOP/s") == pytest.approx(per_gpu, rel=5e-3)
    assert f"{number}{SPACE}{unit}" == told(SCENARIO, "tflops_per_gpu", rate)
    label, number = rate_fact(quantity("sample_rate", rate), "samples/s")
    assert read(number) * size_of(label, "samples/s") == pytest.approx(rate, rel=5e-3)


def test_a_tile_draws_number_and_unit_of_a_quantity() -> None:
    drawn = figure_strip([Tile("Rate", Quantity("2.01", "PFLOP/s"), "per GPU")])
    assert '2.01 <span class="ss-unit">PFLOP/s</span>' in drawn
    assert 'aria-label="Rate 2.01\u00a0PFLOP/s, per GPU"' in drawn
    assert by_name("sample_rate").unit == "samples/s"
    assert words
