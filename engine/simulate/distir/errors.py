"""What can be wrong with what DistIR's simulator is asked."""

from __future__ import annotations

__all__ = ["ConfigurationError"]


class ConfigurationError(ValueError):
    """A table of configurations, a size, a constant or a name that cannot be used; the message says what would do."""
