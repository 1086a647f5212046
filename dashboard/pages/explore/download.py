"""The download of the Explore page: the executions that run, of the whole space or of the selected cell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st

from dashboard.files import downloads, exports
from dashboard.link.fields import LinkField
from dashboard.queries.filters import Filter, conditions
from dashboard.widgets.link_fields import draw_segments
from dashboard.widgets.menus import filled
from dashboard.words.numbers import counted
from engine import Exploration
from engine.columns import FIT, stored_of
from engine.recommendation import fit_bounds_of
from engine.store import StoreCondition

__all__ = ["download"]


def download(
    exploration: Exploration, filters: Sequence[Filter], cell: tuple[int, int] | None, which: LinkField
) -> None:
    """Draws the popover with downloads of the filtered executions.

    cell: the selected one. which: the choice between all executions and the cell's.
    """
    if not exploration.feasible:
        return
    tip = "Feasible executions with their figures, as a file."
    with st.popover("Download", icon=":material/download:", help=tip, key="explore_download"):
        if not filled("download"):
            return
        where = conditions(filters)
        words = [one.words for one in filters] or ["every execution that runs"]
        name = "filtered" if filters else "executions"
        if cell is not None:
            everything = "All filtered executions" if filters else "All that run"
            options = {"all": everything, "cell": f"TP {cell[0]} × PP {cell[1]} only"}
            draw_segments(replace(which, options=options), label="Which executions")
            if which.value == "cell":
                where += [StoreCondition("tensor_par", "=", cell[0]), StoreCondition("pipeline_par", "=", cell[1])]
                words = [*words, f"TP {cell[0]} and PP {cell[1]}"]
                name = f"tp{cell[0]}_pp{cell[1]}"
        rows = exploration.rows.count(where) if where else exploration.feasible
        fit = [] if fit_bounds_of(exploration.scenario) is None else [FIT.name]
        names = [*(column.name for column in stored_of(exploration.scenario.cost_model)), *fit]
        st.caption(f"{counted(rows, 'execution')}, {len(names)} columns; units, scenario and version are in it.")
        problems = []
        with st.container(horizontal=True):
            for kind in ("csv", "parquet"):
                form = exports.FORMATS[kind]
                file, content = exports.file_name(exploration.scenario, name, kind), repr((exploration.key, where))
                write = exports.of_rows(exploration, kind, names=names, where=where, selection=words)
                downloads.button(form.label, downloads.Offer(write, file, form.mime), content, key=f"download_{kind}")
                if problem := downloads.problem(file, content):
                    problems.append(f"{form.label}: {problem}")
        for problem in problems:
            st.error(problem, icon=":material/error:")
