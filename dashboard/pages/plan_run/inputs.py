"""Inputs of the Plan a run page, which are part of the link."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import streamlit as st

from dashboard.link import state
from dashboard.link.catalogue import list_model_titles, name_or_first, named_model, named_system, system_of, systems
from dashboard.link.fields import LinkField, LinkReader
from dashboard.link.run_phases import RunPhasesLink, phase_documents
from dashboard.pages.plan_run.link import PAGE_NAME, PlanRunLink
from dashboard.pages.plan_run.phases import draw_phases, read_phases
from dashboard.widgets.controls import given, key_for
from dashboard.widgets.link_fields import (
    draw_choice,
    draw_decimal,
    draw_list,
    draw_segments,
    draw_switch,
    draw_whole,
)
from dashboard.words.markdown import literal
from dashboard.words.numbers import plain
from dashboard.words.scenarios import system_titles
from engine.columns import choice_label
from engine.questions.documents.cost import PlanRunQuestion, SystemOffer
from engine.questions.fields import question_field

__all__ = ["draw_inputs", "parse_inputs"]

MOST_SYSTEMS: Final = 4
TERMS: Final = {"rent": "Rent, USD/h", "reserve": "Reserved, USD/h", "buy": "Buy, USD per GPU"}
PARTS: Final = {
    "deadline": ("tokens_bn", "days"),
    "budget": ("tokens_bn", "budget_kusd"),
    "both": ("tokens_bn", "days", "budget_kusd"),
    "gpus": ("tokens_bn", "gpus"),
    "most": ("days", "budget_kusd"),
}
"""Fields of each goal."""
GOALS: Final = question_field(PlanRunLink, "goal").words
GPUS_OF_PHASES: Final = ("tokens_bn", "gpus", "days")
"""The same of the goal GPUs where there are several phases: together they have a deadline."""
_NUMBER: Final = r"(?:\d{1,9}(?:\.\d{1,4})?)?"
PRICES: Final = re.compile(rf"(?:[\w.+-]{{1,80}}~(?:rent|reserve|buy)~{_NUMBER}~{_NUMBER}~{_NUMBER}(?:;|$)){{0,8}}")


def parse_inputs() -> tuple[PlanRunQuestion, PlanRunLink, RunPhasesLink, Mapping[str, LinkField]]:
    """Parse the link: the question, the page's other parameters, the phases' parameters, and all fields by name.

    Model, batch and datatype start as the scenario's. Raises the errors of loading models and systems, and
    `ValueError` for prices that cannot be.
    """
    asked, page = LinkReader(PlanRunQuestion, PAGE_NAME), LinkReader(PlanRunLink, PAGE_NAME)
    scenario = state.current_scenario()
    titles = list_model_titles()
    model = str(asked.read("model", default=name_or_first(scenario.model.name, titles), options=titles))
    machines = system_titles({name: system_of(name) for name in systems()})
    chosen = page.read("systems", default=[name_or_first(scenario.system.name, machines)], options=machines)[
        :MOST_SYSTEMS
    ]
    types = [name for name in _datatypes(chosen) if name]
    start = scenario.datatype if scenario.datatype in types else next(iter(types), "bfloat16")
    asked.read("datatype", default=start, options={name: choice_label("datatype", name) for name in types or [start]})
    asked.read("max_batch_size", default=scenario.max_batch_size)
    for name in ("figures_of", "room_for_error"):
        asked.read(name)
    phases = read_phases(titles, model)
    said = phases.build()
    is_phased = said.phases != ["pretrain"]
    goals = {name: words for name, words in GOALS.items() if name != "most" or not is_phased}
    goal = str(page.read("goal", options=goals))
    for name in dict.fromkeys(each for parts in PARTS.values() for each in parts):
        page.read(name)
    page.read("prices", pattern=PRICES)
    link, parts = page.build(), parts_of(goal, said.phases)
    prices = read_prices(link.prices)
    more: dict[str, Any] = {"most_procs": said.most} if is_phased else {}
    question = asked.build(
        model=named_model(model),
        systems=[SystemOffer(system=named_system(name), **prices.get(name, {}), **more) for name in chosen],
        phases=phase_documents(said, link.tokens_bn * 1e9, model) if is_phased else None,
        tokens=link.tokens_bn * 1e9 if "tokens_bn" in parts and not is_phased else None,
        deadline_days=link.days if "days" in parts else None,
        budget_usd=link.budget_kusd * 1e3 if "budget_kusd" in parts else None,
        num_procs=link.gpus if "gpus" in parts else None,
    )
    return question, link, said, {**asked.fields, **page.fields, **phases.fields}


def parts_of(goal: str, phases: Sequence[str]) -> list[str]:
    """Return the fields of a goal.

    Args:
        goal: of the link.
        phases: of the link.
    """
    parts = GPUS_OF_PHASES if phases != ["pretrain"] and goal == "gpus" else PARTS[goal]
    return [name for name in parts if name != "tokens_bn" or "pretrain" in phases]


def _datatypes(names: list[str]) -> list[str]:
    """Return the datatypes that all systems compute in."""
    offered = [system_of(name).datatypes for name in names]
    return [each for each in offered[0] if all(each in other for other in offered)] if offered else []


def read_prices(text: str) -> dict[str, dict[str, Any]]:
    """Return fields of `SystemOffer` by name of the system, from the link's text.

    Args:
        text: as `PRICES` accepts it.
    """
    found: dict[str, dict[str, Any]] = {}
    for entry in filter(None, text.split(";")):
        name, terms, low, high, days = entry.split("~")
        values = {"usd_low": low, "usd_high": high, "reserved_days": days}
        found[name] = {"terms": terms, **{each: float(value) for each, value in values.items() if value}}
    return found


def _write_prices(prices: Mapping[str, Mapping[str, Any]]) -> None:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.4f}".rstrip("0").rstrip(".")

    entries = [
        "~".join([name, each.get("terms", "rent"), *(number(each.get(part)) for part in _AMOUNTS)])
        for name, each in prices.items()
    ]
    state.set_url_value(f"{PAGE_NAME}_prices", ";".join(entries) or None)


_AMOUNTS: Final = ("usd_low", "usd_high", "reserved_days")


def draw_inputs(link: PlanRunLink, phases: RunPhasesLink, fields: Mapping[str, LinkField]) -> None:
    """Draw the inputs.

    Args:
        link: the page's other parameters.
        phases: parameters of the phases.
        fields: of the page by name.
    """
    draw_segments(fields["goal"])
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        draw_choice(fields["model"], help="", width=230)
        for name in parts_of(link.goal, phases.phases):
            if name == "gpus":
                draw_whole(fields[name])
            else:
                draw_decimal(fields[name], step=10.0, width=150)
        draw_whole(fields["max_batch_size"], label="Batch", help="Sequences of a step, the same at every size.")
        draw_choice(fields["datatype"], width=130, help="")
        with st.popover("Prices", icon=":material/payments:", help="Rent, reserved or bought; own prices."):
            _draw_prices(link, fields)
        draw_segments(fields["figures_of"])
        draw_switch(fields["room_for_error"])
    draw_list(fields["systems"], most=MOST_SYSTEMS)
    draw_phases(phases, fields)


def _draw_prices(link: PlanRunLink, fields: Mapping[str, LinkField]) -> None:
    prices = read_prices(link.prices)
    for name in fields["systems"].value[:MOST_SYSTEMS]:
        own = prices.get(name, {})
        facts = system_of(name).accelerator
        known = None if facts is None or facts.usd_per_h is None else facts.usd_per_h
        recorded = "no price recorded" if known is None else f"recorded: {plain(min(known))}–{plain(max(known))} USD/h"
        st.caption(f"**{literal(fields['systems'].options[name])}**, {recorded}")
        with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
            _draw_terms(name, own, prices)
            _draw_amount("From", name, "usd_low", own, prices)
            _draw_amount("To", name, "usd_high", own, prices)
            if own.get("terms") == "reserve":
                _draw_amount("Days paid", name, "reserved_days", own, prices)


def _draw_terms(name: str, own: Mapping[str, Any], prices: Mapping[str, Mapping[str, Any]]) -> None:
    key = key_for(f"_plan_run_terms_{name}", own.get("terms", "rent"))

    def change() -> None:
        _write_prices({**prices, name: {"terms": given(key)}})

    options = list(TERMS)
    st.selectbox(
        "Terms",
        options,
        options.index(own.get("terms", "rent")),
        format_func=lambda each: TERMS[each],
        key=key,
        on_change=change,
        width=170,
    )


def _draw_amount(
    label: str, name: str, part: str, own: Mapping[str, Any], prices: Mapping[str, Mapping[str, Any]]
) -> None:
    key = key_for(f"_plan_run_{part}_{name}", own.get(part), clearable=True)

    def change() -> None:
        _write_prices({**prices, name: {**own, part: given(key)}})

    st.number_input(
        label,
        0.0,
        999_999_999.0,
        None,
        key=key,
        on_change=change,
        format="%g",
        placeholder="recorded" if own.get("terms") != "buy" else "needed",
        width=180,
    )
