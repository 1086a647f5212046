"""Wrappers for private names of Typer: the group of commands, and the errors that it reports by itself.

Checked with Typer 0.29.2, which brings its own copy of Click or uses the installed one, depending on the version.
`tests/engine/test_compat.py` fails where one of the names has gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup as Group

__all__ = ["Group", "is_typers", "run_app"]


def is_typers(error: BaseException) -> bool:
    """Return whether Typer ends the command or reports its usage with an exception."""
    return type(error).__module__.split(".")[0] in ("typer", "click")


def run_app(app: typer.Typer, arguments: Sequence[str] | None, name: str) -> None:
    """Run a command under our name: Typer's own call takes the name from the interpreter.

    arguments: None for the arguments of the process.
    """
    _build_command(app)(args=arguments, prog_name=name)


@cache
def _build_command(app: typer.Typer) -> Any:
    """Return the command that Typer makes of an application, made once because it reads every function's signature."""
    return typer.main.get_command(app)
