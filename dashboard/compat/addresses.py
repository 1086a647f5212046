"""Switch off Streamlit's search for the machine's addresses.

Checked with Streamlit 1.67.0: it asks the network and an outside host when it starts on all addresses, and blocks the
server whenever a page of another origin wants a session. No option turns that off. A page from the server's own
address, or from one that the configuration names, needs no search; others are refused.
"""

from __future__ import annotations

from streamlit import net_util

__all__ = ["ask_nobody"]


def ask_nobody() -> None:
    """Leaves this machine's addresses unknown to Streamlit. To be called before the first request."""
    net_util.get_internal_ip = net_util.get_external_ip = lambda: None
