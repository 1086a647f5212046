"""Scenarios: what was saved and explored on this server; reopen, share, compare, rename, delete."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.scenarios.link import ScenariosLink

__all__ = ["PAGE"]

PAGE = Page(
    name="scenarios",
    title="Scenarios",
    group=NavigationGroup.DECIDE,
    place=3,
    help="What was explored before: reopen, share, delete.",
    tasks=("Import a launch script or config.json", "See where my own run stands", "Reopen or share saved work"),
    needs=Needs.NOTHING,
    guide="quick-start",
    parameters=page_parameters("scenarios", ScenariosLink),
)
