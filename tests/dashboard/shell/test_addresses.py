"""Addresses beside those of the pages: another of the start page, spellings that are close, and those that are none."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

from dashboard.link import page_links
from dashboard.pages import registry
from dashboard.shell import frame, root_address, unknown_address
from engine import Scenario


def answer(path: str, query: str = "", base: str = "") -> Response | None:
    """What the server answers below a path; None where it leaves that to Streamlit."""
    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": query.encode(),
        "headers": [],
        "server": ("127.0.0.1", 80),
        "scheme": "http",
        "root_path": "",
    }
    with patch("streamlit.get_option", return_value=base):
        found = root_address.routes()
    for route in found:
        if route.matches(scope)[0] is Match.FULL:
            response = route.endpoint(Request(scope))
            assert isinstance(response, Response)
            return response
    return None


@pytest.mark.parametrize(
    ("path", "query", "base", "there"),
    [
        ("/explore", "", "", "./"),
        ("/explore", "model=gpt3-13B&limits=tensor_par:1,2%3B", "", "./?model=gpt3-13B&limits=tensor_par:1,2%3B"),
        ("/explore/", "procs=8", "", "../?procs=8"),
        ("/tools/explore", "procs=8", "/tools/", "./?procs=8"),
        ("/a/b/explore/", "", "a/b", "../"),
        ("/explore", "//evil.example", "", "./?//evil.example"),
    ],
)
def test_the_start_page_written_out_leads_to_the_root(path: str, query: str, base: str, there: str) -> None:
    found = answer(path, query, base)
    assert found is not None
    assert found.status_code == 307
    assert found.headers["location"] == there


@pytest.mark.parametrize(("path", "base"), [("/", ""), ("/Explore", ""), ("/pareto", ""), ("/explore", "tools")])
def test_every_other_address_is_left_to_streamlit(path: str, base: str) -> None:
    assert answer(path, base=base) is None


def unknown(path: str, query: str = "", base: str = "") -> Response | None:
    """What is answered instead of the front end; None for a page."""
    with patch("streamlit.get_option", return_value=base):
        return unknown_address.answer_unknown(path, query)


def test_every_page_is_known() -> None:
    for each in registry.PAGES:
        assert unknown(f"/{each.name}") is None
        assert unknown(f"/tools/{each.name}/", base="tools") is None
    assert unknown("/") is None
    assert unknown("", base="/") is None


@pytest.mark.parametrize(
    ("path", "query", "base", "there"),
    [
        ("/intra-operator", "procs=8", "", "./intra_operator?procs=8"),
        ("/Pareto", "", "", "./pareto"),
        ("/a/b/WhatIf", "", "a/b", "./whatif"),
    ],
)
def test_a_close_spelling_leads_to_the_page(path: str, query: str, base: str, there: str) -> None:
    found = unknown(path, query, base)
    assert found is not None
    assert (found.status_code, found.headers["location"]) == (307, there)


@pytest.mark.parametrize(
    ("path", "base", "above"), [("/nonsense", "", "./"), ("/a/<b>", "", "../"), ("/tools/plan_run/x", "tools", "../")]
)
def test_an_unknown_address_says_so_and_links_to_every_page(path: str, base: str, above: str) -> None:
    found = unknown(path, "model=gpt3-13B&procs=16", base)
    assert found is not None
    assert found.status_code == 404
    text = bytes(found.body).decode()
    assert "There is no page /" in text
    assert "<b>" not in text
    first, *others = registry.PAGES
    assert f'<a href="{above}?model=gpt3-13B&amp;procs=16">{first.title}</a>' in text
    for each in others:
        assert f'<a href="{above}{each.name}?model=gpt3-13B&amp;procs=16">{each.title}</a>' in text


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/nonsense", {"content-type": "text/html"}, 404),
        ("/pareto", {"content-type": "text/html"}, 200),
        ("/report", {"content-type": "text/html", "content-disposition": "attachment"}, 200),
        ("/static/js/index.js", {"content-type": "text/javascript"}, 200),
    ],
)
def test_only_the_front_end_is_replaced(path: str, headers: dict[str, str], status: int) -> None:
    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        await Response("the answer", headers=headers)(scope, receive, send)

    answered = TestClient(unknown_address.NamedPages(served)).get(path)
    assert answered.status_code == status
    assert ("the answer" in answered.text) == (status == 200)


def test_every_page_has_a_title_of_its_own() -> None:
    titles = [
        frame.tab_title(each, Scenario.of("gpt3-13B", "a100_80g", num_procs=8, max_batch_size=8, datatype="float16"))
        for each in registry.PAGES
    ]
    assert len(set(titles)) == len(titles)
    assert all(title.endswith(" · Shardscape") for title in titles)
    assert all(
        ("GPT-3 13B on 8 ×" in title) == each.about_scenario for title, each in zip(titles, registry.PAGES, strict=True)
    )


def test_it_is_the_page_at_the_root() -> None:
    assert registry.PAGES[0].name == page_links.START
