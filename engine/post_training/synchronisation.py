"""Time to bring new weights from the training ranks to the rollout engines."""

from __future__ import annotations

from engine.post_training.constants import PostTrainingConstants

__all__ = ["GB", "synchronisation_time"]

GB = 1e9
"""Bytes of a GB."""


def synchronisation_time(
    constants: PostTrainingConstants, method: str, weight_bytes: float, rollout_shards: int = 1
) -> float:
    """Return the seconds in which all rollout replicas have the new weights: a start, and all bytes at one rate.

    A broadcast reaches all replicas at the same time, so that their number does not count. Shards by RDMA are sent to
    every GPU of a replica at once, each at the rate of its own port.

    Args:
        constants: with rates by method.
        method: one of `SYNCHRONISATIONS`.
        weight_bytes: of all weights, as they are sent [bytes].
        rollout_shards: GPUs that share the weights of a replica.
    """
    start, rate = constants.value(f"synchronisation.{method}.start"), constants.value(f"synchronisation.{method}.rate")
    sent = weight_bytes / rollout_shards if method == "shards" else weight_bytes
    return start + sent / (rate * GB)
