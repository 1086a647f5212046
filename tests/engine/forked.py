"""Processes of their own for tests: forked from a server that has imported the engine once for all of them.

One that Python starts anew takes about a second to import what it is asked about.
"""

import contextlib
import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

__all__ = ["FORKS", "ended", "finish", "start"]

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", "engine.store", "tests.engine.store_rows"])


def start(work: Callable[..., object], *arguments: object) -> tuple[ForkServerProcess, Connection]:
    """Run `work` in a process of its own; return the process and the end of a pipe for what both say.

    `work` gets the other end as its first argument.
    """
    ear, mouth = FORKS.Pipe()
    process = FORKS.Process(target=work, args=(mouth, *arguments))
    process.start()
    mouth.close()
    return process, ear


def finish(process: ForkServerProcess, ear: Connection) -> list[Any]:
    """Wait for a process and return all that it has said and nobody has heard yet."""
    heard = []
    with contextlib.suppress(EOFError, ConnectionResetError):
        while ear.poll(30):
            heard.append(ear.recv())
    process.join(30)
    ear.close()
    return heard


def ended(work: Callable[..., object], *arguments: object) -> int | None:
    """Run `work` in a process of its own to its end; return the exit code, below zero for a signal."""
    process, ear = start(work, *arguments)
    finish(process, ear)
    return process.exitcode
