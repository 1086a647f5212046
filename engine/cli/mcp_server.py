"""The MCP server: every verb of `engine.questions` as a tool, for programs that speak the Model Context Protocol.

Needs the package `mcp`, the protocol's official SDK. Tools have the schemas of the verbs; a question that cannot be
answered is a result marked as an error, with one sentence, so that who asked can ask better.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

from engine.exploration.run import ExplorationCancelled
from engine.questions import VERBS, Answerer, QuestionError
from engine.questions.process import Failed

__all__ = ["serve_stdio", "server_of"]

LOG: Final = logging.getLogger("shardscape.mcp")
MOST_CALLS: Final = 32
"""Calls that wait for their answer at once: each keeps its question in memory."""

INSTRUCTIONS: Final = (
    "Shardscape finds the best way to run a large language model on a cluster of GPUs: it evaluates every execution "
    "(parallelism degrees, microbatch, recomputation, overlap, offloading) of a model on a system. list_models and "
    "list_systems have the names. A scenario is model, system, num_procs, max_batch_size and datatype: best gives its "
    "fastest execution, proven; explore says how many run and why others do not; what_if changes the hardware. Rows "
    "are executions with fields and statistics by name, times in seconds and sizes in bytes; list_columns explains "
    "each. Figures are predictions: step_time_interval says how far off measured runs were, not_measured what no run "
    "backs. export_launch turns a row into the configuration of a training framework."
)
"""Description of the server for its clients."""


def server_of(answerer: Answerer) -> Server[Any]:
    """Returns a server that has its questions answered. answerer: by which."""
    calls = 0

    async def tools(context: ServerRequestContext[Any], params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_build_tool(name) for name in VERBS])

    async def call(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        nonlocal calls
        if calls >= MOST_CALLS:
            return _error_result(f"{calls} calls wait for their answer already; call again when one is answered.")
        calls += 1
        try:
            return await _call_verb(answerer, context, params.name, params.arguments or {})
        finally:
            calls -= 1

    return Server(
        "shardscape",
        version=_package_version(),
        title="Shardscape",
        instructions=INSTRUCTIONS,
        on_list_tools=tools,
        on_call_tool=call,
    )


async def serve_stdio(answerer: Answerer) -> None:
    """Serve the client at standard input and output until the connection ends. answerer: answers the questions."""
    server = server_of(answerer)
    threading.Thread(target=_start_answerer, args=(answerer,), daemon=True).start()
    try:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        answerer.close()


def _start_answerer(answerer: Answerer) -> None:
    with suppress(OSError, ExplorationCancelled):
        answerer.start()


def _build_tool(name: str) -> Tool:
    verb = VERBS[name]
    return Tool(
        name=name,
        title=verb.title,
        description=verb.about,
        input_schema=verb.question_schema(),
        output_schema=verb.answer_schema(),
        annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )


async def _call_verb(
    answerer: Answerer, context: ServerRequestContext[Any], name: str, question: dict[str, Any]
) -> CallToolResult:
    """Return the answer to a call, or the sentence of its error. A cancelled call ends its search."""
    loop, gone = asyncio.get_running_loop(), threading.Event()

    def tell(share: float, doing: str) -> None:
        # Told in the thread that waits; what nobody takes any more is no fault.
        with suppress(RuntimeError):
            asyncio.run_coroutine_threadsafe(context.session.report_progress(share, 1.0, doing), loop)

    try:
        found = await asyncio.to_thread(answerer.answer, name, question, tell=tell, stops=gone.is_set)
    except QuestionError as problem:
        return _error_result(str(problem))
    except ExplorationCancelled:
        return _error_result("The question was taken back.")
    except (Failed, OSError) as fault:
        LOG.error("%s failed: %s", name, fault)
        return _error_result("The question failed for a reason of Shardscape's own; the log of the server has it.")
    finally:
        gone.set()
    text = json.dumps(found, allow_nan=False, ensure_ascii=False)
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=found)


def _error_result(sentence: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=sentence)], is_error=True)


def _package_version() -> str:
    try:
        return version("shardscape")
    except PackageNotFoundError:
        return "0"
