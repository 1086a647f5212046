"""Errors of inputs to DistIR's simulator."""

from __future__ import annotations

__all__ = ["ConfigurationError"]


class ConfigurationError(ValueError):
    """A table of configurations, a size, a constant or a name that cannot be used; the message says what would do."""
