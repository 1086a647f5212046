"""Widgets whose value others set too: they are new ones when it was, and stay when it is what was chosen with them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
import streamlit as st

from dashboard.controls import given, key_for


@pytest.fixture(autouse=True)
def session() -> Iterator[dict[str, Any]]:
    with patch.object(st, "session_state", {}) as kept:
        yield kept


def test_a_value_that_was_set_elsewhere_needs_another_widget(session: dict[str, Any]) -> None:
    first = key_for("list", "MFU")
    assert session[first] == "MFU"
    assert key_for("list", "MFU") == first
    second = key_for("list", "Step time")
    assert second != first
    assert session[second] == "Step time"
    session[first] = "HBM"  # what the browser still tells of the one that is gone
    assert given("list") == "Step time"
    assert key_for("list", "MFU") not in (first, second)


def test_a_value_that_was_chosen_with_it_does_not(session: dict[str, Any]) -> None:
    key = key_for("list", "MFU")
    session[key] = "HBM"
    assert given("list") == "HBM"
    assert key_for("list", "HBM") == key
    session[key] = "refused"
    assert given("list") == "refused"
    assert key_for("list", "HBM") != key  # it must show what holds


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
    given("list")
    assert (key_for("list", shown) == key) is same
