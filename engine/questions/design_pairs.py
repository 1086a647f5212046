"""Executions of a study's designs whose figures are shown, and two designs next to each other with the reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from pydantic import Field

from engine.codesign import MIX, Results, StudyError
from engine.codesign.costs import breakdown
from engine.codesign.quantities import QUANTITIES
from engine.questions.documents.codesign import DesignsQuestion
from engine.questions.documents.explorations import FiguresQuestion
from engine.questions.plain import plain, table_rows
from engine.questions.shown_executions import ShownAnswer, show_beside_fastest, shown_document
from engine.questions.verb import Document, Row
from engine.recommendation import ShownExecution
from engine.scenarios.scenario import Scenario

__all__ = [
    "STEP_PARTS",
    "DesignPair",
    "DesignPairAnswer",
    "DesignSide",
    "compare_designs",
    "find_terms",
    "pair_document",
    "show_design",
    "shown_sides",
    "side_document",
]

STEP_PARTS: Final = (
    "fw_time",
    "bw_time",
    "optim_step_time",
    "recompute_time",
    "bubble_time",
    "tp_comm_exposed_time",
    "recomm_exposed_time",
    "pp_comm_exposed_time",
    "dp_comm_exposed_time",
    "fw_offload_exposed_time",
    "bw_offload_exposed_time",
    "cp_comm_exposed_time",
    "ep_comm_exposed_time",
    "overhead_time",
)
"""Statistics that sum to the time of a step; cost models have most of them."""
_NAMED: Final = 0.001
"""Share of a step above which a difference of a time is listed."""
_SAME: Final = 1e-9
"""Relative difference up to which two prices are equal but for rounding."""


class DesignPairAnswer(Document):
    """Two designs of a study next to each other."""

    designs: list[int] = Field(description="Their numbers.")
    choices: list[Row] = Field(description="Choices that differ: name, one, other.")
    quantities: list[Row] = Field(description="Quantities that differ, of the fastest executions: name, unit, values.")
    prices: list[Row] = Field(description="Items whose amount or price differ: amounts, middle prices [USD].")
    shown: list[dict[str, ShownAnswer | None]] = Field(description="Executions of both by model, as --figures-of says.")
    terms: dict[str, list[Row]] = Field(
        description="By model: times of the step that differ between the shown executions [s], the largest first."
    )


@dataclass(frozen=True, slots=True)
class DesignSide:
    """Execution of a design for one model whose figures are shown."""

    scenario: Scenario
    shown: ShownExecution


@dataclass(frozen=True, slots=True)
class DesignPair:
    """Two designs next to each other: what was chosen, quantities, price by item, and executions by model.

    Tables have the columns `one` and `other`; `prices` has `amount_one`, `usd_one` and so on.
    """

    one: int
    other: int
    choices: pd.DataFrame
    quantities: pd.DataFrame
    prices: pd.DataFrame
    sides: dict[str, tuple[DesignSide | None, DesignSide | None]]


def show_design(found: Results, design: int, model: int, asked: FiguresQuestion) -> DesignSide | None:
    """Return the execution of a design whose figures are shown; None where none runs or the design was not searched.

    The search ranks designs by their fastest executions, whichever figures are shown.

    Args:
        found: computed points of a study.
        design: number of the design.
        model: place of the model in the study.
        asked: the choice, and the terms of the recommendation.
    """
    fastest = found.execution(design * len(found.study.models) + model)
    if fastest is None:
        return None
    scenario = found.scenario(design * len(found.study.models) + model)
    shown = show_beside_fastest(scenario, fastest, asked)
    return None if shown is None else DesignSide(scenario, shown)


def shown_sides(found: Results, design: int, asked: DesignsQuestion) -> dict[str, DesignSide | None]:
    """Return the shown executions of a design, by the name of the model: of the mix, the executions of all models.

    Args:
        found: computed points of a study.
        design: number of the design.
        asked: the question, with the mix or a model, and the choice of figures.
    """
    names = [model.name for model in found.study.models]
    wanted = names if asked.of == MIX else [asked.of]
    return {name: show_design(found, design, names.index(name), asked) for name in wanted}


def compare_designs(found: Results, one: int, other: int, asked: DesignsQuestion) -> DesignPair:
    """Return two designs next to each other.

    Args:
        found: computed points of a study.
        one, other: numbers of the designs.
        asked: the question, with the mix or a model, the end of price ranges, and the choice of figures.

    Raises `engine.codesign.StudyError` for a design that is not computed, and for one against itself.
    """
    table = found.designs(asked.of, asked.at).set_index("design")
    for number in (one, other):
        if number not in table.index:
            raise StudyError(f"Design {number:,} is not among the {len(table):,} computed designs of the study.")
    if one == other:
        raise StudyError(f"Design {one:,} cannot be compared with itself; give two different designs.")
    choices = [str(name) for name in found.choices if name != "design"]
    figures = [name for name in QUANTITIES if name in table]
    sides = {name: shown_sides(found, number, asked) for name, number in (("one", one), ("other", other))}
    return DesignPair(
        one,
        other,
        _differing(table, choices, one, other),
        _differing(table, figures, one, other),
        _price_differences(found, one, other),
        {name: (sides["one"][name], sides["other"][name]) for name in sides["one"]},
    )


def find_terms(one: DesignSide, other: DesignSide) -> list[dict[str, Any]]:
    """Return the times of a step that differ between two executions [s], the largest difference first.

    Args:
        one, other: executions of two designs for the same model.
    """
    before, after = one.shown.execution, other.shown.execution
    pairs = [(name, _seconds(before, name), _seconds(after, name)) for name in STEP_PARTS]
    least = _NAMED * _seconds(before, "total_time")
    named = sorted((each for each in pairs if abs(each[2] - each[1]) > least), key=lambda each: -abs(each[2] - each[1]))
    return [{"name": name, "one": old, "other": new, "difference": new - old} for name, old, new in named]


def pair_document(pair: DesignPair) -> dict[str, Any]:
    """Return two designs next to each other as JSON has them.

    Args:
        pair: the designs.
    """
    return {
        "designs": [pair.one, pair.other],
        "choices": table_rows(pair.choices),
        "quantities": table_rows(pair.quantities),
        "prices": table_rows(pair.prices),
        "shown": [{name: side_document(both[place]) for name, both in pair.sides.items()} for place in range(2)],
        "terms": {
            name: [] if one is None or other is None else find_terms(one, other)
            for name, (one, other) in pair.sides.items()
        },
    }


def side_document(side: DesignSide | None) -> dict[str, Any] | None:
    """Return the shown execution of a design as JSON has it.

    Args:
        side: the execution; None for none.
    """
    return None if side is None else plain(shown_document(side.scenario, side.shown))


def _seconds(execution: Mapping[str, Any], name: str) -> float:
    """Return a time of an execution [s]; 0 where its cost model does not have it."""
    return float(execution.get(name) or 0.0)


def _differing(table: pd.DataFrame, names: list[str], one: int, other: int) -> pd.DataFrame:
    """Return the columns in which two rows differ: name, unit of quantities, one, other."""
    rows = []
    for name in names:
        values = table[name].loc[one], table[name].loc[other]
        numbers = [isinstance(value, float | np.floating) for value in values]
        if all(numbers) and (all(map(math.isnan, values)) or math.isclose(*values, rel_tol=_SAME)):
            continue
        if values[0] == values[1]:
            continue
        known = QUANTITIES.get(name)
        rows.append((name, known.label if known else name, known.unit if known else "", *values))
    return pd.DataFrame(rows, columns=["name", "label", "unit", "one", "other"])


def _price_differences(found: Results, one: int, other: int) -> pd.DataFrame:
    """Return the items whose amount or middle price differ between two designs."""
    columns = ["item", "unit", "amount", "usd_middle"]
    tables = [breakdown(found.study, number)[columns] for number in (one, other)]
    joined = tables[0].merge(tables[1], on=["item", "unit"], suffixes=("_one", "_other"), how="outer", sort=False)
    joined = joined.rename(columns={"usd_middle_one": "usd_one", "usd_middle_other": "usd_other"})
    same = [
        np.isclose(joined[f"{name}_one"], joined[f"{name}_other"], rtol=_SAME, atol=0.0, equal_nan=True)
        for name in ("amount", "usd")
    ]
    kept: pd.DataFrame = joined[~(same[0] & same[1])].reset_index(drop=True)
    return kept
