"""Papers and their figures, as data: who published what, how we compute it, and where its settings open."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd

__all__ = ["FIGURES", "Paper", "PaperError", "PaperFigure", "SettingsLink"]

FIGURES: Final = ("ours", "published", "deviation_percent")
"""Columns of values in the table of a figure, after its labels."""


NOISE_DIGITS: Final = 9
"""Decimals of a deviation in percent; more are rounding of sums in another order."""


class PaperError(ValueError):
    """Unknown paper or figure; the message lists the known ones."""


@dataclass(frozen=True, slots=True)
class SettingsLink:
    """Page of the dashboard and its link parameters that open the settings of a figure."""

    page: str
    parameters: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFigure:
    """One figure or table of a paper, computed here."""

    name: str
    """Name in links, commands and files, such as "figure-9"."""
    title: str
    """Name in the paper, such as "Figure 9"."""
    summary: str
    """Content, in one sentence."""
    unit: str
    """Unit of the values; empty for ratios."""
    source: str
    """Origin of the published values."""
    compute: Callable[[], pd.DataFrame]
    """Returns columns of labels, then `ours` and, where values are public, `published`."""
    horizontal: str
    """Label along the horizontal axis of a chart; the other labels distinguish series."""
    link: SettingsLink
    details: tuple[str, ...] = ()
    """Labels that tell no series apart: they are in the table only."""
    note: str = ""
    """Reason for deviations, in one sentence."""

    def compare_values(self) -> pd.DataFrame:
        """Return the labels, `ours`, `published` [unit] and `deviation_percent`, ours from published [%].

        Without a published value, or with one of 0, the deviation is NaN.
        """
        found = self.compute()
        if "published" not in found:
            found = found.assign(published=np.nan)
        published = found["published"].astype(float)
        deviation = 100.0 * (found["ours"].astype(float) / published.where(published != 0.0) - 1.0)
        deviation = deviation.round(NOISE_DIGITS) + 0.0  # no negative zero
        labels = [name for name in found if name not in FIGURES]
        return found.assign(published=published, deviation_percent=deviation)[[*labels, *FIGURES]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A paper whose figures are reproduced."""

    name: str
    """Name in links, commands and files."""
    title: str
    authors: str
    year: int
    venue: str
    url: str
    figures: tuple[PaperFigure, ...]
    """In the order of the paper."""

    @property
    def short_citation(self) -> str:
        """Return authors, venue and year, such as "Korthikanti et al., MLSys 2023"."""
        return f"{self.authors}, {self.venue} {self.year}"
