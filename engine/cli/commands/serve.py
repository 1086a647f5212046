"""The command `serve`: where the files of the dashboard are, and the server that runs them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Final

import typer

from engine.cli.output import write_line

__all__ = [
    "API_VARIABLE",
    "STORE_VARIABLE",
    "DashboardMissing",
    "application_folder",
    "serve_dashboard",
    "server_command",
]

STORE_VARIABLE: Final = "SHARDSCAPE_STORE"
"""Environment variable that names the dashboard's result store."""

API_VARIABLE: Final = "SHARDSCAPE_API"
"""Environment variable that switches the dashboard's JSON API on."""

ARENAS_VARIABLE: Final = "MALLOC_ARENA_MAX"
"""Environment variable of the GNU C library: heap arenas that the threads of a process share."""

ARENAS: Final = 2
"""Arenas of the server and of its workers. By default there are eight per core, and none returns free memory between
blocks in use. Every run of a page is a thread: after 300 scenarios 108 MiB were free but held, against 37 MiB with two
arenas. Threads seldom wait for an arena, because they wait for the interpreter's lock."""

WHEEL_FOLDER: Final = "shardscape"
"""Folder of an installed wheel with the files from the top of the source tree."""


class DashboardMissing(ValueError):  # noqa: N818 - reads as a sentence where it is raised
    """The files of the dashboard are not where this package is installed."""


def application_folder() -> Path:
    """The folder with `app.py`, `.streamlit/config.toml` and `static/`.

    In the source tree that is its top, in an installed wheel a folder of its own: other packages have an `app.py` and
    a `static` beside theirs, and everything in `static` is served.
    """
    root = Path(__file__).resolve().parents[3]
    for folder in (root / WHEEL_FOLDER, root):
        if (folder / "app.py").is_file() and (folder / ".streamlit" / "config.toml").is_file():
            return folder
    raise DashboardMissing(f"There is no dashboard beside {root}; install Shardscape again.")


def server_command(folder: Path, *, port: int | None, address: str | None, browser: bool) -> list[str]:
    """Return the command that serves the dashboard; absent options come from its `.streamlit/config.toml`."""
    # -P: a folder called dashboard where the command was typed is not ours.
    command = [sys.executable, "-P", "-m", "dashboard", "run", str(folder / "app.py")]
    if port is not None:
        command.append(f"--server.port={port}")
    if address is not None:
        command.append(f"--server.address={address}")
    # The server opens a browser once it answers; without a display there is none to open.
    if browser and (sys.platform != "linux" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        command += ["--server.headless=false", "--server.showEmailPrompt=false"]
    return command


def serve_dashboard(
    port: Annotated[
        int | None, typer.Option("--port", min=1, max=65535, help="Port; the first free one from 8501 by default.")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", help="Address to listen on; this machine only (127.0.0.1) by default."),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="FILE", readable=False, help="Result store (.duckdb), made if it is missing."),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser where there is a display.")] = True,
    api: Annotated[bool, typer.Option("--api", help="Answer questions as JSON below /api, too.")] = False,
) -> None:
    """Start the dashboard and open it in a browser.

    It has no accounts: anyone who reaches the address can use it. Put a proxy with authentication in front before
    giving an --address that others can reach.

    \b
    Examples:
      shardscape serve
      shardscape serve --port 8080 --store results.duckdb --no-browser
    """
    command = server_command(application_folder(), port=port, address=address, browser=browser)
    if store is not None:
        from engine.store import Store

        with Store(store) as opened:  # so that a store that cannot be used is told here and not on a page
            for sentence in opened.losses:
                write_line(sentence, stream=sys.stderr)
            os.environ[STORE_VARIABLE] = str(opened.path.resolve())
    if api:
        os.environ[API_VARIABLE] = "on"
    os.environ.setdefault(ARENAS_VARIABLE, str(ARENAS))
    sys.stdout.flush()
    # Ctrl-C waits until the new program can answer it, where the system can let it wait.
    mask = getattr(signal, "pthread_sigmask", lambda *_: None)
    mask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        os.execv(command[0], command)
    finally:  # there is no new program
        mask(signal.SIG_UNBLOCK, {signal.SIGINT})
