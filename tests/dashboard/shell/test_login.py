"""Login: who has to pass it and what stays behind it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dashboard.jobs.server import server
from dashboard.words.markdown import literal
from tests.dashboard.page_runs import plots

APP = Path(__file__).parent.parent.parent.parent / "app.py"


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Iterator[AppTest]:
    monkeypatch.setenv("SHARDSCAPE_STORE", "off")
    server.clear()
    yield AppTest.from_file(str(APP), default_timeout=60)
    server.clear()


def test_nothing_shows_before_a_login(app: AppTest) -> None:
    app.user = {"is_logged_in": False}
    app.run()
    assert not app.exception
    assert [button.label for button in app.button] == ["Log in"]
    assert [str(element.value).partition(">")[0] for element in app.html] == ["<script"]
    assert not plots(app)


@pytest.mark.parametrize("logged_in", [False, True])
def test_nothing_that_a_link_says_gets_into_a_script(app: AppTest, logged_in: bool) -> None:
    """What remembers the address is the same whatever the address is."""
    app.user = {"is_logged_in": logged_in, "email": "</script>"}
    app.query_params["model"] = "</script><script>alert(1)//"
    app.query_params["procs"] = "8"
    app.run()
    assert not app.exception
    scripts = [str(element.value) for element in app.html if "<script" in str(element.value)]
    assert scripts
    for script in scripts:
        assert script.count("</script>") == 1
        assert "alert" not in script


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
    assert not any("shardscape-address" in str(element.value) for element in app.html)
