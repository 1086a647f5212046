"""Wrappers for private names of Typer: groups of commands, and the errors that it reports by itself.

Checked with Typer 0.29.2, which brings its own copy of Click or uses the installed one, depending on the version.
`tests/engine/test_compat.py` fails where one of the names has gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import typer
from typer.core import TyperGroup as Group

__all__ = ["Group", "LazyGroup", "is_typers", "run_app", "unloaded_command"]


def unloaded_command() -> None:
    """Stand for a command of a `LazyGroup` that is not loaded yet."""


class LazyGroup(Group):
    """Group whose commands are loaded when they are asked for; its list of them needs none.

    Each is registered as `unloaded_command` with its line of help.
    """

    def load_command(self, name: str) -> Any:
        """Return the function of a command, or the application of a group of commands."""
        raise NotImplementedError

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, loaded; None if there is no such command."""
        return _make_command(self, cmd_name) if cmd_name in self.commands else None

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands."""
        Group(commands=dict(self.commands)).format_commands(ctx, formatter)


@cache
def _make_command(group: LazyGroup, name: str) -> Any:
    """Return a command as Typer makes it of what the group loads."""
    found = group.load_command(name)
    app = typer.Typer(add_completion=False, rich_markup_mode=group.rich_markup_mode)
    app.callback()(unloaded_command)  # without it, the application of a single command would be that command
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name)
    else:
        app.command(name)(found)
    made: Any = typer.main.get_command(app)
    return made.commands[name]


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
