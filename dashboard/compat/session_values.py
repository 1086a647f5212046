"""List a session's values safely while an abandoned run of a page still changes them.

It leans on how Streamlit lists the names of values; checked with Streamlit 1.67.0, and held by
tests/dashboard/compat/test_compat.py.
"""

from __future__ import annotations

from typing import Final

from streamlit.runtime.state.session_state import SessionState

__all__ = ["listed_while_they_change"]

_TRIES: Final = 20


def listed_while_they_change() -> None:
    """Make Streamlit list a session's values again if another run changed them meanwhile.

    A click that comes while a page runs may have Streamlit start the next run beside the old one, which goes on until
    it next looks whether it is still wanted. Both use the values of one session, each behind a lock of its own: a
    widget of the old one that lists them while the new one adds some would end the old one in an error.
    """
    names = SessionState._keys

    def listed(self: SessionState) -> set[str]:
        for _ in range(_TRIES):
            try:
                return names(self)
            except RuntimeError:  # a dictionary changed while it was gone through
                continue
        return names(self)

    SessionState._keys = listed  # type: ignore[method-assign]
