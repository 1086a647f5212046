"""Where the scripts of pages are, by name, for links from one page to another."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["START", "exists", "path"]


START: Final = "explore"
"""Name of the page that is served at the root."""
_FOLDER: Final = Path(__file__).parent.parent / "pages"


@cache
def exists(name: str) -> bool:
    """Whether a page of `PAGES` is there, so that others may link to it."""
    return (_FOLDER / f"{name}/script.py").is_file()


def path(name: str) -> str:
    """The script of a page, as `st.page_link` and `st.switch_page` want it."""
    return str(_FOLDER / f"{name}/script.py")
