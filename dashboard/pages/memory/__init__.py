"""Memory: where it goes against the capacity of each tier, and what would fit if."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.memory.link import PAGE_NAME, MemoryLink

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Memory",
    group=NavigationGroup.EXPLORE,
    place=3,
    help="Where the memory goes, tier by tier, and what would fit if.",
    tasks=("Lower memory (out of memory, OOM, offload)", "See what fills the memory of a GPU"),
    needs=Needs.EXPLORATION,
    has_figures_choice=True,
    guide="reading-the-map",
    parameters=page_parameters(PAGE_NAME, MemoryLink),
)
