"""The command `mcp`: questions and answers for programs that speak the Model Context Protocol."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

__all__ = ["McpMissing", "serve_mcp"]


class McpMissing(ValueError):  # noqa: N818 - reads as a sentence where it is raised
    """The package that the server needs is not installed."""


def serve_mcp(
    largest_space: Annotated[
        int,
        typer.Option(
            "--largest-space",
            metavar="N",
            min=1,
            max=2_000_000_000,
            envvar="SHARDSCAPE_LARGEST_SPACE",
            help="Executions that a space may have.",
        ),
    ] = 500_000_000,
    longest_seconds: Annotated[
        int,
        typer.Option(
            "--longest-seconds",
            metavar="S",
            min=1,
            max=86_400,
            envvar="SHARDSCAPE_LONGEST_SECONDS",
            help="Time after which a question is given up [s].",
        ),
    ] = 600,
    memory: Annotated[
        float, typer.Option("--memory", metavar="GIB", min=0.5, max=65_536, help="Memory for answering [GiB].")
    ] = 8.0,
) -> None:
    """Answer questions of programs that speak the Model Context Protocol (MCP), over standard input and output.

    Such a program starts this command by itself: configure the command `shardscape` with the argument `mcp`. Tools list
    models, systems and columns, explore, find the best, evaluate, ask what if, plan, and export launch configurations.
    Questions name models and systems of the library or hold whole documents, never paths, with the same bounds as
    in the dashboard. Needs the extra: pip install 'shardscape[mcp]'.

    \b
    Examples:
      shardscape mcp
      shardscape mcp --longest-seconds 60 --memory 4
    """
    try:
        from engine.cli.mcp_server import serve_stdio
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] != "mcp":
            raise
        raise McpMissing(
            "shardscape mcp needs the package mcp; install it with: pip install 'shardscape[mcp]'."
        ) from None
    import asyncio
    import logging

    from engine.questions import Answerer, Bounds

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    bounds = Bounds(largest_space=largest_space, longest_seconds=float(longest_seconds), memory_gib=memory)
    asyncio.run(serve_stdio(Answerer(bounds)))
