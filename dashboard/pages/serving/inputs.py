"""Inputs of the Serving page, which are part of the link."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from dashboard.link import state
from dashboard.link.catalogue import (
    list_model_titles,
    list_system_titles,
    model_of,
    name_or_first,
    named_model,
    named_system,
    system_of,
)
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.serving_factors import FACTORS_TEXT, factors_document
from dashboard.pages.serving.link import LOAD_FIELDS, PAGE_NAME, ServingLink
from dashboard.queries.serving import price_placeholder
from dashboard.widgets.link_fields import draw_choice, draw_decimal, draw_several, draw_whole
from dashboard.words.serving import WORDS
from engine.questions.documents.serving import DeploymentsQuestion, ServedModel, ServiceQuestion
from engine.serving import HEADLINE
from engine.serving.space import CHOICES, DEFAULTS

__all__ = ["draw_inputs", "parse_inputs", "pick_deployment", "write_inputs"]

MOST_PROCESSORS: Final = 4096
MOST_TOKENS: Final = 1_000_000
ANY_ID: Final = re.compile(r"\d{1,9}")
ORDERS: Final = {column.name: column.label for column in HEADLINE if column.better is not None}
RESETS: Final = ("serving_id", "serving_beside")
"""Parameters that lose their meaning with another question: it has other deployments."""


def write_inputs(**values: str | None) -> None:
    """Write inputs to the link, by their names without the page's; None restores the default.

    Another question has other deployments, so picked deployments are reset.
    """
    written = {"id": None, "beside": None, **values}
    state.set_url_values({f"{PAGE_NAME}_{name}": value for name, value in written.items()})


def pick_deployment(number: int | None) -> None:
    """Write the deployment to look at to the link; None for the recommended one.

    Args:
        number: its id.
    """
    state.set_url_values({f"{PAGE_NAME}_id": None if number is None else str(number)})


def parse_inputs() -> tuple[DeploymentsQuestion, ServiceQuestion | None, ServingLink, Mapping[str, LinkField]]:
    """Parse the link: the question, that about a load if there is one, the page's other parameters, and all fields by
    name.

    Model and system start as the scenario's. Raises the errors of loading them.
    """
    asked, page = LinkReader(DeploymentsQuestion, PAGE_NAME), LinkReader(ServingLink, PAGE_NAME)
    scenario = state.current_scenario()
    titles, machines = list_model_titles(), list_system_titles()
    model = str(asked.read("model", default=name_or_first(scenario.model.name, titles), options=titles))
    system = str(asked.read("system", default=name_or_first(scenario.system.name, machines), options=machines))
    asked.read("num_procs", default=min(system_of(system).node_size, 8), most=MOST_PROCESSORS)
    architecture = model_of(model).architecture
    longest = None if architecture is None else architecture.max_seq
    start = 1024 if longest is None or longest >= 1536 else max(longest // 2, 1)
    asked.read("prompt", default=start, most=MOST_TOKENS)
    asked.read("output", default=max(start // 4, 1), most=MOST_TOKENS)
    for name in ("time_to_first_token_s", "time_per_output_token_s", "price_usd_per_h", "memory_share"):
        asked.read(name)
    for name in ("prefill_chunk", "prefix_hit_rate", "host_hit_share", "host_cache_gib"):
        asked.read(name)
    drafts = {"": "Own prediction layers", **titles}
    asked.read("draft_model", default="", options=drafts)
    asked.read("draft_bits", options={bits: str(bits) for bits in (16, 8, 4)})
    for name in ("draft_tokens", "accepted_tokens", "acceptance_rate", "lora_adapters", "lora_rank"):
        asked.read(name)
    asked.read("by", options=ORDERS)
    asked.read("cache_room")
    for name in ("chosen", "beside"):
        asked.read(name, pattern=ANY_ID)
    others = {"": "The same system", **machines}
    asked.read("other_system", default="", options=others)
    limits: dict[str, Any] = {}
    for name, values in CHOICES.items():
        options = {value: WORDS.get(value, str(value)) for value in values}
        # Bits that follow those of the weights are an empty choice.
        default = [value for value in DEFAULTS[name] if value in options]
        chosen = page.read(name, default=default, options=options)
        if set(chosen) != set(default):
            limits[name] = chosen
    for name in ("only", "columns"):
        page.read(name)
    factors = _parse_factors(str(asked.read("factors", default="", pattern=FACTORS_TEXT) or ""), system)
    other, draft = (str(asked.fields[name].value) for name in ("other_system", "draft_model"))
    question = asked.build(
        model=named_model(model),
        system=named_system(system),
        limits=limits,
        other_system=named_system(other) if other else None,
        draft_model=named_model(draft) if draft else None,
        draft_bits=asked.fields["draft_bits"].value if draft else 16,
        factors=factors,
    )
    service, load = _parse_load(question)
    return question, service, page.build(), {**asked.fields, **page.fields, **load}


def _parse_factors(text: str, system: str) -> dict[str, Any] | None:
    """Return the calibration of the link's factors; None without any, or where another system was measured."""
    if not text:
        return None
    found = factors_document(text)
    if found["system"] != system_of(system).name:
        state.complain(
            f"{PAGE_NAME}_factors",
            f"The link's factors were measured on {found['system']}; figures of {system_of(system).name} have none.",
        )
        return None
    state.complain(f"{PAGE_NAME}_factors", None)
    return found


def _parse_load(question: DeploymentsQuestion) -> tuple[ServiceQuestion | None, Mapping[str, LinkField]]:
    """Return the question about a load, None without one, and its fields; model and limits are the other's."""
    reader = LinkReader(ServiceQuestion, PAGE_NAME)
    for name in LOAD_FIELDS:
        reader.read(name)
    rate, users = (reader.fields[name].value for name in ("request_rate", "users"))
    if rate is None and users is None:
        return None, reader.fields
    shared: dict[str, Any] = {name: getattr(question, name) for name in ServedModel.model_fields}
    if rate is not None and users is not None:
        shared["users"] = None
        state.complain(f"{PAGE_NAME}_users", "The link has requests per second and users; showing the former.")
    if rate is not None and reader.fields["think_s"].value:
        shared["think_s"] = 0.0
        state.complain(f"{PAGE_NAME}_think", "Think time is of users; with requests per second it is left out.")
    return reader.build(**shared), reader.fields


def draw_inputs(fields: Mapping[str, LinkField]) -> None:
    """Draw the inputs.

    Args:
        fields: of the page by name.
    """
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        for name in ("model", "system"):
            draw_choice(fields[name], help="", width=210, resets=RESETS)
        draw_whole(fields["num_procs"], label="GPUs", help="All of them are used.", width=116, resets=RESETS)
        draw_whole(fields["prompt"], label="Prompt, tokens", width=116, resets=RESETS)
        draw_whole(fields["output"], label="Output, tokens", width=116, resets=RESETS)
        draw_decimal(fields["time_to_first_token_s"], step=50.0, width=124, resets=RESETS)
        draw_decimal(fields["time_per_output_token_s"], step=5.0, width=124, resets=RESETS)
        with st.popover(
            "Choices", icon=":material/tune:", help="Precisions, launch modes and engines to try; memory; price."
        ):
            for name in CHOICES:
                draw_several(fields[name], resets=RESETS)
            draw_decimal(fields["memory_share"], step=0.05, resets=RESETS)
            draw_decimal(fields["cache_room"], step=0.05, resets=RESETS)
            draw_whole(fields["prefill_chunk"], resets=RESETS)
            draw_decimal(fields["prefix_hit_rate"], step=0.1, resets=RESETS)
            draw_decimal(fields["host_hit_share"], step=0.1, resets=RESETS)
            draw_decimal(fields["host_cache_gib"], step=16.0, resets=RESETS)
            draw_whole(fields["draft_tokens"], resets=RESETS)
            draw_decimal(fields["accepted_tokens"], step=0.5, resets=RESETS)
            draw_decimal(fields["acceptance_rate"], step=0.05, resets=RESETS)
            draw_choice(fields["draft_model"], resets=RESETS)
            draw_choice(fields["draft_bits"], resets=RESETS)
            draw_whole(fields["lora_adapters"], resets=RESETS)
            draw_whole(fields["lora_rank"], resets=RESETS)
            draw_decimal(
                fields["price_usd_per_h"],
                label="USD per GPU-hour",
                step=0.5,
                resets=RESETS,
                placeholder=price_placeholder(str(fields["system"].value)),
            )
