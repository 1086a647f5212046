"""Inputs of the page A day of service, which are part of the link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from dashboard.link import state
from dashboard.link.catalogue import list_model_titles, list_system_titles, name_or_first, named_model, named_system
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.day.link import ASKED_FIELDS, PAGE_NAME, TABLE_PARAMETER, DayLink
from dashboard.queries.serving import price_placeholder
from dashboard.widgets.link_fields import (
    draw_choice,
    draw_decimal,
    draw_segments,
    draw_several,
    draw_switch,
    draw_whole,
)
from dashboard.widgets.own_table import NO_TABLE, OwnTable, draw_own_table, parse_own_table
from dashboard.words.markdown import literal
from engine.planners.contract import PlanError
from engine.questions.documents.days import DayQuestion
from engine.questions.fields import question_field
from engine.serving.days import read_demand
from engine.serving.evaluation import WorkloadError
from engine.serving.space import CHOICES, DEFAULTS

__all__ = ["check_demand", "draw_inputs", "parse_inputs"]

ENGINES: Final = {"generic": "Any engine", "vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
CHOSEN: Final = ("weight_bits", "kv_bits", "engine")
PAGE_DEFAULTS: Final[Mapping[str, Any]] = {
    "prompt": 1024,
    "output": 256,
    "time_to_first_token_s": 1_000.0,  # [ms]: the page opens with a usual service level, 1 s and 50 ms
    "time_per_output_token_s": 50.0,
    "peak_rate": 10.0,
    "most_procs": 4096,
}
"""Values without a parameter, in the units of links."""
MOST_MEGABYTES: Final = 1


def check_demand(text: str) -> None:
    """Check a table of a demand.

    Args:
        text: CSV.

    Raises `engine.planners.contract.PlanError` with one sentence for an invalid table.
    """
    try:
        read_demand(text)
    except WorkloadError as problem:
        raise PlanError(str(problem)) from None


def parse_inputs() -> tuple[DayQuestion | None, DayLink, OwnTable, Mapping[str, LinkField]]:
    """Parse the link: the question, None without a demand, the page's other parameters, the table, all fields by name.

    Model and system start as the scenario's. Raises the errors of loading them.
    """
    asked, page = LinkReader(DayQuestion, PAGE_NAME), LinkReader(DayLink, PAGE_NAME)
    scenario = state.current_scenario()
    titles, machines = list_model_titles(), list_system_titles()
    model = str(asked.read("model", default=name_or_first(scenario.model.name, titles), options=titles))
    system = str(asked.read("system", default=name_or_first(scenario.system.name, machines), options=machines))
    for name in ASKED_FIELDS[2:]:
        asked.read(name, default=PAGE_DEFAULTS.get(name))
    limits: dict[str, Any] = {}
    for name in CHOSEN:
        options = {value: ENGINES.get(str(value), str(value)) for value in CHOICES[name]}
        default = [value for value in DEFAULTS[name] if value in options]
        chosen = page.read(name, default=default, options=options)
        if set(chosen) != set(default):
            limits[name] = chosen
    is_file = page.read("source") == "file"
    own = parse_own_table(TABLE_PARAMETER, "demand", check_demand) if is_file else NO_TABLE
    question = None
    if not is_file or own.text is not None:
        demand = {"peak_rate": None, "demand": own.text} if is_file else {}
        question = asked.build(model=named_model(model), system=named_system(system), limits=limits, **demand)
    return question, page.build(), own, {**asked.fields, **page.fields}


def draw_inputs(own: OwnTable, fields: Mapping[str, LinkField]) -> None:
    """Draw the inputs.

    Args:
        own: table of the demand.
        fields: of the page by name.
    """
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        for name in ("model", "system"):
            draw_choice(fields[name], help="", width=210)
        draw_whole(fields["prompt"], label="Prompt, tokens", width=116)
        draw_whole(fields["output"], label="Output, tokens", width=116)
        draw_decimal(fields["time_to_first_token_s"], step=50.0, width=124)
        draw_decimal(fields["time_per_output_token_s"], step=5.0, width=124)
        draw_choice(fields["held_at"], width=120)
        with st.popover("More", icon=":material/tune:", help="Limits on means, variation, precisions, engines."):
            for name, step in (("mean_first_token_s", 50.0), ("mean_per_token_s", 5.0)):
                draw_decimal(fields[name], step=step)
            for name in ("arrival_cv", "prompt_cv", "output_cv", "prefix_hit_rate", "memory_share"):
                draw_decimal(fields[name], step=0.1)
            draw_switch(fields["room_for_error"])
            for name in CHOSEN:
                draw_several(fields[name])
    draw_segments(fields["source"])
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        if fields["source"].value == "shape":
            draw_decimal(fields["peak_rate"], step=1.0, width=150)
            draw_decimal(fields["trough_share"], step=0.1, width=150)
            draw_decimal(fields["peak_hour"], step=1.0, width=150)
        draw_decimal(fields["start_up_s"], step=60.0, width=124)
        draw_decimal(fields["scale_down_s"], step=60.0, width=150)
        draw_whole(fields["least_replicas"], width=124)
        draw_decimal(fields["most_replicas"], step=1.0, width=124)
        draw_whole(fields["most_procs"], width=124)
        draw_decimal(
            fields["price_usd_per_h"],
            label="On demand, USD/GPU-h",
            step=0.5,
            width=170,
            placeholder=price_placeholder(str(fields["system"].value)),
        )
        draw_decimal(fields["reserved_usd_per_h"], label="Reserved, USD/GPU-h", step=0.5, width=170)
    if fields["source"].value == "file":
        try:
            draw_own_table(question_field(DayLink, "table").help, TABLE_PARAMETER, MOST_MEGABYTES, check_demand)
        except PlanError as problem:
            st.error(literal(str(problem)), icon=":material/error:")
        if own.problem:
            st.error(literal(own.problem), icon=":material/error:")
        elif own.text is None:
            st.caption("Choose a file to see the day. A short file is part of the link.")
