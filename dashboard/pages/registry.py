"""The pages that there are; navigation, links from page to page and the words of link parameters follow from them.

    from dashboard.pages.registry import PAGES, page

    page("pareto").parameters["pareto_x"]   # "axis across"
"""

from __future__ import annotations

from importlib import import_module
from itertools import groupby
from pkgutil import iter_modules
from typing import Final

from dashboard import pages
from dashboard.link import vocabulary
from dashboard.pages.contract import Group, Page

__all__ = ["PAGES", "page", "sections"]


def _found() -> tuple[Page, ...]:
    """Returns the page of every package beside this module, section after section."""
    names = [each.name for each in iter_modules(pages.__path__) if each.ispkg]
    found: list[Page] = [import_module(f"{pages.__name__}.{name}").PAGE for name in names]
    sections = list(Group)
    return tuple(sorted(found, key=lambda each: (sections.index(each.group), each.place, each.name)))


PAGES: Final = _found()
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
    return {group: tuple(each) for group, each in groupby(PAGES, lambda each: each.group)}
