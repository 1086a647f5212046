"""The frontier as a table: its executions, the price of the step from each to the next, and its download."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.files import exports
from dashboard.link import state
from dashboard.link.fields import LinkField
from dashboard.queries.economics import Metric
from dashboard.queries.filters import Filter
from dashboard.queries.pareto_fronts import prices, undirected
from dashboard.widgets.link_fields import draw_switch
from dashboard.widgets.tables import ROW, arranged, fitting, height_of, signed, width_of_words
from dashboard.words.executions import recomputed
from dashboard.words.markdown import literal
from dashboard.words.names import in_sentence
from dashboard.words.numbers import Scale, counted, decimals_for, plain, scale_for
from engine import Exploration
from engine.columns import fields_of, headline_of
from engine.cost_models.registry import named
from hardware import network_names

__all__ = ["table_of"]

_MOST_ROWS: Final = 1_000
_DEGREES: Final = ("tensor_par", "pipeline_par", "data_par")
_TELLING: Final = (
    "context_par",
    "expert_par",
    "microbatch_size",
    "activation_recompute",
    "zero_stage",
    "pipeline_interleaving",
    "weight_offload",
    "activations_offload",
    "optimizer_offload",
)
"""Fields that tell executions apart best, before the other fields."""


def table_of(
    exploration: Exploration, found: pd.DataFrame, axes: Sequence[Metric], filters: Sequence[Filter], every: LinkField
) -> None:
    """Draws the frontier as a table, with the price of the step to the next execution, and its download.

    every: the switch for all columns.
    """
    stored = [axis.key for axis in axes if axis.key == axis.statistic]
    model = exploration.scenario.cost_model
    fields = [column.name for column in fields_of(model) if column.name in found.columns]
    results = [
        column.name for column in headline_of(model) if column.name in found.columns and column.name not in stored
    ]
    whole = found[["id", *stored, *fields, *results]]
    number = counted(len(found), "execution")
    scope = f"{number}, best {in_sentence(axes[0].column.label)} first; pick one to see it above"
    selection = "; ".join(
        [f"the frontier of {', '.join(_describe_direction(axis) for axis in axes)}", *(one.words for one in filters)]
    )
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.html(markup.head("The frontier as a table", scope))
        draw_switch(every, label="All columns")
        for kind in ("csv", "parquet", "json"):
            st.download_button(
                exports.FORMATS[kind].label,
                data=exports.of_frame(exploration, whole, kind, selection),
                file_name=exports.file_name(exploration.scenario, "frontier", kind),
                mime=exports.FORMATS[kind].mime,
                key=f"pareto_download_{kind}",
                on_click="ignore",
                icon=":material/download:",
                type="tertiary",
            )
    top = found.head(_MOST_ROWS)
    shown, settings = arranged(whole.head(_MOST_ROWS).drop(columns=stored), network_names(exploration.scenario.system))
    leading = _leading_columns(top, axes)
    for place, one in enumerate(leading):
        shown.insert(1 + place, one.key, one.values)
        settings[one.key] = one.setting
    if not every.value:
        again, words = settings["activation_recompute"], [recomputed(row, brief=True) for row in _recompute_fields(top)]
        settings["activation_recompute"] = {**again, "width": max(again["width"], width_of_words(words))}
        shown = shown.assign(activation_recompute=words)
    shown = shown[_order_columns(shown, settings, [one.key for one in leading], model, every.value)]

    def picked() -> None:
        rows = st.session_state["pareto_table"].selection.rows
        if rows:
            state.select(int(top["id"].iloc[rows[0]]))

    st.dataframe(
        _format_table(shown, leading),
        hide_index=True,
        height=height_of(len(shown), 320),
        row_height=ROW,
        placeholder="–",
        column_config={name: settings[name] for name in map(str, shown)},
        key="pareto_table",
        on_select=picked,
        selection_mode="single-row",
        alt=f"Executions on the frontier of {', '.join(axis.key for axis in axes)}, with the cost of each step.",
    )


def _recompute_fields(rows: pd.DataFrame) -> list[dict[Any, Any]]:
    """Returns the fields of executions that `recomputed` reads."""
    return rows.filter(("activation_recompute", "selective_recompute")).to_dict("records")


def _order_columns(
    shown: pd.DataFrame, settings: Mapping[str, Any], leading: Sequence[str], model: str, every: bool
) -> list[str]:
    """Return the columns of the table: the figures, the degrees, then the distinguishing fields that have room.

    every: all columns, with room or without. Fields that the cost model does not read are left out.
    """
    first = ["id", *leading, *_DEGREES]
    unread = named(model).columns.not_read
    others = [name for name in dict.fromkeys((*_TELLING, *shown.columns)) if name in shown and name not in first]
    others = [name for name in others if name not in unread]
    if every:
        return [*first, *others]
    # One column describes all recomputation.
    return fitting(shown, settings, first, [name for name in others if name != "selective_recompute"])


def _describe_direction(axis: Metric) -> str:
    """Return an axis by name, with its better direction if the register leaves it open: "useful_flops (more is
    better)".
    """
    way = "more" if axis.column.better == "higher" else "less"
    return f"{axis.key} ({way} is better)" if undirected(axis) else axis.key


class _Leading(NamedTuple):
    """One of the first columns of the table."""

    key: str
    values: Any
    setting: Any
    signs: int | None = None
    """Decimals of a difference, which is written with its sign."""


def _leading_columns(found: pd.DataFrame, axes: Sequence[Metric]) -> list[_Leading]:
    """Return the first columns of the table: the figures, and the price of a step."""
    columns = []
    scales = [scale_for(axis.column, found[axis.key]) for axis in axes]
    for axis, scale in zip(axes, scales, strict=True):
        digits = decimals_for(found[axis.key], scale, digits=4)
        about = literal(f"{axis.column.label}. {axis.column.description} {axis.formula}".strip())
        columns.append(
            _Leading(
                axis.key,
                found[axis.key].to_numpy() / scale.factor,
                _number_column(scale.title(axis.column.short), about, f"%,.{digits}f"),
            )
        )
    if len(axes) != 2 or len(found) < 2:
        return columns
    cost = prices(found, axes[0].key, axes[1].key)
    for key, axis, scale in zip(("change_y", "change_x"), axes, scales, strict=True):
        values = cost[key].to_numpy() / scale.factor
        about = f"Change of {in_sentence(axis.column.label)} to the next execution of the frontier."
        columns.append(
            _Leading(
                key,
                values,
                _number_column(f"Δ {scale.title(axis.column.short)}", about),
                decimals_for(values, Scale(1.0, ""), digits=4),
            )
        )
    values = cost["price"].to_numpy() * scales[1].factor / scales[0].factor
    units = [
        {"": axis.column.short, "%": "point"}.get(scale.unit, scale.unit)
        for axis, scale in zip(axes, scales, strict=True)
    ]
    about = (
        f"Marginal rate between this execution and the next: change of {in_sentence(axes[0].column.label)} per "
        f"change of {in_sentence(axes[1].column.label)}."
    )
    return [*columns, _Leading("price", values, _number_column(f"{units[0]} per {units[1]}", about))]


def _number_column(header: str, about: str, form: str | None = None) -> Any:
    return st.column_config.NumberColumn(header, help=about, format=form, width=7 * len(header) + 30)


def _format_table(shown: pd.DataFrame, leading: Sequence[_Leading]) -> Any:
    """Return the table with its differences and prices in the page's number format; rows still sort by the numbers."""
    signs = {one.key: one.signs for one in leading if one.signs is not None}
    if not signs:
        return shown

    def price(value: object) -> str:
        return plain(value) if isinstance(value, float) and np.isfinite(value) else ""

    return signed(shown, signs, signs).format(price, subset=["price"])
