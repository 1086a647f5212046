"""Login, where the server is configured for it: Streamlit's own OpenID Connect.

Without an `[auth]` section in `.streamlit/secrets.toml` there are no accounts and nothing here shows.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st

from dashboard.text import literal

__all__ = ["require", "signed_in"]


def require() -> None:
    """Stops the page at a login button when the server asks for a login and there was none."""
    if st.user.to_dict().get("is_logged_in", True):
        return
    # The way through the identity provider ends at the start page, whatever the address was.
    again = " The start page comes first then: open your link again after it." if _is_link() else ""
    st.info(f"This server shows its results to people who have logged in.{again}", icon=":material/lock:")
    st.button("Log in", type="primary", icon=":material/login:", on_click=st.login)
    st.stop()


def _is_link() -> bool:
    """Whether the address says more than where the server is."""
    return bool(st.query_params) or urlsplit(st.context.url or "").path.strip("/") != ""


def signed_in() -> None:
    """Says, at the end of a page, who is logged in, with a way out; nothing where there are no accounts."""
    user = st.user.to_dict()
    if not user.get("is_logged_in"):
        return
    line = st.container(horizontal=True, vertical_alignment="center")
    line.caption(f"Logged in as {literal(str(user.get('email') or user.get('name') or 'unnamed'))}", width="content")
    line.button("Log out", type="tertiary", on_click=st.logout)
