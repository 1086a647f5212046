"""Login by Streamlit's OpenID Connect, if the server is configured for it.

Without an `[auth]` section in `.streamlit/secrets.toml` there are no accounts and nothing here shows.

The identity provider always returns to the start page. So the browser stores the address in its tab when Log in is
pressed, and goes back to it from the start page, by the two constant scripts below.
"""

from __future__ import annotations

from typing import Final

import streamlit as st

from dashboard.words.markdown import literal

__all__ = ["require", "signed_in"]

_REMEMBER: Final = """<script>
(() => {
  const name = "shardscape-address";
  const plain = location.search === "" && location.pathname.endsWith("/");
  try {
    // Somebody asked for the start page itself; who was sent to it, by a provider that refused, may try again.
    if (plain && document.referrer === "") sessionStorage.removeItem(name);
  } catch {}
  document.addEventListener("click", (event) => {
    if (plain || !event.target.closest(".st-key-log_in button")) return;
    const kept = {address: location.pathname + location.search, at: Date.now()};
    try { sessionStorage.setItem(name, JSON.stringify(kept)); } catch {}
  }, true);
})();
</script>"""
"""Script that stores the address of the login page when its button is pressed."""

_RETURN: Final = """<style>:has(> .st-key-returning) {display: none}</style><script>
(() => {
  const name = "shardscape-address", longest = 15 * 60 * 1000;
  try {
    const kept = JSON.parse(sessionStorage.getItem(name));
    sessionStorage.removeItem(name);
    if (kept === null || !(Math.abs(Date.now() - kept.at) < longest)) return;
    // A path of this server: "//" and "/\\\\" begin the address of another.
    if (!/^\\/(?![\\/\\\\])/.test(kept.address)) return;
    const there = new URL(kept.address, location.origin);
    if (there.origin !== location.origin) return;
    // Only from the start page, where a login ends; whoever is elsewhere asked for that meanwhile.
    const start = there.pathname.slice(0, there.pathname.lastIndexOf("/") + 1);
    if (location.search !== "" || ![start, start.slice(0, -1)].includes(location.pathname)) return;
    location.replace(there);
  } catch {}
})();
</script>"""
"""Script that goes from the start page to a stored address of the last quarter of an hour, once."""


def require() -> None:
    """Stop the page at a login button if a login is required and missing."""
    logged_in = st.user.to_dict().get("is_logged_in")
    if logged_in is None:  # there are no accounts
        return
    if logged_in:
        with st.container(key="returning"):
            st.html(_RETURN, unsafe_allow_javascript=True)
        return
    st.info("This server shows its results to people who have logged in.", icon=":material/lock:")
    st.button("Log in", type="primary", icon=":material/login:", on_click=st.login, key="log_in")
    st.html(_REMEMBER, unsafe_allow_javascript=True)
    st.stop()


def signed_in() -> None:
    """Show the account and a log-out button at the end of a page; nothing without accounts."""
    user = st.user.to_dict()
    if not user.get("is_logged_in"):
        return
    line = st.container(horizontal=True, vertical_alignment="center")
    line.caption(f"Logged in as {literal(str(user.get('email') or user.get('name') or 'unnamed'))}", width="content")
    line.button("Log out", type="tertiary", on_click=st.logout)
