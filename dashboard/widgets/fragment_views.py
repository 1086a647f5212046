"""View of a part of a page that reruns alone, without the page's own parse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["FragmentView"]

View = TypeVar("View")


@dataclass(slots=True)
class FragmentView(Generic[View]):
    """View of a fragment: the page's at its first drawing, parsed again whenever the fragment reruns alone.

    Streamlit calls a fragment that reruns with the arguments of its last drawing by the page; a page makes a new one
    of these at each of its runs.
    """

    view: View
    parse: Callable[[], View]
    """Parses the fragment's part of the link."""
    is_drawn: bool = False

    def current(self) -> View:
        """Return the view to draw; called once per drawing, at the fragment's door."""
        if self.is_drawn:
            self.view = self.parse()
        self.is_drawn = True
        return self.view
