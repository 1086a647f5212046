"""Operations of one block: table and roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.execution.roofline import roofline
from dashboard.compat.caches import remembered
from dashboard.link.fields import LinkField
from dashboard.pages.execution.accounts import ROW_AS_TEXT, account_of
from dashboard.widgets.chart import show
from dashboard.widgets.link_fields import draw_segments
from dashboard.words.numbers import ABSENT, format_value
from engine import Exploration, LayerError, Scenario
from engine.cost_models.account import BlockAccount, Shown

__all__ = ["block"]

_WIDTHS: Final = {
    "block": 68,
    "label": 142,
    "bound": 74,
    "weight": 88,
    "activation": 74,
    "tp_exposed": 88,
    "share": 96,
    "rate": 66,
}
"""Widths of columns [px]; 62 for all others."""
_QUALIFIED: Final = ("fw_time", "bw_time", "weight", "activation", "tp_exposed")
"""Columns whose unit alone does not name them."""
_LONG: Final = 1e-3
"""Times above this need no decimals in microseconds [s]."""


@remembered(64, hash_funcs=ROW_AS_TEXT)
def _block_account(_scenario: Scenario, key: str, row: dict[str, Any]) -> BlockAccount | str | None:
    """Return the account of the block, or the reason for its absence."""
    try:
        return account_of(_scenario, row).block()
    except LayerError as problem:
        return str(problem)


def block(exploration: Exploration, row: dict[str, Any], mode: str, which: LinkField) -> None:
    """Draws table and roofline side by side; nothing if the cost model has no single operations.

    which: the kind of block.
    """
    scenario = exploration.scenario
    found = _block_account(scenario, scenario.key, row)
    if found is None:
        return
    if isinstance(found, str):
        with st.container(border=True, gap="xsmall"):
            st.html(markup.head("What one block does", "one microbatch on one GPU"))
            st.caption(found)
        return
    left, right = st.columns([1.45, 1], gap="medium")
    with left.container(border=True, gap="xsmall", height="stretch"):
        st.html(markup.head(found.title, found.scope))
        which = which.among(dict(found.kinds))
        if len(which.options) > 1:
            draw_segments(which, label="Block")
        table = found.tables[which.value]
        _draw_table(table, found.columns)
        if found.note:
            st.caption(found.note)
    with right.container(border=True, gap="xsmall", height="stretch"):
        datatype = format_value("datatype", str(row["datatype"]))
        st.html(markup.head("Roofline", f"{found.roofs_scope}, {datatype}; area is time"))
        show(roofline(table, found.roofs, mode), "execution_roofline")
        if found.roofs_note:
            st.caption(found.roofs_note)


def _draw_table(found: pd.DataFrame, columns: Sequence[Shown]) -> None:
    headers = {each.column.name: _column_header(each) for each in columns}
    table = pd.DataFrame(
        {
            headers[each.column.name]: found[each.column.name]
            if each.column.dtype == "str"
            else found[each.column.name] / each.size
            for each in columns
        }
    )
    config: dict[str, Any] = {}
    for each in columns:
        name = each.column.name
        width, said = _WIDTHS.get(name, 62), each.column.description
        if each.column.dtype == "str":
            setting: Any = st.column_config.TextColumn(width=width, help=said if name == "bound" else None)
        elif name == "share":
            most = float(table[headers[name]].max())
            setting = st.column_config.ProgressColumn(
                format="%.1f %%", min_value=0, max_value=most, width=width, help=said
            )
        else:
            setting = st.column_config.NumberColumn(
                format=f"%,.{_decimal_places(each, found)}f", width=width, help=said
            )
        config[headers[name]] = setting
    st.dataframe(
        table,
        hide_index=True,
        height="content",
        row_height=28,
        key="execution_layers",
        placeholder=ABSENT,
        alt=f"The {len(table)} operations of a block with their times, work, bytes and what bounds them",
        column_config=config,
    )


def _decimal_places(each: Shown, found: pd.DataFrame) -> int:
    long = each.column.unit == "s" and max(found["fw_time"].max(), found["bw_time"].max()) > _LONG
    return 0 if long else each.decimals


def _column_header(each: Shown) -> str:
    """Return a header as narrow as its column."""
    if each.column.name in _QUALIFIED:
        return f"{each.column.short}, {each.unit}"
    if each.unit and each.column.name != "share":
        return each.unit
    return each.column.label if each.column.name == "label" else each.column.short
