"""Choices of reinforcement learning that few people make: split, own step, judge, teacher, speculation, limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dashboard.link import state
from dashboard.link.catalogue import list_model_titles, named_model
from dashboard.link.fields import LinkField, LinkReader
from dashboard.pages.post_training.link import (
    JUDGE_FIELDS,
    PAGE_NAME,
    SPECULATION_FIELDS,
    TRAINING_FIELDS,
)
from dashboard.widgets.link_fields import draw_choice, draw_decimal, draw_several, draw_switch, draw_text
from engine.cli.limits import parse_limits
from engine.questions.documents.post_training import (
    JudgeChoices,
    PostTrainingQuestion,
    SpeculationChoices,
    TrainingChoices,
)
from engine.questions.fields import question_field, question_fields

__all__ = ["TENSOR_PAR", "MoreChoices", "draw_more_choices", "in_page_words", "parse_more_choices", "split_text"]

TENSOR_PAR: Final[Mapping[int, str]] = {2**k: str(2**k) for k in range(7)}
"""Tensor-parallel degrees of a rollout replica."""
SPLIT: Final = re.compile(r"[1-9]\d{0,6}:[1-9]\d{0,6}")
LIMITS: Final = re.compile(r"[a-z_]+ *= *[\w., ]+(; *[a-z_]+ *= *[\w., ]+)*")
NOBODY: Final = {"": "None"}


@dataclass(frozen=True, slots=True)
class MoreChoices:
    """Values for the question by name, and the fields of the link."""

    values: Mapping[str, Any]
    fields: Mapping[str, LinkField]


def split_text(split: list[int]) -> str:
    """Return a split as the link and the command have it, such as "128:64".

    Args:
        split: GPUs that train and GPUs that generate.
    """
    return ":".join(map(str, split))


def parse_more_choices() -> MoreChoices:
    """Parse the link.

    Raises `ValueError` with a sentence for a text that holds no limits.
    """
    models = {**NOBODY, **list_model_titles()}
    fields = {"split": _parse_text(PostTrainingQuestion, "split", SPLIT)}
    fields["limits"] = _parse_text(TrainingChoices, TRAINING_FIELDS[0], LIMITS)
    asked, judge = LinkReader(PostTrainingQuestion, PAGE_NAME), LinkReader(JudgeChoices, PAGE_NAME)
    speculation = LinkReader(SpeculationChoices, PAGE_NAME)
    teacher = asked.read("teacher", default="", options=models)
    scored_by = judge.read(JUDGE_FIELDS[0], default="", options=models)
    for name in JUDGE_FIELDS[1:]:
        judge.read(name)
    for name in SPECULATION_FIELDS:
        speculation.read(name)
    split, limits = fields["split"].value, fields["limits"].value
    values: dict[str, Any] = {
        "split": [int(each) for each in split.split(":")] if split else None,
        "teacher": named_model(teacher) if teacher else None,
        "judge": judge.build(scored_by=named_model(scored_by) if scored_by else None),
        "speculation": speculation.build(),
    }
    if limits:
        values["training"] = TrainingChoices(limits=parse_limits(limits.split(";")))
    return MoreChoices(values, {**fields, **asked.fields, **judge.fields, **speculation.fields})


def _parse_text(document: type[Any], name: str, pattern: re.Pattern[str]) -> LinkField:
    declared = question_field(document, name)
    parameter = f"{PAGE_NAME}_{declared.parameter}"
    return LinkField(declared, parameter, state.url_value(parameter, "", pattern), "", {})


def draw_more_choices(fields: Mapping[str, LinkField]) -> None:
    """Draw the fields.

    Args:
        fields: of the page by name.
    """
    draw_text(fields["split"], placeholder="train:generate, such as 128:64")
    draw_decimal(fields["measured_step_s"], step=1.0)
    draw_decimal(fields["software"], step=0.05, placeholder="the release's")
    draw_several(fields["rollout_tensor_par"])
    draw_text(fields["limits"], placeholder="tensor_par=1,2; pipeline_par=4")
    draw_switch(fields["helping"])
    draw_decimal(fields["launched"], step=0.25)
    draw_choice(fields["teacher"])
    draw_choice(fields["scored_by"])
    draw_decimal(fields["own_gpus"], step=8.0, placeholder="on the rollout's")
    draw_decimal(fields["answer_tokens"], step=64.0, placeholder="256")
    draw_decimal(fields["accepted"], step=0.5, placeholder="no speculation")
    draw_decimal(fields["drafted"], step=1.0, placeholder="3")
    draw_decimal(fields["draft_cost"], step=0.05, placeholder="0.1")


def in_page_words(text: str) -> str:
    """Return a sentence with the labels of fields instead of their names in documents.

    Args:
        text: of an error.
    """
    for document in (PostTrainingQuestion, JudgeChoices, SpeculationChoices):
        for name, field in question_fields(document).items():
            text = text.replace(f"`{name}`", f'"{field.label}"')
    return text
