"""The upper part of the Explore page: headline figures, and the map with the panel of the selected cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

import streamlit as st

from dashboard.charts.elements.markup import Tile, figure_strip
from dashboard.compat.types import Place
from dashboard.link import state
from dashboard.pages.explore.asked import ExploreView, parse_explore
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
    days_for,
    flops_formula,
    flops_told,
    mfu_formula,
    mfu_label,
    quick_metrics,
    told,
    utilisation,
)
from dashboard.queries.explorations import Where, near_best
from dashboard.queries.figures import WORKING, ChosenExecution, begin_choosing
from dashboard.queries.filters import asked_of
from dashboard.queries.nearest_fit import ways
from dashboard.queries.scenario_edits import altered
from dashboard.queries.tie_breaking import plainest, ties_of_best
from dashboard.widgets import examples, recommended
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.figures import doubts_markup, patience_s, watch_figures
from dashboard.widgets.filters.popover import bar as filter_bar
from dashboard.widgets.filters.popover import relaxations, where_of
from dashboard.widgets.fragment_views import FragmentView
from dashboard.widgets.frameworks import draw_cost_line
from dashboard.widgets.link_fields import draw_choice, draw_segments, draw_switch
from dashboard.widgets.menus import filled
from dashboard.widgets.needed_statistics import ABOUT, names_of, there, whole_or_waiting
from dashboard.widgets.staged_rendering import Stage, after_drawing, stage
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, count, counted, days, format_value, percent, share_of
from engine import Exploration, Scenario
from engine.columns import by_name
from engine.cost_models.registry import cost_model_of
from engine.executions.execution_names import execution_name
from engine.recommendation import FIGURES_OF, ShownExecution
from hardware import GIB

__all__ = ["ExploreView", "draw_headline", "parse", "render"]

_NOTHING_FITS: Final = (
    "Nothing fits: none of the executions can run on this system. "
    "The map shows how much memory each cell lacks; click one for the nearest remedy."
)

_ABOVE: Final = 3
"""Figures above the map in a narrow window: one row of them."""


def draw_headline(
    exploration: Exploration,
    shown: ShownExecution,
    fastest: float,
    ties: int,
    where: Where = (),
    left: int = 0,
    fitting: int = 0,
) -> list[Tile]:
    """Draws the headline figures; returns the figures to draw below the map of a narrow window.

    shown: the execution. fastest: throughput of the fastest [samples/s]. ties: number of executions with exactly that,
    including it. where: conditions met by `shown` and the counted executions. left: number of executions that meet
    them. fitting: number of their cells.
    """
    scenario, best = exploration.scenario, shown.execution
    rate, training = float(best["sample_rate"]), bool(best["training"])
    is_fastest = rate == fastest
    peak = scenario.system.peak_tflops(scenario.datatype) * 1e12
    capacity = scenario.system.mem1.capacity_gib * GIB
    memory = float(best["proc_mem_tier1_cap_req"])
    exact = bool(cost_model_of(scenario).reference)
    share = 0.95 if exact else accuracy.within(scenario, best)
    untold = share >= 1.0
    near, cells = near_best(exploration, exploration.key, fastest, share, where)
    if not where:
        fitting = int((exploration.by_pair()["feasible"] > 0).sum())
    total_efficiency = by_name("total_efficiency")
    tiles = [
        Tile(
            "Throughput",
            format_value("sample_rate", rate),
            f"{told(scenario, 'tokens_per_gpu', rate)} per GPU{f' · {ties:,} tied' if is_fastest and ties > 1 else ''}",
            formula="batch ÷ step time. Of executions that tie exactly the simplest is shown: the fewest offloads, "
            "then the least overlap, recompute, sharding and interleaving.",
        ),
        Tile(
            mfu_label(scenario),
            percent(utilisation(scenario, rate, training)),
            f"{flops_told(scenario, rate)} per GPU",
            formula=f"{mfu_formula(scenario)} Peak {format_value('useful_flops', peak)}/s; "
            f"model FLOP per sample = {flops_formula(scenario)}. "
            f"Total efficiency: {total_efficiency.description}",
        ),
        Tile(
            "Step time",
            format_value("total_time", best["total_time"]),
            counted(int(best["batch_size"]), "sequence"),
            formula=by_name("total_time").description,
        ),
        Tile(
            "1 T tokens take",
            days(days_for(scenario, rate)),
            f"{told(scenario, 'usd', rate)} · {told(scenario, 'energy', rate)}",
            formula="10¹² ÷ (throughput · sequence length), without failures; cost at the middle of the prices "
            "recorded for the system, energy at its design power.",
        ),
        Tile(
            "HBM per GPU",
            format_value("proc_mem_tier1_cap_req", memory),
            share_of(memory, capacity),
            formula=by_name("proc_mem_tier1_cap_req").description,
        ),
        Tile(
            "Meet the filters",
            count(left),
            f"{percent(left / exploration.feasible)} of {count(exploration.feasible)}",
            formula="Executions that run and meet the filters, of all that run.",
        )
        if where
        else Tile(
            "Feasible",
            count(exploration.feasible),
            f"{percent(exploration.feasible / exploration.total)} of {count(exploration.total)}"
            + (f" · {count(exploration.may_fit)} may fit" if exploration.may_fit else ""),
            formula="Executions that this system can run, of all in the space. Those that may fit exceed the capacity, "
            "within the limit on memory.",
        ),
        Tile(
            "Within 5 % of best" if exact else "As good as the best",
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
    marked = accuracy.marked(tiles, scenario, best)
    first = _ABOVE if is_narrow() else len(marked)
    strip = figure_strip(marked[:first], f"{_name_shown(shown, fastest)} {accuracy.basis(scenario, best)}")
    st.html(strip + doubts_markup(scenario, best, shown.remark))
    return marked[first:]


def _name_shown(shown: ShownExecution, fastest: float) -> str:
    """Return whose figures are shown: "Recommended: TP 8 × PP 2; the fastest is 4.2 % faster."."""
    name = f"{FIGURES_OF[shown.figures_of]}: {execution_name(shown.execution)}"
    lead = fastest / float(shown.execution["sample_rate"]) - 1.0
    return f"{name}; the fastest is {percent(lead)} faster." if lead > 0 else f"{name}."


def _draw_waiting(exploration: Exploration, where: Where, left: int) -> list[Tile]:
    """Draw the headline while the recommendation is worked out; see `draw_headline`."""
    scenario = exploration.scenario
    names = ("Throughput", mfu_label(scenario), "Step time", "1 T tokens take", "HBM per GPU")
    number = left if where else exploration.feasible
    tiles = [Tile(name, ABSENT, error="\u00a0") for name in names]
    tiles += [Tile("Meet the filters" if where else "Feasible", count(number)), Tile("As good as the best", ABSENT)]
    first = _ABOVE if is_narrow() else len(tiles)
    st.html(figure_strip(tiles[:first], WORKING))
    return tiles[first:]


def parse(exploration: Exploration) -> ExploreView:
    """Parse the page's part of the link."""
    asked = parse_explore(exploration)
    return replace(asked, others=tuple(in_other_datatypes(exploration, asked.axes)))


def render(view: ExploreView) -> None:
    """Draws the page."""
    examples.cards(view.shared.scenario)
    _draw_overview(view.exploration, FragmentView(view, partial(parse_explore, view.exploration, view.others)))


@st.fragment(key=OVERVIEW)
@whole_or_waiting
def _draw_overview(exploration: Exploration, part: FragmentView[ExploreView]) -> None:
    """Draw the whole page. Switching and filtering rerun nothing else, and clicking less."""
    drawn = stage()
    whole = drawn is Stage.WHOLE
    asked = part.current()
    filters, axes, metric, others = asked.filters, asked.axes, asked.metric, asked.others
    where = where_of(filters)
    if axes.of_datatypes and not others:  # just chosen
        st.rerun()
    chosen = choose_shown_execution(exploration, asked, 0.0)  # a map never waits for the recommendation
    strip = st.container()
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
    rest = [] if whole else _draw_strip(strip, exploration, chosen, where, number, whole=False)  # keeps the page still
    with left:
        if not view.every:
            sentence(exploration, metric, axes, filters, number)
        map_part(exploration, view)
    if whole:  # after the map, which the user waits for
        if chosen.is_pending:
            view = replace(view, chosen=choose_shown_execution(exploration, asked, patience_s()))
        rest = _draw_strip(strip, exploration, view.chosen, where, number)
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
    place: Place,
    exploration: Exploration,
    chosen: ChosenExecution,
    where: Where = (),
    number: int = 0,
    *,
    whole: bool = True,
) -> list[Tile]:
    """Draw the headline of the executions that meet conditions, or, if nothing runs, the reason and remedies.

    whole: there is time to compute remedies. Returns the figures to draw further down.
    """
    with place:
        if chosen.is_pending:
            return _draw_waiting(exploration, where, number)
        if chosen.shown is not None and where:
            rates = best_rates(exploration, where)
            tie = plainest(exploration, exploration.key, rates.id, "sample_rate", where)
            return draw_headline(exploration, chosen.shown, rates.rate, tie.number, where, number, rates.cells)
        best = exploration.reductions.best()
        if chosen.shown is not None and best is not None:
            return draw_headline(exploration, chosen.shown, float(best[1]), ties_of_best(exploration))
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
