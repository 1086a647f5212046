"""The Results page: every feasible execution as a table that is filtered, sorted and paged in the store."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.explored.histogram import histogram
from dashboard.files import downloads, exports
from dashboard.link import page_links, state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.figures import FiguresView, parse_figures
from dashboard.link.shared import SharedView, parse_shared
from dashboard.pages.results.columns import (
    columns_in_link,
    default_columns,
    draw_column_chooser,
    known_columns,
    order_labels,
    sortable_columns,
    with_sorted,
)
from dashboard.pages.results.link import ResultsLink
from dashboard.pages.results.queries import (
    DERIVED_NAMES,
    count_rows,
    describe_unmeasured,
    freeze_conditions,
    load_page,
    sorted_by,
    value_spread,
)
from dashboard.pages.results.shown import draw_shown
from dashboard.queries.executions import evaluated
from dashboard.queries.filters import Filter, asked_of, conditions
from dashboard.widgets import launch
from dashboard.widgets.chart import show
from dashboard.widgets.filters import chips
from dashboard.widgets.filters.in_force import PAGE, WITH_CELL, ignore_cell, parse_cell_filter
from dashboard.widgets.filters.popover import bar, relaxations
from dashboard.widgets.link_fields import draw_choice, draw_segments
from dashboard.widgets.needed_statistics import there, whole_or_waiting
from dashboard.widgets.nothing_runs import nothing_runs
from dashboard.widgets.tables import height_of, table
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.names import in_sentence
from dashboard.words.numbers import count, counted, format_value, percent
from engine import Exploration
from engine.columns import by_name
from engine.store import StoreCondition
from hardware import network_names

_LARGE: Final = 100_000
"""Rows whose file takes some seconds to make."""
_SEEN: Final = "_results_seen"
"""Session key: the table shown last, and its page."""
_NAMES: Final = re.compile(r"[\w,]{0,4000}")
_NUMBER: Final = re.compile(r"[1-9]\d{0,8}")
_MOST_SPREAD: Final = 20_000_000
"""Most rows for which a median is computed; above, only the range is shown."""


@dataclass(frozen=True, slots=True)
class ResultsView:
    """The page's part of the link."""

    exploration: Exploration
    mode: str
    """The theme: "light" or "dark"."""
    filters: tuple[Filter, ...]
    columns: tuple[str, ...]
    """Names of the columns to show, not yet checked; empty for the default ones."""
    page: int
    """Number of the page of rows, from 1."""
    shared: SharedView
    fields: Mapping[str, LinkField]
    figures: FiguresView
    """Choice of the execution that is marked."""


def parse(exploration: Exploration) -> ResultsView:
    """Parse the page's part of the link."""
    reader = LinkReader(ResultsLink, "results")
    columns = reader.read("columns", pattern=_NAMES).split(",")
    page = int(reader.read("page", pattern=_NUMBER))
    if exploration.feasible:
        reader.read("sort", options=sortable_columns(exploration, known_columns(exploration)))
        reader.read("order", options=order_labels(by_name(reader.fields["sort"].value)))
        reader.read("size")
    filters = tuple(WITH_CELL.parse()) if exploration.feasible else ()
    shown = tuple(filter(None, columns))
    return ResultsView(
        exploration, state.theme_mode(), filters, shown, page, parse_shared(), reader.fields, parse_figures()
    )


def render(view: ResultsView) -> None:
    """Draws the page."""
    _draw_page(view.exploration, view)


@whole_or_waiting
def _draw_page(exploration: Exploration, view: ResultsView) -> None:
    mode, filters = view.mode, list(view.filters)
    if exploration.feasible == 0:
        nothing_runs(exploration, "results")
        return
    toolbar = st.container(horizontal=True, gap="small", vertical_alignment="bottom", key="results_toolbar")
    with toolbar:
        bar(exploration, filters, WITH_CELL)
    chips.line(filters, "results", WITH_CELL)
    register, by = known_columns(exploration), view.fields["sort"].value
    with toolbar:
        draw_choice(view.fields["sort"], label="Sort by", width=300, resets=(PAGE,))
    if not there(exploration, [*asked_of(filters), "sample_rate" if by in DERIVED_NAMES else by]):
        return
    where = conditions(filters)
    left = count_rows(exploration, exploration.key, freeze_conditions(where))
    if left == 0:
        relaxations(exploration, filters, within=WITH_CELL)
        return
    first = default_columns(exploration)
    names = columns_in_link(view.columns, register, first)
    with toolbar:
        for name in ("order", "size"):
            draw_segments(view.fields[name], resets=(PAGE,))
        order, size = view.fields["order"].value, int(view.fields["size"].value)
        draw_column_chooser(names, register, first)
        names = with_sorted(names, by)
        _export_menu(exploration, names, filters, left, by, order)
    st.html(markup.head(_describe_rows(exploration, left, by, order)))
    marked = draw_shown(exploration, view.figures, freeze_conditions(where), by, order, size)
    question = (freeze_conditions(where), by, order, size)
    pages = -(-left // size)
    page = _page_number(view.page, pages, question)
    rows = load_page(exploration, exploration.key, freeze_conditions(where), by, order, page, size, tuple(names))
    table(
        rows,
        "results_table",
        f"Executions {(page - 1) * size + 1:,} to {(page - 1) * size + len(rows):,}",
        height=height_of(len(rows), 620),
        on_select=lambda: _select_row(rows),
        networks=network_names(exploration.scenario.system),
        order=[name for name in names if name != "id"] if is_narrow() else None,
        marked=next(iter((rows["id"] == marked).to_numpy().nonzero()[0].tolist()), None),
    )
    if unknown := describe_unmeasured(exploration, exploration.key, tuple(int(one) for one in rows["id"])):
        st.caption(literal(unknown))
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        _draw_pager(pages, page, question)
        chosen = view.shared.id
        if chosen is not None and page_links.exists("execution"):
            st.page_link(
                page_links.target("execution"),
                label=f"Open execution {chosen:,}",
                icon=":material/open_in_full:",
                width="content",
            )
        if chosen is not None:
            launch.popover(exploration.scenario, evaluated(exploration, exploration.key, chosen), "results_launch")
    _draw_spread(exploration, where, by, left, mode)


def _describe_rows(exploration: Exploration, left: int, by: str, order: str) -> str:
    every = counted(exploration.feasible, "feasible execution")
    share = percent(left / exploration.feasible)
    whole = "The one feasible execution" if exploration.feasible == 1 else f"All {every}"
    of = whole if left == exploration.feasible else f"{count(left)} of {every}, {share}"
    return f"{of} · {order_labels(by_name(by))[order].lower()} by {in_sentence(by_name(by).label)}"


def _export_menu(
    exploration: Exploration, names: list[str], filters: list[Filter], left: int, by: str, order: str
) -> None:
    """Draw the download of the filtered executions, in the order shown, with the columns shown."""
    sort = f"{order_labels(by_name(by))[order].lower()} by {by}"
    selection = [*(one.words for one in filters), "every feasible execution" if not filters else "", sort]
    columns, where = list(dict.fromkeys(("id", *names))), conditions(filters)
    content = repr((exploration.key, columns, where, selection))
    menu = st.popover(
        "Export", icon=":material/download:", key="results_export_open", width="content", on_change="rerun"
    )
    with menu:
        every = "All" if not filters else "The"
        those = " that the filters select" if filters else ""
        st.caption(
            f"{'The one execution' if left == 1 else f'{every} {left:,} executions'}{those}, in this order, with the "
            f"{counted(len(columns), 'column')} shown. Units, scenario and version are inside."
        )
        offered = {}
        for kind, form in exports.FORMATS.items():
            full = exports.too_many(kind, left)
            offered[form.label] = name = exports.file_name(exploration.scenario, "executions", kind)
            write = exports.of_rows(
                exploration,
                kind,
                names=columns,
                where=where,
                order_by=(sorted_by(by, order),),
                selection=[part for part in selection if part],
                tell=downloads.teller(name, content),
            )
            downloads.button(
                form.label,
                downloads.Offer(write, name, form.mime),
                content,
                note=form.note,
                disabled=full,
                key=f"results_export_{kind}",
                width="stretch",
                icon=":material/download:",
            )
            if full:
                st.caption(
                    f"An Excel sheet holds at most {exports.MOST_ROWS:,} rows under its header: filter further, or "
                    "choose another format."
                )
            elif kind == "excel":
                st.caption("The download begins once the workbook is complete.")
        if menu.open:
            _files_being_made(offered, content, left)


@st.fragment(run_every=1.0)
def _files_being_made(offered: dict[str, str], content: str, left: int) -> None:
    """Draw the progress of the menu's files while they are made. offered: names of the files by format."""
    for label, name in offered.items():
        share = downloads.reached(name, content)
        if share is not None:
            told = f"{count(share * left)} of {count(left)} rows" if share else "collecting the rows"
            st.progress(share, text=f"{label} · {told}")
        elif problem := downloads.problem(name, content):
            st.error(f"{label}: {problem}", icon=":material/error:")
    if left > _LARGE:
        st.caption("The file is sent while it is made; the browser shows the progress.")


def _page_number(wanted: int, pages: int, view: tuple[Any, ...]) -> int:
    """Return the page of the link, brought into range; the first page of another table, unless the link changed with
    it.
    """
    former, page = st.session_state.get(_SEEN, (view, wanted))
    if former != view and page == wanted:  # such as another cell selected on another page
        state.set_url_value(PAGE, None)
        wanted = 1
    st.session_state[_SEEN] = view, wanted
    if wanted > pages:
        last = f"there {'is 1' if pages == 1 else f'are {pages:,}'}"
        state.complain(PAGE, f"The link's page {wanted:,} does not exist; {last}. Showing the last.")
    return min(wanted, pages)


def _draw_pager(pages: int, page: int, view: tuple[Any, ...]) -> None:
    """Draw the page numbers. A new widget per table, because pagination cannot be set from outside."""
    key = f"results_page_{hashlib.sha256(repr(view).encode()).hexdigest()[:12]}"

    def turned() -> None:
        number = int(st.session_state[key])
        state.set_url_value(PAGE, None if number == 1 else str(number))

    st.pagination(pages, key=key, default=page, on_change=turned)


def _select_row(rows: pd.DataFrame) -> None:
    picked = st.session_state["results_table"].selection.rows
    filtered = parse_cell_filter() is not None
    with state.one_step():
        state.select(int(rows["id"].iloc[picked[0]]) if picked else None)
        if not filtered:  # a picked row selects its cell, which must not change the table it was picked from
            ignore_cell()


def _draw_spread(exploration: Exploration, where: list[StoreCondition], by: str, left: int, mode: str) -> None:
    """Draw the spread of the selected executions over the sorted column."""
    if by_name(by).dtype not in ("int64", "float64"):
        return
    found = value_spread(exploration, exploration.key, freeze_conditions(where), by) if left <= _MOST_SPREAD else None
    if found is None:
        return
    figures, counts, edges = found
    among = "the one execution that is" if left == 1 else f"the {count(left)} executions that are"
    scope = f"{in_sentence(by_name(by).label)} over {among} selected"
    st.html(markup.head("Distribution", scope))
    plot, numbers = st.columns([1.2, 1], gap="medium", vertical_alignment="center")
    with plot:
        show(histogram(counts, edges, by, mode, height=120), "results_spread")
    told = [(word, format_value(by, value)) for word, value in figures.items()]
    numbers.html(markup.facts(told[:3]) + markup.facts(told[3:]))
