"""Putting a model or system of the library into the current scenario."""

from __future__ import annotations

from dashboard.link.document_validation import PROBLEMS, Refused, checked, sentence
from dashboard.queries.scenario_edits import altered
from engine import Scenario
from hardware import System
from models import Model

__all__ = ["scenario_with"]


def scenario_with(now: Scenario, thing: Model | System) -> Scenario:
    """Returns the scenario with another model or system. Raises `Refused` where that cannot be explored.

    Limits on networks go with the system they were for; a datatype that the new system has no rates for gives way to
    its first.
    """
    model, system, datatype, limits = now.model, now.system, now.datatype, dict(now.limits)
    if isinstance(thing, Model):
        model = thing
    else:
        system = thing
        limits = {field: limit for field, limit in limits.items() if not field.endswith("_net")}
        if datatype not in system.matrix:
            datatype = next(iter(system.matrix))
    try:
        return checked(altered(now, model=model, system=system, datatype=datatype, limits=limits))
    except PROBLEMS as problem:
        raise Refused(sentence(problem)) from None
