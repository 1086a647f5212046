"""Results: all feasible executions as a table: filter, sort, export."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="results",
    title="Results",
    group=NavigationGroup.EXPLORE,
    place=5,
    help="All executions as a table: filter, sort, export.",
    needs=Needs.EXPLORATION,
    guide="glossary",
    parameters={
        "results_where": "filters",
        "results_sort": "column to sort by",
        "results_order": "direction",
        "results_size": "rows per page",
        "results_page": "page",
        "results_columns": "columns",
        "results_cell": "cell that does not filter",
    },
)
