"""Tests. A package, so that they can share the oracle and the reference figures."""
