"""Fields whose words follow a grammar, too many to list: a word gets its number when it is first seen.

Numbers are valid in this process only: stored and sent documents hold the words.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

__all__ = ["MOST_WORDS", "OpenWords"]

MOST_WORDS: Final = 30_000
"""Largest number of words of one field that a process distinguishes [count]."""


class OpenWords:
    """Numbered words of a field: the named ones first, then each other word in the order in which it was first seen.

    `canonical` returns the form that equal words share, and raises ValueError with a sentence for an invalid word.
    """

    def __init__(self, named: tuple[str, ...], canonical: Callable[[str], str]) -> None:
        self._canonical = canonical
        self._words = list(named)
        self._position = {word: number for number, word in enumerate(named)}
        self._lock = threading.Lock()

    @property
    def words(self) -> tuple[str, ...]:
        """All words that have a number, in their order."""
        return tuple(self._words)

    def word(self, position: int) -> str:
        """Returns the word of a number.

        Args:
            position: what `position` returned.
        """
        return self._words[position]

    def position(self, text: str) -> int:
        """Returns the number of a word. Raises ValueError with a sentence that says what would be a word.

        Args:
            text: what was given.
        """
        known = self._position.get(text)
        if known is not None:
            return known
        word = self._canonical(text)
        with self._lock:
            if word not in self._position:
                if len(self._words) >= MOST_WORDS:
                    raise ValueError(f"More than {MOST_WORDS:,} different values were given; start again with fewer.")
                self._words.append(word)
                self._position[word] = len(self._words) - 1
            return self._position[word]
