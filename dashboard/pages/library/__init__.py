"""Library: models and systems with the source of every value; edit copies, upload, use in the scenario."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="library",
    title="Library",
    group=NavigationGroup.TRUST,
    place=3,
    help="Models and systems with the source of every number; edit copies.",
    needs=Needs.NOTHING,
    guide="cost-models",
    parameters={
        "library_kind": "kind",
        "library_item": "entry",
        "library_edit": "entry to edit",
    },
)
