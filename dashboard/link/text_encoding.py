"""A text of any kind folded to letters, digits, - and _, short enough for a link, and back.

folded = version + base64url(zlib(text))

Reading is bounded before and after decompression and never trusts its input.
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from typing import Final

from dashboard.link.document_validation import MOST_BYTES, Refused

__all__ = ["LONGEST", "folded", "unfolded"]

VERSION: Final = "1"
LONGEST: Final = 30_000
"""Characters of a folded text that are looked at; browsers and proxies seldom pass on more."""

_ALPHABET: Final = re.compile(r"[A-Za-z0-9_-]+")


def folded(text: str, preset: bytes = b"") -> str:
    """Returns a text as letters, digits, - and _; `unfolded` gives its bytes again.

    preset: words that such texts are likely to hold, likeliest last; part of the format.
    """
    press = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS, 9, zlib.Z_DEFAULT_STRATEGY, preset)
    data = press.compress(text.encode()) + press.flush()
    return VERSION + base64.urlsafe_b64encode(data).decode().rstrip("=")


def unfolded(text: str, noun: str, preset: bytes = b"") -> bytes:
    """Returns the bytes that a text unfolds to, at most `MOST_BYTES`. Raises `Refused`.

    noun: content of the link, in sentences. preset: dictionary with which it was folded.
    """
    damaged = f"The link's {noun} is damaged: it is not a complete copy of a shared link."
    if len(text) > LONGEST:
        raise Refused(f"The link holds a {noun} of {len(text):,} characters; up to {LONGEST:,} are read.")
    if _ALPHABET.fullmatch(text) is None:
        raise Refused(damaged)
    if text[0] != VERSION:
        if text[0].isdigit() and text[0] > VERSION:
            raise Refused(
                f"The link was made by a newer Shardscape (link version {text[0]}); this one reads version {VERSION}. "
                "Update this server to open it."
            )
        raise Refused(damaged)
    try:
        data = base64.urlsafe_b64decode(text[1:] + "=" * (-len(text[1:]) % 4))
        unfolding = zlib.decompressobj(zlib.MAX_WBITS, preset)
        plain = unfolding.decompress(data, MOST_BYTES)
    except (binascii.Error, zlib.error) as problem:
        raise Refused(damaged) from problem
    if unfolding.unconsumed_tail:
        raise Refused(f"The link's {noun} expands to more than {MOST_BYTES:,} bytes and is not read.")
    if not unfolding.eof or unfolding.unused_data:
        raise Refused(damaged)
    return plain
