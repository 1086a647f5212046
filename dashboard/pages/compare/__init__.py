"""Compare: two to four scenarios side by side."""

from dashboard.pages.compare.link import PAGE_NAME, CompareLink
from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Compare",
    group=NavigationGroup.DECIDE,
    place=2,
    help="Scenarios side by side: their differences and the effects.",
    tasks=("Decide which GPU to buy or rent", "Compare systems, models or sizes"),
    needs=Needs.SCENARIO,
    has_figures_choice=True,
    guide="recipes",
    parameters=page_parameters(PAGE_NAME, CompareLink),
)
