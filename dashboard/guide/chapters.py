"""Chapters of the guide: names, order, and contents as a page draws them.

A chapter is a file next to this module: one heading of the first level, which is its title, then sections. Pictures
have lines of their own. Links to other chapters are relative paths, so that they work on code hosts too.

    from dashboard.guide import CHAPTERS, chapter

    chapter("accuracy").sections   # ("Calculon's model", "The calibrated model", ...)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from dashboard.guide.glossary import glossary

__all__ = ["CHAPTERS", "Chapter", "Picture", "anchor", "chapter"]

_FOLDER: Final = Path(__file__).parent
_GLOSSARY: Final = "glossary"
_ORDER: Final = (
    "quick-start",
    "reading-the-map",
    "recipes",
    "cost-models",
    "formulas",
    "not-modelled",
    "accuracy",
    "papers",
    "plan-a-run",
    "fleet",
    "post-training",
    "launch",
    "serving",
    "day-of-service",
    "schedules",
    "layer-wise",
    "elastic",
    "intra-operator",
    "codesign",
    "measuring",
    "command-line",
    "python",
    "programs",
    "running-a-server",
    "speed",
    _GLOSSARY,
)
_FENCE: Final = re.compile(r"^(```.*?^```)$", re.DOTALL | re.MULTILINE)
_HEADING: Final = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_PICTURE: Final = re.compile(r"^!\[([^]]*)\]\(([^)]+)\)$", re.MULTILINE)
_CHAPTER_LINK: Final = re.compile(r"\]\(([a-z-]+)\.md(?:#[\w-]*)?\)")


@dataclass(frozen=True, slots=True)
class Picture:
    """Picture of a chapter: file and description."""

    path: Path
    words: str


@dataclass(frozen=True)
class Chapter:
    """A chapter: the name of its file, which is also its name in links, its title and its Markdown below the title."""

    name: str
    title: str
    text: str

    @cached_property
    def sections(self) -> tuple[str, ...]:
        """Returns the headings of its sections, in order."""
        prose = _FENCE.sub("", self.text)
        return tuple(words for level, words in _HEADING.findall(prose) if len(level) == 2)

    def pieces(self) -> list[str | Picture]:
        """Returns what a page shows: Markdown whose headings are one level lower, and pictures, in order.

        The first level belongs to the page. Links to other chapters become links of the dashboard.
        """
        parts = _FENCE.split(self.text)
        prose = [
            part if part.startswith("```") else _CHAPTER_LINK.sub(r"](guide?chapter=\1)", _HEADING.sub(r"#\1 \2", part))
            for part in parts
        ]
        words, *pictures = _PICTURE.split("".join(prose))
        found: list[str | Picture] = [words]
        for told, file, after in zip(pictures[0::3], pictures[1::3], pictures[2::3], strict=True):
            found += [Picture(_FOLDER / file, told), after]
        return [piece for piece in found if isinstance(piece, Picture) or piece.strip()]


def anchor(heading: str) -> str:
    """Returns the name by which a link finds a heading, as forges and Streamlit make it. heading: its text."""
    return re.sub(r"[^\w-]", "", heading.lower().replace(" ", "-"))


@cache
def chapter(name: str) -> Chapter:
    """Return a chapter by name.

    Raises: KeyError for an unknown name.
    """
    if name not in _ORDER:
        raise KeyError(name)
    written = glossary() if name == _GLOSSARY else (_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    title, _, text = written.partition("\n")
    return Chapter(name, title.removeprefix("# "), text)


CHAPTERS: Final = _ORDER
"""The names of all chapters, in the order in which to read them."""
