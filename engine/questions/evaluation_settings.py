"""Model, system, cost model and calibration of a question about executions."""

from __future__ import annotations

from dataclasses import dataclass

from engine.cost_models.contract import CostModel
from engine.cost_models.registry import chosen_cost_model
from engine.questions.documents.executions import EvaluationSettingQuestion
from engine.questions.scenario_documents import found_calibration, found_system, tuned_model
from hardware import Calibration, System
from models import Model

__all__ = ["EvaluationSetting", "load_evaluation_setting"]


@dataclass(frozen=True, slots=True)
class EvaluationSetting:
    """Model, system and cost model with which executions are evaluated."""

    model: Model
    system: System
    cost_model: CostModel
    calibration: Calibration | None
    """The one that was asked for; None for the cost model's own."""

    @property
    def calibration_name(self) -> str | None:
        """Name of the calibration whose values are used; None if the cost model takes none."""
        used = self.cost_model.calibration(self.calibration)
        return None if used is None else used.name


def load_evaluation_setting(asked: EvaluationSettingQuestion) -> EvaluationSetting:
    """Return the model, system and cost model of a question.

    Args:
        asked: the question.

    Raises the errors of loading them, and `engine.CostModelError` for an unknown cost model.
    """
    system, calibration = found_system(asked.system), found_calibration(asked.calibration)
    cost_model = chosen_cost_model(asked.cost_model, system, calibration)
    return EvaluationSetting(tuned_model(asked), system, cost_model, calibration)
