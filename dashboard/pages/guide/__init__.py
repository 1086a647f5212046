"""Guide: what the pages show, how figures come about and how far they hold, and recipes for common questions."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="guide",
    title="Guide",
    group=NavigationGroup.TRUST,
    place=0,
    help="How to read the pages, what the figures mean, and recipes for common questions.",
    tasks=("Learn to read the pages",),
    needs=Needs.NOTHING,
    guide="quick-start",
    parameters={"chapter": "chapter of the guide", "section": "section of the chapter"},
)
