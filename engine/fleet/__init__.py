"""A fleet that training jobs and services share: who gets which GPUs in which hour, proven by integer programming."""

from engine.fleet.allocation import FleetError, allocate, check_problem
from engine.fleet.problem import (
    OBJECTIVES,
    Allocation,
    FleetJob,
    FleetProblem,
    FleetService,
    GpuPool,
    JobSize,
    Objective,
    ReplicaChoice,
)
from engine.fleet.reasons import FleetChange, explain_allocation
from engine.fleet.spares import spare_nodes
from engine.fleet.verification import find_faults

__all__ = [
    "OBJECTIVES",
    "Allocation",
    "FleetChange",
    "FleetError",
    "FleetJob",
    "FleetProblem",
    "FleetService",
    "GpuPool",
    "JobSize",
    "Objective",
    "ReplicaChoice",
    "allocate",
    "check_problem",
    "explain_allocation",
    "find_faults",
    "spare_nodes",
]
