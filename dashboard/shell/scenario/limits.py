"""Limits on the fields of executions: the last slot of the scenario sentence, and its dialog."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import streamlit as st

from dashboard.link import state
from dashboard.queries.scenario_edits import altered
from dashboard.widgets.clicks import was_clicked
from dashboard.words.markdown import literal
from dashboard.words.numbers import counted
from engine import Scenario
from engine.columns import Column, applies, by_name, choice_label, choices_of
from engine.cost_models.registry import cost_model_of
from engine.executions.limits import EXCESS, options_of
from engine.space.space import divisors
from engine.validation.uncertainty import memory_interval_of
from hardware import network_names
from models import dimensions

__all__ = ["opener"]

_COLUMNS: Final = (("Parallelism", "Recompute"), ("Batch", "Communication", "Block"))
"""The groups of fields in the columns of the dialog; the last column has all others."""
_COVERED: Final[Mapping[str, str]] = {"batch_size": "the largest multiple of DP"}
"""Values of unlimited fields that every cost model tries, if these are neither all values nor the default."""
_MOST_PILLS: Final = 16


def opener(scenario: Scenario, words: str) -> None:
    """Draw the words of the sentence that open the dialog. scenario: of the sentence."""
    if was_clicked(f":gray[Limits:] {words}", type="tertiary", key="sentence_limits", help="Restrict the search."):
        _dialog(scenario)


@st.dialog("Restrict the search", width="large")
def _dialog(scenario: Scenario) -> None:
    cost_model = cost_model_of(scenario)
    tried = (
        "Leave empty to try all that the question mark names" if cost_model.words.covered else "Leave empty to try all"
    )
    st.markdown(f":small[{tried}. What you choose becomes part of the scenario and of its link.]")
    chosen: dict[str, Any] = {}
    for place, groups in zip(st.columns(len(_COLUMNS) + 1, gap="medium"), _fields_by_column(scenario), strict=True):
        with place:
            for title, fields in groups.items():
                st.markdown(f"**{title}**")
                for column in fields:
                    limit = _draw_field(scenario, column)
                    if limit is not None:
                        chosen[column.name] = limit
                if title == "Parallelism" and cost_model.even_pipelines:
                    uneven = st.toggle(
                        "Uneven pipelines",
                        bool(scenario.limits.get("uneven_pipelines")),
                        help="Also try pipeline degrees that do not divide the number of blocks.",
                    )
                    if uneven:
                        chosen["uneven_pipelines"] = True
    if EXCESS in options_of(scenario.cost_model) and (excess := _draw_excess(scenario)):
        chosen[EXCESS] = excess
    _draw_dialog_foot(scenario, chosen)


def _draw_excess(scenario: Scenario) -> int:
    """Draw the switch for executions that may fit; return the excess of memory to allow [%], 0 for none."""
    error = memory_interval_of(scenario)
    given = int(scenario.limits.get(EXCESS, 0))
    usual = 0 if error is None else math.floor(100.0 * (1.0 / error.low - 1.0))
    excess = given or usual
    if not excess:
        return 0
    on = st.toggle(
        f"Also what may fit: memory up to {excess} % above the capacity",
        bool(given),
        key="limit_memory_excess",
        help="Predicted memory may be off by as much. Such executions are marked: may fit.",
    )
    return excess if on else 0


def _fields_by_column(scenario: Scenario) -> list[dict[str, list[Column]]]:
    """Return the fields of each column of the dialog by group: fields with an effect in the scenario, and limited ones
    without."""
    found: list[dict[str, list[Column]]] = [{} for _ in range(len(_COLUMNS) + 1)]
    for column in choices_of(scenario.cost_model):
        if applies(column, scenario.facts) or column.name in scenario.limits:
            place = next((place for place, groups in enumerate(_COLUMNS) if column.group in groups), len(_COLUMNS))
            found[place].setdefault(column.group, []).append(column)
    return found


def _draw_dialog_foot(scenario: Scenario, chosen: Mapping[str, Any]) -> None:
    """Draw the foot of the dialog: number of remaining executions, and buttons."""
    problem, total = "", 0
    changed = scenario
    try:
        changed = altered(scenario, limits=chosen)
        total = changed.space.total
    except ValueError as error:
        problem = str(error)
    with st.container(horizontal=True, vertical_alignment="center"):
        done = was_clicked("Apply", type="primary", disabled=bool(problem), key="limits_apply")
        free = was_clicked("Free every choice", type="tertiary", disabled=not scenario.field_limits, key="limits_free")
        st.markdown(literal(problem) if problem else counted(total, "execution"), width="content")
    if done:
        state.set_scenario(changed)
        st.rerun()
    if free:
        state.set_scenario(altered(scenario, limits={}))
        st.rerun()


def _draw_field(scenario: Scenario, column: Column) -> Any:
    """Draw the widget of a field; return its limit, None without one."""
    limit = scenario.limits.get(column.name)
    options = _field_options(scenario, column)
    text = f"{column.description} {_unless_given(scenario, column.name)}".strip()
    now = _allowed_values(limit, options)
    if column.name == "batch_size" or not options:
        return _draw_typed_field(column, limit, text)
    options = [*options, *(value for value in now if value not in options)]
    label = f"{column.label} ({column.short})" if column.short.isupper() and len(column.short) == 2 else column.label
    if column.open is not None:
        return _draw_open_field(column, options, now, label, text)
    widget = st.pills if len(options) <= _MOST_PILLS else st.multiselect
    more: dict[str, Any] = {"selection_mode": "multi", "wrap": True} if widget is st.pills else {"placeholder": "any"}
    picked = widget(
        label,
        options,
        default=now,
        format_func=lambda value: _option_text(column, value, scenario),
        help=text,
        key=f"limit_{column.name}",
        **more,
    )
    if isinstance(limit, Mapping) and sorted(picked) == sorted(now):
        return limit  # still the range that it was
    return list(picked) or None


def _draw_open_field(column: Column, options: list[Any], now: list[Any], label: str, text: str) -> Any:
    """Draw the widget of a field that takes typed words in addition to its choices."""
    picked = st.multiselect(
        label,
        options,
        default=now,
        format_func=lambda value: choice_label(column, value),
        key=f"limit_{column.name}",
        help=text,
        placeholder="any, or type one",
        accept_new_options=True,
    )
    return [column.words[at] if (at := column.position(str(value))) >= 0 else value for value in picked] or None


def _unless_given(scenario: Scenario, name: str) -> str:
    """Return the values tried of a field without a limit, if these are not all."""
    column, covered = by_name(name), cost_model_of(scenario).words.covered.get(name, _COVERED.get(name, ""))
    if not covered and column.default is not None:
        covered = choice_label(column, column.default)
    return f"Unless given: {covered}." if covered else ""


def _draw_typed_field(column: Column, limit: Any, text: str) -> Any:
    """Draw a field for typed values: "512, 1024" or "256..512"."""
    if isinstance(limit, Mapping):
        now = f"{limit['min']}..{limit['max']}"
    else:
        now = ", ".join(str(value) for value in limit or ())
    typed = st.text_input(
        column.label,
        now,
        key=f"limit_{column.name}",
        placeholder="any, or: 256, 512, or: 256..512",
        help=text,
        max_chars=400,
    ).replace(" ", "")
    if not typed:
        return None
    low, dots, high = typed.partition("..")
    if dots:
        ends = {"min": low, "max": high}
        return {end: int(digits) if digits.isdecimal() else digits for end, digits in ends.items() if digits}
    return [int(value) if value.isdecimal() and len(value) < 12 else value for value in typed.split(",") if value]


def _field_options(scenario: Scenario, column: Column) -> list[Any]:
    """Return the values of a field."""
    name, sizes = column.name, dimensions(scenario.model)
    blocks, experts = sizes.num_blocks, sizes.experts
    even_only = cost_model_of(scenario).even_pipelines
    if column.dtype == "bool":
        return [True, False]
    if column.choices:
        return list(column.choices)
    if column.of_network:
        return list(range(scenario.system.tiers))
    if column.numbers:
        return list(column.numbers)
    if name == "recompute_blocks":
        return [0, *(number for number in (1, 2, 3, 4, 6, 8, 12, 16) if number <= blocks)]
    if name == "pipeline_interleaving":
        even = divisors(blocks) if even_only else {*divisors(blocks), *divisors(blocks + 2)}
        return _values_up_to(sorted(even), blocks)
    if name == "microbatch_size":
        powers = {2**power for power in range(scenario.max_batch_size.bit_length())}
        return sorted(powers | set(range(1, min(8, scenario.max_batch_size) + 1)))
    degrees = divisors(scenario.num_procs)
    if name in ("tensor_par", "expert_tensor_par"):
        return [n for n in degrees if sizes.attn_heads % n == 0 and sizes.hidden % n == 0]
    if name == "pipeline_par":
        return [n for n in degrees if blocks % n == 0 or (not even_only and n <= blocks)]
    if name == "expert_par":
        return list(divisors(experts)) if experts else [1]
    if name == "context_par":
        return [n for n in degrees if n == 1 or scenario.model.seq_size % (2 * n) == 0]
    return _values_up_to(degrees, scenario.max_batch_size)


def _values_up_to(values: Iterable[int], most: int) -> list[int]:
    return [value for value in values if value <= most]


def _allowed_values(limit: Any, options: list[Any]) -> list[Any]:
    """Return the values that a limit allows, as selected in the widget."""
    if isinstance(limit, Mapping):
        return [value for value in options if limit["min"] <= value <= limit["max"]]
    return list(limit or ())


def _option_text(column: Column, value: Any, scenario: Scenario) -> str:
    if column.of_network:
        return choice_label(column, value, network_names(scenario.system))
    return f"{value:,}" if column.dtype == "int64" else choice_label(column, value)
