"""Texts of a cost model that exist only to be shown: names in sentences, descriptions, and printed tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd

from hardware import System
from models import Model

__all__ = ["CostModelWords", "Sheet", "told_not_measured"]


class Sheet(NamedTuple):
    """Table to print: heading, headers, rows of texts, the columns that are texts, and lines below."""

    heading: str
    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: Sequence[int]
    below: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModelWords:
    """Texts of one cost model. A default means that there is nothing to say."""

    title: str
    """Name in sentences about a scenario."""
    summary: str
    """Purpose in a few words, for choosing between cost models."""
    description: str = ""
    """Modelled and neglected effects, in a few sentences."""
    covered: Mapping[str, str] = field(default_factory=dict)
    """Values that its space tries of each field without limits; all values of other fields are tried."""
    operations: str = "operations"
    """Name of the rows of `CostModel.operations`, in the plural."""
    sheets: Callable[[pd.DataFrame], Sequence[Sheet]] = lambda operations: ()
    """Returns the table of `CostModel.operations` as tables to print."""
    neglected: Callable[[Model | System], Sequence[str]] = lambda thing: ()
    """Returns sentences on the parts of a model or a system that the cost model neglects or changes."""


def told_not_measured(things: Sequence[str]) -> str:
    """Returns what `CostModel.not_measured` found as a sentence; empty where it found nothing.

    Args:
        things: in words.
    """
    return f"Never measured: {', '.join(things)}; the figures are modelled, not calibrated." if things else ""
