"""Profiles from files and texts in any format that is understood: TorchGraph text, and tables of our own."""

from __future__ import annotations

import os
from pathlib import Path

from engine.planners.layerwise.profiles.profile import LayerProfile, ProfileError
from engine.planners.layerwise.profiles.tables import csv_profile, json_profile
from engine.planners.layerwise.profiles.torchgraph import torchgraph_profile

__all__ = ["MOST_BYTES", "profile_from", "profile_text", "read_profile_file"]

MOST_BYTES = 16 * 2**20
"""Bytes that a profile's text may have."""


def profile_from(source: LayerProfile | str | os.PathLike[str], batch: float | None = None) -> LayerProfile:
    """Returns a profile from a parsed one, a text, or the path of a file.

    A text of one line is a path.

    Args:
        source: a profile, its text, or the path of a file with it.
        batch: samples at which it was taken; what the source says where None.

    Raises `ProfileError` for a file that cannot be read, and as `profile_text` does.
    """
    if isinstance(source, LayerProfile):
        return source
    if isinstance(source, str) and ("\n" in source or source.lstrip("\ufeff \t").startswith("{")):
        return profile_text(source, batch=batch)
    text, name = read_profile_file(source)
    return profile_text(text, name=name, batch=batch)


def read_profile_file(source: str | os.PathLike[str]) -> tuple[str, str]:
    """Return the text of a file, and the name of the profile in it.

    Args:
        source: path of the file.

    Raises `ProfileError` for a file that cannot be read.
    """
    path = Path(source)
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise ProfileError(f"{path} has {size:,} bytes; a profile has at most {MOST_BYTES:,}.")
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        shown = str(source)[:200]
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no such file"
        raise ProfileError(f"The profile {shown!r} cannot be read: {why.lower()}.") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ProfileError(f"{path} is no text in UTF-8.") from None
    return text, path.name.removesuffix(".txt").removesuffix("__graph") or path.stem


def profile_text(text: str, *, name: str = "profile", batch: float | None = None) -> LayerProfile:
    """Returns the profile in a text: JSON where it begins with a brace, CSV where its first line is a header with
    `layer`, else TorchGraph text.

    Args:
        text: content of a file.
        name: what to call the profile; in messages too.
        batch: samples at which it was taken; what the text says where None.

    Raises `ProfileError` for a text that is no profile in any of these formats.
    """
    if len(text) > MOST_BYTES:
        raise ProfileError(f"The text has {len(text):,} characters; a profile has at most {MOST_BYTES:,}.")
    text = text.lstrip("\ufeff")
    if "\x00" in text:
        raise ProfileError("The text has null characters; profiles are plain text.")
    start = text.lstrip()
    if start.startswith("{"):
        return json_profile(text, name=name, batch=batch)
    header = start.split("\n", 1)[0]
    if "," in header and " -- " not in header:
        return csv_profile(text, name=name, batch=batch)
    return torchgraph_profile(text, name=name, batch=batch)
