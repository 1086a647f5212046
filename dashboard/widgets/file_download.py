"""The button that downloads a small file, made when it is pressed."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

__all__ = ["draw_download"]


def draw_download(
    label: str,
    content: str | bytes | Callable[[], str] | Callable[[], bytes],
    name: str,
    mime: str,
    *,
    key: str,
    help: str | None = None,
) -> None:
    """Draw the button of a file; pressing it does not run the page again.

    Args:
        label: of the button.
        content: of the file, or a function that returns it.
        name: of the file.
        mime: media type.
        key: of the widget.
        help: explanation next to the button.
    """
    st.download_button(
        label,
        content,
        name,
        mime,
        key=key,
        on_click="ignore",
        icon=":material/download:",
        type="tertiary",
        help=help,
    )
