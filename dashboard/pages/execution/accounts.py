"""What the cost model of a scenario tells of an execution, asked once for all cards of the page."""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

from engine import Scenario
from engine.cost_models.account import Account
from engine.cost_models.registry import cost_model_of

__all__ = ["ROW_AS_TEXT", "account_of"]

ROW_AS_TEXT: Final[dict[Any, Any]] = {dict: repr}
"""How to tell the rows of executions apart: Streamlit does one of 123 figures in 4.5 ms, and its text in 0.14 ms."""


def account_of(scenario: Scenario, row: dict[str, Any]) -> Account:
    """Returns the account of an execution with figures."""
    return _account(scenario, scenario.key, row)


@st.cache_resource(show_spinner=False, max_entries=64, hash_funcs=ROW_AS_TEXT)
def _account(_scenario: Scenario, key: str, row: dict[str, Any]) -> Account:
    return cost_model_of(_scenario).account(_scenario.model, _scenario.system, row, _scenario.calibration)
