"""Seconds of kernels and collectives of a library system, by the first cost model that separates them."""

from __future__ import annotations

from engine.cost_models.contract import KernelTimes
from engine.cost_models.registry import COST_MODELS
from engine.planners.contract import PlanError
from hardware import system_of
from hardware.loader import SystemLike
from models.datatypes import explain_refusal

__all__ = ["kernels_of"]


def kernels_of(system: SystemLike, datatype: str) -> KernelTimes:
    """Returns the times of kernels and collectives of a system.

    Args:
        system: name, path or system itself.
        datatype: of the matrix arithmetic.

    Raises:
        PlanError: the system has no rate for the datatype.
        hardware.SystemFileError: unknown or invalid system.
    """
    machine = system_of(system)
    if not machine.has_rate(datatype):
        raise PlanError(explain_refusal(datatype, machine.offered_datatypes, machine.name))
    for each in COST_MODELS.values():
        told = each.kernel_times(machine, datatype) if datatype in each.datatypes else None
        if told is not None:
            return told
    raise PlanError(f"No cost model tells what a kernel takes in {datatype[:40]!r}.")
