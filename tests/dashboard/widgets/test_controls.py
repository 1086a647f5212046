"""Widgets whose value others set too: they are new ones when it was, and stay when it is what was chosen with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import streamlit as st

from dashboard.widgets.controls import given, key_for


@pytest.fixture(autouse=True)
def session() -> Iterator[dict[str, Any]]:
    with patch.object(st, "session_state", {}) as kept:
        yield kept


def test_a_value_that_was_set_elsewhere_needs_another_widget() -> None:
    first = key_for("list", "MFU")
    assert key_for("list", "MFU") == first
    second = key_for("list", "Step time")
    assert second != first
    assert key_for("list", "MFU") not in (first, second)


def test_a_value_that_was_chosen_with_it_does_not(session: dict[str, Any]) -> None:
    key = key_for("list", "MFU")
    session[key] = "HBM"
    assert given(key) == "HBM"
    assert key_for("list", "HBM") == key
    session[key] = "refused"
    assert given(key) == "refused"
    assert key_for("list", "HBM") != key  # it must show what holds


def test_what_was_chosen_with_one_that_is_being_replaced_is_shown_by_the_next(session: dict[str, Any]) -> None:
    first = key_for("list", "MFU")
    second = key_for("list", "Step time")
    session[first], session[second] = "HBM", "Step time"
    assert given(first) == "HBM"
    assert key_for("list", "HBM") not in (first, second)


def test_nothing_is_set_through_the_session(session: dict[str, Any]) -> None:
    """The browser would carry it out whenever it comes, over what was chosen meanwhile."""
    assert key_for("list", "MFU") not in session
    assert key_for("list", "HBM") not in session
    assert session[key_for("field", 8.0, clearable=True)] == 8.0  # emptied, it would go back to another default
    assert key_for("other field", None, clearable=True) not in session


def test_a_field_is_told_no_number_that_was_typed_in_it_until_it_was_gone(session: dict[str, Any]) -> None:
    key = key_for("field", 8.0, clearable=True)
    session[key] = 9.0
    assert given(key) == 9.0
    session[key] = "typed meanwhile"
    assert key_for("field", 9.0, clearable=True) == key
    assert session[key] == "typed meanwhile"
    del session[key]  # another page was shown
    assert session[key_for("field", 9.0, clearable=True)] == 9.0
    assert session[key_for("field", 7.0, clearable=True)] == 7.0


def test_a_replaced_widget_that_is_reported_again_takes_nothing_back(session: dict[str, Any]) -> None:
    first = key_for("list", "MFU")
    key_for("list", "Step time")
    session[first] = "MFU"  # as the browser goes on to say until it has drawn the other
    assert given(first) == "Step time"
    for value in range(12):
        last = key_for("list", value)
    session[first], session[last] = "HBM", "chosen"
    assert given(last) == "chosen"
    assert given(first) == "HBM"


@pytest.mark.parametrize(
    ("chosen", "shown", "same"),
    [
        (["full", "none"], ["none", "full"], True),
        (["full", "none"], ["none"], False),
        ([True, False], [False, True], True),
        (0.1 + 0.2, 0.3, True),
        (7.6, 8.0, False),
        (None, 8.0, False),
    ],
)
def test_order_and_rounding_are_no_other_value(
    session: dict[str, Any], chosen: object, shown: object, same: bool
) -> None:
    key = key_for("list", None)
    session[key] = chosen
    given(key)
    assert (key_for("list", shown) == key) is same


def test_a_widget_that_streamlit_has_forgotten_gives_what_holds_now(session: dict[str, Any]) -> None:
    """The run that drew it may be interrupted before the callback of a click on it runs."""
    key = key_for("list", "MFU")
    assert key not in session
    assert given(key) == "MFU"
