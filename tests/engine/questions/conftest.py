"""Settings of the server that answers through pages."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _patient_pages() -> Iterator[None]:
    """Pages store nothing and wait for results instead of showing progress."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHARDSCAPE_PATIENCE", "55")
        patch.setenv("SHARDSCAPE_STORE", "off")
        yield
