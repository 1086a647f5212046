"""Logging in, in a real browser with an identity provider of its own: who came by a link gets what it shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from random import Random
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, expect

import hardware
from dashboard.link import scenario_parameters
from engine import Scenario
from tests.browser.conftest import SMALL, new_context, serving, settled
from tests.browser.identity import CLIENT, EMAIL, provider

SHOWN = EMAIL.replace("@", "@\u2060")
"""The address with a mark that nobody sees, so that no link is made of it."""

pytest.importorskip("authlib", reason="Streamlit logs nobody in without Authlib: pip install 'streamlit[auth]'")

LIMITED = f"{SMALL}&limits=pipeline_par:1;tensor_par:2"
KEPT = "shardscape-address"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that asks for a login."""
    folder = tmp_path_factory.mktemp("guarded")
    secrets = folder / "secrets.toml"
    with provider() as identity:
        content = {
            "redirect_uri": "http://127.0.0.1:{port}/oauth2callback",
            "cookie_secret": "s" * 40,
            "client_id": CLIENT,
            "client_secret": "none",
            "server_metadata_url": f"{identity}/.well-known/openid-configuration",
        }
        secrets.write_text("[auth]\n" + "".join(f'{name} = "{value}"\n' for name, value in content.items()))
        with serving(folder, "--secrets.files", str(secrets), apart=False) as address:
            yield address


@pytest.fixture(scope="module")
def people(browser: Browser, guarded: str) -> BrowserContext:
    """A context in which a page stays open, so that the application's scripts stay read."""
    context = new_context(browser)
    context.new_page().goto(guarded)
    return context


@pytest.fixture
def visitor(people: BrowserContext) -> Iterator[Page]:
    """A page of somebody who has not logged in."""
    people.clear_cookies()
    page = people.new_page()
    yield page
    page.close()


def ask(page: Page, address: str) -> None:
    """Opens an address and presses Log in, which leads to the provider."""
    page.goto(address)
    settled(page)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#yes")).to_be_visible()


def arrive(page: Page) -> str:
    """Signs in with the provider; the address that the way ends at, below the server's."""
    page.locator("#yes").click()
    expect(page.get_by_text(f"Logged in as {SHOWN}")).to_be_visible()
    settled(page)
    page.wait_for_timeout(500)  # a script that had yet to run would have
    expect(page.get_by_text(f"Logged in as {SHOWN}")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
    parts = urlsplit(page.url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def log_out(page: Page) -> None:
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()
    settled(page)


def asked_of(address: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(address).query))


def test_a_link_survives_a_refusal_and_the_login_and_is_gone_to_once(visitor: Page, guarded: str) -> None:
    ask(visitor, f"{guarded}/results?{LIMITED}")
    visitor.locator("#no").click()
    expect(visitor.get_by_role("button", name="Log in")).to_be_visible()
    settled(visitor)
    visitor.get_by_role("button", name="Log in").click()
    found = arrive(visitor)
    assert urlsplit(found).path == "/results"
    assert asked_of(found) == asked_of(f"?{LIMITED}")
    expect(visitor.locator(".st-key-sentence")).to_contain_text("GPT-3 13B")
    log_out(visitor)  # ... and is not gone to again
    assert urlsplit(visitor.url).path == "/"
    visitor.get_by_role("button", name="Log in").click()
    assert arrive(visitor) == "/"


def test_the_last_link_survives_the_login_with_7000_characters(visitor: Page, guarded: str) -> None:
    """After a login for another link that was given up; with systems of one's own that no library shortens."""
    letters = Random(7)
    parameters = dict(parse_qsl(LIMITED))
    for slot in "bcd":
        name = "".join(letters.choice("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(200))
        notes = tuple("".join(letters.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(180)) for _ in range(14))
        system = hardware.load("h100_80g_nvl8").model_copy(update={"name": name, "notes": notes})
        own = Scenario.of(
            "gpt3-13B",
            system,
            num_procs=16,
            max_batch_size=32,
            datatype="float16",
            limits={"tensor_par": 2, "pipeline_par": 1},
        )
        parameters[f"compare_{slot}"] = urlencode(scenario_parameters.parameters_of(own))
    address = f"{guarded}/compare?{urlencode(parameters)}"
    assert 7_000 < len(address) < 10_000
    ask(visitor, f"{guarded}/results?{LIMITED}")
    ask(visitor, address)
    found = arrive(visitor)
    assert urlsplit(found).path == "/compare"
    assert asked_of(found) == parameters
    expect(visitor.locator(".ss-tile").filter(has_text="D · throughput")).to_be_visible()


REMEMBERED = (
    ("//evil.example/", 0),
    ("/\\evil.example/", 0),
    ("/\t/evil.example/", 0),
    ("https://evil.example/", 0),
    ("javascript:alert(1)", 0),
    ("results", 0),
    ({}, 0),
    ("/results", 16),
    ("/results", None),
)
"""Addresses that are not gone to, and how many minutes ago they were remembered."""
RETURN = """([name, kept]) => {
  sessionStorage.setItem(name, kept);
  (0, eval)(document.querySelector('.st-key-returning script').textContent);
  return sessionStorage.length;
}"""
"""Does once more what the page did when it was opened."""


def test_a_login_that_was_given_up_leads_nowhere_later_and_only_a_fresh_address_is_gone_to(
    visitor: Page, guarded: str
) -> None:
    """Who asked for nothing gets the start page, whatever is remembered there."""
    ask(visitor, f"{guarded}/results?{LIMITED}")
    ask(visitor, guarded)  # the start page after all, typed
    assert arrive(visitor) == "/"
    gone: list[str] = []

    def asked(request: Request) -> None:
        if request.is_navigation_request():
            gone.append(request.url)

    visitor.on("request", asked)
    visitor.on("dialog", lambda dialog: gone.append(dialog.message))
    for address, minutes in (*REMEMBERED, (f"/results?{LIMITED}", 14)):
        at = None if minutes is None else (time.time() - 60 * minutes) * 1000
        assert visitor.evaluate(RETURN, [KEPT, json.dumps({"address": address, "at": at})]) == 0
        visitor.wait_for_timeout(20)  # an address that is gone to is asked for at once
        assert bool(gone) == (minutes == 14), address
    visitor.wait_for_url("**/results?**")
    assert gone == [f"{guarded}/results?{LIMITED}"]
