"""All pages; navigation, links between pages and labels of link parameters are derived from them.

Example:
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
from dashboard.pages.contract import NavigationGroup, Page

__all__ = ["PAGES", "page", "sections"]


def _load_pages() -> tuple[Page, ...]:
    """Return the page of every package in this folder, section after section."""
    names = [each.name for each in iter_modules(pages.__path__) if each.ispkg]
    found: list[Page] = [import_module(f"{pages.__name__}.{name}").PAGE for name in names]
    sections = list(NavigationGroup)
    return tuple(sorted(found, key=lambda each: (sections.index(each.group), each.place, each.name)))


PAGES: Final = _load_pages()
"""Every page in the order of the navigation, group after group. The first is served at the root."""

_BY_NAME: Final = {each.name: each for each in PAGES}

for _each in PAGES:
    vocabulary.learn(_each.parameters)


def page(name: str) -> Page:
    """Returns the page of that name; the empty name, the root's address, is the first page.

    Raises: KeyError for an unknown name.
    """
    return _BY_NAME[name] if name else PAGES[0]


def sections() -> dict[NavigationGroup, tuple[Page, ...]]:
    """Returns the pages of each section of the navigation, both in their order."""
    return {group: tuple(each) for group, each in groupby(PAGES, lambda each: each.group)}
