"""What leans on the inside of Typer: the group of commands, and which errors it tells about by itself.

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
    """Returns whether an exception is one with which Typer ends the command or tells how it is used."""
    return type(error).__module__.split(".")[0] in ("typer", "click")


def run_app(app: typer.Typer, arguments: Sequence[str] | None, name: str) -> None:
    """Runs a command by a name of ours: Typer's own way of being called takes the name from the interpreter's.

    arguments: None for those of the process.
    """
    _build_command(app)(args=arguments, prog_name=name)


@cache
def _build_command(app: typer.Typer) -> Any:
    """Return the command that Typer makes of an application, once: it reads the signature of every function anew."""
    return typer.main.get_command(app)
