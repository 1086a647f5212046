"""The Guide page: the list of chapters next to the open one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import streamlit as st

from dashboard.charts.elements.markup import head
from dashboard.guide import CHAPTERS, Chapter, Picture, chapter
from dashboard.guide.chapters import anchor
from dashboard.link import state
from dashboard.widgets import window

__all__ = ["GuideView", "parse", "render"]

_SHOW_SECTION: Final = """<script>
(() => {{
  const seek = (left) => {{
    const heading = document.getElementById({});
    if (heading) heading.scrollIntoView();
    else if (left) setTimeout(() => seek(left - 1), 100);
  }};
  seek(50);
}})();
</script>"""
"""Script that moves the window to a heading, which the browser draws a little later; run once per section."""


@dataclass(frozen=True, slots=True)
class GuideView:
    """The page's part of the link."""

    chapter: Chapter
    section: str
    """Anchor of the section to begin at; empty for the beginning."""


def parse() -> GuideView:
    """Reads the page's part of the link."""
    read = chapter(state.url_value("chapter", CHAPTERS[0], CHAPTERS))
    return GuideView(read, state.url_value("section", "", {"", *map(anchor, read.sections)}))


def render(view: GuideView) -> None:
    """Draws the page. view: what `parse` returned."""
    if window.is_narrow():
        _choose_chapter(view.chapter)
        _draw_chapter(view.chapter, view.section)
        return
    contents, text = st.columns([1, 3.4], gap="large")
    with contents:
        _draw_contents(view.chapter)
    with text:
        _draw_chapter(view.chapter, view.section)


def _draw_contents(read: Chapter) -> None:
    """Draw the list of chapters."""
    with st.container(key="guide_contents", gap="xxsmall"):
        for name in CHAPTERS:
            _chapter_button(name, chapter(name).title, read, icon=None)


def _choose_chapter(read: Chapter) -> None:
    """Draw the list of chapters as a field, for a phone."""
    key = f"guide_chapter_{read.name}"
    st.selectbox(
        "Chapter",
        CHAPTERS,
        index=CHAPTERS.index(read.name),
        format_func=lambda name: chapter(name).title,
        key=key,
        on_change=lambda: _open_chapter(st.session_state[key]),
    )


def _open_chapter(name: str) -> None:
    state.set_url_values({"chapter": name, "section": None})


def _draw_chapter(read: Chapter, section: str) -> None:
    """Draw a chapter: its title, links to its sections, its text and pictures, and the next one.

    section: anchor that the window is moved to; empty for none.
    """
    with st.container(key="guide_text"):
        st.html(head(read.title))
        if len(read.sections) > 1:
            st.markdown(" · ".join(f"[{title}](#{anchor(title)})" for title in read.sections))
        for piece in read.pieces():
            if isinstance(piece, Picture):
                st.image(piece.path.read_bytes(), caption=piece.words)
            else:
                st.markdown(piece)
        if section:
            st.html(_SHOW_SECTION.format(json.dumps(section)), unsafe_allow_javascript=True)
        following = CHAPTERS[CHAPTERS.index(read.name) + 1 :]
        if following:
            _chapter_button(following[0], f"Next: {chapter(following[0]).title}", read, icon=":material/arrow_forward:")


def _chapter_button(name: str, words: str, read: Chapter, icon: str | None) -> None:
    """Draw a button that opens a chapter. read: the open chapter, whose button is highlighted."""
    st.button(
        words,
        key=f"guide_{'list' if icon is None else 'next'}_{name}",
        icon=icon,
        on_click=_open_chapter,
        args=(name,),
        type="secondary" if name == read.name else "tertiary",
    )
