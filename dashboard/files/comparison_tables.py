"""Tables of a comparison, and their file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd

from dashboard.files import exports
from dashboard.queries.accuracy import doubts
from dashboard.queries.economics import Metric, metrics, told
from dashboard.queries.explorations import cells_of
from dashboard.queries.figures import begin_choosing, choose_execution
from dashboard.queries.scenario_differences import differences
from dashboard.words.executions import field_in_words
from dashboard.words.numbers import ABSENT, column_of, count, format_value
from dashboard.words.scenarios import name_of
from engine import Exploration, Scenario
from engine.columns import ALL_FIELDS, DERIVED, by_name, fields_of, headline_of, rates_beside
from engine.economics import derived_of
from engine.questions.documents.explorations import FiguresQuestion
from engine.recommendation import FIGURES_OF, ShownExecution

__all__ = ["Side", "archive_tables", "best_table", "differing", "sides_of"]

_STATISTICS: Final = (
    "sample_rate",
    "total_time",
    "total_efficiency",
    "bubble_time",
    "proc_mem_tier1_cap_req",
    "proc_mem_tier2_cap_req",
)


class Side(NamedTuple):
    """A scenario of the comparison, explored."""

    letter: str
    scenario: Scenario
    exploration: Exploration
    shown: ShownExecution | None
    """Execution that is compared; None if nothing runs."""

    @property
    def best(self) -> dict[str, Any] | None:
        """Fields and statistics of the execution that is compared."""
        return None if self.shown is None else dict(self.shown.execution)


def sides_of(
    letters: Sequence[str], explorations: Sequence[Exploration], asked: FiguresQuestion | None = None
) -> list[Side]:
    """Returns the scenarios of a comparison with the execution of each that is compared.

    asked: recommended or fastest, and the terms of the recommendation; recommended if None.
    """
    asked = asked or FiguresQuestion()
    for found in explorations:  # all at once, in the background
        begin_choosing(found, asked)
    return [
        Side(letter, found.scenario, found, choose_execution(found, asked).shown)
        for letter, found in zip(letters, explorations, strict=True)
    ]


def differing(sides: Sequence[Side]) -> pd.DataFrame:
    """Returns the fields in which the scenarios differ: Part, Field, and a column of words per scenario."""
    rows = differences([side.scenario for side in sides])
    columns = ["Part", "Field", *(side.letter for side in sides)]
    return pd.DataFrame([[group, label, *values] for group, label, values in rows], columns=columns)


def best_table(sides: Sequence[Side]) -> pd.DataFrame:
    """Returns the compared execution of each scenario in words: results, doubts, and choices in which they differ."""
    known = [side.best for side in sides if side.best is not None]
    rows = [[column_of(name).label, *(_best_value(side, name) for side in sides)] for name in _STATISTICS]
    rows[1:1] = [
        [
            by_name(name).label,
            *(
                ABSENT if side.best is None else told(side.scenario, name, float(side.best["sample_rate"]))
                for side in sides
            ),
        ]
        # All in A's convention, so that they can be compared.
        for name in (*rates_beside(sides[0].scenario.flop_convention), "tokens_per_usd")
    ]
    roles = [ABSENT if side.shown is None else FIGURES_OF[side.shown.figures_of] for side in sides]
    rows.insert(0, ["Figures of", *roles])
    told_doubts = [() if side.best is None else doubts(side.scenario, side.best) for side in sides]
    if any(told_doubts):
        rows.append(["In doubt", *(" ".join(each) or ABSENT for each in told_doubts)])
    rows.append(["Executions that run", *(count(side.exploration.feasible) for side in sides)])
    for column in ALL_FIELDS:
        if any(column.name not in best for best in known):
            continue  # not every cost model knows it
        values = [
            ABSENT if side.best is None else field_in_words(side.best, column.name, side.scenario.system)
            for side in sides
        ]
        if len({value for side, value in zip(sides, values, strict=True) if side.best is not None}) > 1:
            rows.append([column.label, *values])
    return pd.DataFrame(rows, columns=["", *(side.letter for side in sides)])


def _best_value(side: Side, name: str) -> str:
    return ABSENT if side.best is None else format_value(name, side.best[name])


def archive_tables(sides: Sequence[Side], metric: Metric) -> bytes:
    """Return a zip archive with a CSV file each of differing fields, best executions, and best of every cell.

    metric: of the cells.
    """
    names = {
        side.letter: [c.name for c in (*fields_of(side.scenario.cost_model), *headline_of(side.scenario.cost_model))]
        for side in sides
    }
    every = list(dict.fromkeys(name for of_side in names.values() for name in of_side))
    account = {
        "format": "shardscape-compared-tables/1",
        "software": f"shardscape {exports.version()}",
        "scenarios": {
            side.letter: {"title": name_of(side.scenario), **exports.of_scenario(side.scenario)} for side in sides
        },
        "files": {
            "differences.csv": "Fields in which the scenarios differ, in words.",
            "best.csv": "The recommended or the fastest execution of each scenario; of those that tie, the simplest.",
            "cells.csv": f"The best of every cell by {metric.column.label.lower()}, and what nothing-fits cells lack.",
        },
        "columns": [exports.described(column) for column in (*(by_name(name) for name in every), *DERIVED)],
    }
    best = [
        {
            "scenario": side.letter,
            "figures_of": side.shown.figures_of,
            "in_doubt": " ".join(doubts(side.scenario, side.best)),
            **{exports.heading(by_name(name)): side.best[name] for name in names[side.letter]},
            **{
                exports.heading(one.column): one.of(np.array(float(side.best["sample_rate"]))).item()
                for one in derived_of(side.scenario).values()
            },
        }
        for side in sides
        if side.shown is not None and side.best is not None
    ]
    derived = (one.name for one in DERIVED)
    headings = ["scenario", "figures_of", "in_doubt", *(exports.heading(by_name(name)) for name in (*every, *derived))]
    return exports.archive(
        account,
        {
            "differences": differing(sides),
            "best": pd.DataFrame(best, columns=headings),
            "cells": pd.concat([_best_cells(side, metric) for side in sides], ignore_index=True),
        },
    )


def _best_cells(side: Side, metric: Metric) -> pd.DataFrame:
    """Return the cells of a scenario with their best value of a metric."""
    cells = cells_of(side.exploration, metrics(side.scenario)[metric.key])
    heads = {"value": exports.heading(metric.column)}
    heads |= {name: name.replace("_bytes", " [bytes]") for name in map(str, cells) if name.endswith("_bytes")}
    cells.insert(0, "scenario", side.letter)
    return cells.rename(columns=heads)
