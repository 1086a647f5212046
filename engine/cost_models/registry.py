"""The cost models that there are, by name, and which one is used where none is asked for."""

from __future__ import annotations

from typing import Any, Final

from engine.columns import declare, undeclare
from engine.cost_models.calculon.cost_model import CALCULON
from engine.cost_models.calibrated.cost_model import CALIBRATED
from engine.cost_models.contract import CostModel, CostModelError
from hardware import Calibration, System
from models import Model
from models.documents import shown

__all__ = ["COST_MODELS", "able", "chosen_cost_model", "cost_model_of", "named", "register", "unregister"]

COST_MODELS: Final[dict[str, CostModel]] = {}
"""The cost models by name, in the order in which they are offered."""


def register(cost_model: CostModel) -> None:
    """Makes a cost model known."""
    COST_MODELS[cost_model.name] = cost_model
    declare(cost_model.name, cost_model.columns)


def named(name: str) -> CostModel:
    """The cost model of a name. Raises `CostModelError`."""
    found = COST_MODELS.get(name) if isinstance(name, str) else None
    if found is None:
        raise CostModelError(f"cost_model is {shown(name)}; it must be one of {', '.join(COST_MODELS)}.")
    return found


def cost_model_of(thing: Any) -> CostModel:
    """The cost model of a scenario or of a space."""
    return COST_MODELS[thing.cost_model]


def unregister(name: str) -> None:
    """Forgets a cost model, for tests that made one known."""
    del COST_MODELS[name]
    undeclare(name)


def able(model: Model, preferred: str) -> CostModel:
    """The cost model of a name if it can compute a model, else the first that can.

    Raises `CostModelError` where none can, or where there is none of that name.
    """
    first = named(preferred)
    found = next((each for each in (first, *COST_MODELS.values()) if not each.unsupported(model)), None)
    if found is None:
        raise CostModelError(" ".join(first.unsupported(model)))
    return found


def chosen_cost_model(cost_model: str | None, system: System, calibration: Calibration | None = None) -> CostModel:
    """The cost model to use: the one asked for, else what the system's figures are meant for.

    That is `calibrated` for all systems but Calculon's own descriptions. Raises `CostModelError`.
    """
    if cost_model is None and calibration is not None:
        return next(each for each in COST_MODELS.values() if each.takes_calibration)
    found = named(system.cost_model if cost_model is None else cost_model)
    if calibration is not None and not found.takes_calibration:
        others = " or ".join(each.name for each in COST_MODELS.values() if each.takes_calibration)
        raise CostModelError(f"The cost model {found.name} takes no calibration; leave it out or ask for {others}.")
    return found


register(CALIBRATED)
register(CALCULON)
