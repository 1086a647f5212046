"""Jobs that end after a page missed their result and before it looks at them again."""

from __future__ import annotations

import json
from pathlib import Path

import streamlit as st
from streamlit.testing.v1 import AppTest

from dashboard.jobs.codesign_studies import CodesignJob
from dashboard.jobs.job import Job, JobKind
from dashboard.jobs.server import server
from dashboard.pages import registry
from dashboard.widgets.job_card import found_soon
from tests.dashboard.page_runs import html
from tests.dashboard.pages.test_codesign import SMALL
from tests.dashboard.server import own_server

KIND = JobKind(name="sum", doing="Adding")


class Sum(Job):
    """Two and two, added after the first look has given up."""

    answer = ""
    is_missed = False

    def work(self) -> bool:
        """Add them."""
        self.answer = "four"
        return False

    def wait(self, seconds: float | None = None) -> bool:
        """Return False at the first look, and be done all the same."""
        was_missed, self.is_missed = self.is_missed, True
        return super().wait(60) and was_missed


def draw_sum() -> None:
    """Draw a page that asks for a sum."""
    job = server().board.post(Sum(KIND, "2 + 2"), "session")
    st.write(found_soon(job, Sum, "session", lambda one: one.answer) or "nothing yet")


def draw_codesign() -> None:
    """Draw the page of a study whose search begins and ends after the page has read the points."""
    page = registry.page("codesign").view()
    view = page.parse()
    if view.found is None:
        search = CodesignJob(server().codesign_studies, view.study, view.folder, "all of it")
        assert server().board.post(search, "session").wait(120)
    page.render(view)


def test_an_answer_that_comes_between_two_looks_is_shown(tmp_path: Path) -> None:
    with own_server(tmp_path):
        app = AppTest.from_string(f"from {__name__} import draw_sum\ndraw_sum()").run()
        assert not app.exception
        assert [each.value for each in app.markdown] == ["four"]


def test_points_that_come_between_two_looks_are_shown(tmp_path: Path) -> None:
    with own_server(tmp_path):
        app = AppTest.from_string(f"from {__name__} import draw_codesign\ndraw_codesign()", default_timeout=60)
        app.session_state["_url"] = {"codesign_study": "own"}
        app.session_state["_codesign_own"] = json.dumps(SMALL)
        app.run()
        assert not app.exception
        assert "6 of 6" in html(app)
