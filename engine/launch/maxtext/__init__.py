"""MaxText: words KEY=VALUE and YAML that overlays its base.yml."""

from engine.launch.maxtext.framework import MAXTEXT

__all__ = ["MAXTEXT"]
