"""A file that is read while it is still being written."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import IO, Any, Final, cast

__all__ = ["Abandoned", "GrowingFile"]

PIECE: Final = 1 << 18
"""Size of a read [bytes]."""


class Abandoned(Exception):  # noqa: N818 - reads as a sentence where it is raised
    """Raised in the writer when the reader has abandoned the file."""


class GrowingFile:
    """File on disk that a thread writes while one reader reads it.

    The reader never blocks the writer, and memory holds one piece of the file.
    """

    def __init__(self, write: Callable[[IO[bytes]], None]) -> None:
        """Start the writer. write: receives a file that cannot seek; its exceptions are raised in the reader."""
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by whoever is done last
        self._changed = threading.Condition()
        self._size = 0
        self._finished = self._left = False
        self._problem: BaseException | None = None
        threading.Thread(target=self._run, args=(write,), name="growing-file", daemon=True).start()

    def begun(self, timeout: float) -> BaseException | None:
        """Wait for the first bytes, at most `timeout` seconds; return an exception raised before them."""
        with self._changed:
            self._changed.wait_for(lambda: self._size > 0 or self._finished, timeout)
            return self._problem if not self._size else None

    def pieces(self) -> Iterator[bytes]:
        """The whole file, ending when it is complete. Raises what writing raised. To be read once."""
        place = 0
        try:
            while piece := self._next(place):
                place += len(piece)
                yield piece
        finally:
            self.leave()

    def _next(self, place: int) -> bytes:
        """Return the next piece after so many bytes; empty at the end, or once the file is abandoned. The first piece
        may be short."""
        least = PIECE if place else 1
        with self._changed:
            self._changed.wait_for(lambda: self._size >= place + least or self._finished or self._left)
            if self._left:
                return b""
            if self._problem is not None:
                raise self._problem
            self._file.seek(place)
            return self._file.read(min(PIECE, self._size - place))

    def leave(self) -> None:
        """Abandon the file: it is deleted, and the writer is stopped."""
        with self._changed:
            self._left = True
            if self._finished:
                self._file.close()
            self._changed.notify_all()

    def __del__(self) -> None:
        self._file.close()  # that of a reader who never began, too

    def _run(self, write: Callable[[IO[bytes]], None]) -> None:
        problem: BaseException | None = None
        try:
            write(cast("IO[bytes]", _End(self._append)))
        except BaseException as found:
            # Its traceback holds this very file and all that was at work, which only collecting garbage would end.
            problem = found.with_traceback(None)
        with self._changed:
            self._problem, self._finished = problem, True
            if self._left:
                self._file.close()
            self._changed.notify_all()

    def _append(self, data: bytes) -> int:
        with self._changed:
            if self._left:
                raise Abandoned
            self._file.seek(self._size)
            written = self._file.write(data)
            self._size += written
            self._changed.notify_all()
            return written


class _End:
    """The end of a growing file, to which can be written and nothing else."""

    closed = False

    def __init__(self, append: Callable[[Any], int]) -> None:
        self.write = append

    def writable(self) -> bool:
        """Yes."""
        return True

    def readable(self) -> bool:
        """No."""
        return False

    def seekable(self) -> bool:
        """No."""
        return False

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """The reader closes the file."""
