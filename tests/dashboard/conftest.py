"""Settings shared by the tests of the dashboard."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _main_module() -> Iterator[None]:
    """Puts `__main__` back: Streamlit's AppTest leaves a page's script there, which spawned processes would run."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before
