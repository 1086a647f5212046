"""Explorations whose rows are asked for: a space is evaluated once for both."""

import pyarrow as pa

from engine import Exploration, Scenario
from engine.exploration.result import ArrowRows
from engine.exploration.run import explore_into
from engine.exploration.stored_rows import schema_for

__all__ = ["explored_with_rows"]


class _Kept:
    """Takes rows as they come and keeps them."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def append(self, rows: pa.Table) -> None:
        """Take some rows."""
        self.tables.append(rows)

    def complete(self, **_: object) -> None:
        """Nothing: they are all there."""


def explored_with_rows(scenario: Scenario) -> Exploration:
    """As `engine.explore_scenario` in memory, which evaluates everything a second time when it is asked for rows."""
    kept = _Kept()
    reductions, seconds = explore_into(scenario, kept)
    rows = pa.concat_tables([schema_for(scenario.cost_model).empty_table(), *kept.tables])
    return Exploration(scenario, reductions, seconds, lambda: ArrowRows(rows, scenario.cost_model))
