"""Texts of a table's rows, of which many are the same: each different one is looked at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Texts", "compile_finder"]


class Texts:
    """A text of every row: `rows` are all of them, `different` each once."""

    def __init__(self, texts: Iterable[object]) -> None:
        self.rows = [str(text) for text in texts]
        self.different = list(dict.fromkeys(self.rows))
        place = {text: number for number, text in enumerate(self.different)}
        self._which = np.array([place[text] for text in self.rows], np.intp)

    def each(self, values: Iterable[object], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Returns the value of every row's text [rows].

        Args:
            values: values of the different texts, in their order.
            dtype: of the array.
        """
        return np.fromiter(values, dtype, len(self.different))[self._which]

    def saying(self, pattern: str) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows in which a pattern is found, ignoring case [rows].

        Args:
            pattern: a regular expression.
        """
        found = compile_finder(pattern)
        return self.each((found(text) is not None for text in self.different), np.bool_)


@cache
def compile_finder(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """Return a function that finds a pattern in a text, as `Texts.saying` does.

    Args:
        pattern: a regular expression.
    """
    return re.compile(pattern, re.IGNORECASE).search
