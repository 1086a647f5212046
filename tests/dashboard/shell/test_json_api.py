"""The JSON API: Python's answers, refusals in a sentence, and nobody else's pages.

That a server has none unless asked for, and ends in the midst of a question, is with the tests of whole servers:
`tests.engine.cli.test_interrupts` and `test_nothing_sent`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from jsonschema import Draft202012Validator
from starlette.applications import Starlette
from starlette.testclient import TestClient

import engine
from dashboard.settings import Settings, settings_from
from dashboard.shell.json_api import JsonApi, description, routes
from engine.questions import VERBS

DENSE = {"model": "gpt3-13B", "system": "h100_80g_nvl8", "num_procs": 8, "max_batch_size": 8, "datatype": "float16"}
OWN = "http://127.0.0.1:8501"


@pytest.fixture(scope="module")
def api() -> Iterator[JsonApi]:
    made = JsonApi(Settings(store=None, largest_space=1_000_000))
    yield made
    made.answerer.close()


@pytest.fixture(scope="module")
def client(api: JsonApi) -> Iterator[TestClient]:
    with TestClient(Starlette(routes=routes(api)), base_url=OWN) as made:
        yield made


def test_a_question_is_answered_as_python_answers(client: TestClient) -> None:
    found = client.post("/api/best", json={"scenario": DENSE})
    assert found.status_code == 200
    assert found.headers["cache-control"] == "no-store"
    expected = engine.best("gpt3-13B", "h100_80g_nvl8", num_procs=8, max_batch_size=8, datatype="float16")
    assert found.json()["top"][0]["id"] == expected["id"]
    assert found.json()["top"][0]["sample_rate"] == expected["sample_rate"]
    below = client.post("/tools/api/list_systems", json={"search": "nvl8"})  # where a proxy adds a path
    assert "h100_80g_nvl8" in [row["name"] for row in below.json()["systems"]]
    assert [each["name"] for each in client.get("/api").json()["verbs"]] == list(VERBS)


def test_what_is_described_is_what_is_answered(client: TestClient) -> None:
    told = client.get("/api/openapi.json").json()
    assert told == json.loads(json.dumps(description()))
    assert [path.rpartition("/")[2] for path in told["paths"]] == list(VERBS)
    answered = client.post("/api/list_columns", json={"names": ["sample_rate"]}).json()
    operation = told["paths"]["/api/list_columns"]["post"]
    content = operation["responses"]["200"]["content"]["application/json"]["schema"]
    Draft202012Validator({**content, "components": told["components"]}).validate(answered)


@pytest.mark.parametrize(
    ("path", "content", "headers", "status", "sentence"),
    [
        ("best", b"{", {}, 400, "The question is not valid JSON: "),
        ("best", b'{"a": NaN}', {}, 400, "The question: NaN is not a number that JSON allows; "),
        ("best", b"[" * 100_000, {}, 400, "The question is nested too deeply"),
        ("best", b"3", {}, 400, "The question is 3; it must be a JSON object."),
        ("best", b"{}", {}, 400, "The question: key 'scenario' is missing; "),
        ("best", b" " * 1_000_001, {}, 413, "The question has more than 1,000,000 bytes"),
        ("guess", b"{}", {}, 404, "There is no verb 'guess'; there are list_models, "),
        ("list_models", b"{}", {"content-type": "text/plain"}, 415, "A question is sent with Content-Type"),
        ("list_models", b"{}", {"host": "rebound.example"}, 403, "Use an IP address or a name in server"),
        ("list_models", b"{}", {"sec-fetch-site": "cross-site"}, 403, "The API does not answer pages of other sites."),
    ],
)
def test_a_refusal_is_a_sentence(
    client: TestClient, path: str, content: bytes, headers: dict[str, str], status: int, sentence: str
) -> None:
    found = client.post(f"/api/{path}", content=content, headers={"content-type": "application/json", **headers})
    assert found.status_code == status
    assert found.json()["error"].startswith(sentence)
    assert found.json()["error"].endswith(".")


def test_a_space_is_no_larger_than_the_pages_explore(client: TestClient) -> None:
    found = client.post(
        "/api/explore", json={"scenario": {**DENSE, "model": "gpt3-175B", "num_procs": 512, "max_batch_size": 512}}
    )
    assert found.status_code == 400
    assert found.json()["error"].startswith("The space has 6,582,816 executions; up to 1,000,000 are searched here.")


def test_names_of_the_server_are_those_that_it_was_told(client: TestClient) -> None:
    def status(host: str, allowed: list[str]) -> int:
        options: dict[str, Any] = {"server.allowedHosts": allowed, "server.address": "127.0.0.1"}
        with patch("streamlit.get_option", options.__getitem__):
            return client.get("/api", headers={"host": host}).status_code

    assert [status(host, []) for host in ("localhost:1", "[::1]:1", "10.0.0.7", "ours.example")] == [200, 200, 200, 403]
    listed = ["ours.example", "*.cluster.example"]
    assert [status(host, listed) for host in ("ours.example", "a.cluster.example", "10.0.0.7")] == [200, 200, 403]


def test_a_token_is_wanted_where_one_is_set_and_where_visitors_are_known() -> None:
    guarded = JsonApi(Settings(store=None, api_token="secret"))
    with TestClient(Starlette(routes=routes(guarded)), base_url="http://anything.example") as client:
        for header in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic abc"}):
            found = client.get("/api", headers=header)
            assert found.status_code == 401
            assert found.headers["www-authenticate"] == "Bearer"
        assert client.get("/api", headers={"authorization": "Bearer secret"}).status_code == 200
    opened = JsonApi(Settings(store=None))
    with (
        patch("streamlit.secrets", {"auth": {}}),
        TestClient(Starlette(routes=routes(opened)), base_url=OWN) as client,
    ):
        assert client.get("/api").json()["error"].startswith("This server asks for a login; the API needs a token")


def test_it_is_off_unless_asked_for() -> None:
    assert not settings_from({"SHARDSCAPE_STORE": "off"}).api
    assert settings_from({"SHARDSCAPE_API": "ON", "SHARDSCAPE_API_TOKEN": " t "}).api_token == "t"
    odd = settings_from({"SHARDSCAPE_API": "yes"})
    assert not odd.api
    assert odd.problems == ("SHARDSCAPE_API is 'yes'; it must be on or off. Using off.",)
