"""Inputs of fine-tuning on the Post-train page, which are part of the link."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from dashboard.link import state
from dashboard.link.catalogue import list_computing_systems, list_model_titles, name_or_first, named_model, named_system
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.post_training.link import PAGE_NAME, SAMPLE_FIELDS, TUNING_FIELDS, USUAL_SYSTEM
from dashboard.queries.serving import price_placeholder
from dashboard.widgets.link_fields import draw_choice, draw_decimal, draw_segments, draw_whole
from engine.fine_tuning import longest_sequence
from engine.questions.documents.fine_tuning import DataSetLengths, FineTuningQuestion
from engine.questions.fields import question_field
from engine.questions.scenario_documents import found_model
from models.tuning import TARGET_GROUPS

__all__ = ["draw_tuning_inputs", "parse_tuning_inputs"]

SAMPLES: Final = re.compile(r"[1-9]\d{0,11}")
"""Samples in links; more digits than other whole numbers."""
PAGE_DEFAULTS: Final[Mapping[str, Any]] = {"samples": 50_000}
LENGTH_DEFAULTS: Final[Mapping[str, Any]] = {"mean": 600.0, "cap": 4_096}
"""Values without a parameter: instructions and answers of some hundred tokens. Source: stated by us."""


def parse_tuning_inputs() -> tuple[FineTuningQuestion, Mapping[str, LinkField]]:
    """Parse the link: the question, and all fields by name; fields of the lengths begin with "sample_".

    Model, system and GPUs start as the scenario's. Raises the errors of loading them, and `ValueError` for values that
    do not go together.
    """
    asked, lengths = LinkReader(FineTuningQuestion, PAGE_NAME), LinkReader(DataSetLengths, PAGE_NAME)
    scenario = state.current_scenario()
    titles = list_model_titles()
    machines = list_computing_systems(str(question_field(FineTuningQuestion, "datatype").default))
    model = str(asked.read("model", default=name_or_first(scenario.model.name, titles), options=titles))
    own = name_or_first(scenario.system.name, machines, USUAL_SYSTEM)
    system = str(asked.read("system", default=own, options=machines))
    asked.read("num_procs", default=scenario.num_procs)
    for name in TUNING_FIELDS[3:]:
        options = {"adapter_targets": TARGET_GROUPS}.get(name)
        pattern = {"samples": SAMPLES}.get(name)
        asked.read(name, default=PAGE_DEFAULTS.get(name), options=options, pattern=pattern)
    # A model with fewer positions opens with shorter samples, not with a refusal.
    positions = longest_sequence(found_model(named_model(model)))
    cap = LENGTH_DEFAULTS["cap"] if positions is None else min(LENGTH_DEFAULTS["cap"], positions)
    defaults = {"mean": min(LENGTH_DEFAULTS["mean"], cap / 2.0), "cap": cap}
    for name in SAMPLE_FIELDS:
        lengths.read(name, default=defaults.get(name))
    question = asked.build(model=named_model(model), system=named_system(system), lengths=lengths.build(), sizes=True)
    return question, {**asked.fields, **{f"sample_{name}": field for name, field in lengths.fields.items()}}


def draw_tuning_inputs(fields: Mapping[str, LinkField]) -> None:
    """Draw the inputs.

    Args:
        fields: of fine-tuning by name.
    """
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        draw_choice(fields["model"], help="", width=210)
        draw_whole(fields["num_procs"], width=96)
        draw_choice(fields["system"], help="", width=350)
        draw_whole(fields["samples"], width=120)
        draw_decimal(fields["sample_mean"], step=100.0, width=150)
        draw_whole(fields["sample_cap"], label="Longest sample, tokens", width=170)
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        draw_decimal(fields["epochs"], step=1.0, width=96)
        draw_whole(fields["adapter_rank"], width=96)
        draw_choice(fields["adapter_targets"], width=250)
        with st.popover("More", icon=":material/tune:", help="Spread of lengths, packing, batch, loss, price."):
            draw_decimal(fields["sample_cv"], step=0.1)
            draw_decimal(fields["pack_to"], step=256.0, placeholder="longest sample")
            draw_decimal(fields["batch"], step=1.0, placeholder="32")
            draw_whole(fields["loss_chunk"], label="Loss chunk, tokens")
            draw_decimal(
                fields["price_usd_per_h"], step=0.5, placeholder=price_placeholder(str(fields["system"].value))
            )
    draw_segments(fields["method"])
