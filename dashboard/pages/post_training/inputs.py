"""Inputs of the Post-train page, which are part of the link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import streamlit as st

from dashboard.link import state
from dashboard.link.catalogue import (
    list_computing_systems,
    list_model_titles,
    name_or_first,
    named_model,
    named_system,
)
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.post_training.choices import (
    TENSOR_PAR,
    MoreChoices,
    draw_more_choices,
    in_page_words,
    parse_more_choices,
)
from dashboard.pages.post_training.link import ASKED_FIELDS, LENGTH_FIELDS, PAGE_NAME, ROLLOUT_FIELDS, USUAL_SYSTEM
from dashboard.queries.serving import price_placeholder
from dashboard.widgets.link_fields import draw_choice, draw_decimal, draw_segments, draw_whole
from engine.questions.documents.post_training import (
    PostTrainingQuestion,
    ResponseLengths,
    RolloutChoices,
    TrainingChoices,
)
from engine.questions.fields import question_field
from engine.questions.post_training import longest_sequence, post_training_goal
from engine.questions.scenario_documents import found_model

__all__ = ["RefusedInputsError", "draw_inputs", "parse_inputs"]

PAGE_DEFAULTS: Final[Mapping[str, Any]] = {"prompts": 64, "group": 32, "updates": 4}
LENGTH_DEFAULTS: Final[Mapping[str, Any]] = {"mean": 1_000.0, "cap": 3_968}
"""Values without a parameter: a step of 2,048 samples of at most 4,096 tokens, as in public recipes."""


class RefusedInputsError(ValueError):
    """Values of the link that do not go together, with its `fields`, so that the page draws them."""

    def __init__(self, sentence: str, fields: Mapping[str, LinkField]) -> None:
        super().__init__(sentence)
        self.fields = fields


def parse_inputs() -> tuple[PostTrainingQuestion, Mapping[str, LinkField]]:
    """Parse the link: the question, and all fields by name; fields of the rollout begin with "rollout_".

    Model, system and GPUs start as the scenario's. Raises the errors of loading them, and `RefusedInputsError` for
    values that do not go together.
    """
    asked = LinkReader(PostTrainingQuestion, PAGE_NAME)
    lengths, rollout = LinkReader(ResponseLengths, PAGE_NAME), LinkReader(RolloutChoices, PAGE_NAME)
    scenario = state.current_scenario()
    titles = list_model_titles()
    datatype = question_field(TrainingChoices, "train_datatype").default
    machines = list_computing_systems(datatype)
    model = str(asked.read("model", default=name_or_first(scenario.model.name, titles), options=titles))
    system = str(
        asked.read("system", default=name_or_first(scenario.system.name, machines, USUAL_SYSTEM), options=machines)
    )
    asked.read("num_procs", default=scenario.num_procs)
    for name in ASKED_FIELDS[3:]:
        asked.read(name, default=PAGE_DEFAULTS.get(name))
    # A model with fewer positions opens with shorter responses, not with a refusal.
    positions = longest_sequence(found_model(named_model(model)))
    cap = LENGTH_DEFAULTS["cap"]
    if positions is not None:
        cap = min(cap, max(positions - int(asked.fields["prompt_tokens"].value), 2))
    defaults = {"mean": min(LENGTH_DEFAULTS["mean"], cap / 2.0), "cap": cap}
    for name in LENGTH_FIELDS:
        lengths.read(name, default=defaults.get(name))
    for name in ROLLOUT_FIELDS:
        rollout.read(name, options=TENSOR_PAR if name == "tensor_par" else None)
    more = parse_more_choices()
    own = {f"rollout_{name}": field for name, field in rollout.fields.items()}
    fields = {**asked.fields, **lengths.fields, **own, **more.fields}
    try:
        return _checked_question(asked, lengths, rollout, more, model, system), fields
    except ValueError as problem:
        raise RefusedInputsError(in_page_words(str(problem)), fields) from None


def _checked_question(
    asked: LinkReader[PostTrainingQuestion],
    lengths: LinkReader[ResponseLengths],
    rollout: LinkReader[RolloutChoices],
    more: MoreChoices,
    model: str,
    system: str,
) -> PostTrainingQuestion:
    # Staleness is of one mode only: another one forgets it.
    has_staleness = asked.fields["mode"].value in ("any", "asynchronous")
    question = asked.build(
        model=named_model(model),
        system=named_system(system),
        response=lengths.build(),
        rollout=rollout.build(),
        changes=True,
        **more.values,
        **({} if has_staleness else {"staleness": None}),
    )
    post_training_goal(question)
    return question


def draw_inputs(fields: Mapping[str, LinkField]) -> None:
    """Draw the inputs.

    Args:
        fields: of the page by name.
    """
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        draw_choice(fields["method"], help="", width=96)
        draw_choice(fields["model"], help="", width=210)
        draw_whole(fields["num_procs"], width=96)
        draw_choice(fields["system"], help="", width=350)
        draw_whole(fields["prompts"], width=130)
        draw_whole(fields["group"], width=160)
    with st.container(horizontal=True, gap="small", vertical_alignment="bottom"):
        draw_whole(fields["prompt_tokens"], label="Prompt, tokens", width=124)
        draw_decimal(fields["mean"], step=100.0, width=170)
        draw_whole(fields["cap"], label="Longest response, tokens", width=180)
        draw_decimal(fields["cv"], step=0.1, width=140)
        draw_whole(fields["updates"], width=130)
        draw_whole(fields["steps"], width=96)
        with st.popover(
            "Split, own step, judge",
            icon=":material/call_split:",
            help="Split, step of your own, limits, teacher, judge and speculation.",
        ):
            draw_more_choices(fields)
        with st.popover("More", icon=":material/tune:", help="Staleness, rollout engine, waiting, price."):
            draw_decimal(fields["staleness"], step=1.0, placeholder="8")
            draw_choice(fields["rollout_datatype"])
            draw_decimal(fields["rollout_memory_share"], step=0.05, placeholder="0.6 shared, 0.8 split")
            draw_whole(fields["rollout_max_sequences"])
            draw_choice(fields["synchronisation"])
            draw_choice(fields["framework"])
            draw_decimal(fields["reward_s"], step=1.0)
            draw_decimal(fields["tool_s"], step=1.0)
            draw_decimal(
                fields["price_usd_per_h"], step=0.5, placeholder=price_placeholder(str(fields["system"].value))
            )
    draw_segments(fields["mode"])
