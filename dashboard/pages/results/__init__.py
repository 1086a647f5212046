"""Results: all feasible executions as a table: filter, sort, export."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.results.link import ResultsLink

__all__ = ["PAGE"]

PAGE = Page(
    name="results",
    title="Results",
    group=NavigationGroup.EXPLORE,
    place=5,
    help="All executions as a table: filter, sort, export.",
    tasks=("Export all executions (CSV, Parquet)", "Filter and sort executions"),
    needs=Needs.EXPLORATION,
    guide="glossary",
    parameters=page_parameters("results", ResultsLink),
)
