"""Checksums of the files of a results folder, each within its file: one file stays one file, and appears at once.

A file is written with `UNSEALED` where its checksum goes; `seal` puts the CRC-32 of all other bytes in its place.
CRC-32 finds every change of up to 32 bits in a row, so every single flipped bit (Koopman, "32-bit cyclic redundancy
codes for Internet applications", DSN 2002).
"""

from __future__ import annotations

import zlib
from typing import Final, Literal

__all__ = ["CHECKSUM", "UNSEALED", "FileState", "seal_file", "seal_state"]

CHECKSUM: Final = "checksum"
"""Key of the checksum: in the metadata of a part, and in the document of a study."""

_MARK: Final = b"shardscape crc32 "
_DIGITS: Final = 8
"""Hexadecimal digits of a CRC-32."""
UNSEALED: Final = _MARK.decode() + "0" * _DIGITS
"""Placeholder of the checksum until a file is sealed."""

FileState = Literal["verified", "damaged", "no checksum"]
"""State of a file against its checksum; files of earlier versions have no checksum."""


def seal_file(content: bytes) -> bytes:
    """Returns a file with its checksum in the place of the last `UNSEALED`.

    Args:
        content: the file, which has `UNSEALED` once or more.
    """
    start = content.rindex(UNSEALED.encode()) + len(_MARK)
    return content[:start] + _format_crc(content) + content[start + _DIGITS :]


def seal_state(content: bytes) -> FileState:
    """Returns whether a file has a checksum and is as it was sealed.

    A file whose mark itself is damaged counts as one without a checksum; its `CHECKSUM` key gives it away.

    Args:
        content: the file.
    """
    start = content.rfind(_MARK) + len(_MARK)
    if start < len(_MARK):
        return "no checksum"
    given = content[start : start + _DIGITS]
    whole = content[:start] + b"0" * _DIGITS + content[start + _DIGITS :]
    return "verified" if given == _format_crc(whole) else "damaged"


def _format_crc(content: bytes) -> bytes:
    return f"{zlib.crc32(content):0{_DIGITS}x}".encode()
