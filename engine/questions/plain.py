"""Values of results as JSON has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from engine.columns import by_name as column_of
from engine.columns import fields_of, headline_of, statistics_of
from engine.questions.fields import Asked
from engine.questions.verb import QuestionError
from models.documents import did_you_mean, plain, shown

__all__ = ["Statistics", "chosen_statistics", "plain", "rows_of", "table_rows", "units_of"]

Statistics = Annotated[
    list[str] | None,
    Asked("Statistics", metavar="NAME", option_help="Statistics of the rows, or all; headline figures by default."),
    Field(description='Statistics of the rows by name, or ["all"]; null for the headline figures.'),
]
"""Statistics of the rows of an answer."""


def chosen_statistics(cost_model: str, asked: Iterable[str] | None) -> list[str]:
    """Returns the statistics of an answer's rows.

    Args:
        cost_model: whose they are.
        asked: names, or "all" among them; None for the headline figures.

    Raises `QuestionError` for a name that is no statistic of the cost model.
    """
    every = [column.name for column in statistics_of(cost_model)]
    wanted = None if asked is None else list(asked)
    if wanted is None:
        return [column.name for column in headline_of(cost_model)]
    if "all" in wanted:
        return every
    for name in wanted:
        if name not in every:
            raise QuestionError(f"There is no statistic {shown(name)}{did_you_mean(name, every)}; see list_columns.")
    return wanted


def rows_of(table: pd.DataFrame, cost_model: str, statistics: Iterable[str]) -> list[dict[str, Any]]:
    """Return executions as rows of an answer: id, fields, outcome and some statistics.

    Args:
        table: evaluated executions [rows].
        cost_model: cost model of the evaluation.
        statistics: names of the statistics.
    """
    names = [
        "id",
        *(column.name for column in fields_of(cost_model)),
        "status",
        "reason",
        "reason_text",
        "fit",
        *statistics,
    ]
    return [plain(row) for row in table[[name for name in names if name in table]].to_dict("records")]


def units_of(names: Iterable[str]) -> dict[str, str]:
    """Returns the units of those columns that have one, by name.

    Args:
        names: of columns.
    """
    return {name: unit for name in names if (unit := column_of(name).unit)}


def table_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as JSON has them.

    Args:
        table: of a planner.
    """
    return [plain(row) for row in table.to_dict("records")]
