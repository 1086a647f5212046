"""The execution of a design whose figures are shown, and two designs next to each other with why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.charts.elements import markup
from dashboard.charts.elements.advice import rows_table
from dashboard.charts.execution.time_bar import waterfall
from dashboard.compat.caches import remembered
from dashboard.link.fields import LinkField
from dashboard.queries.step_times import differences_in_time
from dashboard.widgets.chart import show
from dashboard.widgets.figures import draw_doubts
from dashboard.widgets.link_fields import draw_choice
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.numbers import ABSENT, format_value, gibibytes, plain, signed_percent
from engine.codesign import Results, StudyError
from engine.executions.execution_names import execution_name
from engine.questions.design_pairs import DesignPair, DesignSide, compare_designs, show_design
from engine.questions.documents.codesign import DesignsQuestion
from engine.questions.documents.explorations import FiguresQuestion
from engine.recommendation import FIGURES_OF

__all__ = ["MOST_OFFERED", "draw_pair", "draw_shown", "shown_of"]

MOST_OFFERED = 200
"""Designs of the front that the list offers; a link may name any."""


@remembered(256)
def _shown_of(key: str, design: int, model: int, asked: str, _found: Results) -> DesignSide | None:
    return show_design(_found, design, model, FiguresQuestion.model_validate_json(asked))


def shown_of(found: Results, design: int, model: int, asked: FiguresQuestion) -> DesignSide | None:
    """Returns the execution of a design whose figures are shown; None where none runs. See `show_design`."""
    return _shown_of(found.study.key, design, model, asked.model_dump_json(), found)


def draw_shown(found: Results, design: int, model: int, asked: FiguresQuestion) -> None:
    """Draw the execution of a design whose figures are shown, for one of its models."""
    with st.spinner("Choosing its execution"):
        side = shown_of(found, design, model, asked)
    if side is None:
        return
    row, scenario = side.shown.execution, side.scenario
    st.html(
        markup.facts(
            [
                (f"{FIGURES_OF[side.shown.figures_of]} execution", execution_name(row)),
                ("Step time", format_value("total_time", row["total_time"])),
                ("Throughput", format_value("sample_rate", row["sample_rate"])),
                ("HBM", gibibytes(row["proc_mem_tier1_cap_req"])),
            ]
        )
    )
    draw_doubts(scenario, row, side.shown.remark)


def draw_pair(
    found: Results,
    question: DesignsQuestion,
    one: int,
    field: LinkField,
    offered: list[int],
    model: int,
    mode: str,
    names: Mapping[str, str],
) -> None:
    """Draw a second design next to the chosen one: hardware, price, quantities, and the terms of the step that differ.

    Args:
        found: computed points.
        question: the mix or a model, the end of price ranges, and the choice of figures.
        one: number of the chosen design.
        field: number of the other design in the link; empty for none.
        offered: numbers of designs to choose from.
        model: place of the model whose step is compared.
        mode: the theme.
        names: labels of choices.
    """
    numbers = [number for number in offered[:MOST_OFFERED] if number != one]
    if field.value and int(field.value) not in numbers:
        numbers.append(int(field.value))
    if not numbers:
        return
    options = {"": "No other design", **{str(number): f"Design {number:,}" for number in numbers}}
    with st.container(border=True, key="codesign_pair"):
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.html(markup.head("Next to another design", f"design {one:,}"))
            st.space("stretch")
            draw_choice(field.among(options, default=""), label="Other design", width=200, is_bare=True)
        if field.value in ("", str(one)):
            st.caption("Choose a second design: differences of hardware, price, rate and the step, with why.")
            return
        try:
            pair = _pair(found.study.key, one, int(field.value), question.model_dump_json(), found)
        except StudyError as problem:
            st.warning(literal(str(problem)), icon=":material/error:")
            return
        _draw_tables(pair, names)
        _draw_step(found, pair, model, question, mode)


@remembered(64)
def _pair(key: str, one: int, other: int, asked: str, _found: Results) -> DesignPair:
    return compare_designs(_found, one, other, DesignsQuestion.model_validate_json(asked))


def _draw_tables(pair: DesignPair, names: Mapping[str, str]) -> None:
    headers = ("Difference", f"Design {pair.one:,}", f"Design {pair.other:,}", "Change")
    rows = [
        (label, *(_value(each[side]) for side in ("one", "other")), _change(each["one"], each["other"]))
        for table in (pair.choices, pair.quantities)
        for each in table.to_dict("records")
        for label in [f"{each['label']} [{each['unit']}]" if each["unit"] else names.get(each["name"], each["label"])]
    ]
    left, right = (st.container(), st.container()) if is_narrow() else st.columns([3, 2], gap="medium")
    with left:
        if rows:
            st.html(rows_table(headers, rows, texts=(0,), wraps=True))
            st.caption(
                "Rates and what follows from them are of the fastest executions, by which designs are ranked."
                f"{_describe_missing(pair)}"
            )
        else:
            st.caption("The designs do not differ.")
    with right:
        if len(pair.prices):
            prices = [
                (
                    f"{each['item']} [{each['unit']}]" if each["unit"] else str(each["item"]),
                    *(_value(each[f"amount_{side}"]) for side in ("one", "other")),
                    *(_value(each[f"usd_{side}"]) for side in ("one", "other")),
                )
                for each in pair.prices.to_dict("records")
            ]
            head = (
                "Item",
                *(f"{pair.one:,}", f"{pair.other:,}"),
                *(f"USD, {each:,}" for each in (pair.one, pair.other)),
            )
            st.html(rows_table(head, prices, texts=(0,), wraps=True))
            st.caption("Amounts of the whole machine, and their middle prices.")
        else:
            st.caption("No item differs in amount or price.")


def _describe_missing(pair: DesignPair) -> str:
    """Return which models have no execution on a design, which then has no rates; empty if all run on both."""
    found = [
        f" On design {number:,} nothing runs for {', '.join(literal(name) for name in names)}."
        for place, number in enumerate((pair.one, pair.other))
        if (names := [name for name, sides in pair.sides.items() if sides[place] is None])
    ]
    return "".join(found)


def _draw_step(found: Results, pair: DesignPair, model: int, question: DesignsQuestion, mode: str) -> None:
    """Draw the steps of both shown executions of a model, and their largest differences in words."""
    name = found.study.models[model].name
    sides = pair.sides.get(name, (None, None))
    one, other = sides
    if one is None or other is None:
        st.caption(f"{literal(name)} does not run on one of them, so there are no steps to compare.")
        return
    rows = one.shown.execution, other.shown.execution
    st.markdown(
        f"**Why**: {literal(name)} takes {format_value('total_time', rows[1]['total_time'])} a step on design "
        f"{pair.other:,} ({_role(other)}, {literal(execution_name(rows[1]))}) instead of "
        f"{format_value('total_time', rows[0]['total_time'])} on design {pair.one:,} ({_role(one)}, "
        f"{literal(execution_name(rows[0]))}): {differences_in_time(*rows)}."
    )
    names = (f"design {pair.other:,}", f"design {pair.one:,}")
    show(waterfall(dict(rows[1]), mode, other=dict(rows[0]), names=names), "codesign_pair_step")
    for side in (one, other):
        draw_doubts(side.scenario, side.shown.execution, side.shown.remark)


def _role(side: DesignSide) -> str:
    """Return the role of a side's execution."""
    return f"the {side.shown.figures_of}"


def _change(one: Any, other: Any) -> str:
    """Return the relative difference of two numbers; empty for words."""
    if isinstance(one, str) or isinstance(other, str) or pd.isna(one) or pd.isna(other) or not float(one):
        return ""
    return signed_percent(float(other) / float(one) - 1.0)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return ABSENT if pd.isna(value) else plain(float(value), 4)
