"""The upper part of the Explore page: headline figures, and the map with the panel of the selected cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import streamlit as st

from dashboard.charts.elements.markup import Tile, figure_strip
from dashboard.link import state
from dashboard.pages.explore.asked import (
    AwaitedView,
    ExplorePageView,
    ExploreView,
    parse_awaited,
    parse_explore,
)
from dashboard.pages.explore.axes import best_rates, in_other_datatypes
from dashboard.pages.explore.axes import pick as pick_axes
from dashboard.pages.explore.choice_costs import infeasible
from dashboard.pages.explore.choices import known_metrics
from dashboard.pages.explore.parts import (
    OVERVIEW,
    another_mark,
    another_metric,
    band_part,
    choose_shown_execution,
    costs_part,
    download_part,
    is_alone,
    map_part,
    panel_part,
    view_of,
)
from dashboard.pages.explore.sentence import sentence
from dashboard.pages.explore.terms import terms
from dashboard.queries import accuracy
from dashboard.queries.economics import (
    Metric,
    quick_metrics,
)
from dashboard.queries.explorations import Where, near_best
from dashboard.queries.figures import WORKING, ChosenExecution, begin_choosing
from dashboard.queries.filters import asked_of
from dashboard.queries.nearest_fit import ways
from dashboard.queries.scenario_edits import altered
from dashboard.queries.tie_breaking import plainest, ties_of_best
from dashboard.widgets import examples, recommended
from dashboard.widgets.answer import (
    NAMES_OF_SPACE,
    AnswerSlot,
    answer_tiles,
    draw_answer,
    draw_tiles,
    execution_tile_names,
)
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.figures import patience_s, watch_figures
from dashboard.widgets.filters.popover import bar as filter_bar
from dashboard.widgets.filters.popover import relaxations, where_of
from dashboard.widgets.fragment_views import FragmentView
from dashboard.widgets.frameworks import draw_cost_line
from dashboard.widgets.link_fields import draw_choice, draw_segments, draw_switch
from dashboard.widgets.menus import filled
from dashboard.widgets.needed_exploration import PendingExploration, wait_for_exploration
from dashboard.widgets.needed_statistics import ABOUT, names_of, there, whole_or_waiting
from dashboard.widgets.staged_rendering import Stage, after_drawing, stage
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, count, counted, percent
from engine import Exploration, Scenario
from engine.cost_models.registry import cost_model_of
from engine.recommendation import ShownExecution

__all__ = ["ExplorePageView", "draw_headline", "parse", "render"]

_NOTHING_FITS: Final = (
    "Nothing fits: none of the executions can run on this system. "
    "The map shows how much memory each cell lacks; click one for the nearest remedy."
)

_ABOVE: Final = 3
"""Figures above the map in a narrow window: one row of them."""


def draw_headline(
    slot: AnswerSlot,
    exploration: Exploration,
    shown: ShownExecution,
    fastest: float,
    tokens: float,
    ties: int,
    where: Where = (),
    left: int = 0,
    fitting: int = 0,
) -> list[Tile]:
    """Draws the headline figures; returns the figures to draw below the map of a narrow window.

    Args:
        slot: where they are drawn.
        exploration: of the space.
        shown: the execution.
        fastest: throughput of the fastest [samples/s].
        tokens: of the training run.
        ties: number of executions with exactly that, including it.
        where: conditions met by `shown` and the counted executions.
        left: number of executions that meet them.
        fitting: number of their cells.
    """
    scenario, best = exploration.scenario, shown.execution
    is_fastest = float(best["sample_rate"]) == fastest
    exact = bool(cost_model_of(scenario).reference)
    share = 0.95 if exact else accuracy.within(scenario, best)
    untold = share >= 1.0
    near, cells = near_best(exploration, exploration.key, fastest, share, where)
    if not where:
        fitting = int((exploration.by_pair()["feasible"] > 0).sum())
    feasible, as_good = NAMES_OF_SPACE
    of_space = [
        Tile(
            "Meet the filters",
            count(left),
            f"{percent(left / exploration.feasible)} of {count(exploration.feasible)}",
            formula="Executions that run and meet the filters, of all that run.",
        )
        if where
        else Tile(
            feasible,
            count(exploration.feasible),
            f"{percent(exploration.feasible / exploration.total)} of {count(exploration.total)}"
            + (f" · {count(exploration.may_fit)} may fit" if exploration.may_fit else ""),
            formula="Executions that this system can run, of all in the space. Those that may fit exceed the capacity, "
            "within the limit on memory.",
        ),
        Tile(
            "Within 5 % of best" if exact else as_good,
            "–" if untold else counted(near, "setting"),
            f"{counted(fitting, 'layout')} {'left' if where else 'fit'}, not measured"
            if untold
            else f"in {cells:,} of {counted(fitting, 'layout')}{' left' if where else ''}",
            formula="The error of the best is unknown: no measured run has its features."
            if untold
            else f"Feasible executions with at least {percent(share, 0)} of the best throughput."
            f"{'' if exact else ' Within the error of predictions they are as good as the best.'}",
        ),
    ]
    return draw_tiles(
        slot, scenario, shown, fastest, answer_tiles(scenario, shown, tokens, ties if is_fastest else 0), of_space
    )


def _draw_waiting(slot: AnswerSlot, exploration: Exploration, tokens: float, where: Where, left: int) -> list[Tile]:
    """Draw the headline while the recommendation is worked out; see `draw_headline`."""
    scenario = exploration.scenario
    feasible, as_good = NAMES_OF_SPACE
    number = left if where else exploration.feasible
    error = "" if cost_model_of(scenario).reference else "\u00a0"  # as high as the figures that follow
    tiles = [Tile(name, ABSENT, error=error) for name in execution_tile_names(scenario, tokens)]
    tiles += [Tile("Meet the filters" if where else feasible, count(number)), Tile(as_good, ABSENT)]
    first = _ABOVE if is_narrow() else len(tiles)
    slot.html(figure_strip(tiles[:first], WORKING))
    return tiles[first:]


def parse(needed: Exploration | PendingExploration) -> ExplorePageView:
    """Parse the page's part of the link, or as much of it as is drawn while the space is explored."""
    return ExplorePageView(parse_awaited(needed) if isinstance(needed, PendingExploration) else _parse_whole(needed))


def _parse_whole(exploration: Exploration) -> ExploreView:
    asked = parse_explore(exploration)
    return replace(asked, others=tuple(in_other_datatypes(exploration, asked.axes)))


def render(view: ExplorePageView) -> None:
    """Draws the page."""
    examples.draw_examples(view.scenario)
    shown = view.shown
    if isinstance(shown, AwaitedView):
        _draw_overview(FragmentView(shown, lambda: shown))
    else:
        _draw_overview(FragmentView(shown, partial(parse_explore, shown.exploration, shown.others)))


@st.fragment(key=OVERVIEW)
def _draw_overview(part: FragmentView[ExploreView | AwaitedView]) -> None:
    """Draw the whole page: first the answer, then the map. Switching and filtering rerun nothing else, and clicking
    less."""
    strip = AnswerSlot(st.container(key="explore_strip"))
    asked = part.current()
    if isinstance(asked, AwaitedView):
        asked = part.view = _await_exploration(asked, strip)
        part.parse = partial(parse_explore, asked.exploration, asked.others)
    _draw_explored(asked.exploration, asked, strip)


def _await_exploration(awaited: AwaitedView, strip: AnswerSlot) -> ExploreView:
    """Return the view once the space is explored; draw the answer as soon as it is proven."""
    scenario, is_answered = awaited.pending.scenario, awaited.is_answered

    def draw(shown: ShownExecution, fastest: float) -> None:
        if is_answered:
            draw_answer(strip, scenario, shown, fastest, awaited.pending.figures.tokens_to_train)

    return _parse_whole(wait_for_exploration(awaited.pending, draw))


@whole_or_waiting
def _draw_explored(exploration: Exploration, asked: ExploreView, strip: AnswerSlot) -> None:
    """Draw all but the answer. strip: place of the headline figures."""
    drawn = stage()
    whole = drawn is Stage.WHOLE
    filters, axes, metric, others = asked.filters, asked.axes, asked.metric, asked.others
    tokens = asked.figures.tokens_to_train
    where = where_of(filters)
    if axes.of_datatypes and not others:  # just chosen
        st.rerun()
    chosen = choose_shown_execution(exploration, asked, 0.0)  # a map never waits for the recommendation
    draw_cost_line(exploration.scenario, "explore_framework", is_final=whole)
    advised = st.container()
    if not whole and exploration.feasible:
        with advised:
            recommended.room()
    left, right = st.columns([1.86, 1], gap="medium")
    # In one column: the answer, the map, the cell, and only then the rest.
    below = st.container() if is_narrow() else None
    with left:
        _draw_toolbar(asked)
        figures = asked_of(filters, metric)
        if not all(there(one, figures) for one in (exploration, *others)):
            return
    number = best_rates(exploration, where).number if where else exploration.feasible
    if where and not number:
        with left:
            sentence(exploration, metric, axes, filters, number)
            relaxations(exploration, filters)
        return
    view = view_of(asked, drawn, chosen)
    rest = (
        [] if whole else _draw_strip(strip, exploration, chosen, tokens, where, number, whole=False)
    )  # keeps the page still
    with left:
        if not view.every:
            sentence(exploration, metric, axes, filters, number)
        map_part(exploration, view)
    if whole:  # after the map, which the user waits for
        if chosen.is_pending:
            view = replace(view, chosen=choose_shown_execution(exploration, asked, patience_s()))
        rest = _draw_strip(strip, exploration, view.chosen, tokens, where, number)
    if rest:
        left.html(figure_strip(rest, marks=False))
    with right:
        panel_part(exploration, view)
    if not whole:
        begin_choosing(exploration, asked.figures.question, where)  # while the browser draws
        return
    if exploration.feasible:
        with advised, recommended.room():
            band_part(exploration, view)
    if view.chosen.is_pending:
        # Drawing the rest meanwhile would slow down both: they share an interpreter.
        watch_figures(exploration, asked.figures.question, where, None, (OVERVIEW,), "explore_figures")
        return
    with below or left:
        costs_part(exploration, view)
    with below or right:
        infeasible(exploration)
        download_part(exploration, view)
    if chosen.is_pending and asked.shared.cell is None:
        after_drawing("explore_mark", another_mark)


def _draw_strip(
    slot: AnswerSlot,
    exploration: Exploration,
    chosen: ChosenExecution,
    tokens: float,
    where: Where = (),
    number: int = 0,
    *,
    whole: bool = True,
) -> list[Tile]:
    """Draw the headline of the executions that meet conditions, or, if nothing runs, the reason and remedies.

    whole: there is time to compute remedies. Returns the figures to draw further down.
    """
    with slot.place:
        if chosen.is_pending:
            return _draw_waiting(slot, exploration, tokens, where, number)
        if chosen.shown is not None and where:
            rates = best_rates(exploration, where)
            tie = plainest(exploration, exploration.key, rates.id, "sample_rate", where)
            return draw_headline(
                slot, exploration, chosen.shown, rates.rate, tokens, tie.number, where, number, rates.cells
            )
        best = exploration.reductions.best()
        if chosen.shown is not None and best is not None:
            return draw_headline(slot, exploration, chosen.shown, float(best[1]), tokens, ties_of_best(exploration))
        st.warning(_NOTHING_FITS, icon=":material/block:")
        if whole:
            _offer_ways(exploration)
        return []


def _offer_ways(exploration: Exploration) -> None:
    """Draw the nearest changes of the scenario after which something fits, one click each."""
    scenario = exploration.scenario
    found = ways(scenario, scenario.key)
    if not found:
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center", key="explore_ways"):
        st.markdown(":gray[What would make it run]", width="content")
        for number, (words, changes) in enumerate(found.items()):
            st.button(
                words,
                icon=":material/arrow_forward:",
                key=f"explore_way_{number}",
                on_click=_open_scenario,
                args=(altered(scenario, **changes),),
            )


def _open_scenario(scenario: Scenario) -> None:
    """Open another scenario."""
    state.set_scenario(scenario)
    st.rerun()  # the whole page, not this part of it


def _draw_toolbar(asked: ExploreView) -> None:
    """Draws the row above the map: metric, filter, help, view."""
    exploration, fields = asked.exploration, asked.fields
    known, key, quick = known_metrics(exploration), asked.metric.key, quick_metrics(exploration.scenario)
    offered = {name: known[name].short for name in (*quick, *([] if key in quick else [key]))}
    # A button that vanishes once another is chosen needs the whole row redrawn.
    alone = key in quick and is_alone(asked)
    with st.container(horizontal=True, vertical_alignment="center", key="explore_toolbar"):
        draw_segments(replace(fields["metric"], options=offered), then=another_metric if alone else None)
        st.space("stretch")
        if exploration.feasible:
            filter_bar(exploration, asked.filters)
        with st.popover("Terms", type="tertiary", icon=":material/help:", help="Definitions of words and figures."):
            if filled("terms"):
                terms(known[key], exploration.scenario)
        tip = "Metric, axes, colours, table, cell by name."
        with st.popover("View", type="tertiary", icon=":material/tune:", help=tip):
            if filled("view"):
                _pick_metric(exploration, known, key)
                if exploration.feasible:
                    pick_axes(exploration, asked.axes)
                draw_choice(fields["domain"])
                table_help = "The same figures as a table, for the keyboard too."
                draw_switch(fields["table"], label="As table", help=table_help)
                if asked.axes.of_cells:
                    _pick_cell(exploration, asked.shared.cell)


def _pick_metric(exploration: Exploration, known: Mapping[str, Metric], key: str) -> None:
    """Draw the list of all metrics; only a few have a button."""

    widget = key_for("_metric_list", key)

    def select_picked() -> None:
        state.set_url_value("metric", given(widget))

    words = names_of(exploration, known)
    st.selectbox(
        "Metric",
        list(known),
        list(known).index(key),
        key=widget,
        on_change=select_picked,
        format_func=lambda name: words[name],
        help=f"{literal(known[key].column.description)}\n\n{ABOUT}",
    )


def _pick_cell(exploration: Exploration, now: tuple[int, int] | None) -> None:
    """Draw the choice of a cell without a mouse. now: the selected one."""
    cells = exploration.scenario.space.cells
    names = sorted({(cell.tensor_par, cell.pipeline_par) for cell in cells})
    key = key_for("_pick_cell", now)

    def select_picked() -> None:
        value = given(key)
        if value is None:
            state.select_cell(None)
        else:
            state.select_cell(*value)

    st.selectbox(
        "Cell",
        names,
        None if now is None else names.index(now),
        key=key,
        on_change=select_picked,
        placeholder="the best",
        format_func=lambda cell: f"TP {cell[0]:,} × PP {cell[1]:,}",
    )
