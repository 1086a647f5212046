"""Contract of a page: a package whose `__init__` declares a `PAGE` and whose module `view` parses and draws it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, Final, Protocol, cast

from pydantic import BaseModel

from dashboard.words.names import in_sentence
from engine.questions.fields import question_fields

__all__ = ["NavigationGroup", "Needs", "Page", "View", "page_parameters"]

_PACKAGE: Final = __name__.rpartition(".")[0]


class NavigationGroup(StrEnum):
    """Section of the navigation; sections appear in this order."""

    EXPLORE = "Explore"
    DECIDE = "Decide"
    PLAN = "Plan"
    SERVE = "Serve"
    TRUST = "Trust"


class Needs(StrEnum):
    """Condition for drawing a page."""

    NOTHING = "nothing"
    """The page has its own subject."""
    SCENARIO = "scenario"
    """The page is about the scenario of the link, which is shown above it as a sentence."""
    EXPLORATION = "exploration"
    """The page is about the scenario's results: it waits until the scenario is explored."""


class View(Protocol):
    """The module `view` of a page's package."""

    def parse(self, *needed: Any) -> Any:
        """Reads the page's part of the link, once per run, into a frozen dataclass.

        needed: the exploration, if the page needs one; what to wait for, if it answers first. Invalid parts of the
        link are reported above the page.
        """

    def render(self, view: Any) -> None:
        """Draws the page. view: what `parse` returned."""


def page_parameters(
    page: str, *documents: type[BaseModel], leave_out: Collection[str] = (), only: Collection[str] | None = None
) -> dict[str, str]:
    """Return the link parameters of a page, by name, with their labels for sentences.

    Args:
        page: name of the page, with which its parameters begin; empty for parameters with names of their own.
        documents: the page's question and its display options.
        leave_out: fields that the page does not read from the link.
        only: fields that it reads; all but those left out if None.
    """
    return {
        (f"{page}_{field.parameter}" if page else field.parameter): in_sentence(field.label)
        for document in documents
        for name, field in question_fields(document).items()
        if name not in leave_out and (only is None or name in only)
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of the dashboard, as the navigation, the link and other pages see it without importing its code."""

    name: str
    """Name of its package in `dashboard/pages` and, but for the first page, its address `/<name>`."""
    title: str
    group: NavigationGroup
    place: int = 100
    """Position in its section, lowest first; equal positions are sorted by name."""
    help: str
    """Purpose of the page, in one sentence."""
    needs: Needs
    answers_first: bool = False
    """True if the page, which needs an exploration, draws its answer before the space is explored: its `parse` then
    takes a `PendingExploration` too."""
    parameters: Mapping[str, str]
    """Name of each link parameter of the page -> its label in sentences."""
    has_figures_choice: bool = False
    """True if the sentence above the page has the choice between figures of the recommended and of the fastest
    execution; Map, Execution and Pareto have it beside the figures."""
    guide: str
    """Name of the chapter of the guide that explains the page."""
    tasks: tuple[str, ...] = ()
    """Tasks on the page in the words of people, for the search: "Lower memory (out of memory, OOM)"."""

    @property
    def about_scenario(self) -> bool:
        """True if the scenario sentence is shown above the page."""
        return self.needs is not Needs.NOTHING

    def view(self) -> View:
        """Returns the module that draws the page.

        It is imported at the first visit, so that a server's first page does not wait for the code of all others.
        """
        return cast(View, import_module(f"{_PACKAGE}.{self.name}.view"))
