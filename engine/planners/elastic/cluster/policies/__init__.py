"""Scheduling policies, each in a module of its own, and the registry of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from engine.planners.contract import PlanError
from engine.planners.elastic.cluster.cluster import Cluster
from engine.planners.elastic.cluster.policies.artifact import ArtifactPolicy
from engine.planners.elastic.cluster.policies.equal_share import EqualSharePolicy
from engine.planners.elastic.cluster.policies.first_come import FirstComePolicy
from engine.planners.elastic.cluster.policies.policy import Policy
from engine.planners.elastic.cluster.policies.published import PublishedPolicy

__all__ = ["POLICIES", "policy_of"]

POLICIES: Final[Mapping[str, Callable[[Cluster, float], Policy]]] = {
    "artifact": lambda cluster, pause: ArtifactPolicy(cluster),
    "published": lambda cluster, pause: PublishedPolicy(cluster, pause=pause),
    "first-come": lambda cluster, pause: FirstComePolicy(cluster),
    "equal-share": lambda cluster, pause: EqualSharePolicy(cluster),
}
ALIASES: Final = {"morphling": "artifact", "rubick": "published", "fcfs": "first-come", "equal": "equal-share"}


def policy_of(policy: str | Policy, cluster: Cluster, pause: float) -> Policy:
    """Returns a policy for a cluster.

    Args:
        policy: its name, or a policy, which is returned unchanged.
        cluster: that it schedules.
        pause: downtime of a job at a change [s].

    Raises `engine.planners.contract.PlanError` for an unknown name.
    """
    if not isinstance(policy, str):
        return policy
    name = policy.strip().lower().replace("_", "-")
    name = ALIASES.get(name, name)
    if name not in POLICIES:
        raise PlanError(f"There is no policy {policy[:40]!r}; choose {', '.join(POLICIES)}.")
    return POLICIES[name](cluster, pause)
