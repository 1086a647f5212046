"""Elastic planning: plans under changing resources, and jobs on a shared cluster, as Morphling/Rubick does it."""

from engine.planners.elastic.cluster import replay

__all__ = ["replay"]
