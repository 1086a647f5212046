"""A fleet that training jobs and services share: who gets which GPUs in which hour, proven by integer programming."""

from engine.fleet.allocation import FleetError, allocate, check_problem
from engine.fleet.chain import ChainTime, FleetStage, StagedPlan, allocate_in_turn, check_chain, plan_allocation
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
    "ChainTime",
    "FleetChange",
    "FleetError",
    "FleetJob",
    "FleetProblem",
    "FleetService",
    "FleetStage",
    "GpuPool",
    "JobSize",
    "Objective",
    "ReplicaChoice",
    "StagedPlan",
    "allocate",
    "allocate_in_turn",
    "check_chain",
    "check_problem",
    "explain_allocation",
    "find_faults",
    "plan_allocation",
    "spare_nodes",
]
