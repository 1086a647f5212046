"""The panel next to the map: a cell's best execution, the spread of the others, and the limits of the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements.markup import chips, facts, head, headed, legend, memory_bar, time_bar
from dashboard.charts.elements.palette import MEMORY_KINDS, TIME_KINDS, Kind
from dashboard.charts.execution.memory_bars import tier_pieces
from dashboard.charts.execution.time_bar import time_pieces
from dashboard.charts.explored.histogram import histogram
from dashboard.link import page_links, state
from dashboard.pages.explore.asked import ExploreView
from dashboard.pages.explore.cell_limits import draw_limits, draw_nothing_fits
from dashboard.queries import accuracy, explorations, prefetch
from dashboard.queries.economics import Metric, derived_quantity, mfu_label, told, utilisation
from dashboard.queries.executions import evaluated, faster_than
from dashboard.queries.figures import WORKING, ChosenExecution, choose_execution, choose_in_cell, role_words
from dashboard.queries.filters import Filter
from dashboard.queries.step_times import losses, slower_than
from dashboard.queries.tie_breaking import plainest
from dashboard.widgets import launch, uncertainty
from dashboard.widgets.chart import show
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.figures import doubts_markup, patience_s, watch_figures
from dashboard.widgets.filters.in_force import OF_LINK
from dashboard.widgets.filters.popover import where_of
from dashboard.widgets.tables import width_of_words
from dashboard.words.executions import choices, placed, recomputed
from dashboard.words.names import cell_name, in_sentence
from dashboard.words.numbers import Quantity, count, decimals_for, format_value, percent, quantity, scale_for
from engine import Exploration
from engine.columns import TFLOPS_OF, by_name, choice_label, value_of
from engine.executions.execution_names import execution_name
from hardware import GIB, network_names

__all__ = ["group_panel", "panel", "read_ahead"]

_PANEL: Final = "explore_panel"
"""Key of the fragment of the panel."""
_OF_THE_CELL: Final = ("tensor_par", "pipeline_par", "data_par")
_NARROW: Final = {"int64": 44, "bool": 64, "str": 84, "float64": 62}


def group_panel(
    exploration: Exploration,
    metric: Metric,
    group: explorations.Group,
    asked: ExploreView,
    again: Callable[[], None],
    *,
    filtered: bool = False,
) -> None:
    """Draws the panel of any set of executions of which at least one runs.

    asked: with the selected execution. again: called last in a widget's callback that selects another one. filtered:
    True if filters are in force, so that its best need not be the best of all.
    """
    st.html(headed(group.title, chips([("executions", count(group.feasible))])))
    _draw_feasible(exploration, metric, group, asked, again, usual=False, filtered=filtered)


def panel(
    exploration: Exploration,
    metric: Metric,
    cells: pd.DataFrame,
    cell: tuple[int, int] | None,
    asked: ExploreView,
    again: Callable[[], None],
    *,
    short: bool = False,
) -> None:
    """Draws the panel of a cell.

    asked: with the selected execution. short: without its chart and table of executions, and the parts below. again:
    called last in a widget's callback that selects another execution.
    """
    if cell is None:
        st.caption("No cell to show.")
        return
    row = cells[(cells["tensor_par"] == cell[0]) & (cells["pipeline_par"] == cell[1])].iloc[0]
    st.html(headed(execution_name(row.to_dict()), chips([("feasible", count(row["feasible"]))])))
    if row["feasible"]:
        best = float(cells["value"].min() if metric.column.better == "lower" else cells["value"].max())
        group = explorations.Group(
            cell_name(*cell), explorations.in_cell(cell), int(row["id"]), int(row["feasible"]), best, cell
        )
        _draw_feasible(exploration, metric, group, asked, again, short=short)
        if not short:
            draw_limits(exploration, cell)
    else:
        draw_nothing_fits(exploration, row, cell, again)


def rate_fact(found: Quantity, usual: str, per: str = "") -> tuple[str, str]:
    """Returns a rate as a label, its unit with prefix, and its number.

    Args:
        found: number and unit.
        usual: unit if there is no number.
        per: text after the unit.
    """
    return f"{found.unit or usual}{per}", found.number


def _draw_feasible(
    exploration: Exploration,
    metric: Metric,
    group: explorations.Group,
    asked: ExploreView,
    again: Callable[[], None],
    *,
    usual: bool = True,
    short: bool = False,
    filtered: bool = False,
) -> None:
    scenario, shared = exploration.scenario, asked.shared
    tie = plainest(exploration, exploration.key, group.id, metric.ranked_by, group.where)
    fastest = group._replace(id=tie.id)
    chosen = _choose_of_group(exploration, metric, fastest, asked, 0.0 if short else patience_s())
    if chosen.is_pending:
        st.caption(WORKING)
        if not short:
            where = group.where if group.cell is None else where_of(asked.filters)
            watch_figures(exploration, asked.figures.question, where, group.cell, (_PANEL,), "panel_figures")
        return
    group = group._replace(id=tie.id if chosen.shown is None else chosen.shown.id)
    execution = _shown_execution(exploration, shared.id, group)
    own = int(execution["id"]) == group.id
    is_fastest = int(execution["id"]) == tie.id
    yours = shared.own
    rate = float(execution["sample_rate"])
    value = metric.of(float(value_of(metric.statistic, execution)))
    pairs = [
        rate_fact(quantity("sample_rate", rate), "samples/s"),
        (mfu_label(scenario), percent(utilisation(scenario, rate, bool(execution["training"])))),
        ("step", format_value("total_time", execution["total_time"])),
        (
            "of filtered best" if filtered else "of best",
            _share_of_best(value, group.best, metric.column.better == "lower"),
        ),
    ]
    rates = [
        rate_fact(derived_quantity(scenario, "tokens_per_gpu", rate), "tokens/s", " per GPU"),
        rate_fact(
            derived_quantity(scenario, TFLOPS_OF[scenario.flop_convention], rate),
            "TFLOP/s",
            f" per GPU, {scenario.flop_convention}",
        ),
        ("cost of 1 T tokens", told(scenario, "usd", rate)),
        ("energy of 1 T tokens", told(scenario, "energy", rate)),
    ]
    remark = chosen.shown.remark if own and chosen.shown is not None else ""
    st.html(facts(pairs) + facts(rates) + doubts_markup(scenario, execution, remark))
    if yours == int(execution["id"]):
        found = faster_than(exploration, exploration.key, rate)
        st.markdown(f"**Your execution**: {placed(found.number, exploration.feasible, found.best / rate - 1)}.")
    elif yours is not None:
        st.button(
            "Back to your execution",
            type="tertiary",
            icon=":material/undo:",
            key="panel_yours",
            on_click=_back_to,
            args=(yours, again),
        )
    has_ties = is_fastest and metric.statistic == "sample_rate"
    others = accuracy.ties(exploration, execution, group.where) if has_ties else None
    uncertainty.popover(scenario, execution, "explore_accuracy", others=others, scope=" here")
    if others:
        are = "other setting is" if others == 1 else "other settings are"
        st.markdown(f":small[{count(others)} {are} as good within the error.]")
    first, second = tier_pieces(execution)
    capacity = scenario.system.mem1.capacity_gib * GIB
    bars = time_bar(time_pieces(execution)) + memory_bar(first, capacity)
    if sum(second.values()) > 0:
        bars += memory_bar(second, scenario.system.mem2.capacity_gib * GIB, "Host memory")
    st.html(bars + legend(_bar_kinds(execution, first, second)))
    st.caption(_explain_speed(exploration, metric, execution, " without filters" if filtered else ""))
    rank = by_name(metric.ranked_by) if metric.of_fastest else metric.column
    which = (
        _describe_role(
            exploration, asked, chosen, is_fastest=is_fastest, otherwise=f"best by {in_sentence(rank.label)}"
        )
        if own
        else ("your execution" if yours == int(execution["id"]) else "selected below")
    )
    if is_fastest and tie.number > 1:
        which += f", simplest of {tie.number:,} equal layouts"
    st.html(head("Settings", which) + chips(choices(execution, scenario.system)))
    if short:
        return
    st.html(head("Executions by step time", "line: the execution above"))
    spread = prefetch.spread(exploration, group)
    marked = float(execution["total_time"])
    inside = bool(spread.edges) and spread.edges[0] <= marked <= spread.edges[-1]
    show(
        histogram(spread.counts, spread.edges, "total_time", state.theme_mode(), marked=marked if inside else None),
        "explore_spread",
    )
    _draw_executions(exploration, metric, fastest, again)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        _draw_links(None if usual else execution, group.members)
        launch.popover(scenario, execution, "explore_launch", plain=True, is_current=True)


def _choose_of_group(
    exploration: Exploration, metric: Metric, group: explorations.Group, asked: ExploreView, patience: float | None
) -> ChosenExecution:
    """Return the execution of a group whose figures are shown; none if the map ranks by another figure than throughput,
    whose best then stands for the group."""
    if metric.ranked_by != "sample_rate":
        return ChosenExecution(None, False)

    def find_fastest() -> Mapping[str, Any]:
        return prefetch.execution(exploration, group.id)

    question = asked.figures.question
    if group.cell is not None:
        where = where_of(asked.filters)
        return choose_in_cell(exploration, question, group.cell, find_fastest, where, patience_s=patience)
    return choose_execution(exploration, question, group.where, fastest=find_fastest, patience_s=patience)


def _describe_role(
    exploration: Exploration, asked: ExploreView, chosen: ChosenExecution, *, is_fastest: bool, otherwise: str
) -> str:
    """Return the role of the shown execution: "fastest here", "recommended", "recommended here, fastest here".

    otherwise: words for the best by the figure of the map.
    """
    if chosen.shown is None:
        return otherwise
    if chosen.shown.figures_of == "fastest":
        return role_words(chosen.shown, "here")
    of_all = choose_execution(exploration, asked.figures.question, where_of(asked.filters), patience_s=0.0).shown
    of = "of all" if of_all is not None and of_all.id == chosen.shown.id else "here"
    return f"{role_words(chosen.shown, of)}{', fastest here' if is_fastest else ''}"


def _back_to(execution: int, again: Callable[[], None]) -> None:
    """Select an execution."""
    state.select(execution)
    again()


def _explain_speed(exploration: Exploration, metric: Metric, execution: Mapping[str, Any], among: str) -> str:
    """Explain an execution's speed: against the best of all if it is slower, otherwise by its losses.

    among: as in `slower_than`.
    """
    best = exploration.reductions.best("sample_rate") if metric.ranked_by == "sample_rate" else None
    if best is None:
        return losses(execution)
    first = plainest(exploration, exploration.key, best[0], "sample_rate", ())
    return slower_than(prefetch.execution(exploration, first.id), execution, among) or losses(execution)


def _shown_execution(exploration: Exploration, wanted: int | None, group: explorations.Group) -> Mapping[str, Any]:
    """Return the selected execution if it runs and is one of the group, otherwise the group's best."""
    if wanted is not None and wanted != group.id:
        execution = evaluated(exploration, exploration.key, wanted)
        if execution["status"] == "ok" and _meets_conditions(execution, group.where):
            return execution
    return prefetch.execution(exploration, group.id)


def _meets_conditions(execution: Mapping[str, Any], where: explorations.Where) -> bool:
    """Return True if an execution meets conditions."""
    for name, sign, value in where:
        own = execution[name]
        met = (
            own in value
            if sign == "in"
            else own >= value
            if sign == ">="
            else own <= value
            if sign == "<="
            else (own == value)
        )
        if not met:
            return False
    return True


def _share_of_best(value: float, best: float, lower: bool) -> str:
    if not best or not value:
        return "100 %" if value == best else "–"
    return percent(best / value if lower else value / best, 0)


def _bar_kinds(execution: Mapping[str, Any], *tiers: Mapping[str, float]) -> list[Kind]:
    """Return the kinds in the bars, one entry per colour."""
    times = time_pieces(execution)
    shown = [kind for kind in TIME_KINDS if times[kind.key] > 0.002 * float(execution["total_time"])]
    colours = {kind.light for kind in shown}
    names = {kind.light: kind for kind in shown}
    for kind in MEMORY_KINDS:
        if any(tier.get(kind.key, 0) > 0 for tier in tiers):
            if kind.light in colours:
                both = names[kind.light]
                index = shown.index(both)
                name = f"{both.name}, {kind.name.lower()}"
                shown[index] = names[kind.light] = replace(both, name=name)
            else:
                shown.append(kind)
    return shown


def _table_columns(exploration: Exploration, metric: Metric) -> tuple[str, ...]:
    """Return the columns of the table: figures, and the choices that vary."""
    varying = [name for name in explorations.varying(exploration, exploration.key) if name not in _OF_THE_CELL]
    return (
        "total_time",
        "proc_mem_tier1_cap_req",
        "activation_recompute",
        "selective_recompute",
        *varying,
        metric.statistic,
    )


def read_ahead(exploration: Exploration, metric: Metric) -> None:
    """Reads the contents of the other cells' panels."""
    prefetch.read(exploration, metric.ranked_by, _table_columns(exploration, metric))


def _draw_executions(
    exploration: Exploration, metric: Metric, group: explorations.Group, again: Callable[[], None]
) -> None:
    """Draw the best executions of the group, its representative first; choosing one shows it above."""
    top = prefetch.top(exploration, group, metric.ranked_by, _table_columns(exploration, metric))
    top = sorted(top, key=lambda row: row["id"] != group.id)
    # Lists: for a few dozen rows pandas takes several times as long.
    found = {name: [row[name] for row in top] for name in top[0]}
    # One column describes recomputation, in the words used above the table.
    found["activation_recompute"] = [recomputed(row, brief=True) for row in top]
    usual = ("total_time", "proc_mem_tier1_cap_req")
    fields = [
        name for name in dict.fromkeys(_table_columns(exploration, metric)) if name not in (*usual, metric.statistic)
    ]
    chosen = [*usual, *(name for name in fields if name != "selective_recompute" and len(set(found.get(name, ()))) > 1)]
    if metric.statistic not in (*chosen, "sample_rate"):
        chosen.insert(0, metric.statistic)
    shown: dict[str, list[Any]] = {}
    config = {}
    networks = network_names(exploration.scenario.system)
    for name in chosen:
        column, values = by_name(name), found[name]
        if column.dtype == "float64":
            scale = scale_for(column, values)
            shown[name] = [value / scale.factor for value in values]
            digits = 4 if name == metric.statistic or name == "total_time" else 3  # the best differ little
            title = scale.title(column.short)
            config[name] = st.column_config.NumberColumn(
                title,
                format=f"%.{decimals_for(values, scale, digits)}f",
                help=column.description,
                width=max(_NARROW["float64"], 7 * len(title) + 18),
            )
        else:
            numbers_only = column.dtype == "int64" and not column.of_network
            shown[name] = values if numbers_only else [choice_label(column, value, networks) for value in values]
            kind = st.column_config.NumberColumn if numbers_only else st.column_config.TextColumn
            width = max(_NARROW[column.dtype], 7 * len(column.short) + 16)
            if name == "activation_recompute":
                width = max(width, width_of_words(values))
            config[name] = kind(column.short, help=column.description, width=width)

    numbers = [row["id"] for row in top]

    def select_picked() -> None:  # small closure: Streamlit keeps it for every key
        rows = st.session_state[key]["selection"]["rows"]
        state.select(numbers[rows[0]] if rows else None)
        again()

    # A new key for other executions: the browser remembers the marked row by number.
    key = f"explore_top_{hash((exploration.key, group.where, metric.key)):x}"
    st.dataframe(
        pd.DataFrame(shown),
        key=key,
        on_select=select_picked,
        selection_mode="single-row",
        hide_index=True,
        height=212,
        row_height=28,
        column_config=config,
        alt=f"The best {len(top)} executions of the cell",
    )


_ONWARD: Final = (
    ("execution", "Open execution", ":material/open_in_full:"),
    ("memory", "Memory", ":material/memory:"),
    ("results", "All in Results", ":material/table_rows:"),
)


def _draw_links(execution: Mapping[str, Any] | None, members: Sequence[Filter] = ()) -> None:
    """Draw links to the pages on this server.

    execution: the one to open if the selected cell alone would lead to another, as with filters. members: conditions
    shared by the executions beyond the filters in force, for the table of Results.
    """
    for name, label, icon in _ONWARD:
        if not page_links.exists(name):
            continue
        if execution is None or (name == "results" and not members):
            st.page_link(page_links.target(name), label=label, icon=icon, width="content")
        elif was_clicked(label, icon=icon, type="tertiary", key=f"explore_open_{name}"):
            if name == "results":
                OF_LINK.add(members)
            else:
                state.select(int(execution["id"]))
            st.switch_page(page_links.target(name))
