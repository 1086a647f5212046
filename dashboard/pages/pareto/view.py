"""The Pareto page: figures that can be had together, and the price of one in the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final, NamedTuple

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.explored.pareto import Density, Marked, Named, pareto
from dashboard.link import state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.figures import FiguresView, parse_figures
from dashboard.link.shared import SharedView, parse_shared
from dashboard.pages.pareto.link import ParetoLink
from dashboard.pages.pareto.other_scenarios import SLOTS, chooser, frontiers, side_by_side
from dashboard.pages.pareto.panel import panel
from dashboard.pages.pareto.table import table_of
from dashboard.queries import accuracy
from dashboard.queries.compared_scenarios import Member
from dashboard.queries.economics import Metric
from dashboard.queries.executions import evaluated
from dashboard.queries.figures import WORKING, choose_execution
from dashboard.queries.filters import Filter, asked_of
from dashboard.queries.pareto_fronts import axes_of, density, frontier, near, on_log_axis, undirected
from dashboard.widgets.chart import clicked, show
from dashboard.widgets.compared_scenarios import members
from dashboard.widgets.figures import patience_s, watch_figures
from dashboard.widgets.filters import chips
from dashboard.widgets.filters.in_force import OF_LINK
from dashboard.widgets.filters.popover import bar, matching, relaxations, where_of
from dashboard.widgets.hardware_changes import parse_changes
from dashboard.widgets.link_fields import draw_choice, draw_segments, draw_switch
from dashboard.widgets.needed_statistics import ABOUT, names_of, there, whole_or_waiting
from dashboard.widgets.nothing_runs import nothing_runs
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.names import in_sentence
from dashboard.words.numbers import counted, format_value
from dashboard.words.scenarios import name_of
from engine import Exploration
from engine.columns import value_of
from engine.executions.execution_names import execution_name
from engine.recommendation import FIGURES_OF, ShownExecution

__all__ = ["ParetoView", "parse", "render"]

_NO_AXIS: Final = "none"
_WIDE: Final = 400
"""Width of the lists of figures [px]: names are long and differ at their ends. Both axes fill a line in a window 1,280
wide; in one of 1,920 all pickers fit in one line.
"""
_ABOUT: Final = f"All results. {ABOUT}"


@dataclass(frozen=True, slots=True)
class ParetoView:
    """The page's part of the link."""

    exploration: Exploration
    mode: str
    """The theme: "light" or "dark"."""
    filters: tuple[Filter, ...]
    shared: SharedView
    figures: FiguresView
    """Choice of the execution that is marked."""
    link: ParetoLink
    fields: Mapping[str, LinkField]
    others: tuple[Member, ...]
    """Scenarios B to D."""
    problems: tuple[str, ...]
    """Sentences on unreadable scenarios of the link."""
    compared: tuple[Member, ...]
    """Scenarios of the Compare page, this one first."""
    changes: Mapping[str, float]
    """Changes of the What-if page."""


def parse(exploration: Exploration) -> ParetoView:
    """Parse the page's part of the link."""
    reader = LinkReader(ParetoLink, "pareto")
    words = names_of(exploration, axes_of(exploration))
    for name in ParetoLink.model_fields:
        offered = {"x": words, "y": words, "z": {_NO_AXIS: "None", **words}}
        reader.read(name, options=offered.get(name))
    filters = tuple(OF_LINK.parse()) if exploration.feasible else ()
    (_, *others), problems = members(SLOTS)
    return ParetoView(
        exploration,
        state.theme_mode(),
        filters,
        parse_shared(),
        parse_figures(),
        reader.build(),
        reader.fields,
        tuple(others),
        tuple(problems),
        tuple(members()[0]),
        parse_changes(exploration.scenario)[0],
    )


def render(view: ParetoView) -> None:
    """Draws the page."""
    _draw_page(view.exploration, view)


@whole_or_waiting
def _draw_page(exploration: Exploration, view: ParetoView) -> None:
    mode, filters = view.mode, list(view.filters)
    if exploration.feasible == 0:
        nothing_runs(exploration, "pareto")
        return
    answer = st.container() if is_narrow() else None  # figures come first in a single column
    picked = _draw_pickers(view)
    axes, where = picked.axes, where_of(filters)
    if not there(exploration, asked_of(filters, *axes)):
        return
    left = matching(exploration, exploration.key, where) if filters else exploration.feasible
    chips.line(filters, "pareto", OF_LINK, (left, exploration.feasible))
    if left == 0:
        relaxations(exploration, filters)
        return
    if len({axis.statistic for axis in axes}) < len(axes):
        st.info(
            f"Choose different figures for the axes: these all follow from {in_sentence(axes[0].column.label)}."
            if len({axis.key for axis in axes}) == len(axes)
            else "Choose different figures for the axes.",
            icon=":material/info:",
        )
        return
    keys = tuple(axis.key for axis in axes)
    found = frontier(exploration, exploration.key, keys, where, picked.upward)
    both = (keys[1], keys[0])
    around = near(found, both) if picked.around else None
    behind = density(exploration, exploration.key, both, picked.logarithmic, around, where)
    for problem in view.problems:
        st.warning(literal(problem), icon=":material/link_off:")
    others = frontiers(exploration, view.others, axes, filters, picked.upward)
    if others is None:
        return
    if not len(found):
        st.info("No execution has values for all selected metrics.", icon=":material/info:")
        return
    figures = view.figures.question
    starred = choose_execution(exploration, figures, patience_s=patience_s())  # a front does not wait for its star
    shown = starred.shown
    chosen = _chosen_id(found, view.shared.id, shown)
    with answer or nullcontext():
        _draw_strip(exploration, found, axes, left)
    beside, right = st.columns([1.86, 1], gap="medium")
    with beside:
        _draw_plot(exploration, found, picked, behind, chosen, mode, others, shown)
        if starred.is_pending:
            st.caption(f"{WORKING} Its star follows.")
    with right.container(border=True, gap="xsmall", key="pareto_panel"):
        panel(exploration, found, axes, chosen)
    side_by_side(found, axes, others, chosen)
    table_of(exploration, found, axes, filters, view.fields["columns"])
    if starred.is_pending:
        watch_figures(exploration, figures, (), None, (), "pareto_figures")


class _Picked(NamedTuple):
    """Choices in the row of pickers."""

    axes: tuple[Metric, ...]
    """Vertical, horizontal and perhaps a third."""
    logarithmic: tuple[bool, bool]
    """Logarithmic scale of the horizontal and of the vertical axis."""
    around: bool
    """True to zoom in on the frontier."""
    upward: tuple[str, ...]
    """Figures that count as better when larger although the register leaves it open."""


def _draw_pickers(view: ParetoView) -> _Picked:
    """Draw the row of axis pickers, and below it the direction of figures that the register leaves open."""
    exploration, link, fields = view.exploration, view.link, view.fields
    known = axes_of(exploration)
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom", key="pareto_pickers"):
        draw_choice(fields["y"], label="Vertical axis", help=_ABOUT, width=_WIDE)
        draw_segments(fields["yscale"], label="Vertical scale")
        draw_choice(fields["x"], label="Horizontal axis", help=_ABOUT, width=_WIDE)
        draw_segments(fields["xscale"], label="Horizontal scale")
        draw_choice(fields["z"], label="Third figure", help=f"Colours the marks. {_ABOUT}", width=_WIDE)
        with st.container(horizontal=True, gap="small", vertical_alignment="center", width="content"):
            draw_segments(view.figures.choice, label="Figures of, marked by the star")
            draw_switch(fields["close"], label="Close up")
            bar(exploration, view.filters)
            chooser(exploration.scenario, view.others, view.compared, view.changes)
    picked = {"y": link.y, "x": link.x} | ({} if link.z == _NO_AXIS else {"z": link.z})
    open_ones = {place: key for place, key in picked.items() if undirected(known[key])}
    upward = []
    if open_ones:
        with st.container(horizontal=True, gap="small", vertical_alignment="center", key="pareto_directions"):
            for place, key in open_ones.items():
                label, field = known[key].column.label, fields[f"{place}better"]
                st.markdown(f"{literal(label)}: neither direction is better by itself. Better is", width="content")
                draw_segments(field, label=f"What is better of {in_sentence(label)}")
                if field.value == "higher":
                    upward.append(key)
    directed = axes_of(exploration, tuple(upward)) if upward else known
    axes = tuple(directed[key] for key in picked.values())
    return _Picked(axes, (link.xscale == "log", link.yscale == "log"), link.close, tuple(upward))


def _chosen_id(found: pd.DataFrame, selected: int | None, shown: ShownExecution | None) -> int | None:
    """Return the current frontier execution: the selected one if on the frontier, otherwise the one whose figures all
    pages show if it is, otherwise the best on the vertical axis.
    """
    ids = set(found["id"])
    if selected is not None and selected in ids:
        return selected
    if shown is not None and shown.id in ids:
        return shown.id
    return int(found["id"].iloc[0]) if len(found) else None


def _draw_strip(exploration: Exploration, found: pd.DataFrame, axes: Sequence[Metric], left: int) -> None:
    """Draws the figures above the plot. left: number of executions that run and meet the filters."""
    among = "feasible execution" if left == exploration.feasible else "filtered execution"
    tiles = [markup.Tile("On the frontier", f"{len(found):,}", f"of {counted(left, among)}")]
    for axis in axes:
        column = axis.column
        values = found[axis.key]
        place = int(values.argmin() if column.better == "lower" else values.argmax())
        row = {str(name): value for name, value in found.iloc[place].items()}
        others = " · ".join(format_value(other.column, row[other.key]) for other in axes if other is not axis)
        label = f"{'Lowest' if column.better == 'lower' else 'Highest'} {in_sentence(column.label)}"
        about = f"{column.description} {axis.formula}".strip()
        scenario = exploration.scenario
        origin, error = accuracy.beside_figure(scenario, axis.statistic, axis.inverse, row)
        tiles.append(
            markup.Tile(
                label, format_value(column, row[axis.key]), f"with {others}", formula=about, origin=origin, error=error
            )
        )
    degrees = found[["tensor_par", "pipeline_par"]].drop_duplicates()
    tiles.append(markup.Tile("In cells", f"{len(degrees)}", "TP × PP pairs"))
    best = {str(name): value for name, value in found.iloc[0].items()}
    st.html(markup.figure_strip(tiles, accuracy.basis(exploration.scenario, best)))


def _draw_plot(
    exploration: Exploration,
    found: pd.DataFrame,
    picked: _Picked,
    behind: Density | None,
    chosen: int | None,
    mode: str,
    others: Sequence[Named],
    shown: ShownExecution | None,
) -> None:
    axes, logarithmic = picked.axes, picked.logarithmic
    y, x = axes[0], axes[1]
    both = (x.key, y.key)
    positive = [name for name, log in zip(both, logarithmic, strict=True) if log]
    marks = on_log_axis(found, positive)
    chart = pareto(
        marks,
        x.column,
        y.column,
        mode,
        z=axes[2].column if len(axes) > 2 else None,
        density=behind,
        selected=chosen,
        logarithmic=logarithmic,
        name=name_of(exploration.scenario),
        marked=_as_mark(shown, axes, positive),
        others=[one._replace(frontier=on_log_axis(one.frontier, positive)) for one in others],
    )
    show(chart, "pareto_plot", on_click=_select_clicked, config={"doubleClick": "reset"})
    better = " and ".join(f"{axis.column.better} {in_sentence(axis.column.label)}" for axis in axes)
    note = f"Marks: no execution has {better} at once. Shading: how many executions lie there. Click a mark."
    if shown is not None:
        note += f" Star: the {shown.figures_of} execution, {execution_name(shown.execution)}."
        note += "".join(f" {each}" for each in accuracy.doubts(exploration.scenario, shown.execution))
    note += _describe_ties(exploration, found, axes)
    if others:
        note = note.replace("executions lie", "executions of A lie").replace("a mark.", "a mark of A.")
    if len(marks) < len(found):
        gone = len(found) - len(marks)
        note += f" {gone} of the frontier {'is' if gone == 1 else 'are'} at 0 and so not on the logarithmic axis."
    st.caption(note)


def _as_mark(shown: ShownExecution | None, axes: Sequence[Metric], positive: Sequence[str]) -> Marked | None:
    """Return the execution whose figures all pages show as a mark of the plot; None where it has no place in it.

    positive: names of figures on logarithmic axes.
    """
    if shown is None:
        return None
    values = {axis.key: axis.of(float(value_of(axis.statistic, shown.execution))) for axis in axes}
    if any(not math.isfinite(value) or (name in positive and value <= 0) for name, value in values.items()):
        return None
    return Marked(FIGURES_OF[shown.figures_of], execution_name(shown.execution), values)


def _describe_ties(exploration: Exploration, found: pd.DataFrame, axes: Sequence[Metric]) -> str:
    """Return a sentence on the marks that predictions cannot tell from the best in an axis of time."""
    for axis in axes:
        if axis.statistic not in ("sample_rate", "total_time") or len(found) < 2:
            continue
        values = found[axis.key]
        lower = axis.column.better == "lower"
        first = int(values.argmin() if lower else values.argmax())
        best = evaluated(exploration, exploration.key, int(found["id"].iloc[first]))
        share = accuracy.within(exploration.scenario, best)
        if share >= 1.0:
            return ""
        edge = float(values.iloc[first])
        near = int((values <= edge / share).sum() if lower else (values >= edge * share).sum())
        return (
            f" {near} of the {len(found)} marks are tied with the best {in_sentence(axis.column.label)}: they lie "
            "within the error of predictions."
        )
    return ""


def _select_clicked() -> None:
    found = clicked("pareto_plot")
    if len(found) == 1:
        state.select(int(found[0]))
