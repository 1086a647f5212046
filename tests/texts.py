"""Texts of any letters, for tests of what takes whatever it is given."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

ANY_LETTER = st.characters(exclude_categories=["Cs"])
"""The letters of Hypothesis's own texts: all but halves of surrogate pairs. It asks Python of each of a million
letters whether UTF-8 has it where nobody says so, in every process of a fresh clone."""


def any_text(*, min_size: int = 0, max_size: int | None = None) -> SearchStrategy[str]:
    """Texts of `min_size` to `max_size` letters."""
    return st.text(ANY_LETTER, min_size=min_size, max_size=max_size)
