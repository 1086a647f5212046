"""Memory: where it goes against the capacity of each tier, and what would fit if."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="memory",
    title="Memory",
    group=NavigationGroup.EXPLORE,
    place=3,
    help="Where the memory goes, tier by tier, and what would fit if.",
    needs=Needs.EXPLORATION,
    guide="reading-the-map",
    parameters={
        "memory_tier": "memory",
        "memory_hbm": "HBM",
        "memory_sort": "order",
    },
)
