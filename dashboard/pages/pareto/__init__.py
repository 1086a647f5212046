"""Pareto: the executions that no other beats in two or three figures at once."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.pareto.link import ParetoLink

__all__ = ["PAGE"]

PAGE = Page(
    name="pareto",
    title="Pareto",
    group=NavigationGroup.EXPLORE,
    place=4,
    help="The executions that no other beats in two or three figures at once.",
    tasks=("Trade throughput against memory or cost",),
    needs=Needs.EXPLORATION,
    guide="reading-the-map",
    parameters={
        **page_parameters("pareto", ParetoLink),
        "pareto_close": "switch for close executions",
        "pareto_columns": "switch for all columns",
        "pareto_b": "second scenario",
        "pareto_c": "third scenario",
        "pareto_d": "fourth scenario",
    },
)
