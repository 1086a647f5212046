"""Location of results: a folder, or the URL of an object store, with the study and its completed parts.

    study.json                       the study, with its complete models, systems and calibration
    parts/000000000064-000032.parquet   the designs at places 64 to 95 of the study's order

That is the whole state. A part appears whole or not at all, under a name that gives its content, so a part that is
written twice exists once, and missing parts are known from the names alone. When a run has ended, small parts are made
into large ones. Every file holds the checksum of its other bytes, see `engine.codesign.checksums`; files of earlier
versions have none.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from engine.codesign.checksums import CHECKSUM, UNSEALED, FileState, seal_file, seal_state
from engine.codesign.errors import FolderError
from models.documents import shown

__all__ = ["ResultFolder"]

STUDY: Final = "study.json"
PARTS: Final = "parts"
_PART: Final = re.compile(r"(\d{12})-(\d{6})\.parquet")
_DRAFT: Final = re.compile(rf"\.{_PART.pattern}\.\d+\.[0-9a-f]{{8}}")


class ResultFolder:
    """The results of one study, in a folder or at an fsspec URL such as "s3://bucket/study"."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        """place: path or URL. Raises `FolderError` for a URL that nothing here can open."""
        self.place = os.fspath(place)
        self._files: Any = None
        self._root = self.place
        if "://" in self.place:
            try:
                import fsspec
            except ImportError:
                raise FolderError(
                    f"{shown(self.place)} is a URL, which needs fsspec; install shardscape[cluster], or give a folder."
                ) from None
            try:
                self._files, self._root = fsspec.core.url_to_fs(self.place)
            except (ValueError, ImportError, OSError) as problem:
                raise FolderError(f"{shown(self.place)} cannot be opened: {_first_line(problem)}.") from None

    @property
    def shared(self) -> str:
        """The place as a worker finds it: a URL, or a path from the root."""
        return self.place if self._files is not None else str(Path(self.place).resolve())

    def study(self) -> bytes | None:
        """Return the text of the study, None if the folder has none yet.

        Raises `FolderError`, also for a text that differs from its checksum.
        """
        content = self._study_text()
        if content is not None and _study_state(content) == "damaged":
            raise FolderError(
                f"{STUDY} in {shown(self.place)} is damaged or was edited: its checksum differs. Run the study again "
                f"into this folder, which writes it again; to keep an edit, remove the line {CHECKSUM!r}."
            )
        return content

    def study_state(self) -> FileState:
        """Return the state of the study's text. Raises `FolderError` if the folder has no study."""
        content = self._study_text()
        if content is None:
            raise FolderError(f"{shown(self.place)} holds no study; give a folder of results.")
        return _study_state(content)

    def _study_text(self) -> bytes | None:
        with self._explained("read"):
            try:
                return self._read(STUDY)
            except FileNotFoundError:
                return None

    def keep_study(self, document: dict[str, Any]) -> None:
        """Writes a study's document with its checksum. Raises `FolderError`."""
        content = seal_file(json.dumps(document | {CHECKSUM: UNSEALED}, indent=1).encode())
        with self._explained("written"):
            self._write(STUDY, content)

    def keep(self, first: int, count: int, rows: pa.Table) -> int:
        """Writes a part and returns its size [bytes]. Raises `FolderError`.

        Args:
            first: first place of the study's order that it holds.
            count: how many places.
            rows: the points of the designs there.
        """
        sink = io.BytesIO()
        # Without statistics and Arrow's own schema: of some ten rows they would be the larger part.
        how = {"compression": "zstd", "write_statistics": False, "store_schema": False}
        with pq.ParquetWriter(sink, rows.schema, **how) as file:
            file.write_table(rows)
            file.add_key_value_metadata((rows.schema.metadata or {}) | {CHECKSUM: UNSEALED})
        content = seal_file(sink.getvalue())
        with self._explained("written"):
            self._write(f"{PARTS}/{first:012d}-{count:06d}.parquet", content)
        return len(content)

    def parts(self) -> list[tuple[int, int, str]]:
        """Return (first place, places, name) of every part, in order; empty without parts."""
        with self._explained("read"):
            try:
                names = self._names(PARTS)
            except FileNotFoundError:
                return []
        matches = [match for name in names if (match := _PART.fullmatch(name)) is not None]
        return sorted((int(match[1]), int(match[2]), match[0]) for match in matches)

    def part_state(self, name: str) -> FileState:
        """Returns whether a part is as it was written; one without a checksum counts as damaged if its end is, as a
        machine that lost power may leave it. Raises `FolderError` where it cannot be read at all."""
        self._part_content(name)
        try:
            return self._part(name)[1]
        except FolderError:
            return "damaged"

    def rows(self, name: str) -> tuple[pa.Table, bytes]:
        """Returns the rows of a part and the key of its study. Raises `FolderError` for a part that differs from its
        checksum or cannot be read."""
        file, _ = self._part(name)
        try:
            rows = file.read()
            rows.validate(full=True)
        except Exception as problem:  # the reader of Parquet has errors of many kinds for bytes that are none
            raise self.damage(name, _first_line(problem)) from None
        return rows, (file.metadata.metadata or {}).get(b"study", b"")

    def _part(self, name: str) -> tuple[pq.ParquetFile, FileState]:
        content = self._part_content(name)
        state = seal_state(content)
        if state == "damaged":
            raise self.damage(name, "its checksum differs")
        try:
            file = pq.ParquetFile(pa.BufferReader(content), read_dictionary=["status"])
            keys = (file.metadata.metadata or {}).keys()
        except Exception as problem:
            raise self.damage(name, _first_line(problem)) from None
        if keys != ({b"study", CHECKSUM.encode()} if state == "verified" else {b"study"}):
            raise self.damage(name, "its metadata has other keys than were written")
        return file, state

    def _part_content(self, name: str) -> bytes:
        with self._explained("read"):
            return self._read(f"{PARTS}/{name}")

    def is_of(self, name: str, key: str) -> bool:
        """Returns whether a part is undamaged and of the study with this key. Raises `FolderError` where it cannot be
        read at all."""
        if self.part_state(name) == "damaged":
            return False
        return self.rows(name)[1] == key.encode()

    def damage(self, name: str, reason: str) -> FolderError:
        """Return the error about a damaged part, with its remedy.

        Args:
            name: of the part.
            reason: the damage, without a full stop.
        """
        return FolderError(
            f"{shown(name)} in {shown(self.place)} is damaged ({reason}); remove it and run the study again, which "
            "computes what it held."
        )

    def remove(self, name: str) -> None:
        """Removes a part that is not whole, or that another one holds."""
        with self._explained("written"):
            if self._files is not None:
                with suppress(FileNotFoundError):
                    self._files.rm_file(f"{self._root}/{PARTS}/{name}")
            else:
                (Path(self._root) / PARTS / name).unlink(missing_ok=True)

    def sweep(self) -> None:
        """Remove drafts of parts that killed writers left. A live writer writes its draft again."""
        with self._explained("written"):
            for name in self._names(PARTS) if self._files is None else ():  # object stores have none
                if _DRAFT.fullmatch(name):
                    (Path(self._root) / PARTS / name).unlink(missing_ok=True)

    def _names(self, folder: str) -> list[str]:
        if self._files is not None:
            self._files.invalidate_cache()
            return [str(each).rsplit("/", 1)[-1] for each in self._files.ls(f"{self._root}/{folder}", detail=False)]
        return os.listdir(Path(self._root) / folder)

    def _read(self, name: str) -> bytes:
        if self._files is not None:
            return bytes(self._files.cat_file(f"{self._root}/{name}"))
        return (Path(self._root) / name).read_bytes()

    def _write(self, name: str, content: bytes) -> None:
        """Write a file atomically. Object stores do so by themselves."""
        if self._files is not None:
            with suppress(OSError, NotImplementedError):
                self._files.makedirs(f"{self._root}/{name}".rsplit("/", 1)[0], exist_ok=True)
            self._files.pipe_file(f"{self._root}/{name}", content)
            return
        path = Path(self._root) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in reversed(range(3)):
            # Several workers may write the same part at once: each its own file, of which the last one stays.
            draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
            try:
                with draft.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
                return
            except FileNotFoundError:  # another run was complete, and swept it away
                if not left:
                    raise
            except BaseException:
                with suppress(OSError):
                    draft.unlink(missing_ok=True)
                raise

    @contextmanager
    def _explained(self, done: str) -> Iterator[None]:
        try:
            yield
        except FolderError:
            raise
        except OSError as problem:
            if isinstance(problem, FileNotFoundError) and done == "read":  # there is nothing yet, or no longer
                raise
            if problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise FolderError(
                    f"There is no room left at {shown(self.place)}; what is written stays good: make room and run the "
                    "study again."
                ) from None
            reason = os.strerror(problem.errno).lower() if problem.errno else _first_line(problem)
            raise FolderError(f"{shown(self.place)} cannot be {done}: {reason}.") from None
        except Exception as problem:
            if self._files is None:
                raise
            # Every object store has errors of its own.
            raise FolderError(f"{shown(self.place)} cannot be {done}: {_first_line(problem)}.") from None


def _study_state(content: bytes) -> FileState:
    state = seal_state(content)
    # No text within JSON has a line break, so this is the key itself: the mark behind it is damaged.
    return "damaged" if state == "no checksum" and f'\n "{CHECKSUM}"'.encode() in content else state


def _first_line(problem: BaseException) -> str:
    text = str(problem).strip() or type(problem).__name__
    return text.splitlines()[0][:300].rstrip(".")
