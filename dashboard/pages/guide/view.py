"""The Guide page: the list of chapters next to the open one."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from dashboard.charts.elements.markup import head
from dashboard.guide import CHAPTERS, Chapter, Picture, chapter
from dashboard.guide.chapters import anchor
from dashboard.link import state
from dashboard.widgets import window

__all__ = ["GuideView", "parse", "render"]


@dataclass(frozen=True, slots=True)
class GuideView:
    """The page's part of the link."""

    chapter: Chapter


def parse() -> GuideView:
    """Reads the page's part of the link."""
    return GuideView(chapter(state.url_value("chapter", CHAPTERS[0], CHAPTERS)))


def render(view: GuideView) -> None:
    """Draws the page. view: what `parse` returned."""
    if window.is_narrow():
        _choose_chapter(view.chapter)
        _draw_chapter(view.chapter)
        return
    contents, text = st.columns([1, 3.4], gap="large")
    with contents:
        _draw_contents(view.chapter)
    with text:
        _draw_chapter(view.chapter)


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
        on_change=lambda: state.set_url_value("chapter", st.session_state[key]),
    )


def _draw_chapter(read: Chapter) -> None:
    """Draw a chapter: its title, links to its sections, its text and pictures, and the next one."""
    with st.container(key="guide_text"):
        st.html(head(read.title))
        if len(read.sections) > 1:
            st.markdown(" · ".join(f"[{title}](#{anchor(title)})" for title in read.sections))
        for piece in read.pieces():
            if isinstance(piece, Picture):
                st.image(piece.path.read_bytes(), caption=piece.words)
            else:
                st.markdown(piece)
        following = CHAPTERS[CHAPTERS.index(read.name) + 1 :]
        if following:
            _chapter_button(following[0], f"Next: {chapter(following[0]).title}", read, icon=":material/arrow_forward:")


def _chapter_button(name: str, words: str, read: Chapter, icon: str | None) -> None:
    """Draw a button that opens a chapter. read: the open chapter, whose button is highlighted."""
    st.button(
        words,
        key=f"guide_{'list' if icon is None else 'next'}_{name}",
        icon=icon,
        on_click=state.set_url_value,
        args=("chapter", name),
        type="secondary" if name == read.name else "tertiary",
    )
