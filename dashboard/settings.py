"""Settings of the server from environment variables, read once and checked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["STATIC", "Settings", "settings_from"]

_ROOT: Final = Path(__file__).resolve().parents[1]
STATIC: Final = next(
    (folder for folder in (_ROOT / "shardscape" / "static", _ROOT / "static") if folder.is_dir()), _ROOT / "static"
)
"""Folder of the font, the logos and the charting library: in an installed wheel a folder of its own."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the dashboard: explorations, store, API."""

    store: Path | None
    """File of the result store; None where no folder can be written, or where it is switched off."""
    largest_space: int = 500_000_000
    """Executions of a space that are explored on request."""
    longest_seconds: float = 600.0
    """Time after which an exploration is stopped [s]."""
    patience: float = 1.0
    """Time that a page waits for a result before it shows progress [s]."""
    queue: int = 64
    """Explorations that may wait."""
    kept: int = 12
    """Explorations that stay open."""
    process: bool = False
    """True to run long jobs in separate processes, which keeps pages quick (`dashboard.jobs.worker`)."""
    ahead: bool = False
    """True to explore the scenario of a first visit when the server starts."""
    api: bool = False
    """True to serve the JSON API (`dashboard.shell.json_api`)."""
    api_token: str = ""
    """Token that requests of the API must carry; empty for none."""
    metrics: bool = False
    """True if the server serves Streamlit's metrics: sessions, caches, memory."""
    problems: tuple[str, ...] = ()
    """A sentence per variable that could not be used."""


def settings_from(environment: Mapping[str, str], folder: Path | None = None) -> Settings:
    """Returns the settings of an environment.

    SHARDSCAPE_STORE: file of the store, or `off` to keep results in memory only; by default
    `.shardscape/results.duckdb` in `folder` (the working directory), or in the user's data directory where that cannot
    be written. SHARDSCAPE_LARGEST_SPACE, SHARDSCAPE_LONGEST_SECONDS, SHARDSCAPE_PATIENCE, SHARDSCAPE_QUEUE,
    SHARDSCAPE_KEPT: whole numbers, see `Settings`. SHARDSCAPE_PROCESS: `off` to compute everything within the server's
    own process. SHARDSCAPE_AHEAD: `off` to explore nothing before the first request. SHARDSCAPE_API: `on` for the JSON
    API, with SHARDSCAPE_API_TOKEN to require a token. SHARDSCAPE_METRICS: `on` for Streamlit's metrics.
    """
    problems: list[str] = []

    def number(name: str, default: int, most: int, least: int = 1) -> int:
        text = environment.get(name, "").strip()
        if not text:
            return default
        if not text.isdecimal() or len(text) > 12 or not least <= int(text) <= most:
            problems.append(
                f"{name} is {text[:40]!r}; it must be a whole number from {least} to {most:,}. Using {default:,}."
            )
            return default
        return int(text)

    def switch(name: str, default: str) -> bool:
        text = environment.get(name, "").strip().lower()
        if text not in ("", "on", "off"):
            problems.append(f"{name} is {text[:40]!r}; it must be on or off. Using {default}.")
        return (text if text in ("on", "off") else default) == "on"

    return Settings(
        store=_store_path(environment, folder or Path.cwd()),
        largest_space=number("SHARDSCAPE_LARGEST_SPACE", 500_000_000, 2_000_000_000),
        longest_seconds=float(number("SHARDSCAPE_LONGEST_SECONDS", 600, 86_400)),
        patience=float(number("SHARDSCAPE_PATIENCE", 1, 3_600, least=0)),
        queue=number("SHARDSCAPE_QUEUE", 64, 1_000),
        kept=number("SHARDSCAPE_KEPT", 12, 1_000),
        process=switch("SHARDSCAPE_PROCESS", "on"),
        ahead=switch("SHARDSCAPE_AHEAD", "on"),
        api=switch("SHARDSCAPE_API", "off"),
        api_token=environment.get("SHARDSCAPE_API_TOKEN", "").strip(),
        metrics=switch("SHARDSCAPE_METRICS", "off"),
        problems=tuple(problems),
    )


def _store_path(environment: Mapping[str, str], folder: Path) -> Path | None:
    given = environment.get("SHARDSCAPE_STORE", "").strip()
    if given.lower() == "off":
        return None
    if given:
        return Path(given).expanduser()
    data = environment.get("XDG_DATA_HOME", "").strip() or "~/.local/share"
    here = folder / ".shardscape" / "results.duckdb"
    for path in (here, Path(data).expanduser() / "shardscape" / "results.duckdb"):
        if _can_write(path.parent):
            return path
    return here  # opening it says what is wrong


def _can_write(folder: Path) -> bool:
    """Return whether files can be created in a folder, or in the folder after creating it."""
    for candidate in (folder, *folder.parents):
        if candidate.exists():
            return candidate.is_dir() and os.access(candidate, os.W_OK | os.X_OK)
    return False
