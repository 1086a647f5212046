"""Memory of a GPU in every phase of a step, and of the host: the phase that binds decides whether a run fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.post_training.training_side import ForwardPass
from engine.serving.memory import ServingMemoryUse
from hardware import GIB, System

__all__ = ["SLEEPING", "PhaseMemory", "engine_phase", "memory_phases", "teacher_phase", "tightest_phase"]

SLEEPING: Final = 2.0 * GIB
"""Memory of a GPU that a sleeping rollout engine keeps: context and captured graphs [bytes]. Source: 1 to 3 GB in
issue 15254 of vllm-project/vllm and the vLLM blog on sleep mode; middle, stated by us."""
BUCKET: Final = 0.5 * GIB
"""Bucket of weights in a synchronisation [bytes]. Source: verl's `update_weights_bucket_megabytes`, 512 by default."""
STATES: Final = 12.0
"""Bytes per parameter of the optimizer: master weights and two moments in 32 bits. Source: a count."""
WIDE: Final = 2.0
"""Bytes of a weight of 16 bits. Source: a count."""


@dataclass(frozen=True, slots=True)
class PhaseMemory:
    """Needs of one GPU in a phase, its capacity, and the parts of the needs by name [bytes]."""

    phase: str
    needs: float
    has: float
    parts: Mapping[str, float]

    @property
    def is_over(self) -> bool:
        """True if the phase does not fit."""
        return self.needs > self.has


def memory_phases(
    row: Mapping[str, Any],
    forward: ForwardPass,
    deployment: ServingMemoryUse,
    system: System,
    *,
    parameters: float,
    memory_share: float,
    is_colocated: bool,
) -> tuple[PhaseMemory, ...]:
    """Return the memory of every phase.

    In a colocated step the optimizer and its gradients move to the host during the rollout, and the engine sleeps with
    its weights on the host during training; a split step has neither.

    Args:
        row: fields and statistics of the execution that trains.
        forward: its forward pass.
        deployment: memory of the rollout [1], with as many requests as decode at once.
        system: that both run on.
        parameters: of the model.
        memory_share: share of the memory that the rollout engine may use.
        is_colocated: whether both sides share GPUs.
    """
    capacity = system.mem1.capacity_gib * GIB
    shards = float(row["num_procs"])
    sleeping = SLEEPING if is_colocated else 0.0
    own = {
        "weights": float(row["weight_space"]),
        "gradients": float(row["weight_grad_space"]),
        "optimizer": float(row["optimizer_space"]),
        "logits": float(row["logit_space"]),
        "temporaries": float(row["temporary_space"]),
        "reserve": float(row["reserve_space"]),
    }
    total = float(row["proc_mem_tier1_cap_req"])
    update = {**own, "activations": max(total - sum(own.values()), 0.0), "sleeping engine": sleeping}
    passes = {
        **forward.memory,
        "gradients and optimizer": 0.0 if is_colocated else own["gradients"] + own["optimizer"],
        "sleeping engine": sleeping,
    }
    engine_weights = float(deployment.weights[0])
    phases = [PhaseMemory("update", sum(update.values()), capacity, update)]
    phases.append(PhaseMemory("log_probs", sum(passes.values()), capacity, passes))
    buckets = 2.0 * BUCKET
    if is_colocated:
        sync = {"weights": own["weights"], "engine weights": engine_weights, "buckets": buckets}
        sync["sleeping engine"] = sleeping
        phases.append(PhaseMemory("synchronisation", sum(sync.values()), capacity, sync))
        # Level 1 keeps the engine's weights on the host; gradients are dropped, the optimizer moves.
        host = {"engine weights": engine_weights, "optimizer": STATES * parameters / shards}
        host["weights"] = WIDE * parameters / shards
        phases.append(PhaseMemory("host", sum(host.values()), system.mem2.capacity_gib * GIB, host))
    else:
        sync = {**own, "buckets": buckets}
        phases.append(PhaseMemory("synchronisation", sum(sync.values()), capacity, sync))
    phases.append(engine_phase("rollout", deployment, system, memory_share))
    return tuple(phases)


def engine_phase(name: str, deployment: ServingMemoryUse, system: System, memory_share: float) -> PhaseMemory:
    """Return the memory of a serving engine, of the rollout or a judge, within its share of a GPU.

    Args:
        name: of the phase.
        deployment: memory of the engine [1], with as many requests as decode at once.
        system: that it runs on.
        memory_share: share of the memory that it may use.
    """
    parts = {
        "weights": float(deployment.weights[0]),
        "cache": float(deployment.kv_cache[0]),
        "activations": float(deployment.activations[0]),
    }
    capacity = system.mem1.capacity_gib * GIB
    allowed = memory_share * capacity - (float(deployment.reserve[0]) - (1.0 - memory_share) * capacity)
    return PhaseMemory(name, sum(parts.values()), max(allowed, 0.0), parts)


def teacher_phase(row: Mapping[str, Any], system: System, needs: float, *, is_colocated: bool) -> PhaseMemory:
    """Return the memory of a teacher's pass next to the state of the trained model.

    Args:
        row: fields and statistics of the execution that trains.
        system: that both run on.
        needs: of the teacher's forward pass [bytes].
        is_colocated: whether gradients and optimizer are on the host, and an engine sleeps.
    """
    state = float(row["weight_grad_space"]) + float(row["optimizer_space"])
    parts = {
        "teacher": needs,
        "weights": float(row["weight_space"]),
        "gradients and optimizer": 0.0 if is_colocated else state,
        "sleeping engine": SLEEPING if is_colocated else 0.0,
    }
    return PhaseMemory("teacher", sum(parts.values()), system.mem1.capacity_gib * GIB, parts)


def tightest_phase(phases: tuple[PhaseMemory, ...]) -> PhaseMemory:
    """Return the phase with the largest share of its memory in use.

    Args:
        phases: of a step.
    """
    return max(phases, key=lambda each: each.needs / each.has if each.has > 0 else float("inf"))
