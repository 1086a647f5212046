"""The start page's other address leads to it with everything that it says."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from dashboard.link import page_links
from dashboard.pages import registry
from dashboard.shell import root_address


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


def test_it_is_the_page_at_the_root() -> None:
    assert registry.PAGES[0].name == page_links.START
