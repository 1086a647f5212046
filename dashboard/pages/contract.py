"""What a page is: one package whose `__init__` declares a `PAGE` and whose module `view` parses and draws it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, Final, Protocol, cast

__all__ = ["Group", "Needs", "Page", "View"]

_PACKAGE: Final = __name__.rpartition(".")[0]


class Group(StrEnum):
    """The section of the navigation in which a page stands; sections come in this order."""

    EXPLORE = "Explore"
    DECIDE = "Decide"
    PLAN = "Plan"
    SERVE = "Serve"
    TRUST = "Trust"


class Needs(StrEnum):
    """What must be there before a page is drawn."""

    NOTHING = "nothing"
    """The page has a subject of its own."""
    SCENARIO = "scenario"
    """The page is about the scenario of the link, which stands above it as a sentence."""
    EXPLORATION = "exploration"
    """The page is about the scenario's results: it waits until the scenario is explored."""


class View(Protocol):
    """The module `view` of a page's package."""

    def parse(self, *needed: Any) -> Any:
        """Reads the page's part of the link, once per run, into a frozen dataclass.

        needed: the exploration, where the page needs one. What the link asks for and cannot be is told above the page.
        """

    def render(self, view: Any) -> None:
        """Draws the page. view: what `parse` returned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of the dashboard: what the navigation, the link and other pages know of it without importing its code."""

    name: str
    """Name of its package in `dashboard/pages` and, but for the first page, its address `/<name>`."""
    title: str
    group: Group
    place: int = 100
    """Where it stands in its section, low before high; of equal places by name."""
    help: str
    """What somebody can do there, in one sentence."""
    needs: Needs
    parameters: Mapping[str, str]
    """Every parameter of the link that belongs to the page -> what it is, for a sentence about it."""
    guide: str
    """Name of the chapter of the guide that explains the page."""

    @property
    def about_scenario(self) -> bool:
        """Whether the scenario sentence stands above the page."""
        return self.needs is not Needs.NOTHING

    def view(self) -> View:
        """Returns the module that draws the page.

        It is imported at the first visit, so that a server's first page does not wait for the code of all others.
        """
        return cast(View, import_module(f"{_PACKAGE}.{self.name}.view"))
