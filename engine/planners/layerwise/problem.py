"""Question to the layer-wise planner: a profile, a batch, a cluster, and options of the search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from engine.planners.contract import PlanError
from engine.planners.layerwise.cluster import MachineCluster
from engine.planners.layerwise.memory import POLICIES
from engine.planners.layerwise.profiles.profile import LayerProfile

__all__ = ["MODES", "LayerwiseProblem", "checked"]

MODES: Final = ("released", "paper")
MOST_BATCH: Final = 10**9
"""Most samples of a batch. Source: stated by us."""


@dataclass(frozen=True)
class LayerwiseProblem:
    """A profile, a batch and a cluster.

    `mode` is `released`, quick searches with the figures of HPGO 0.9.2, or `paper`, the paper's latency. `optimizer` is
    what parameters, gradients and optimizer states take in multiples of the parameters, `per_sample` the peak of one
    sample's activations [bytes], None for all of them, and `largest` the samples that a device with all layers holds at
    once, None to derive it from memory. `policy` and `recompute` are for mode `paper`: which microbatches stages keep,
    and whether stages that do not fit may recompute; `whole` allows a stage only so many devices as share a microbatch
    in whole samples.
    """

    profile: LayerProfile
    profile_batch: float
    global_batch: int
    cluster: MachineCluster
    microbatch: int = 1
    mode: str = "released"
    optimizer: float = 1.0
    per_sample: float | None = None
    largest: int | None = None
    policy: str = "A"
    recompute: bool = True
    whole: bool = False

    def document(self) -> dict[str, Any]:
        """Returns everything that the plan depends on, as JSON."""
        return {
            "layers": [
                [x.id, x.forward, x.backward, x.activation, x.parameters, x.stored] for x in self.profile.layers
            ],
            "edges": [list(edge) for edge in self.profile.edges],
            "kinds": {kind: [[x.forward, x.backward] for x in one.layers] for kind, one in self.profile.kinds},
            "profile_batch": self.profile_batch,
            "global_batch": self.global_batch,
            "cluster": self.cluster.document(),
            "microbatch": self.microbatch,
            "mode": self.mode,
            "optimizer": self.optimizer,
            "per_sample": self.per_sample,
            "largest": self.largest,
            "policy": self.policy,
            "recompute": self.recompute,
            "whole": self.whole,
        }


def checked(problem: LayerwiseProblem) -> LayerwiseProblem:
    """Returns the problem, if its numbers make sense.

    Args:
        problem: profile, cluster, batch and choices.

    Raises `engine.planners.contract.PlanError` naming the number that makes no sense.
    """
    for title, chosen, known in (("mode", problem.mode, MODES), ("policy", problem.policy, POLICIES)):
        if chosen not in known:
            raise PlanError(f"There is no {title} {str(chosen)[:40]!r}; choose {' or '.join(known)}.")
    for title, whole in (("global batch", problem.global_batch), ("microbatch", problem.microbatch)):
        if isinstance(whole, bool) or not isinstance(whole, int) or not 1 <= whole <= MOST_BATCH:
            raise PlanError(f"The {title} is {str(whole)[:40]}; it must be a whole number from 1 to {MOST_BATCH:,}.")
    if problem.microbatch > problem.global_batch:
        raise PlanError(
            f"A microbatch of {problem.microbatch:,} samples is larger than the global batch of "
            f"{problem.global_batch:,}; it can have as many samples at most."
        )
    for title, value in (
        ("profile batch", problem.profile_batch),
        ("optimizer factor", problem.optimizer),
        ("peak activation per sample", problem.per_sample),
    ):
        if value is not None and not (_is_number(value) and value > 0):
            raise PlanError(f"The {title} is {str(value)[:40]}; it must be a number above 0.")
    if problem.largest is not None and (not isinstance(problem.largest, int) or problem.largest < 0):
        raise PlanError(f"A device holds {str(problem.largest)[:40]} samples; that must be a whole number from 0.")
    if problem.mode == "released" and not problem.cluster.uniform:
        raise PlanError("Mode released knows one kind of device only; mode paper plans for several kinds.")
    known_kinds = {kind for kind, _ in problem.profile.kinds}
    for machine in problem.cluster.machines:
        if machine.kind and known_kinds and machine.kind not in known_kinds:
            listed = ", ".join(sorted(known_kinds))
            raise PlanError(f"The profile has no times for devices of kind {machine.kind!r}; it has {listed}.")
    return problem


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
