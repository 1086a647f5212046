"""Clicks that a timer, a finished job or another click interrupts are answered by the next run of the page."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from streamlit.testing.v1 import AppTest

DASHBOARD = Path(__file__).parents[3] / "dashboard"
WIDGET = DASHBOARD / "widgets" / "clicks.py"


def interrupted_page() -> None:
    """Draw a button below a place where the test may end a run, as a timer does."""
    import streamlit as st

    from dashboard.widgets.clicks import forget_unanswered, was_clicked

    if st.session_state.pop("interrupt", False):
        st.rerun()
    if not st.session_state.get("hide", False) and was_clicked("Search", key="search"):
        st.session_state["searches"] = st.session_state.get("searches", 0) + 1
    forget_unanswered()


def searches(app: AppTest) -> int:
    return app.session_state.get("searches", 0)


def test_an_interrupted_click_is_answered_once() -> None:
    app = AppTest.from_function(interrupted_page).run()
    assert searches(app) == 0
    app.session_state["interrupt"] = True
    app.button("search").click().run()
    assert searches(app) == 1
    app.run()
    assert searches(app) == 1
    app.button("search").click().run()
    assert searches(app) == 2


def test_a_click_on_a_button_that_went_away_is_forgotten() -> None:
    app = AppTest.from_function(interrupted_page).run()
    app.session_state["interrupt"] = app.session_state["hide"] = True
    app.button("search").click().run()
    app.session_state["hide"] = False
    app.run()
    assert searches(app) == 0


def values_of_buttons(text: str) -> Iterator[int]:
    """Yield the lines in which code uses the return value of a button, which an interrupted run loses."""
    tree = ast.parse(text)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        name = node.func.attr if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else ""
        if name in {"button", "form_submit_button"} and id(node) not in statements:
            yield node.lineno


def test_no_page_uses_the_return_value_of_a_button() -> None:
    assert list(values_of_buttons("if place.button('Go'):\n    go()\nst.button('Go', on_click=go)")) == [1]
    lost = [
        f"{path.relative_to(DASHBOARD)}:{line}: use dashboard.widgets.clicks.was_clicked, or on_click"
        for path in sorted(DASHBOARD.rglob("*.py"))
        if path != WIDGET
        for line in values_of_buttons(path.read_text(encoding="utf-8"))
    ]
    assert not lost
