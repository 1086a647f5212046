"""Registry of cost models by name, and the default one."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any, Final

from engine.columns import declare, undeclare
from engine.cost_models.contract import CostModel, CostModelError
from hardware import Calibration, System
from models import Model
from models.documents import shown, within

__all__ = [
    "COST_MODELS",
    "able",
    "added",
    "chosen_cost_model",
    "cost_model_of",
    "cost_model_with",
    "cost_models_ignoring",
    "ignored_paths",
    "named",
    "register",
    "unregister",
]

OFFERED: Final = (
    "engine.cost_models.calibrated.cost_model:CALIBRATED",
    "engine.cost_models.calculon.cost_model:CALCULON",
)
"""Module and object of each cost model that comes with Shardscape, in the order in which they are offered. Text, not
imports, so that adding one is one line."""

COST_MODELS: Final[dict[str, CostModel]] = {}
"""The cost models by name, in the order in which they are offered."""


def cost_models_ignoring(path: str) -> tuple[str, ...]:
    """Returns the names of the cost models in which a value of a system's document changes no figure.

    Args:
        path: of the value, such as "networks.0.latency_s".
    """
    return tuple(name for name, each in COST_MODELS.items() if any(within(path, one) for one in each.without_effect))


def ignored_paths(system: System, cost_model: CostModel) -> tuple[str, ...]:
    """Returns the paths of `CostModel.without_effect` that lead to a value of a system.

    Args:
        system: any system.
        cost_model: whose figures are meant.
    """

    def is_said(path: str) -> bool:
        return any(value is not None for _, value in system.values_at(path))

    return tuple(path for path in cost_model.without_effect if is_said(path))


def register(cost_model: CostModel) -> None:
    """Register a cost model, behind the ones already registered.

    Args:
        cost_model: an object of a class that other processes can import, since they register it too (`added`).
    """
    COST_MODELS[cost_model.name] = cost_model
    declare(cost_model.name, cost_model.columns)


def unregister(name: str) -> None:
    """Remove a cost model, for tests that registered one. Raises KeyError for an unknown name.

    Args:
        name: name of a registered cost model.
    """
    del COST_MODELS[name]
    undeclare(name)


def added() -> tuple[CostModel, ...]:
    """Returns the cost models that were made known after this module was imported.

    A process that is started does not know them and has to `register` them; each is pickled as its class.

    Raises `CostModelError` for one whose class is in the main script or within a function, where no other process can
    import it.
    """
    found = tuple(each for each in COST_MODELS.values() if each not in _SHIPPED)
    for each in found:
        kind = type(each)
        if kind.__module__ == "__main__" or kind.__qualname__ != kind.__name__:
            raise CostModelError(
                f"The class of the cost model {each.name} is defined where other processes cannot import it; "
                "put it on the top level of a module other than the main script, or use one process (workers=1)."
            )
    return found


def named(name: str) -> CostModel:
    """Return the cost model of a name. Raises `CostModelError` for an unknown name.

    Args:
        name: such as "calibrated".
    """
    found = COST_MODELS.get(name) if isinstance(name, str) else None
    if found is None:
        raise CostModelError(f"cost_model is {shown(name)}; it must be one of {', '.join(COST_MODELS)}.")
    return found


def cost_model_of(thing: Any) -> CostModel:
    """Return the cost model of a scenario or of a space. Raises `CostModelError` if this process has not registered it.

    Args:
        thing: an object with the name of a cost model as `cost_model`.
    """
    return named(thing.cost_model)


def cost_model_with(field: str) -> CostModel:
    """Returns the first cost model whose executions have a field. Raises `CostModelError` where none has it.

    Args:
        field: name of a field of executions.
    """
    found = next((each for each in COST_MODELS.values() if any(field == one.name for one in each.columns.fields)), None)
    if found is None:
        raise CostModelError(f"No cost model has executions with the field {shown(field)}.")
    return found


def able(model: Model, preferred: str) -> CostModel:
    """Return the preferred cost model if it can compute a model, else the first that can.

    Raises `CostModelError` if no cost model can compute it, or for an unknown name.

    Args:
        model: model to compute.
        preferred: name of the cost model to try first.
    """
    first = named(preferred)
    found = next((each for each in (first, *COST_MODELS.values()) if not each.unsupported(model)), None)
    if found is None:
        raise CostModelError(" ".join(first.unsupported(model)))
    return found


def chosen_cost_model(cost_model: str | None, system: System, calibration: Calibration | None = None) -> CostModel:
    """Return the cost model to use: the requested one, else one that takes the calibration, else the one that the
    system names.

    Args:
        cost_model: name of the requested cost model; None without a request.
        system: its description names the cost model that it is meant for, which may be any name.
        calibration: values of the cost model's parameters; None without a calibration.

    Raises `CostModelError` for an unknown name, requested or in the system's description, and for a calibration with a
    cost model that takes no calibration.
    """
    if cost_model is None and calibration is not None:
        return next(each for each in COST_MODELS.values() if each.takes_calibration)
    if cost_model is None and system.cost_model not in COST_MODELS:
        raise CostModelError(
            f"The system {shown(system.name)} is meant for the cost model {shown(system.cost_model)}, which there is "
            f"not; its cost_model must be one of {', '.join(COST_MODELS)}, or one of them has to be asked for."
        )
    found = named(system.cost_model if cost_model is None else cost_model)
    if calibration is not None and not found.takes_calibration:
        others = " or ".join(each.name for each in COST_MODELS.values() if each.takes_calibration)
        raise CostModelError(f"The cost model {found.name} takes no calibration; leave it out or ask for {others}.")
    return found


for _place in OFFERED:
    register(resolve_name(_place))
_SHIPPED: Final = tuple(COST_MODELS.values())
