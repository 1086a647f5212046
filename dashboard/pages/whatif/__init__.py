"""The What-if page: change the hardware, the model or the machine, and find the new best execution."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.whatif.link import PAGE_NAME, WhatIfLink

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="What-if",
    group=NavigationGroup.DECIDE,
    place=1,
    help="Change the hardware or the model and see which execution is best then.",
    tasks=(
        "Change the hardware: bandwidth, memory, network",
        "Find out which hardware limits the speed",
        "Find out how many GPUs to use",
    ),
    needs=Needs.SCENARIO,
    guide="recipes",
    parameters=page_parameters(PAGE_NAME, WhatIfLink),
)
