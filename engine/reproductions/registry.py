"""All papers, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from engine.reproductions import alpa, calculon, cfp, dapple, distir, korthikanti, rubick
from engine.reproductions.papers import Paper, PaperError, PaperFigure
from models.documents import did_you_mean, shown

__all__ = ["PAPERS", "find_figure", "find_paper"]

PAPERS: Final[Mapping[str, Paper]] = {
    each.name: each
    for each in (
        calculon.PAPER,
        korthikanti.PAPER,
        distir.PAPER,
        dapple.PAPER,
        rubick.PAPER,
        cfp.PAPER,
        alpa.PAPER,
    )
}
"""Papers by name, in the order of the pages that they are about."""


def find_paper(name: str) -> Paper:
    """Return the paper of that name.

    Raises:
        PaperError: there is no such paper.
    """
    if name not in PAPERS:
        known = list(PAPERS)
        raise PaperError(f"There is no paper {shown(name)}{did_you_mean(name, known)}; choose {', '.join(known)}.")
    return PAPERS[name]


def find_figure(paper: Paper, name: str) -> PaperFigure:
    """Return a figure of a paper by its name.

    Raises:
        PaperError: the paper has no such figure.
    """
    known = [each.name for each in paper.figures]
    if name not in known:
        told = f"{paper.short_citation} has no figure {shown(name)} here{did_you_mean(name, known)}"
        raise PaperError(f"{told}; choose {', '.join(known)}.")
    return paper.figures[known.index(name)]
