"""Limits of a cell: why its executions do not run, what the nearest one lacks, and what would make it fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.charts.elements.markup import chips, head, legend, memory_bar
from dashboard.charts.elements.palette import MEMORY_KINDS
from dashboard.charts.execution.memory_bars import tier_pieces
from dashboard.charts.explored.reasons import label_of
from dashboard.link import state
from dashboard.queries import explorations
from dashboard.queries.executions import evaluated
from dashboard.queries.memory_requirements import REMEDIES
from dashboard.queries.scenario_edits import altered
from dashboard.words.executions import choices
from dashboard.words.markdown import literal
from dashboard.words.numbers import count, format_value
from engine import Exploration
from hardware import GIB

__all__ = ["draw_limits", "draw_nothing_fits"]


def draw_limits(exploration: Exploration, cell: tuple[int, int]) -> None:
    """Draw the reasons why other executions of the cell cannot run.

    cell: tensor and pipeline parallel degrees.
    """
    found = explorations.reasons_in_cell(exploration, cell)
    if found:
        st.html(head("What limits the rest") + chips([(label_of(code), count(n)) for code, n in found.items()]))
    else:
        st.caption("Every execution of this cell runs.")


def draw_nothing_fits(exploration: Exploration, row: Any, cell: tuple[int, int], again: Callable[[], None]) -> None:
    """Draw why nothing in a cell runs, and the nearest change that would help.

    row: of `dashboard.queries.explorations.cells_of`. cell: its tensor and pipeline parallel degrees. again: called
    last in a widget's callback that selects another cell.
    """
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
