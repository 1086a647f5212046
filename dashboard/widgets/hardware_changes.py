"""Changes of the What-if page: as text of the link, as values of sliders, in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import streamlit as st

from dashboard.jobs.server import explorations
from dashboard.link import state
from dashboard.words.changes import text_of
from dashboard.words.markdown import literal
from engine import Scenario, whatif

__all__ = ["CHANGES", "moved", "parse_changes", "put", "reset"]

CHANGES: Final = "whatif_changes"
"""The link's parameter."""
_PIECE: Final = r"[a-z][a-z0-9_]{0,30}:[0-9][0-9.e+-]{0,24}"
_PATTERN: Final = re.compile(rf"{_PIECE}(?:;{_PIECE}){{0,39}}")


def parse_changes(scenario: Scenario) -> tuple[dict[str, float], tuple[str, ...]]:
    """Parse the changes of the link: return them, and a sentence per part of it that cannot be."""
    text = state.url_value(CHANGES, "", _PATTERN)
    changes: dict[str, float] = {}
    problems: list[str] = []
    for piece in filter(None, text.split(";")):
        name, _, number = piece.partition(":")
        try:
            value = float(number)
            _check_possible(scenario, {**changes, name: value}, name)
        except ValueError as problem:  # every refusal of models, hardware and engine is one
            problems.append(f"{problem} It is left as it was.")
            continue
        changes[name] = value
    other = {name: value for name, value in changes.items() if value != whatif.otherwise(scenario, changes, name)}
    return other, tuple(problems)


def moved(scenario: Scenario, name: str, value: float) -> dict[str, float]:
    """Returns the changes that the link asks for with one parameter at another value.

    Raises ValueError where they give nothing that this server searches.
    """
    changes, _ = parse_changes(scenario)
    changes.pop(name, None)
    value = float(f"{value:.10g}")
    if value != float(f"{whatif.otherwise(scenario, changes, name):.10g}"):
        changes[name] = value
    _check_possible(scenario, changes, name)
    return changes


def put(scenario: Scenario, name: str, value: float) -> None:
    """Changes one parameter, in a widget's callback."""
    try:
        changes = moved(scenario, name, value)
    except ValueError as problem:
        st.toast(literal(str(problem)), icon=":material/error:")
        return
    state.set_url_value(CHANGES, text_of(changes) or None)


def _check_possible(scenario: Scenario, changes: Mapping[str, float], name: str) -> None:
    """Raises ValueError where changes, of which one is of that parameter, give nothing that this server searches."""
    after, which = whatif.changed(scenario, changes), whatif.parameter(scenario, name)
    if (which.layout or which.can_be_off) and (refusal := explorations().refusal(after)):
        raise whatif.ChangeError(refusal)


def reset() -> None:
    """Takes all changes back."""
    state.set_url_value(CHANGES, None)
