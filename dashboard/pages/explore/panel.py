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
from dashboard.charts.explored.reasons import label_of
from dashboard.link import page_links, state
from dashboard.link.shared import SharedView
from dashboard.queries import accuracy, explorations, prefetch
from dashboard.queries.economics import Metric, derived_quantity, mfu_label, told, utilisation
from dashboard.queries.executions import evaluated, faster_than
from dashboard.queries.filters import Filter
from dashboard.queries.memory_requirements import REMEDIES
from dashboard.queries.scenario_edits import altered
from dashboard.queries.step_times import losses, slower_than
from dashboard.queries.tie_breaking import plainest
from dashboard.widgets import launch, uncertainty
from dashboard.widgets.chart import show
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.filters.in_force import OF_LINK
from dashboard.widgets.tables import width_of_words
from dashboard.words.executions import choices, placed, recomputed
from dashboard.words.markdown import literal
from dashboard.words.names import cell_name, in_sentence
from dashboard.words.numbers import Quantity, count, decimals_for, format_value, percent, quantity, scale_for
from engine import Exploration
from engine.columns import TFLOPS_OF, by_name, choice_label, value_of
from engine.executions.execution_names import execution_name
from hardware import GIB, network_names

__all__ = ["group_panel", "panel", "read_ahead"]

_OF_THE_CELL: Final = ("tensor_par", "pipeline_par", "data_par")
_NARROW: Final = {"int64": 44, "bool": 64, "str": 84, "float64": 62}


def group_panel(
    exploration: Exploration,
    metric: Metric,
    group: explorations.Group,
    shared: SharedView,
    again: Callable[[], None],
    *,
    filtered: bool = False,
) -> None:
    """Draws the panel of any set of executions of which at least one runs.

    shared: with the selected execution. again: called last in a widget's callback that selects another one. filtered:
    True if filters are in force, so that its best need not be the best of all.
    """
    st.html(headed(group.title, chips([("executions", count(group.feasible))])))
    _draw_feasible(exploration, metric, group, shared, again, usual=False, filtered=filtered)


def panel(
    exploration: Exploration,
    metric: Metric,
    cells: pd.DataFrame,
    cell: tuple[int, int] | None,
    shared: SharedView,
    again: Callable[[], None],
    *,
    short: bool = False,
) -> None:
    """Draws the panel of a cell.

    shared: with the selected execution. short: without its chart and table of executions, and the parts below. again:
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
        _draw_feasible(exploration, metric, group, shared, again, short=short)
        if not short:
            _draw_limits(exploration, cell)
    else:
        _fits_not(exploration, row, cell, again)


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
    shared: SharedView,
    again: Callable[[], None],
    *,
    usual: bool = True,
    short: bool = False,
    filtered: bool = False,
) -> None:
    scenario = exploration.scenario
    tie = plainest(exploration, exploration.key, group.id, metric.ranked_by, group.where)
    group = group._replace(id=tie.id)
    execution = _shown_execution(exploration, shared.id, group)
    own = int(execution["id"]) == group.id
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
    st.html(facts(pairs) + facts(rates))
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
    others = accuracy.ties(exploration, execution, group.where) if own and metric.statistic == "sample_rate" else None
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
        f"best by {in_sentence(rank.label)}"
        if own
        else ("your execution" if yours == int(execution["id"]) else "selected below")
    )
    if own and tie.number > 1:
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
    _draw_executions(exploration, metric, group, again)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        _draw_links(None if usual else execution, group.members)
        launch.popover(scenario, execution, "explore_launch", plain=True, is_current=True)


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

    def picked() -> None:  # small closure: Streamlit keeps it for every key
        rows = st.session_state[key]["selection"]["rows"]
        state.select(numbers[rows[0]] if rows else None)
        again()

    # A new key for other executions: the browser remembers the marked row by number.
    key = f"explore_top_{hash((exploration.key, group.where, metric.key)):x}"
    st.dataframe(
        pd.DataFrame(shown),
        key=key,
        on_select=picked,
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


def _draw_limits(exploration: Exploration, cell: tuple[int, int]) -> None:
    """Draw the reasons why other executions of the cell cannot run."""
    found = explorations.reasons_in_cell(exploration, cell)
    if found:
        st.html(head("What limits the rest") + chips([(label_of(code), count(n)) for code, n in found.items()]))
    else:
        st.caption("Every execution of this cell runs.")


def _fits_not(exploration: Exploration, row: Any, cell: tuple[int, int], again: Callable[[], None]) -> None:
    """Draw why nothing in a cell runs, and the nearest change that would help."""
    scenario = exploration.scenario
    nearest = explorations.least_demanding(exploration, cell)
    capacity = scenario.system.mem1.capacity_gib * GIB
    execution = None if nearest is None else evaluated(exploration, exploration.key, nearest[0])
    other = float(row["shortfall_host_bytes"]) > 0  # the nearest execution is not the one shown
    st.markdown(f"**{literal(str(row['reason_text']) or 'Nothing fits.')}**")
    if execution is not None:
        first, second = tier_pieces(execution)
        least = "Least HBM without more host memory" if other else "The least demanding execution, HBM"
        bars = memory_bar(first, capacity, least)
        if sum(second.values()) > 0:
            bars += memory_bar(second, scenario.system.mem2.capacity_gib * GIB, "Host memory")
        present = [kind for kind in MEMORY_KINDS if first.get(kind.key, 0) > 0 or second.get(kind.key, 0) > 0]
        st.html(bars + legend(present) + head("That execution") + chips(choices(execution, scenario.system)))
        if other:
            need = format_value("proc_mem_tier1_cap_req", execution["proc_mem_tier1_cap_req"])
            st.caption(
                "The nearest execution lacks host memory. Of those whose offloaded data host memory holds, this one "
                f"needs the least HBM: {need}."
            )
    found = explorations.reasons_in_cell(exploration, cell)
    st.html(head("Why", "executions by the first reason") + chips([(label_of(c), count(n)) for c, n in found.items()]))
    with st.container(gap=None):
        st.html(head("What would make it fit"))
        _draw_remedies(exploration, row, cell, nearest, again)


def _draw_remedies(
    exploration: Exploration,
    row: Any,
    cell: tuple[int, int],
    nearest: tuple[int, str] | None,
    again: Callable[[], None],
) -> None:
    system = exploration.scenario.system
    cells = exploration.by_pair()
    fitting = cells[cells["feasible"] > 0]
    ways = 0
    for axis, other, short in (("pipeline_par", "tensor_par", "PP"), ("tensor_par", "pipeline_par", "TP")):
        mine, kept = (cell[1], cell[0]) if axis == "pipeline_par" else (cell[0], cell[1])
        line = fitting[(fitting[other] == kept) & (fitting[axis] > mine)]
        if len(line):
            target = line.sort_values(axis).iloc[0]
            pair = int(target["tensor_par"]), int(target["pipeline_par"])
            st.button(
                f"{short} {int(target[axis]):,} instead of {mine:,}",
                icon=":material/arrow_forward:",
                type="tertiary",
                key=f"remedy_{axis}",
                on_click=_open_cell,
                args=(pair, again),
            )
            ways += 1
    if not pd.isna(row["shortfall_bytes"]):
        tiers = (("HBM", system.mem1, "shortfall_hbm_bytes"), ("host memory", system.mem2, "shortfall_host_bytes"))
        needs = [
            f"{format_value('proc_mem_tier1_cap_req', have.capacity_gib * GIB + float(row[name]))} of {kind}"
            for kind, have, name in tiers
            if float(row[name]) > 0
        ]
        st.markdown(f":small[:material/arrow_forward: GPUs with at least {' and '.join(needs)}]")
        for (kind, have, _), name in zip(tiers, ("hbm_alone_bytes", "host_alone_bytes"), strict=True):
            if float(row[name]) > float(row["shortfall_bytes"]):  # not NaN, and not the requirement above
                alone = format_value("proc_mem_tier1_cap_req", have.capacity_gib * GIB + float(row[name]))
                st.markdown(f":small[:material/arrow_forward: or with at least {alone} of {kind} alone]")
        ways += 1
    for word in (nearest[1] if nearest is not None else "").split(" or "):
        fields = REMEDIES.get(word)
        if fields is not None:
            st.button(
                f"Allow {word}, which the limits exclude",
                icon=":material/arrow_forward:",
                type="tertiary",
                key=f"remedy_{word}",
                on_click=_lift_limits,
                args=(fields,),
            )
            ways += 1
    if not ways:
        st.caption("No change of one degree helps; fewer limits or other networks might.")


def _open_cell(cell: tuple[int, int], again: Callable[[], None]) -> None:
    """Open another cell."""
    state.select_cell(*cell)
    again()


def _lift_limits(fields: tuple[str, ...]) -> None:
    """Lift the limits on some fields."""
    state.change_scenario(
        lambda now: altered(now, limits={name: limit for name, limit in now.field_limits.items() if name not in fields})
    )
    st.rerun()  # the whole page, not this part of it
