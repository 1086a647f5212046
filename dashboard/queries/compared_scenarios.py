"""One of several scenarios that are compared, and how it is told."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import shorten
from typing import Final, NamedTuple

from dashboard.queries.document_sheets import changes_in_words
from dashboard.words.changes import described
from dashboard.words.names import in_sentence
from dashboard.words.numbers import counted
from dashboard.words.scenarios import name_of, sentence_of
from engine import Scenario

__all__ = ["Member", "told"]


_EDITS: Final = 2
"""Edits that are told beside the name of a scenario."""
_LONGEST_EDIT: Final = 80
"""Characters of one: those of a table are many."""


class Member(NamedTuple):
    """One of the scenarios compared."""

    letter: str
    slot: str
    """Parameter of the link; empty for A."""
    scenario: Scenario
    changes: Mapping[str, float]
    """What makes it differ from A, where that is how it is described."""


def told(member: Member, first: Scenario) -> tuple[str, str]:
    """Returns (name, what more there is to say) of a scenario."""
    if member.changes:
        words = described(first, member.changes)
        if len(words) == 1:
            value, times, factor = in_sentence(words[0]).partition(" ×")
            return f"A with {value}{f' ({times.strip()}{factor})' if times else ''}", sentence_of(member.scenario)
        return "A with other numbers", ", ".join(words)
    return name_of(member.scenario), " · ".join([sentence_of(member.scenario), *_edits(member.scenario)])


def _edits(scenario: Scenario) -> list[str]:
    """What its model and system differ in from those whose names they have: "HBM bandwidth 3,072 → 6,144 GB/s"."""
    words = [*changes_in_words(scenario.model), *changes_in_words(scenario.system)]
    short = [shorten(each, _LONGEST_EDIT, placeholder=" …") for each in words[:_EDITS]]
    return [*short, counted(len(words) - _EDITS, "more edit")] if len(words) > _EDITS else short
