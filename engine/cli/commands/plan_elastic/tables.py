"""Tables of plans as text, where plans are named in words, or as data, where they have the names that commands take."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.cli.text_tables import write_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["write_plans"]


def write_plans(table: pd.DataFrame, *, json: bool, csv: bool) -> None:
    """Print a table of plans as JSON, as CSV, or as aligned text with the plans in words."""
    from engine.planners.elastic.plan_names import with_plan_titles

    write_table(table if json or csv else with_plan_titles(table), json=json, csv=csv)
