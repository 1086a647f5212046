"""Which cost models there are, and which one is used where none is asked for."""

from __future__ import annotations

from typing import Final

from hardware import Calibration, System
from models.documents import shown

__all__ = ["COST_MODELS", "PHYSICS", "CostModelError", "chosen_cost_model"]

COST_MODELS: Final = ("calibrated", "calculon")

PHYSICS: Final = {"calculon": "calculon-0.1.0/1", "calibrated": "calibrated/6"}
"""Version of each cost model. Raised whenever a formula changes, so that stored results are not reused."""


class CostModelError(ValueError):
    """A cost model that does not exist, or a calibration for one that takes none."""


def chosen_cost_model(cost_model: str | None, system: System, calibration: Calibration | None = None) -> str:
    """The cost model to use: the one asked for, else what the system's figures are meant for.

    That is `calibrated` for all systems but Calculon's own descriptions. Raises `CostModelError`.
    """
    if cost_model is None:
        cost_model = "calibrated" if calibration is not None else system.cost_model
    if cost_model not in COST_MODELS:
        raise CostModelError(f"cost_model is {shown(cost_model)}; it must be one of {', '.join(COST_MODELS)}.")
    if calibration is not None and cost_model == "calculon":
        raise CostModelError("The cost model calculon takes no calibration; leave it out or ask for calibrated.")
    return cost_model
