"""Narrowing of a co-design study's designs: stretches of its choices and figures, brushed in a chart or written.

A stretch is the least and the most value that is kept, infinite at an open end. For a choice that is a word, a system
or a datatype, the values are places of the words in the study.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np
import pandas as pd

from dashboard.words.numbers import plain
from engine.codesign import Study
from engine.executions.arrays import Flags, Floats

__all__ = ["Stretches", "brushed", "column_numbers", "in_link", "keeps", "linked", "stretch_told", "words_of"]

Stretches = Mapping[str, tuple[float, float]]
"""Least and most value that is kept, by the name of a choice or a quantity."""

_DIGITS: Final = 6
"""Digits of an end that was brushed: finer than a brush is."""
_LINKED: Final = re.compile(r"([a-z0-9_]+):([-+.0-9e]*):([-+.0-9e]*)")


def words_of(study: Study) -> dict[str, list[str]]:
    """Returns the words of the choices that are words, in the order of the study.

    Args:
        study: the study.
    """
    return {"system": [system.name for system in study.systems], "datatype": list(study.document.datatypes)}


def column_numbers(study: Study, column: pd.Series) -> Floats:
    """Returns a column of designs as numbers.

    Args:
        study: the study.
        column: a choice or a figure.
    """
    words = words_of(study).get(str(column.name))
    found = column if words is None else column.map({word: place for place, word in enumerate(words)})
    return np.asarray(found, np.float64)


def keeps(study: Study, designs: pd.DataFrame, stretches: Stretches) -> Flags:
    """Returns which designs lie within all stretches; none does whose figure is not known.

    Args:
        study: the study.
        designs: rows of `engine.codesign.Results.designs`.
        stretches: all about columns of it.
    """
    kept: Flags = np.ones(len(designs), bool)
    for name, (least, most) in stretches.items():
        values = column_numbers(study, designs[name])
        kept &= (values >= least) & (values <= most)
    return kept


def brushed(study: Study, column: pd.Series, least: float, most: float, *, choice: bool) -> tuple[float, float] | None:
    """Returns what was brushed on an axis as a stretch, open where the brush reaches beyond all designs; None where all
    of them, or none, are in it.

    Args:
        study: the study.
        column: what the axis shows, of all designs.
        least: lower end of the brush.
        most: upper end of the brush.
        choice: whether it is a choice, whose stretches end at values that there are.
    """
    values = column_numbers(study, column)
    values = values[np.isfinite(values)]
    inside = values[(values >= least) & (values <= most)]
    if len(inside) in (0, len(values)):
        return None
    low, high = (float(inside.min()), float(inside.max())) if choice else (least, most)
    if not choice:
        low, high = float(f"{low:.{_DIGITS}g}"), float(f"{high:.{_DIGITS}g}")
    return (-math.inf if least <= values.min() else low, math.inf if most >= values.max() else high)


def stretch_told(name: str, stretch: tuple[float, float], called: str, unit: str, study: Study) -> str:
    """Returns a stretch in words.

    Args:
        name: of the choice or quantity.
        stretch: its least and its most.
        called: what the choice or quantity is called.
        unit: of it; empty where it has none or `called` says it.
        study: the study.
    """
    least, most = stretch
    if (words := words_of(study).get(name)) is not None:
        kept = [word for place, word in enumerate(words) if least <= place <= most]
        return f"{called} {' or '.join(kept)}"
    low, high = plain(least, 4), plain(most, 4)
    if not math.isfinite(least) or not math.isfinite(most):
        ends = f"at least {low}" if math.isfinite(least) else f"at most {high}"
    else:
        ends = low if low == high else f"{low} to {high}"
    return f"{called} {ends} {unit}".strip()


def linked(stretches: Stretches) -> str | None:
    """Returns stretches as a part of a link; None without any.

    Args:
        stretches: by names.
    """

    def end(value: float) -> str:
        return repr(value).removesuffix(".0").replace("e+", "e") if math.isfinite(value) else ""

    return ",".join(f"{name}:{end(least)}:{end(most)}" for name, (least, most) in stretches.items()) or None


def in_link(text: str, known: Collection[str]) -> tuple[dict[str, tuple[float, float]], str | None]:
    """Return the ranges in a part of a link, and a sentence about the rest; None if all of it was understood.

    Args:
        text: as of `linked`.
        known: names of the choices and quantities that there are.
    """
    found: dict[str, tuple[float, float]] = {}
    lost = []
    for each in filter(None, text.split(",")):
        match = _LINKED.fullmatch(each)
        try:
            name, least, most = match.groups() if match is not None else ("", "", "")
            ends = float(least or -math.inf), float(most or math.inf)
        except ValueError:
            name, ends = "", (0.0, 0.0)
        if name in known and ends[0] <= ends[1] and ends != (-math.inf, math.inf):
            found[name] = ends
        else:
            lost.append(each)
    if not lost:
        return found, None
    return found, f"The link keeps designs by {lost[0][:40]!r}, which this study does not have; it is left out."
