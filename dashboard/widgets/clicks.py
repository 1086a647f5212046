"""Buttons whose click survives a run of the page that is interrupted before it reaches them.

Streamlit returns True from a button in one run only. A timer, a finished job or another click may end that run above
the button, and the click is lost. Callbacks run before the page, so that the note survives.
"""

from __future__ import annotations

from typing import Any, Final

import streamlit as st

__all__ = ["forget_unanswered", "was_clicked"]

_UNANSWERED: Final = "_unanswered_clicks"
"""Session key: keys of clicked buttons that no run has drawn since."""


def was_clicked(label: str, *, key: str, **options: Any) -> bool:
    """Draw a button; return whether it was clicked since it was last drawn.

    Args:
        label: text on the button.
        key: of the button, once on a page.
        options: further arguments of `st.button`, without callbacks.
    """
    st.button(label, key=key, on_click=_note_click, args=(key,), **options)
    clicked = st.session_state.get(_UNANSWERED, ())
    if key not in clicked:
        return False
    st.session_state[_UNANSWERED] = tuple(other for other in clicked if other != key)
    return True


def forget_unanswered() -> None:
    """Forget the clicks on buttons that a page which ran to its end no longer has."""
    st.session_state.pop(_UNANSWERED, None)


def _note_click(key: str) -> None:
    st.session_state[_UNANSWERED] = (*st.session_state.get(_UNANSWERED, ()), key)
