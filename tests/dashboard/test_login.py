"""Login: who has to pass it and what stays behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.server import runner
from dashboard.text import literal

APP = Path(__file__).parent.parent.parent / "app.py"


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[AppTest]:
    monkeypatch.setenv("SHARDSCAPE_STORE", "off")
    runner.clear()
    yield AppTest.from_file(str(APP), default_timeout=60)
    runner.clear()


def test_nothing_shows_before_a_login(app: AppTest) -> None:
    app.user = {"is_logged_in": False}
    app.run()
    assert not app.exception
    assert [button.label for button in app.button] == ["Log in"]
    assert not app.html
    assert not app.get("plotly_chart")


@pytest.mark.parametrize("link", [False, True])
def test_who_came_by_a_link_is_told_to_open_it_again(app: AppTest, link: bool) -> None:
    """The way back from an identity provider leads to the start page."""
    app.user = {"is_logged_in": False}
    if link:
        app.query_params["model"] = "megatron-126M"
    app.run()
    assert ("open your link again" in app.info[0].value) is link


def test_who_is_logged_in_sees_the_pages_and_the_way_out(app: AppTest) -> None:
    app.user = {"is_logged_in": True, "email": "a_*b*@example.com"}
    app.query_params["model"] = "megatron-126M"
    app.query_params["procs"] = "8"
    app.run()
    assert not app.exception
    assert "Log out" in [button.label for button in app.button]
    assert [caption.value for caption in app.caption if "Logged in" in caption.value] == [
        f"Logged in as {literal('a_*b*@example.com')}"
    ]


def test_without_accounts_nobody_is_asked(app: AppTest) -> None:
    app.user = {}
    app.query_params["model"] = "megatron-126M"
    app.query_params["procs"] = "8"
    app.run()
    assert not app.exception
    assert not {"Log in", "Log out"} & {button.label for button in app.button}
    assert app.html
