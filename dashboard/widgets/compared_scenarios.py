"""Scenarios that a page compares: A is the current one, B to D are in the link.

A link holds B to D either as changes to A, such as "~hbm_capacity:100", or whole, as the parameters of a link to them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Final
from urllib.parse import parse_qsl, urlencode

from dashboard.link import scenario_parameters, state
from dashboard.link.comparison import LETTERS, VIEW, Comparison
from dashboard.link.packed_scenarios import LONGEST
from dashboard.queries.compared_scenarios import Member
from dashboard.widgets import needed_exploration
from dashboard.widgets.hardware_changes import CHANGES
from dashboard.words.changes import text_of
from engine import Exploration, Scenario, whatif

__all__ = [
    "SLOTS",
    "Slots",
    "add",
    "add_changes",
    "copy",
    "explored",
    "forget",
    "free_slot",
    "members",
    "members_of",
    "parameters_of",
    "put",
    "remove",
    "whole",
]

Slots = tuple[str, ...]
"""Parameters of the link, one per scenario."""

SLOTS: Final[Slots] = ("compare_b", "compare_c", "compare_d")
_TEXT: Final = re.compile(rf"[^\x00-\x1f]{{1,{LONGEST + 100}}}")
"""Text of a packed scenario with its name."""


def members(slots: Slots = SLOTS) -> tuple[list[Member], list[str]]:
    """Returns the scenarios that the link names, A first, and a sentence per part of it that cannot be read.

    slots: the parameters that hold the others.
    """
    return _read_members(*_parse_slots(slots))


def _parse_slots(slots: Slots) -> tuple[Scenario, dict[str, str]]:
    """Return the current scenario, and the text of each parameter; empty for none."""
    return state.current_scenario(), {slot: state.url_value(slot, "", _TEXT) for slot in slots}


def _read_members(first: Scenario, texts: Mapping[str, str]) -> tuple[list[Member], list[str]]:
    found = [Member("A", "", first, {})]
    problems: list[str] = []
    for slot, text in texts.items():
        if not text:
            continue
        try:
            scenario, changes, told_of = _read_member(first, text)
        except ValueError as problem:  # every refusal of models, hardware and engine is one
            problems.append(f"One of the scenarios to compare is left out. {problem}")
            continue
        problems += told_of
        found.append(Member(LETTERS[len(found)], slot, scenario, changes))
    return found, problems


def _read_member(first: Scenario, text: str) -> tuple[Scenario, dict[str, float], tuple[str, ...]]:
    if text.startswith("~"):
        changes: dict[str, float] = {}
        for piece in filter(None, text[1:].split(";")):
            name, _, number = piece.partition(":")
            try:
                changes[name[:40]] = float(number)
            except ValueError:
                sentence = f"{piece[:40]!r} cannot be read as a change; one looks like procs:64."
                raise whatif.ChangeError(sentence) from None
        scenario = whatif.changed(first, changes)
        _ = scenario.space
        return scenario, changes, ()
    parameters = {
        name: value for name, value in parse_qsl(text, max_num_fields=20) if name in scenario_parameters.NAMES
    }
    if not parameters:
        raise whatif.ChangeError(f"{text[:40]!r} names no scenario.")
    reading = scenario_parameters.read_scenario(parameters)
    return reading.scenario, {}, reading.problems


def whole(first: Scenario, parameters: Mapping[str, str]) -> Comparison | None:
    """Returns the comparison on the page that a link leads to; None where A is alone. What cannot be read is left out.

    parameters: of the link, those beside A.
    """
    others = _read_members(first, {slot: parameters.get(slot, "") for slot in SLOTS})[0][1:]
    if not others:
        return None
    changes = {member.letter: member.changes for member in others if member.changes}
    view = {name: parameters[name] for name in VIEW if name in parameters}
    return Comparison((first, *(member.scenario for member in others)), changes, view)


def members_of(comparison: Comparison) -> list[Member]:
    """Returns the scenarios of a comparison. Raises `Refused` for one that no link can carry, and so no page."""
    first = comparison.scenarios[0]
    found = [Member(LETTERS[0], "", scenario_parameters.carried(first), {})]
    for slot, letter, scenario in zip(SLOTS, LETTERS[1:], comparison.scenarios[1:], strict=False):
        changes = dict(comparison.changes.get(letter, {}))
        try:
            told_right = _read_member(first, f"~{text_of(changes)}")[0] == scenario
        except ValueError:  # every refusal of models, hardware and engine is one
            told_right = False
        found.append(Member(letter, slot, scenario_parameters.carried(scenario), changes if told_right else {}))
    return found


def parameters_of(comparison: Comparison) -> dict[str, str]:
    """Return the parameters of a link to a comparison, without scenario A. Raises `Refused` like `members_of`."""
    texts = {
        member.slot: f"~{text_of(member.changes)}" if member.changes else _scenario_text(member.scenario)
        for member in members_of(comparison)[1:]
    }
    return {**comparison.view, **texts}


def forget() -> None:
    """Forgets what was compared, and the what-if of the scenario before, which Compare offers to add: a link to another
    comparison shows that alone."""
    state.set_url_values(dict.fromkeys((*SLOTS, *(name for name in VIEW if name.startswith("compare_")), CHANGES)))


def _scenario_text(scenario: Scenario) -> str:
    return urlencode(scenario_parameters.parameters_of(scenario))


def free_slot(slots: Slots = SLOTS) -> str | None:
    """Returns the first parameter of the link that names no scenario yet."""
    return next((slot for slot, text in _parse_slots(slots)[1].items() if not text), None)


def put(scenarios: Sequence[Scenario], slots: Slots = SLOTS) -> None:
    """Replace all compared scenarios."""
    texts = (_scenario_text(scenario) for scenario in scenarios[: len(slots)])
    state.set_url_values(dict(zip_longest(slots, texts)))


def copy(origin: Slots, slots: Slots) -> None:
    """Puts the scenarios of other parameters in the place of these."""
    texts = [text or None for text in _parse_slots(origin)[1].values()]
    state.set_url_values(dict(zip(slots, texts, strict=True)))


def add(scenario: Scenario, slots: Slots = SLOTS) -> None:
    """Add a scenario to the comparison, if there is room."""
    slot = free_slot(slots)
    if slot is not None:
        state.set_url_value(slot, _scenario_text(scenario))


def add_changes(changes: Mapping[str, float], slots: Slots = SLOTS) -> None:
    """Add the current scenario with some numbers changed to the comparison, if there is room."""
    slot = free_slot(slots)
    if slot is not None:
        state.set_url_value(slot, f"~{text_of(changes)}")


def remove(slot: str, gone: Collection[str] = ()) -> None:
    """Takes a scenario out of the comparison; those after it move up, so that the next to be added is the last.

    gone: further parameters of the link that go with it.
    """
    slots = tuple(f"{slot[:-1]}{letter}" for letter in "bcd")
    left = [text for other, text in _parse_slots(slots)[1].items() if other != slot]
    state.set_url_values({**dict(zip_longest(slots, filter(None, left))), **dict.fromkeys(gone)})


def explored(found: Sequence[Member]) -> list[Exploration]:
    """Returns the explorations of scenarios."""
    return needed_exploration.explorations_of([member.scenario for member in found], state.watcher())
