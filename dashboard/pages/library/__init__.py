"""Library: models and systems with the source of every value; edit copies, upload, use in the scenario."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.library.link import LibraryLink

__all__ = ["PAGE"]

PAGE = Page(
    name="library",
    title="Library",
    group=NavigationGroup.TRUST,
    place=3,
    help="Models and systems with the source of every number; edit copies.",
    tasks=("Add or edit a model (config.json)", "Add or edit a system"),
    needs=Needs.NOTHING,
    guide="cost-models",
    parameters=page_parameters("library", LibraryLink),
)
