"""One of several compared scenarios, and its description."""

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
"""Most edits shown next to the name of a scenario."""
_LONGEST_EDIT: Final = 80
"""Longest text of one edit [characters]: edits of a table are long."""


class Member(NamedTuple):
    """One of the scenarios compared."""

    letter: str
    slot: str
    """Parameter of the link; empty for A."""
    scenario: Scenario
    changes: Mapping[str, float]
    """Differences from A, if the scenario is described by them."""


def told(member: Member, first: Scenario) -> tuple[str, str]:
    """Return (name, remark) of a scenario."""
    if member.changes:
        words = described(first, member.changes)
        if len(words) == 1:
            value, times, factor = in_sentence(words[0]).partition(" ×")
            return f"A with {value}{f' ({times.strip()}{factor})' if times else ''}", sentence_of(member.scenario)
        return "A with other numbers", ", ".join(words)
    return name_of(member.scenario), " · ".join([sentence_of(member.scenario), *_describe_edits(member.scenario)])


def _describe_edits(scenario: Scenario) -> list[str]:
    """Return the edits of its model and system relative to the originals: "HBM bandwidth 3,072 → 6,144 GB/s"."""
    words = [*changes_in_words(scenario.model), *changes_in_words(scenario.system)]
    short = [shorten(each, _LONGEST_EDIT, placeholder=" …") for each in words[:_EDITS]]
    return [*short, counted(len(words) - _EDITS, "more edit")] if len(words) > _EDITS else short
