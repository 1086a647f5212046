"""torchtitan: TOML files of 0.2.2 and before, and command lines of 0.3.0 and of its main branch of August 2026."""

from engine.launch.torchtitan.framework import TORCHTITAN

__all__ = ["TORCHTITAN"]
