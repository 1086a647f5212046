"""Columns of the Results page: known ones, sortable ones, those in the link, and the choice among them."""

from __future__ import annotations

from typing import Final, NamedTuple

import streamlit as st

from dashboard.link import state
from dashboard.queries.economics import unstored_metrics
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.needed_statistics import names_of
from engine import Exploration, economics
from engine.columns import FIT, MFU_OF, Column, applies, by_name, fields_of, statistics_of, stored_of
from engine.cost_models.registry import cost_model_of
from engine.recommendation import fit_bounds_of

__all__ = [
    "KnownColumns",
    "columns_in_link",
    "default_columns",
    "draw_column_chooser",
    "known_columns",
    "order_labels",
    "sortable_columns",
    "with_sorted",
]

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
    *MFU_OF.values(),
    "total_time",
    "total_efficiency",
    "proc_mem_tier1_cap_req",
    "fit",
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
_BEFORE_SORTED: Final = 4
"""Position of a sorted column that is not among the shown ones: after id and degrees."""


def order_labels(column: Column) -> dict[str, str]:
    """Return the labels of the directions of sorting by a column."""
    if column.better is not None:
        return _ORDERS
    return _OF_NUMBERS if column.dtype in ("int64", "float64") else _OF_WORDS


def with_sorted(names: list[str], by: str) -> list[str]:
    """Return the shown columns, with the sorted column after the degrees if it is not shown."""
    return names if by in names or by == "id" else [*names[:_BEFORE_SORTED], by, *names[_BEFORE_SORTED:]]


class KnownColumns(NamedTuple):
    """Columns of a scenario's executions, which depend on its cost model."""

    fields: tuple[Column, ...]
    statistics: tuple[Column, ...]
    stored: tuple[Column, ...]
    derived: tuple[Column, ...]
    """Figures that are derived from the throughput."""
    fit: tuple[Column, ...]
    """The fit into memory, where its error is known."""


def known_columns(exploration: Exploration) -> KnownColumns:
    """Return the columns that the executions of an exploration have."""
    model = exploration.scenario.cost_model
    derived = tuple(one.column for one in economics.derived_of(exploration.scenario).values())
    fit = () if fit_bounds_of(exploration.scenario) is None else (FIT,)
    return KnownColumns(fields_of(model), statistics_of(model), stored_of(model), derived, fit)


def sortable_columns(exploration: Exploration, register: KnownColumns) -> dict[str, str]:
    """Return the columns to sort by: stored results first, then fields, then results that have to be evaluated."""
    results = [*(column for column in register.stored if column.kind == "statistic"), *reversed(register.derived)]
    others = [column for column in register.stored if column.kind != "statistic"]
    stored = {column.name: column.label for column in (*reversed(results), *others)}
    return stored | names_of(exploration, unstored_metrics(exploration.scenario))


def columns_in_link(wanted: tuple[str, ...], register: KnownColumns, first: tuple[str, ...]) -> list[str]:
    """Return the known columns of the link, in its order; `first` without any."""
    columns = (*register.fields, *register.statistics, *register.derived, *register.fit)
    known = {"id", *(column.name for column in columns)}
    given = [name for name in wanted if name in known]
    strange = [name[:40] for name in wanted if name not in known]
    if strange:
        more = f" and {len(strange) - 3:,} more" if len(strange) > 3 else ""
        sentence = f"The link's columns name {', '.join(strange[:3])}{more}, which do not exist; left out."
        state.complain("results_columns", sentence)
    return list(dict.fromkeys(given)) or list(first)


def default_columns(exploration: Exploration) -> tuple[str, ...]:
    """Return the default columns."""
    scenario, every = exploration.scenario, list(_DEFAULT)
    mfu = MFU_OF[scenario.flop_convention]
    fit = [column.name for column in known_columns(exploration).fit]
    there = {"id", "tokens_per_gpu", mfu, *fit, *(column.name for column in statistics_of(scenario.cost_model))}
    for column in fields_of(scenario.cost_model):
        if column.after in every:
            every.insert(every.index(column.after) + 1, column.name)
        if applies(column, scenario.facts) and column.name not in cost_model_of(scenario).columns.implied:
            there.add(column.name)
    return tuple(name for name in every if name in there)


def draw_column_chooser(names: list[str], register: KnownColumns, first: tuple[str, ...]) -> None:
    """Draw the choice of columns, group by group of the register."""
    groups: dict[str, list[str]] = {}
    keys: list[str] = []
    every_one = (*register.derived, *register.fit, *register.fields, *register.statistics)
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
