"""The MCP server as the SDK's own client meets it: in memory, and as a process at the other end of pipes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mcp import Client, StdioServerParameters
from mcp.types import CallToolResult

import engine
from engine.cli.mcp_server import MOST_CALLS, server_of
from engine.questions import VERBS, Answerer, Bounds

DENSE = {"model": "gpt3-13B", "system": "h100_80g_nvl8", "num_procs": 8, "max_batch_size": 8, "datatype": "float16"}
LONG = {
    **DENSE,
    "model": "deepseek-v3",
    "system": "h100_80g_sxm",
    "num_procs": 16_384,
    "max_batch_size": 16_384,
    "datatype": "bfloat16",
    "limits": {"context_par": [1, 2, 4, 8], "expert_tensor_par": [1, 2, 4]},
}
TOO_LARGE = {**LONG, "num_procs": 32_768, "max_batch_size": 32_768}


@pytest.fixture(scope="module")
def answerer() -> Iterator[Answerer]:
    made = Answerer(Bounds(largest_space=54_000_000))
    yield made
    made.close()


def asking(answerer: Answerer, ask: Callable[[Client], Coroutine[Any, Any, Any]], mode: str = "auto") -> Any:
    """What a client in this process finds out. In a thread: a browser of other tests may keep a loop running."""

    async def met() -> Any:
        async with Client(server_of(answerer), mode=mode) as client:
            return await ask(client)

    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, met()).result()


def told(result: CallToolResult) -> str:
    """The text of a result."""
    (content,) = result.content
    assert content.type == "text"
    return content.text


def test_every_verb_is_a_tool_with_schemas(answerer: Answerer) -> None:
    found = asking(answerer, lambda client: client.list_tools())
    assert [tool.name for tool in found.tools] == list(VERBS)
    for tool in found.tools:
        assert tool.title
        assert tool.description
        assert tool.annotations.read_only_hint
        Draft202012Validator.check_schema(tool.input_schema)
        Draft202012Validator.check_schema(tool.output_schema)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_tool_answers_what_python_answers(answerer: Answerer, mode: str) -> None:
    heard: list[float] = []

    async def ask(client: Client) -> CallToolResult:
        async def hear(share: float, total: float | None, message: str | None) -> None:
            heard.append(share)

        return await client.call_tool("best", {"scenario": DENSE, "top": 2}, progress_callback=hear)

    found = asking(answerer, ask, mode)
    expected = engine.best("gpt3-13B", "h100_80g_nvl8", num_procs=8, max_batch_size=8, datatype="float16", k=2)
    assert not found.is_error
    assert json.loads(told(found)) == found.structured_content
    assert found.structured_content["total"] == expected.total == 217_056
    assert [row["id"] for row in found.structured_content["top"]] == expected.top["id"].tolist()
    assert found.structured_content["top"][0]["sample_rate"] == expected["sample_rate"]
    assert all(0 <= share <= 1 for share in heard)


def test_calls_that_wait_are_bounded(answerer: Answerer) -> None:
    async def ask(client: Client) -> list[CallToolResult]:
        calls = (client.call_tool("best", {"scenario": DENSE}) for _ in range(MOST_CALLS + 3))
        return list(await asyncio.gather(*calls))

    refused = [told(result) for result in asking(answerer, ask) if result.is_error]
    assert refused == [f"{MOST_CALLS} calls wait for their answer already; call again when one is answered."] * 3


def test_what_cannot_be_answered_is_one_sentence(answerer: Answerer) -> None:
    questions = [
        ("best", {"scenario": {**DENSE, "model": "llama"}}, "There is no model named 'llama' in the library of"),
        ("best", {"scenario": {**DENSE, "model": "/etc/passwd"}}, "the scenario, model is '/etc/passwd', a path; it"),
        ("explore", {"scenario": TOO_LARGE}, "The space has 54,176,024 executions; up to 54,000,000 are searched here"),
        ("what_if", {"scenario": DENSE, "changes": {"warp": 9}}, "Nothing called 'warp' can be changed here"),
        ("guess", {}, "There is no verb 'guess'."),
        ("list_models", {"search": "x" * 2_000_000}, "The question has 2,000,0"),
    ]

    async def ask(client: Client) -> list[CallToolResult]:
        return [await client.call_tool(name, question) for name, question, _ in questions]

    for result, (_, _, expected) in zip(asking(answerer, ask), questions, strict=True):
        assert result.is_error
        sentence = told(result)
        assert sentence.startswith(expected)
        assert sentence.endswith(".")
        assert "\n" not in sentence
        assert "Traceback" not in sentence
        assert ".json" not in sentence


def test_who_takes_a_call_back_ends_its_search(answerer: Answerer) -> None:
    async def ask(client: Client) -> tuple[int, ...]:
        await client.call_tool("list_models", {})
        searching = answerer.pids
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.call_tool("sensitivity", {"scenario": LONG}), 0.3)
        assert (await client.call_tool("list_models", {"search": "gpt3-13B"})).structured_content["models"]
        return searching

    before = asking(answerer, ask)
    assert len(before) == len(answerer.pids) == 1
    assert before != answerer.pids, "the process of the search was ended, and another one answered"


def test_a_process_speaks_over_standard_input_and_output() -> None:
    there = StdioServerParameters(command=sys.executable, args=["-m", "engine.cli.main", "mcp"])

    async def ask() -> tuple[Any, CallToolResult]:
        async with Client(there) as client:
            found = await client.call_tool("list_systems", {"search": "H100 80 GB SXM"})
            return client.instructions, found

    with ThreadPoolExecutor(1) as threads:
        said, found = threads.submit(asyncio.run, ask()).result()
    assert said.startswith("Shardscape finds")
    assert "h100_80g_sxm" in [row["name"] for row in found.structured_content["systems"]]


def test_without_the_package_a_sentence_says_what_to_install(
    shardscape: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith("mcp.") or name == "engine.cli.mcp_server"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    code, _, told = shardscape("mcp")
    assert code == 2
    assert told == "shardscape mcp needs the package mcp; install it with: pip install 'shardscape[mcp]'.\n"
