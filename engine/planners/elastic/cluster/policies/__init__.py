"""Scheduling policies, each in a module of its own, and the registry of them.

Packages above this one, and users, add policies by `register_policy`: `engine.reproductions` adds one of a paper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

from engine.planners.contract import PlanError
from engine.planners.elastic.cluster.cluster import Cluster
from engine.planners.elastic.cluster.policies.equal_share import EqualSharePolicy
from engine.planners.elastic.cluster.policies.first_come import FirstComePolicy
from engine.planners.elastic.cluster.policies.policy import Policy
from engine.planners.elastic.cluster.policies.published import PublishedPolicy
from models.documents import did_you_mean, shown

__all__ = ["POLICIES", "PolicyMaker", "policy_of", "register_policy"]

PolicyMaker: TypeAlias = Callable[[Cluster, float], Policy]
"""Makes a policy for a cluster, given the downtime of a job at a change [s]."""

_REGISTERED: dict[str, PolicyMaker] = {
    "published": lambda cluster, pause: PublishedPolicy(cluster, pause=pause),
    "first-come": lambda cluster, pause: FirstComePolicy(cluster),
    "equal-share": lambda cluster, pause: EqualSharePolicy(cluster),
}
_ALIASES: Final = {"rubick": "published", "fcfs": "first-come", "equal": "equal-share"}

POLICIES: Final[Mapping[str, PolicyMaker]] = MappingProxyType(_REGISTERED)
"""Policies by name: registered ones first, the last registered at the front."""


def register_policy(name: str, make: PolicyMaker, *, aliases: Sequence[str] = ()) -> None:
    """Add a policy, which comparisons then list first, or replace the policy of that name.

    Args:
        name: lower case, with hyphens.
        make: makes the policy.
        aliases: other names for it.
    """
    others = {each: maker for each, maker in _REGISTERED.items() if each != name}
    _REGISTERED.clear()
    _REGISTERED.update({name: make, **others})
    _ALIASES.update(dict.fromkeys(aliases, name))


def policy_of(policy: str | Policy, cluster: Cluster, pause: float) -> Policy:
    """Return a policy for a cluster.

    Args:
        policy: its name, or a policy, which is returned unchanged.
        cluster: that it schedules.
        pause: downtime of a job at a change [s].

    Raises:
        PlanError: unknown name.
    """
    if not isinstance(policy, str):
        return policy
    name = policy.strip().lower().replace("_", "-")
    name = _ALIASES.get(name, name)
    if name not in POLICIES:
        known = list(POLICIES)
        raise PlanError(
            f"There is no policy {shown(policy)}{did_you_mean(name, known)}; choose {', '.join(known)}. "
            "`import engine.reproductions` adds policies of papers."
        )
    return POLICIES[name](cluster, pause)
