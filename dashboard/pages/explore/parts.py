"""Parts of the Explore page that a click changes: map, panel, band, costs of choices and download.

If a click changes nothing else, each is redrawn as a fragment, the clicked one first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements.markup import head, map_legend
from dashboard.charts.elements.static_preview import is_drawable, still
from dashboard.charts.explored.best_map import HEIGHT, best_map
from dashboard.charts.explored.degree_map import degree_map
from dashboard.compat.session import run_again
from dashboard.jobs.turns import turns
from dashboard.link import state
from dashboard.link.shared import SharedView
from dashboard.pages.explore.asked import ExploreView, parse_explore
from dashboard.pages.explore.axes import Axes, best_rates, cells_for, chosen, group_of, pair_legend, pick_group
from dashboard.pages.explore.choice_costs import costs
from dashboard.pages.explore.choices import domain_of
from dashboard.pages.explore.download import download
from dashboard.pages.explore.panel import group_panel, panel, read_ahead
from dashboard.pages.explore.tables import cells_table, pairs_table
from dashboard.queries.economics import Metric
from dashboard.queries.executions import evaluated
from dashboard.queries.explorations import Where, cells_of, in_cell
from dashboard.queries.figures import WORKING, ChosenExecution, choose_execution
from dashboard.queries.filters import Filter
from dashboard.queries.tie_breaking import plainest
from dashboard.widgets import menus, recommended
from dashboard.widgets.chart import clicked, show
from dashboard.widgets.filters.popover import relaxations, where_of
from dashboard.widgets.fragment_views import FragmentView
from dashboard.widgets.staged_rendering import Stage
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.names import cell_name
from dashboard.words.numbers import scale_for
from engine import Exploration
from engine.executions.frameworks.registry import ANY, FRAMEWORK_RULES
from engine.exploration.unstored_statistics import is_stored
from hardware import network_names

__all__ = [
    "OVERVIEW",
    "MapView",
    "another_mark",
    "another_metric",
    "band_part",
    "choose_shown_execution",
    "costs_part",
    "download_part",
    "is_alone",
    "map_part",
    "panel_part",
    "view_of",
]

OVERVIEW: Final = "explore_overview"
"""Key of the fragment around the whole page."""
_PARTS: Final = ("explore_panel", "explore_map", "explore_band", "explore_download")
"""Fragments that another cell changes, in the order in which a click redraws them."""
_BY_METRIC: Final = ("explore_map", "explore_panel", "explore_costs")
"""Fragments that another metric changes."""

_LEAST_MAP: Final = 300
_ROW: Final = 38
"""Height of a row of the map [px]."""
_AXIS: Final = 56
"""Height of the axis below the rows [px]."""
_CLICKED: Final = "_explore_clicked"
"""Session key: a cell was clicked since panels were last read ahead."""


@dataclass(frozen=True, slots=True)
class MapView:
    """Content of the page for an exploration."""

    asked: ExploreView
    metric: Metric
    axes: Axes
    filters: tuple[Filter, ...]
    others: tuple[Exploration, ...]
    """The same exploration in other datatypes, for a map per datatype."""
    every: bool
    """True for all executions along the default axes, whose cells the exploration stores."""
    cells: pd.DataFrame
    """Cells of the map: from `explore_data.cells_of` for all executions, otherwise from `explore_axes.cells_for`."""
    facets: tuple[int, int]
    """Number of maps shown, and of all maps."""
    drawn: Stage
    chosen: ChosenExecution
    """Execution of all that meet the filters whose figures are shown, as far as it is known."""
    alone: bool
    """True if a selection changes nothing but `_PARTS`, and another metric nothing but `_BY_METRIC`; each is a fragment
    then.
    """

    def again(self) -> None:
        """Redraws the parts that depend on the selection; call it last in a widget's callback."""
        _draw_again(_PARTS if self.alone else ())

    @property
    def where(self) -> Where:
        """Conditions of the filters."""
        return where_of(self.filters)


def parse_part(exploration: Exploration, view: MapView) -> MapView:
    """Parse what may have changed when a part of the page reruns alone: the metric, the selection, the terms."""
    asked = parse_explore(exploration, view.others)
    found = choose_shown_execution(exploration, asked, 0.0)
    if asked.metric == view.metric:
        return replace(view, asked=asked, chosen=found)
    return replace(view, asked=asked, chosen=found, metric=asked.metric, cells=cells_of(exploration, asked.metric))


def choose_shown_execution(exploration: Exploration, asked: ExploreView, patience_s: float | None) -> ChosenExecution:
    """Return the shown execution among those within the filters.

    patience_s: see `choose_execution`.
    """
    where = where_of(asked.filters)
    if not where:
        return choose_execution(exploration, asked.figures.question, patience_s=patience_s)

    def find_fastest() -> Mapping[str, Any] | None:
        found = best_rates(exploration, where)
        if not found.number:
            return None
        tie = plainest(exploration, exploration.key, found.id, "sample_rate", where)
        return evaluated(exploration, exploration.key, tie.id)

    return choose_execution(exploration, asked.figures.question, where, fastest=find_fastest, patience_s=patience_s)


def is_every(axes: Axes, filters: Sequence[Filter], metric: Metric) -> bool:
    """Returns whether the map is of all executions along the default axes, whose cells the exploration stores."""
    return not filters and axes.usual and is_stored(metric.statistic)


def is_alone(asked: ExploreView) -> bool:
    """Returns whether a selection changes only parts of the page that are fragments."""
    every = is_every(asked.axes, asked.filters, asked.metric)
    return every and asked.exploration.feasible > 0 and not asked.is_table


def view_of(asked: ExploreView, drawn: Stage, found: ChosenExecution) -> MapView:
    """Returns the page's content for executions that meet filters; at least one must.

    found: the execution whose figures are shown.
    """
    exploration, metric, axes, filters = asked.exploration, asked.metric, asked.axes, asked.filters
    every = is_every(axes, filters, metric)
    if every:
        cells, facets = cells_of(exploration, metric), (1, 1)
    else:
        cells, facets = cells_for(exploration, axes, metric, where_of(filters), asked.others)
    return MapView(asked, metric, axes, filters, asked.others, every, cells, facets, drawn, found, is_alone(asked))


def another_mark() -> None:
    """Redraws the map, whose mark follows the recommendation; call it last in a callback."""
    run_again(("explore_map",))


def another_metric() -> None:
    """Redraws only the parts that another metric changes, if they are fragments; call it last in a callback."""
    _draw_again(_BY_METRIC)


def _draw_again(parts: tuple[str, ...]) -> None:
    """Redraw fragments. parts: fragments that change; empty for the whole page."""
    # Menus elsewhere on the page may show the former selection.
    stale = menus.forget()
    if parts:
        run_again((OVERVIEW,) if stale else parts)


def map_part(exploration: Exploration, view: MapView) -> None:
    """Draws the map with its caption, or as a table if the link says so."""
    _map_alone(exploration, _part_view(exploration, view)) if view.alone else _draw_map(exploration, view)


def panel_part(exploration: Exploration, view: MapView) -> None:
    """Draws the panel of the selected cell, by default the best."""
    _panel_alone(exploration, _part_view(exploration, view)) if view.alone else _draw_panel(exploration, view)


def band_part(exploration: Exploration, view: MapView) -> None:
    """Draws the recommended execution next to the fastest."""
    _band_alone(exploration, _part_view(exploration, view)) if view.alone else _draw_band(exploration, view)


def costs_part(exploration: Exploration, view: MapView) -> None:
    """Draws the cost of fixing each choice."""
    _costs_alone(exploration, _part_view(exploration, view)) if view.alone else _draw_costs(exploration, view)


def download_part(exploration: Exploration, view: MapView) -> None:
    """Draws the download, which offers the selected cell, too."""
    _download_alone(exploration, _part_view(exploration, view)) if view.alone else _draw_download(exploration, view)


def _part_view(exploration: Exploration, view: MapView) -> FragmentView[MapView]:
    return FragmentView(view, partial(parse_part, exploration, view))


@st.fragment(key="explore_map")
def _map_alone(exploration: Exploration, part: FragmentView[MapView]) -> None:
    with turns.turn():
        _draw_map(exploration, part.current())


@st.fragment(key="explore_panel")
def _panel_alone(exploration: Exploration, part: FragmentView[MapView]) -> None:
    with turns.turn():
        _draw_panel(exploration, part.current())


@st.fragment(key="explore_band")
def _band_alone(exploration: Exploration, part: FragmentView[MapView]) -> None:
    with turns.turn():
        _draw_band(exploration, part.current())


@st.fragment(key="explore_costs")
def _costs_alone(exploration: Exploration, part: FragmentView[MapView]) -> None:
    with turns.turn():
        _draw_costs(exploration, part.current())


@st.fragment(key="explore_download")
def _download_alone(exploration: Exploration, part: FragmentView[MapView]) -> None:
    with turns.turn():
        _draw_download(exploration, part.current())


def _draw_map(exploration: Exploration, view: MapView) -> None:
    (_map_of_all if view.every else _map_of_some)(exploration, view)


def _draw_band(exploration: Exploration, view: MapView) -> None:
    asked, shown = view.asked, view.chosen.shown
    if view.chosen.is_pending:  # the headline says so, and the page watches for it
        recommended.waiting_band("explore", asked.figures, asked.shared, st.rerun, note="")
        return
    own = shown.id if asked.shared.cell is None and shown is not None else None
    recommended.band(
        exploration,
        "explore",
        asked.figures,
        asked.shared,
        asked.shared.id if asked.shared.id is not None else own,
        view.where,
        st.rerun,
        parts=("explore_band",),
        launches=True,
    )


def _draw_costs(exploration: Exploration, view: MapView) -> None:
    costs(exploration, view.metric, view.where)


def _draw_panel(exploration: Exploration, view: MapView) -> None:
    with st.container(border=True, gap="xsmall", key="panel"):
        if view.every:
            cell = _shown_cell(view)
            if cell is None and view.chosen.is_pending:
                st.caption(WORKING)
                return
            panel(
                exploration,
                view.metric,
                view.cells,
                cell,
                view.asked,
                view.again,
                short=view.drawn is not Stage.WHOLE,
            )
        else:
            _panel_of_some(exploration, view)


def _draw_download(exploration: Exploration, view: MapView) -> None:
    download(exploration, view.filters, view.asked.shared.cell, view.asked.fields["download"])
    # A user who clicks cells will click more: read the other panels once the page is complete.
    if st.session_state.pop(_CLICKED, False) and view.every:
        read_ahead(exploration, view.metric)


def _map_of_all(exploration: Exploration, view: MapView) -> None:
    cells, metric = view.cells, view.metric
    if view.asked.is_table:
        cells_table(cells, metric)
        return
    chart = degree_map(
        cells,
        metric.column,
        view.asked.mode,
        selected=_shown_cell(view),
        domain=domain_of(metric, view.asked.fields["domain"].value),
        narrow=is_narrow(),
        height=_map_height(cells),
    )
    pictured = view.drawn is not Stage.WHOLE and is_drawable(chart.drawing)
    with st.container(key="map_place"):
        show(chart, "explore_map", on_click=partial(_select_clicked, view))
        if pictured:
            st.html(still(chart.drawing))
    unit = scale_for(metric.column, cells["value"]).unit
    runs = exploration.feasible > 0
    st.html(
        map_legend(
            exploration.scenario.num_procs,
            unit,
            fastest=metric.ranked_by == "sample_rate",
            runs=runs,
            numbered=is_drawable(chart.drawing) or not len(cells),
            may_fit=bool(cells["may_fit"].any()),
            framework="" if (name := exploration.scenario.framework) == ANY else FRAMEWORK_RULES[name].title,
        )
    )


def _map_height(cells: pd.DataFrame) -> int:
    """Return the height of the map [px]: its rows are no higher than it takes to see all of them on a small screen."""
    return max(_LEAST_MAP, min(HEIGHT, _AXIS + _ROW * cells["tensor_par"].nunique()))


def _select_clicked(view: MapView) -> None:
    if found := clicked("explore_map"):
        state.select_cell(found[0], found[1])
        st.session_state[_CLICKED] = True
    view.again()


def _map_of_some(exploration: Exploration, view: MapView) -> None:
    axes, metric, cells = view.axes, view.metric, view.cells
    networks = network_names(exploration.scenario.system)

    def select_group(at: str, execution: int) -> None:
        pick_group((exploration, *view.others), axes, at, execution, metric, view.where)

    if view.asked.is_table:
        pairs_table(cells, metric, axes, select_group, networks)
    elif len(cells):
        across, up, third = axes.columns
        chart = best_map(
            cells,
            across,
            up,
            metric.column,
            view.asked.mode,
            facet=third,
            selected=chosen(axes, cells, metric, _with_shown_cell(view), view.asked.at),
            domain=domain_of(metric, view.asked.fields["domain"].value),
            narrow=is_narrow(),
            networks=networks,
        )

        def select_mark() -> None:
            if found := clicked("explore_pairs"):
                select_group(*found)

        show(chart, "explore_pairs", on_click=select_mark)
        st.html(pair_legend(axes, cells, metric, view.facets, filtered=bool(view.where)))


def _panel_of_some(exploration: Exploration, view: MapView) -> None:
    axes, metric, cells, shared = view.axes, view.metric, view.cells, _with_shown_cell(view)
    at = chosen(axes, cells, metric, shared, view.asked.at)
    cell = view.asked.shared.cell if axes.of_cells else None
    row = cells[cells["at"] == at] if at is not None else cells[:0]
    if len(row) and row["rows"].iloc[0]:
        group_panel(
            exploration,
            metric,
            group_of(exploration, axes, cells, str(at), metric, view.where),
            view.asked,
            view.again,
            filtered=bool(view.where),
        )
    elif cell is not None and len(row) and row["label"].iloc[0]:
        panel(exploration, metric, cells_of(exploration, metric), cell, view.asked, view.again)
    elif cell is not None:
        st.html(head(cell_name(*cell)))
        relaxations(exploration, view.filters, in_cell(cell))
    elif len(row):
        st.html(head(str(row["name"].iloc[0])))
        st.caption(literal(str(row["why"].iloc[0])))
    else:
        st.caption("No execution runs, so there is nothing to show along these axes.")


def _with_shown_cell(view: MapView) -> SharedView:
    """Return the selection of a filtered map or one along other axes: the cell of the shown execution without any."""
    shared = view.asked.shared
    if shared.cell is None and view.metric.ranked_by == "sample_rate":
        return replace(shared, cell=view.chosen.cell)
    return shared


def _shown_cell(view: MapView) -> tuple[int, int] | None:
    """Return the panel's cell: the selected one, otherwise that of the shown execution, the best by another figure than
    throughput, or the one nearest to fitting; None while the recommendation is worked out."""
    selected, cells = view.asked.shared.cell, view.cells
    if selected is not None or not len(cells):
        return selected
    if view.metric.ranked_by == "sample_rate" and (view.chosen.is_pending or view.chosen.cell is not None):
        return view.chosen.cell
    known = cells[cells["value"].notna()]
    if len(known):
        row = known.sort_values("value", ascending=view.metric.column.better == "lower", kind="stable").iloc[0]
    else:
        row = cells.sort_values("shortfall_bytes", kind="stable", na_position="last").iloc[0]
    return int(row["tensor_par"]), int(row["pipeline_par"])
