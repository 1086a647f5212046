"""The verb that sets a step of a profiler trace beside the prediction for its execution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from pydantic import Field

from engine import traces
from engine.questions.bounds import Context
from engine.questions.documents.executions import TraceQuestion
from engine.questions.errors import QuestionError
from engine.questions.evaluation_settings import EvaluationSetting, load_evaluation_setting
from engine.questions.executions import evaluate_in
from engine.questions.plain import plain
from engine.questions.verb import Document, Verb

__all__ = ["COMPARE_TRACE", "compare_with_prediction"]


class ComparedTerm(Document):
    """A row of both steps [s]."""

    name: str
    measured_s: float
    predicted_s: float
    difference_s: float


class TraceAnswer(Document):
    """A measured step beside a predicted one."""

    model: str
    system: str
    cost_model: str
    calibration: str | None
    step: str = Field(description="Name of the median step in the trace.")
    steps: int = Field(description="Steps that the trace has; 1 where it has none and counts as a whole.")
    spread: float = Field(description="Longest less shortest step over the median one.")
    measured_s: float
    predicted_s: float
    rows: list[ComparedTerm] = Field(description="Rows that add up to the steps.")
    sentences: list[str] = Field(description="The difference, what explains it, and what to try.")
    remarks: list[str] = Field(description="What was left out or assumed while reading.")
    figures: dict[str, Any] = Field(description="All figures of the trace [µs].", json_schema_extra={"type": "object"})


def compare_with_prediction(
    step: traces.StepTerms, setting: EvaluationSetting, execution: Mapping[str, Any]
) -> traces.StepBesideModel:
    """Return a measured step beside the prediction for its execution.

    Args:
        step: of one rank.
        setting: model, system and cost model.
        execution: values by field.

    Raises `QuestionError` if the execution has no step time.
    """
    found = evaluate_in(setting, pd.DataFrame([dict(execution)], dtype=object)).iloc[0]
    row = {str(name): value for name, value in found.items()}
    time = row.get("total_time")
    if time is None or not time > 0:
        raise QuestionError(f"There is no prediction to compare with: {row['reason_text']}")
    return traces.compare_step(step, row)


def _answer_trace(asked: TraceQuestion, context: Context) -> dict[str, Any]:
    found = traces.read_content([(asked.name, asked.text.encode())])
    if not isinstance(found, traces.Trace):
        raise QuestionError("Summaries and logs of timers have no overlap to compare; give a trace of a rank.")
    setting = load_evaluation_setting(asked)
    step = found.terms()[0]
    compared = compare_with_prediction(step, setting, asked.execution)
    return {
        "model": setting.model.name,
        "system": setting.system.name,
        "cost_model": setting.cost_model.name,
        "calibration": setting.calibration_name,
        "step": step.name,
        "steps": step.num_steps,
        "spread": step.spread,
        **compared.document(),
        "remarks": list(found.remarks),
        "figures": plain(found.figures()),
    }


COMPARE_TRACE = Verb(
    "compare_trace",
    "A measured step beside the prediction",
    "Says where the step of a profiler trace went, next to the predicted parts of its execution, what explains the "
    "difference, and what to try.",
    TraceQuestion,
    TraceAnswer,
    _answer_trace,
)
