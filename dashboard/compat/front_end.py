"""Names of elements and files inside Streamlit's front end.

Checked with Streamlit 1.67.0; `tests/dashboard/compat/test_compat.py` fails where the installed front end lacks one of
them. `streamlit.css` and `behaviour.js` use more of the names in `IN_USE`. Without them pages lose comfort, not
function.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

import streamlit

__all__ = [
    "DATA_GRID",
    "DRAWN",
    "FOLDER",
    "IN_USE",
    "LINE",
    "MAIN",
    "SCRIPT",
    "first_parts",
    "marked_in_navigation",
    "rows",
    "styles",
]

FOLDER: Final = Path(streamlit.__file__).parent / "static"
"""Folder of the installed front end."""

MAIN: Final = '[data-testid="stMain"]'
"""Selector of the element that holds and scrolls the page."""
DATA_GRID: Final = '[data-testid="stDataFrame"] canvas'
"""Selector of the canvas of a table."""
DRAWN: Final = ".js-plotly-plot .main-svg"
"""Selector of a drawn Plotly chart."""
SCRIPT: Final = 'script[type="module"][src*="/js/"]'
"""The front end's first script; all others are in its folder."""

_FIRST: Final = ("BidiComponent", "Button", "ButtonGroup", "Html", "PageLink")
"""Parts of the front end that every page is made of, and that it reads only when a page has them."""

IN_USE: Final = (
    "stAppViewContainer",
    "stCaptionContainer",
    "stCode",
    "stColumn",
    "stDataFrame",
    "stElementContainer",
    "stExpandSidebarButton",
    "stFileUploaderDropzone",
    "stHorizontalBlock",
    "stLayoutWrapper",
    "stMain",
    "stMainBlockContainer",
    "stMarkdown",
    "stMarkdownContainer",
    "stPopover",
    "stPopoverBody",
    "stPopoverButton",
    "stSelectbox",
    "stSelectboxVirtualDropdown",
    "stSidebarNavItems",
    "stSliderThumbValue",
    "stTopNav",
    "stTooltipContent",
    "stTopNavSection",
    "stVerticalBlock",
    "stWidgetLabel",
    "stMultiSelectTagsContainer",
)
"""Names of elements (`data-testid`) that the dashboard's styles and scripts look for."""

LINE: Final = 31
"""Height of a line of a data grid with the theme's size of letters [px]."""


def rows(lines: int) -> int:
    """Returns the height [px] of a data grid's row whose text has so many lines.

    The grid breaks lines in rows of more than four times the size of the text.
    """
    return LINE + (lines - 1) * 26


@cache
def first_parts() -> str:
    """Return the `Link` header that makes browsers preload the parts that every page needs.

    Imports of a part are preloaded with it unless the first script does so. Missing files are left to Streamlit.
    """
    folder = FOLDER / "static" / "js"
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    known = _scripts_with_imports(folder, re.findall(r"static/js/([\w.-]+\.js)", page))
    wanted = _scripts_with_imports(folder, [file.name for name in _FIRST for file in folder.glob(f"{name}.*.js")])
    return ", ".join(f"<./static/js/{name}>; rel=modulepreload" for name in sorted(wanted - known))


def _scripts_with_imports(folder: Path, names: Iterable[str]) -> set[str]:
    """Return scripts of a folder with the scripts that they import first."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop()
        if name not in found and (folder / name).is_file():
            found.add(name)
            left += re.findall(r'(?:from|import)\s*"\./([^"]+\.js)"', (folder / name).read_text(encoding="utf-8"))
    return found


@cache
def styles() -> str:
    """Returns the element with the looks of Streamlit's own elements, to be injected once per page."""
    return f"<style>\n{(Path(__file__).parent / 'streamlit.css').read_text(encoding='utf-8')}</style>"


def marked_in_navigation(title: str, place: int) -> str:
    """Returns the style that names the page in the navigation: a section shows neither that nor which it is on.

    On a phone, where the navigation is behind a button, the name stands beside the button.

    title: of the page. place: of its section, from 0.
    """
    name, behind = (json.dumps(text, ensure_ascii=False) for text in (title, f" · {title}"))
    section = f'[data-testid="stTopNav"] > :nth-child({place + 1}) > [data-testid="stTopNavSection"] p'
    button = '[data-testid="stExpandSidebarButton"]'
    return (
        f"<style>{section} {{ font-weight: 600; }} {section}::after {{ content: {behind}; }} "
        f"{button} {{ width: auto; }} "
        f"{button}::after {{ content: {name}; margin: 0 6px; font-size: 14px; font-weight: 600; }}</style>"
    )
