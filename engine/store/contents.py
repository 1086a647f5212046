"""A second list of a store's explorations, in a separate file: shows losses that the database cannot show.

DuckDB keeps the latest changes in a log. If the log was cut short, or is missing, DuckDB opens without a message and
without them. So each exploration is listed here as well, after it was stored, and removed from the list before its own
removal: an exploration that is on this list but not in the database was lost. The file has one line for each of these
events, with a checksum; a last line that is cut short is no loss, because the database has it too.
"""

import contextlib
import datetime
import json
import os
import re
import threading
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from engine.store import text as store_text

SUFFIX: Final = ".contents"
_MARK: Final = "Contents of the Shardscape store {}\n"
IDENTITY: Final = re.compile("[0-9a-f]{32}")
"""Identity that distinguishes a store from others."""
_SPARE_LINES: Final = 100
"""Number of obsolete lines that do not yet justify rewriting the file."""


class Contents:
    """The list of one store. Any number of threads may use it at once."""

    def __init__(self, path: Path) -> None:
        """Read the list at `path`, of any store.

        A foreign file is not changed, and there is no list then.
        """
        self.path: Final = path
        self.identity = ""
        """The store that the list is of; empty where there is no list, or its first line is damaged."""
        self.entries: dict[str, dict[str, Any]] = {}
        """Stored explorations: `created_at` as text and `scenario`, by key."""
        self.damaged = 0
        """Lines that cannot be read."""
        self._lock = threading.Lock()
        self._lines = self._whole = 0  # whole lines, and what they take with the mark [bytes]
        try:
            here = os.path.lexists(path)
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        except OSError:
            here, content = True, b""
        # An empty file is what a full disk or a death left of a list that was begun.
        empty = here and not content and path.is_file() and not path.is_symlink()
        self.ours: Final = not here or empty or content.startswith(_MARK.split("{")[0].encode())
        """True if there is a list, or one can be created."""
        if self.ours and content:
            self._read(content)

    @property
    def names_anything(self) -> bool:
        """Return True if an exploration is on the list, or a line may have named one."""
        return bool(self.entries or self.damaged)

    def shares(self, stored: Mapping[str, tuple[int | None, str | None]]) -> bool:
        """Return True if an exploration on the list is stored, and not merely one of the same scenario.

        stored: as for `agree_with`.
        """
        for key, (at, _) in stored.items():
            with contextlib.suppress(ValueError):
                if self.entries.get(key, {}).get("created_at") == _format_time(at):
                    return True
        return False

    def take_over(self, store: str) -> None:
        """Makes this the list of a store, with all that is on it; one that names nothing is begun again.

        Raises OSError.

        store: the identity of the store.
        """
        with self._lock:
            self.identity = store
            if not (self.ours and self.names_anything):
                self._lines = self._whole = 0
                return
            mark, _, rest = self.path.read_bytes().partition(b"\n")
            with os.fdopen(os.open(self.path, os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0)), "wb") as file:
                file.write(self._mark if len(mark) + 1 == len(self._mark) else self._mark + rest)
                file.flush()
                os.fsync(file.fileno())
            self._whole += len(self._mark) - len(mark) - 1

    @property
    def _mark(self) -> bytes:
        return _MARK.format(self.identity).encode()

    def _read(self, content: bytes) -> None:
        mark, _, said_after = content.partition(b"\n")
        found = IDENTITY.search(mark.decode(errors="replace"))
        if found is not None and mark + b"\n" == _MARK.format(found[0]).encode():
            self.identity = found[0]
        *lines, last = said_after.split(b"\n")
        self._lines, self._whole = len(lines), len(content) - len(last)
        for line in lines:
            try:
                checksum, text = line.split(b" ", 1)
                if int(checksum, 16) != zlib.crc32(text):
                    raise ValueError("damaged")
                said = store_text.object_of(text)
                key = store_text.text_of(said.pop("key", None))
                if said and not isinstance(said.get("scenario"), dict):
                    raise ValueError("damaged")
                if said:
                    datetime.datetime.fromisoformat(store_text.text_of(said.get("created_at")))
            except ValueError:
                self.damaged += 1
                continue
            if said:
                self.entries[key] = said
            else:
                self.entries.pop(key, None)

    def add(self, key: str, created_at: str, scenario: Mapping[str, Any]) -> None:
        """Puts down an exploration that was stored. A full disk is no reason to fail: it is stored."""
        with self._lock:
            self.entries[key] = {"created_at": created_at, "scenario": dict(scenario)}
            with contextlib.suppress(OSError):
                self._append({"key": key, **self.entries[key]})

    def remove(self, keys: Iterable[str]) -> None:
        """Strikes out explorations that are about to be removed, or that are known to be lost."""
        with self._lock:
            known = [key for key in keys if self.entries.pop(key, None) is not None]
            if not known:
                return
            try:
                self._append(*({"key": key} for key in known))
            except OSError:  # a list that says too much would report what was removed as lost
                with contextlib.suppress(OSError):
                    self.path.unlink(missing_ok=True)
                self._lines = self._whole = 0

    def lost(self, stored: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the entries on the list that are not stored."""
        there = set(stored)
        return {key: entry for key, entry in self.entries.items() if key not in there}

    def agree_with(self, stored: Mapping[str, tuple[int | None, str | None]]) -> None:
        """List explorations that are stored but missing here: stored just before a process died, or by older code.

        stored: time [microseconds since 1970], and the scenario as JSON, by key; damaged ones are not listed.
        """
        new = {}
        for key, (at, text) in stored.items():
            with contextlib.suppress(ValueError):
                if key not in self.entries:
                    new[key] = {"created_at": _format_time(at), "scenario": store_text.object_of(text)}
        with self._lock, contextlib.suppress(OSError):
            self.entries |= new
            if self._lines > 2 * len(self.entries) + _SPARE_LINES and not self.lost(stored):
                self._lines = self._whole = 0  # writes the whole file again
                new = self.entries
            self._append(*({"key": key, **entry} for key, entry in new.items()))

    def _append(self, *said: Mapping[str, Any]) -> None:
        """Write lines after the last whole one; the mark comes before the first."""
        if not self.ours or not said:
            return
        lines = [json.dumps(one).encode() for one in said]
        text = b"".join(b"%08x %s\n" % (zlib.crc32(line), line) for line in lines)
        if not self._whole:
            text = self._mark + text
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
        with os.fdopen(descriptor, "wb") as file:
            file.truncate(self._whole)
            file.seek(self._whole)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self._whole += len(text)
        self._lines += len(lines)


def _format_time(at: int | None) -> str:
    """Return a time as the list has it. Raises ValueError. at: microseconds since 1970."""
    return store_text.time_of(at).replace(tzinfo=None).isoformat()
