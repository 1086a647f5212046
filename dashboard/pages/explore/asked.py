"""Part of the link that the Explore page shows: metric, axes, filters, selection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.figures import FiguresView, parse_figures
from dashboard.link.shared import SharedView, parse_shared
from dashboard.pages.explore.axes import Axes, parse_axes
from dashboard.pages.explore.choices import known_metrics
from dashboard.pages.explore.link import ExploreLink
from dashboard.queries.economics import Metric
from dashboard.queries.filters import Filter
from dashboard.widgets.filters.in_force import OF_LINK
from dashboard.widgets.needed_exploration import PendingExploration
from engine import Exploration, Scenario

__all__ = ["AwaitedView", "ExplorePageView", "ExploreView", "parse_awaited", "parse_explore"]


@dataclass(frozen=True, slots=True)
class AwaitedView:
    """Content of the page while the exploration of its scenario is on its way."""

    pending: PendingExploration
    is_answered: bool
    """True if the proven best is the page's answer; False with filters, which only the rows can meet."""


@dataclass(frozen=True, slots=True)
class ExploreView:
    """All that the link says of the page."""

    exploration: Exploration
    others: tuple[Exploration, ...]
    """The same in the system's other datatypes, for a map per datatype."""
    shared: SharedView
    mode: str
    """The theme: "light" or "dark"."""
    metric: Metric
    axes: Axes
    at: str
    """The selected cell of a map with other axes than tensor by pipeline parallel; empty for the best."""
    filters: tuple[Filter, ...]
    figures: FiguresView
    """Choice of the execution whose figures are shown."""
    fields: Mapping[str, LinkField]

    @property
    def is_table(self) -> bool:
        """True if the map is shown as a table."""
        return bool(self.fields["table"].value)


@dataclass(frozen=True, slots=True)
class ExplorePageView:
    """Content of the page: the explored space, or its answer before."""

    shown: ExploreView | AwaitedView

    @property
    def scenario(self) -> Scenario:
        """Scenario of the page."""
        return self.shown.pending.scenario if isinstance(self.shown, AwaitedView) else self.shown.shared.scenario


def parse_awaited(pending: PendingExploration) -> AwaitedView:
    """Parse the part of the link that matters before the space is explored."""
    return AwaitedView(pending, not OF_LINK.parse())


def parse_explore(exploration: Exploration, others: Sequence[Exploration] = ()) -> ExploreView:
    """Parse the page's part of the link.

    others: the exploration in the system's other datatypes, for a map per datatype.
    """
    reader, known = LinkReader(ExploreLink, ""), known_metrics(exploration)
    metric = known[reader.read("metric", options={name: each.short for name, each in known.items()})]
    reader.read("download")
    axes, map_reader = parse_axes(exploration)
    return ExploreView(
        exploration,
        tuple(others),
        parse_shared(),
        state.theme_mode(),
        metric,
        axes,
        map_reader.fields["at"].value,
        tuple(OF_LINK.parse()) if exploration.feasible else (),
        parse_figures(),
        {**reader.fields, **map_reader.fields},
    )
