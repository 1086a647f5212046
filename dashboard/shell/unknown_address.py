"""Answers for addresses that are no page: a redirect where the spelling is close, otherwise status 404 and the pages.

Streamlit serves its front end at every address, and shows the start page where there is no page.
"""

from __future__ import annotations

from html import escape
from typing import Final
from urllib.parse import quote

import streamlit as st
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["NamedPages", "answer_unknown"]

_SHOWN: Final = 60
"""Characters of an unknown address that the answer repeats."""
_STYLE: Final = (
    ":root { color-scheme: light dark; } body { font: 14px/1.5 Inter, sans-serif; margin: 3rem auto; max-width: 40rem; "
    "padding: 0 1rem; color: light-dark(#1B2430, #E4E9F0); background: light-dark(#FFFFFF, #11151C); } "
    "h1 { font-size: 20px; } h2 { font-size: 14px; margin-bottom: 0; } li { padding: 2px 0; } "
    "a { color: light-dark(#1F5FA8, #7FB2F0); }"
)


class NamedPages:
    """Middleware that answers for the front end at addresses that are no page."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application; replace the front end by the answer if the address is unknown."""
        answer = answer_unknown(scope["path"], scope["query_string"].decode("latin-1")) if _asks(scope) else None
        if answer is None:
            await self._app(scope, receive, send)
            return
        replaced = False

        async def instead(message: Message) -> None:
            nonlocal replaced
            if message["type"] == "http.response.start":
                replaced = _is_front_end(message)
                if replaced:
                    await answer(scope, receive, send)
            if not replaced:
                await send(message)

        await self._app(scope, receive, instead)


def answer_unknown(path: str, query: str) -> Response | None:
    """Return the answer for an address; None for a page's.

    path: of the request. query: its parameters, which the links to pages keep.
    """
    from dashboard.pages.registry import PAGES

    base = "/".join(("", *filter(None, str(st.get_option("server.baseUrlPath")).split("/"))))
    if path != base and not path.startswith(f"{base}/"):
        return None
    name = path.removeprefix(base).lstrip("/")
    names = {page.name for page in PAGES}
    if name.rstrip("/") in {"", "index.html", *names}:
        return None
    # Relative, so that it holds below any path a proxy may add.
    above, more = "../" * name.count("/") or "./", f"?{query}" if query else ""
    meant = name.strip("/").lower().replace("-", "_")
    if meant in names:
        return RedirectResponse(f"{above}{meant}{more}")
    return HTMLResponse(_page_markup(name, above, more), 404, headers={"Cache-Control": "no-store"})


def _page_markup(name: str, above: str, more: str) -> str:
    """Return the answer in one sentence, with links to all pages."""
    from dashboard.pages.registry import PAGES, sections

    shown = escape(name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…")
    parts = []
    for group, pages in sections().items():
        links = "".join(
            f'<li><a href="{escape(above + ("" if page is PAGES[0] else quote(page.name)) + more)}">'
            f"{escape(page.title)}</a> · {escape(page.help)}</li>"
            for page in pages
        )
        parts.append(f"<h2>{escape(group.value)}</h2><ul>{links}</ul>")
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>No such page · Shardscape</title><style>{_STYLE}</style></head>"
        f"<body><main><h1>There is no page /{shown}. These are the pages.</h1>{''.join(parts)}</main></body></html>"
    )


def _asks(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] in ("GET", "HEAD")


def _is_front_end(message: Message) -> bool:
    """Return whether an answer begins the page of the front end, and is not a file to download."""
    headers = {name.lower(): value for name, value in message["headers"]}
    return (
        message["status"] == 200
        and headers.get(b"content-type", b"").startswith(b"text/html")
        and b"content-disposition" not in headers
    )
