"""Bytes of trace files: unpacked while they are read, counted, and checked before the JSON parser sees them.

The parser's memory grows with the depth of nesting, so that depth is counted here, on bytes outside of strings.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

import numpy as np

from engine.traces.limits import TraceError, TraceLimits

__all__ = ["CheckedJson", "open_unpacked"]

CHUNK: Final = 1 << 16
"""Bytes read at once [bytes]."""
GZIP: Final = b"\x1f\x8b"
"""First bytes of a gzip file. Source: RFC 1952, section 2.3.1."""
_STRING: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_NUMBER_WORDS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|-?\b(?:NaN|Infinity)\b', re.DOTALL)
_LONG_NUMBER: Final = re.compile(rb"[0-9]{100}")
"""Digits that no time and no identifier has; the parser's C code crashes at 4,301 of them, where Python refuses."""
LONGEST_WORD: Final = 13
"""Bytes of the longest word outside of strings, `-Infinity`, and some more [bytes]."""
_LAST_LETTERS: Final = re.compile(rb"-?[A-Za-z]{1,12}\Z")
_ALL_BUT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


@contextmanager
def open_unpacked(source: Path | bytes) -> Iterator[BinaryIO]:
    """Yield the bytes of a file as a stream, unpacked where it is a gzip file.

    Args:
        source: path of a file, or its content.
    """
    with cast(BinaryIO, io.BytesIO(source)) if isinstance(source, bytes) else source.open("rb") as raw:
        start = raw.read(len(GZIP))
        raw.seek(0)
        if start == GZIP:
            # `GzipFile` leaves the file below it open.
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield cast(BinaryIO, unpacked)
        else:
            yield raw


class CheckedJson:
    """A stream of JSON text within limits, with `read` as files have it.

    `NaN` and `Infinity`, which PyTorch writes for occupancies that it cannot compute, become `null`; `replaced` counts
    them. Reading raises `TraceError` for text that is too long, too deep or unpacks to far more than it was.
    """

    def __init__(self, stream: BinaryIO, name: str, packed_bytes: int, limits: TraceLimits) -> None:
        """Start reading.

        Args:
            stream: of the unpacked text.
            name: of the file, for messages.
            packed_bytes: size of the file [bytes].
            limits: largest files and events that are read.
        """
        self.replaced = 0
        self.num_bytes = 0
        self._stream, self._name, self._packed, self._limits = stream, name, max(packed_bytes, 1), limits
        self._depth = 0
        self._pending = b""
        self._ready = bytearray()

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, at most `size` of them; none at the end.

        Args:
            size: most bytes to return; all that are at hand if negative.
        """
        if size == 0:
            return b""
        while not self._ready:
            chunk = self._next_chunk()
            if not chunk:
                rest, self._pending = self._pending, b""
                self._ready += rest
                break
            self._ready += self._check(chunk)
        wanted = len(self._ready) if size < 0 else size
        found = bytes(self._ready[:wanted])
        del self._ready[:wanted]
        return found

    def _next_chunk(self) -> bytes:
        try:
            chunk = self._stream.read(CHUNK)
        except (EOFError, OSError, zlib.error):
            # A packed file that was cut: what came before counts.
            return b""
        self.num_bytes += len(chunk)
        limits = self._limits
        if self.num_bytes > limits.json_bytes:
            raise TraceError(
                f"{self._name} unpacks to more than {limits.json_bytes / 1e9:g} GB; profile fewer steps, or without "
                "call stacks."
            )
        if self.num_bytes > limits.expansion_from and self.num_bytes > limits.expansion * self._packed:
            raise TraceError(
                f"{self._name} unpacks to more than {limits.expansion} times its size, which no trace does."
            )
        return chunk

    def _check(self, chunk: bytes) -> bytes:
        """Return text that ends outside of a string, once its depth is known to be allowed."""
        text, self._pending = self._pending + chunk, b""
        outside = _STRING.sub(b"", text)
        # A quote that is left over begins a string that goes on in the next chunk.
        begun = outside.find(b'"')
        if begun >= 0:
            tail = len(outside) - begun
            self._pending, text, outside = text[-tail:], text[:-tail], outside[:begun]
            if len(self._pending) > self._limits.text:
                raise TraceError(f"{self._name} has a text of more than {self._limits.text / 1e6:g} MB.")
        # A number word may be cut in two as well.
        elif letters := _LAST_LETTERS.search(text[-LONGEST_WORD:]):
            self._pending, text = letters[0], text[: -len(letters[0])]
        brackets = np.frombuffer(outside.translate(None, _ALL_BUT_BRACKETS), np.uint8)
        if len(brackets):
            # Of the four brackets, those that open have the second bit set.
            depths = self._depth + np.cumsum((brackets & 2).astype(np.int64) - 1)
            self._depth = int(depths[-1])
            if depths.max() > self._limits.depth:
                raise TraceError(
                    f"{self._name} is nested more than {self._limits.depth} levels deep; a trace has about six."
                )
        if _LONG_NUMBER.search(outside):
            raise TraceError(f"{self._name} is not JSON that can be read: a number has 100 digits or more.")
        if b"NaN" in outside or b"Infinity" in outside:
            text = _NUMBER_WORDS.sub(self._replace_number_word, text)
        return text

    def _replace_number_word(self, found: re.Match[bytes]) -> bytes:
        if found[0].startswith(b'"'):
            return found[0]
        self.replaced += 1
        return b"null"
