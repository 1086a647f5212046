"""The pages that there are; navigation, links from page to page and the words of link parameters follow from them.

    from dashboard.pages.registry import PAGES, page

    page("pareto").parameters["pareto_x"]   # "axis across"
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

from dashboard.link import vocabulary
from dashboard.pages import (
    calibrate,
    compare,
    execution,
    explore,
    library,
    memory,
    pareto,
    results,
    scenarios,
    serving,
    validation,
    whatif,
)
from dashboard.pages.contract import Group, Page

__all__ = ["PAGES", "page", "sections"]

PAGES: Final[tuple[Page, ...]] = (
    explore.PAGE, execution.PAGE, memory.PAGE, pareto.PAGE, results.PAGE,
    whatif.PAGE, compare.PAGE, scenarios.PAGE,
    serving.PAGE,
    validation.PAGE, calibrate.PAGE, library.PAGE,
)  # fmt: skip
"""Every page in the order of the navigation, group after group. The first is served at the root."""

_BY_NAME: Final = {each.name: each for each in PAGES}

for _each in PAGES:
    vocabulary.learn(_each.parameters)


def page(name: str) -> Page:
    """Returns the page of that name; the empty name, which is the address of the root, is the first page's.

    Raises: KeyError where there is none.
    """
    return _BY_NAME[name] if name else PAGES[0]


def sections() -> dict[Group, tuple[Page, ...]]:
    """Returns the pages of each section of the navigation, both in their order."""
    return {group: tuple(pages) for group, pages in groupby(PAGES, lambda each: each.group)}
