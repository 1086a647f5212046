"""Compare: two to four scenarios side by side."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="compare",
    title="Compare",
    group=NavigationGroup.DECIDE,
    place=2,
    help="Scenarios side by side: their differences and the effects.",
    needs=Needs.SCENARIO,
    guide="recipes",
    parameters={
        "compare_b": "second scenario",
        "compare_c": "third scenario",
        "compare_d": "fourth scenario",
        "compare_metric": "metric",
        "compare_domain": "colours",
        "compare_pair": "pair of scenarios",
    },
)
