"""What leans on how Streamlit finds out under which addresses the machine is known.

Checked with Streamlit 1.67.0: it asks the network and a host of the outside when it starts on all addresses, and
whenever a page of a foreign origin wants a session, while everybody waits; no option turns that off. Who comes
from the address that was given, or from one that the configuration names, needs none of it; who does not is refused.
"""

from __future__ import annotations

from streamlit import net_util

__all__ = ["ask_nobody"]


def ask_nobody() -> None:
    """Leaves this machine's addresses unknown to Streamlit. To be called before the first request."""
    net_util.get_internal_ip = net_util.get_external_ip = lambda: None
