"""The Results page: every feasible execution as a table that is filtered, sorted and paged in the store."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.explored.histogram import histogram
from dashboard.compat.caches import remembered
from dashboard.files import downloads, exports
from dashboard.link import page_links, state
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.shared import SharedView, parse_shared
from dashboard.pages.results.link import ResultsLink
from dashboard.queries.economics import unstored_metrics
from dashboard.queries.executions import evaluated
from dashboard.queries.filters import Filter, asked_of, conditions
from dashboard.widgets import launch
from dashboard.widgets.chart import show
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.filters import chips
from dashboard.widgets.filters.in_force import PAGE, WITH_CELL, ignore_cell, parse_cell_filter
from dashboard.widgets.filters.popover import bar, relaxations
from dashboard.widgets.link_fields import draw_choice, draw_segments
from dashboard.widgets.needed_statistics import names_of, there, whole_or_waiting
from dashboard.widgets.nothing_runs import nothing_runs
from dashboard.widgets.tables import height_of, table
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.names import in_sentence
from dashboard.words.numbers import count, counted, format_value, percent
from engine import Exploration, economics
from engine.columns import DERIVED, Column, applies, by_name, fields_of, statistics_of, stored_of
from engine.cost_models.registry import cost_model_of
from engine.cost_models.words import told_not_measured
from engine.store import StoreCondition
from hardware import network_names

_ORDERS: Final = {"best": "Best first", "worst": "Worst first"}
_OF_NUMBERS: Final = {"best": "Lowest first", "worst": "Highest first"}
_OF_WORDS: Final = {"best": "In order", "worst": "Reversed"}
"""Labels of the two directions for columns that have no better end."""
_DEFAULT: Final = (
    "id",
    "tensor_par",
    "pipeline_par",
    "data_par",
    "sample_rate",
    "tokens_per_gpu",
    "mfu",
    "total_time",
    "total_efficiency",
    "proc_mem_tier1_cap_req",
    "proc_mem_tier2_cap_req",
    "bubble_time",
    "microbatch_size",
    "pipeline_interleaving",
    "activation_recompute",
    "tensor_par_comm_type",
    "tensor_par_overlap",
    "optimizer_sharding",
    "data_par_overlap",
    "weight_offload",
    "activations_offload",
    "optimizer_offload",
    "tensor_par_net",
    "pipeline_par_net",
    "data_par_net",
)
"""Default columns, most telling first, each followed by the fields that belong behind it."""
_DERIVED: Final = frozenset(column.name for column in DERIVED)
_BEFORE_SORTED: Final = 4
"""Position of a sorted column that is not among the shown ones: after id and degrees."""
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


def parse(exploration: Exploration) -> ResultsView:
    """Parse the page's part of the link."""
    reader = LinkReader(ResultsLink, "results")
    columns = reader.read("columns", pattern=_NAMES).split(",")
    page = int(reader.read("page", pattern=_NUMBER))
    if exploration.feasible:
        reader.read("sort", options=_sortable_columns(exploration, _known_columns(exploration)))
        reader.read("order", options=_order_labels(by_name(reader.fields["sort"].value)))
        reader.read("size")
    filters = tuple(WITH_CELL.parse()) if exploration.feasible else ()
    shown = tuple(filter(None, columns))
    return ResultsView(exploration, state.theme_mode(), filters, shown, page, parse_shared(), reader.fields)


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
    register, by = _known_columns(exploration), view.fields["sort"].value
    with toolbar:
        draw_choice(view.fields["sort"], label="Sort by", width=300, resets=(PAGE,))
    if not there(exploration, [*asked_of(filters), "sample_rate" if by in _DERIVED else by]):
        return
    where = conditions(filters)
    left = _count_rows(exploration, exploration.key, tuple(_freeze_conditions(where)))
    if left == 0:
        relaxations(exploration, filters, within=WITH_CELL)
        return
    first = _shown_first(exploration)
    names = _columns_in_link(view.columns, register, first)
    with toolbar:
        for name in ("order", "size"):
            draw_segments(view.fields[name], resets=(PAGE,))
        order, size = view.fields["order"].value, int(view.fields["size"].value)
        _column_chooser(names, register, first)
        names = _with_sorted(names, by)
        _export_menu(exploration, names, filters, left, by, order)
    st.html(markup.head(_describe_rows(exploration, left, by, order)))
    question = (tuple(_freeze_conditions(where)), by, order, size)
    pages = -(-left // size)
    page = _page_number(view.page, pages, question)
    rows = _load_page(
        exploration, exploration.key, tuple(_freeze_conditions(where)), by, order, page, size, tuple(names)
    )
    table(
        rows,
        "results_table",
        f"Executions {(page - 1) * size + 1:,} to {(page - 1) * size + len(rows):,}",
        height=height_of(len(rows), 620),
        on_select=lambda: _select_row(rows),
        networks=network_names(exploration.scenario.system),
        order=[name for name in names if name != "id"] if is_narrow() else None,
    )
    if unknown := _never_measured(exploration, exploration.key, tuple(int(one) for one in rows["id"])):
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
    return f"{of} · {_order_labels(by_name(by))[order].lower()} by {in_sentence(by_name(by).label)}"


def _order_labels(column: Column) -> dict[str, str]:
    """Return the labels of the directions of sorting by a column."""
    if column.better is not None:
        return _ORDERS
    return _OF_NUMBERS if column.dtype in ("int64", "float64") else _OF_WORDS


def _with_sorted(names: list[str], by: str) -> list[str]:
    """Return the shown columns, with the sorted column after the degrees if it is not shown."""
    return names if by in names or by == "id" else [*names[:_BEFORE_SORTED], by, *names[_BEFORE_SORTED:]]


class _Register(NamedTuple):
    """Columns of a scenario's executions, which depend on its cost model."""

    fields: tuple[Column, ...]
    statistics: tuple[Column, ...]
    stored: tuple[Column, ...]
    derived: tuple[Column, ...]
    """Figures that are derived from the throughput."""


def _known_columns(exploration: Exploration) -> _Register:
    model = exploration.scenario.cost_model
    derived = tuple(one.column for one in economics.derived_of(exploration.scenario).values())
    return _Register(fields_of(model), statistics_of(model), stored_of(model), derived)


def _freeze_conditions(where: list[StoreCondition]) -> list[Any]:
    return [(c.column, c.operator, tuple(c.value) if isinstance(c.value, list) else c.value) for c in where]


@remembered(256)
def _count_rows(_exploration: Exploration, key: str, where: tuple[Any, ...]) -> int:
    return _exploration.rows.count(list(where))


@remembered(64)
def _load_page(
    _exploration: Exploration,
    key: str,
    where: tuple[Any, ...],
    by: str,
    order: str,
    page: int,
    size: int,
    names: tuple[str, ...],
) -> pd.DataFrame:
    """Return one page of the table; statistics that are not stored are computed for its rows."""
    register = _known_columns(_exploration)
    kept = {column.name for column in register.stored}
    derived = {column.name for column in register.derived}
    stored = list(dict.fromkeys(name if name in kept else "sample_rate" for name in names if name in kept | derived))
    found = _exploration.rows.page(
        (page - 1) * size, size, order_by=(_sorted_by(by, order),), where=list(where), names=["id", *stored]
    ).to_pandas()
    if not kept | derived >= set(names):
        found = _exploration.evaluate_ids(found["id"].to_numpy())
    if derived & set(names):
        found = pd.concat([found, economics.derived_columns(_exploration.scenario, found)], axis=1)
    result: pd.DataFrame = found[[*dict.fromkeys(("id", *names))]]
    return result


@remembered(64)
def _never_measured(_exploration: Exploration, key: str, ids: tuple[int, ...]) -> str:
    """Return a sentence on the parts of these executions that no measured run has, with the number of rows; empty
    without any.
    """
    scenario = _exploration.scenario
    names = [column.name for column in fields_of(scenario.cost_model)]
    found = scenario.not_measured_of_rows(_exploration.rows.fetch(list(ids), names).to_pandas())
    numbers = Counter(things for row in found for things in row)
    return told_not_measured(
        [f"{words} ({number:,} of these {counted(len(ids), 'row')})" for words, number in numbers.most_common()]
    )


def _sort_direction(by: str, order: str) -> Any:
    lower = by_name(by).better != "higher"
    return "ascending" if lower == (order == "best") else "descending"


def _sorted_by(by: str, order: str) -> tuple[str, Any]:
    """Return the sorted column and its direction; figures derived from the throughput are in its order."""
    if by not in _DERIVED:
        return by, _sort_direction(by, order)
    return "sample_rate", _sort_direction("sample_rate", order)


def _sortable_columns(exploration: Exploration, register: _Register) -> dict[str, str]:
    """Return the columns to sort by: stored results first, then fields, then results that have to be evaluated."""
    results = [*(column for column in register.stored if column.kind == "statistic"), *reversed(register.derived)]
    others = [column for column in register.stored if column.kind != "statistic"]
    stored = {column.name: column.label for column in (*reversed(results), *others)}
    return stored | names_of(exploration, unstored_metrics(exploration.scenario))


def _columns_in_link(wanted: tuple[str, ...], register: _Register, first: tuple[str, ...]) -> list[str]:
    """Return the known columns of the link, in its order; `first` without any."""
    known = {"id", *(column.name for column in (*register.fields, *register.statistics, *register.derived))}
    given = [name for name in wanted if name in known]
    strange = [name[:40] for name in wanted if name not in known]
    if strange:
        more = f" and {len(strange) - 3:,} more" if len(strange) > 3 else ""
        sentence = f"The link's columns name {', '.join(strange[:3])}{more}, which do not exist; left out."
        state.complain("results_columns", sentence)
    return list(dict.fromkeys(given)) or list(first)


def _shown_first(exploration: Exploration) -> tuple[str, ...]:
    """Return the default columns."""
    scenario, every = exploration.scenario, list(_DEFAULT)
    there = {"id", "tokens_per_gpu", "mfu", *(column.name for column in statistics_of(scenario.cost_model))}
    for column in fields_of(scenario.cost_model):
        if column.after in every:
            every.insert(every.index(column.after) + 1, column.name)
        if applies(column, scenario.facts) and column.name not in cost_model_of(scenario).columns.implied:
            there.add(column.name)
    return tuple(name for name in every if name in there)


def _column_chooser(names: list[str], register: _Register, first: tuple[str, ...]) -> None:
    """Draw the choice of columns, group by group of the register."""
    groups: dict[str, list[str]] = {}
    keys: list[str] = []
    every_one = (*register.derived, *register.fields, *register.statistics)
    for column in every_one:
        groups.setdefault(column.group, []).append(column.name)

    def changed() -> None:
        wanted = {name for key in keys for name in given(key)}
        kept = [name for name in names if name in wanted or name == "id"]
        new = [*kept, *(column.name for column in every_one if column.name in wanted and column.name not in kept)]
        state.set_url_value("results_columns", None if tuple(new) == first else ",".join(new))

    def every(on: bool) -> None:
        new = ["id", *(column.name for column in every_one)] if on else []
        state.set_url_value("results_columns", ",".join(new) or None)

    with st.popover("Columns", icon=":material/view_column:", key="results_columns_open", width="content"):
        with st.container(horizontal=True, gap="small"):
            whole = f"All {len(register.fields)} fields and {len(register.statistics)} statistics"
            st.button(whole, key="results_all_columns", on_click=every, args=(True,))
            st.button("The usual ones", key="results_usual_columns", type="tertiary", on_click=every, args=(False,))
        st.caption("Statistics that are not stored are computed for the rows in view.")
        for group, members in groups.items():
            shown = [name for name in members if name in names]
            keys.append(key_for(f"results_columns_{group}", shown))
            st.pills(
                group,
                members,
                default=shown,
                selection_mode="multi",
                key=keys[-1],
                on_change=changed,
                format_func=lambda name: by_name(name).label,
            )


def _export_menu(
    exploration: Exploration, names: list[str], filters: list[Filter], left: int, by: str, order: str
) -> None:
    """Draw the download of the filtered executions, in the order shown, with the columns shown."""
    sort = f"{_order_labels(by_name(by))[order].lower()} by {by}"
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
                order_by=(_sorted_by(by, order),),
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
    found = (
        _value_spread(exploration, exploration.key, tuple(_freeze_conditions(where)), by)
        if left <= _MOST_SPREAD
        else None
    )
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


@remembered(128)
def _value_spread(
    _exploration: Exploration, key: str, where: tuple[Any, ...], by: str
) -> tuple[dict[str, float], list[int], list[float]] | None:
    """Return quantiles, mean and extremes, and counts per bin with their edges; None without finite values."""
    stored = "sample_rate" if by in _DERIVED else by
    values = _exploration.rows.table([stored], where=list(where))[stored].to_numpy().astype(np.float64)
    if by in _DERIVED:
        values = economics.derived_of(_exploration.scenario)[by].of(values)
    values = values[np.isfinite(values)]
    if not len(values):
        return None
    counts, edges = np.histogram(values, bins=60)
    few, middle, most = np.quantile(values, (0.05, 0.5, 0.95))
    figures = {
        "lowest": values.min(),
        "5th percentile": few,
        "median": middle,
        "mean": values.mean(),
        "95th percentile": most,
        "highest": values.max(),
    }
    return {word: float(value) for word, value in figures.items()}, counts.tolist(), edges.tolist()
