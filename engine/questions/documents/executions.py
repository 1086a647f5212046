"""Questions about single executions: figures, operations, rank, and launch configurations."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import Field

from engine.questions.documents.explorations import FiguresQuestion
from engine.questions.fields import Asked, FieldKind
from engine.questions.plain import Statistics
from engine.questions.scenario_documents import (
    LIMITS_SCHEMA,
    AdapterRank,
    AdapterTargets,
    AttentionName,
    CalibrationName,
    CostModelName,
    FrozenWeightBits,
    Limits,
    LossChunk,
    ModelName,
    SampleLengths,
    SystemName,
)
from engine.questions.verb import Document, Execution, Named
from models.documents import Accepts, Text, Whole

__all__ = [
    "FRAMEWORK_NAMES",
    "MOST_EXECUTIONS",
    "EvaluateQuestion",
    "EvaluationSettingQuestion",
    "ExecutionFiguresQuestion",
    "ExportQuestion",
    "ImportQuestion",
    "OperationsQuestion",
    "ReadingTermsQuestion",
    "StandingQuestion",
    "TraceQuestion",
]

MOST_EXECUTIONS: Final = 1_000
LONGEST_TEXT: Final = 500_000
LONGEST_TRACE: Final = 50_000_000
FRAMEWORK_NAMES: Final = ("megatron", "megatron-bridge", "torchtitan", "deepspeed", "maxtext")
"""Frameworks of `engine.launch`."""
_FRAMEWORKS: Final = "|".join(FRAMEWORK_NAMES)

Gpus = Annotated[int, Whole(1, 2**31 - 1)]


class EvaluationSettingQuestion(Document):
    """Model, system and cost model with which executions are evaluated."""

    model: ModelName = Field(description="Model: a name that `list_models` has, or a whole model document.")
    system: SystemName = Field(description="System: a name that `list_systems` has, or a whole system document.")
    cost_model: CostModelName = Field(default=None, description="calibrated or calculon; null as for a scenario.")
    calibration: CalibrationName = Field(
        default=None, description="Values for the cost model calibrated; the library's by default."
    )
    adapter_rank: AdapterRank = None
    adapter_targets: AdapterTargets = None
    frozen_weight_bits: FrozenWeightBits = None
    loss_chunk: LossChunk = None
    sample_lengths: SampleLengths = None


class ExecutionFiguresQuestion(EvaluationSettingQuestion):
    """Model, system and cost model of executions, and how their MFU and TFLOP/s count attention."""

    attention: AttentionName = None


class EvaluateQuestion(EvaluationSettingQuestion):
    """Question for the figures of given executions."""

    executions: list[Execution] = Field(min_length=1, max_length=MOST_EXECUTIONS)
    statistics: Statistics = None


class OperationsQuestion(EvaluationSettingQuestion):
    """Question for the operations of one block of an execution."""

    execution: Execution


class ExportQuestion(Document):
    """Execution to export as a launch configuration, and its destination."""

    execution: Execution
    model: ModelName = Field(description="Model: a name that `list_models` has, or a whole model document.")
    framework: Annotated[
        str, Asked("Framework", option="to", metavar=_FRAMEWORKS, option_help="Framework to write for.")
    ] = Field(description=f"One of {', '.join(FRAMEWORK_NAMES)}.")
    nodes: Annotated[Annotated[int, Whole(1, 2**20)] | None, Asked("Nodes")] = Field(
        default=None, description="Machines that the GPUs stand in, evenly; of eight GPUs each by default."
    )


class ReadingTermsQuestion(Document):
    """Terms for reading a launch configuration."""

    framework: Annotated[
        str | None,
        Asked("Framework", metavar=_FRAMEWORKS, option_help="Framework of the text; recognised by default."),
    ] = Field(default=None, description=f"One of {', '.join(FRAMEWORK_NAMES)}; recognised by default.")
    num_procs: Annotated[Gpus | None, Asked("GPUs", option="procs")] = Field(
        default=None, description="GPUs; overrides the text."
    )
    model: Annotated[Named | None, Asked("Model")] = Field(
        default=None, description="Model; overrides the text, except for the sequence length."
    )
    recipe: Annotated[str | None, Asked("Recipe", metavar="NAME")] = Field(
        default=None, description="Which recipe of a Python file that has several."
    )
    stated: Annotated[
        dict[str, Any],
        Accepts("an object with values by field name"),
        Asked("Stated values", option="set", kind=FieldKind.VALUES),
    ] = Field(
        default_factory=dict,
        description="Values of fields that the text leaves open.",
        json_schema_extra={"additionalProperties": True},
    )
    takes_defaults: Annotated[bool, Asked("Framework's defaults", option="defaults")] = Field(
        default=False, description="Take the framework's defaults for flags in files that are not at hand."
    )


class ImportQuestion(ReadingTermsQuestion):
    """A launch configuration that is to be read."""

    text: Annotated[str, Text(LONGEST_TEXT, shortest=1)] = Field(
        description="Command line, script, recipe or configuration file."
    )
    name: Annotated[str, Text(200, shortest=1)] = Field(
        default="launch.sh", description="File name; its ending gives the format."
    )


class StandingQuestion(FiguresQuestion, ExecutionFiguresQuestion):
    """Question for the rank of an execution, and for the steps to the recommended one or to the fastest."""

    execution: Execution
    limits: Limits = Field(
        default_factory=dict,
        description="Limits on the executions to compare with, as in a scenario.",
        json_schema_extra=LIMITS_SCHEMA,
    )
    framework: Annotated[str, Asked("Framework", metavar=_FRAMEWORKS, option_help="Whose flags name the changes.")] = (
        Field(
            default="megatron",
            description=f"Framework whose flags name the steps: one of {', '.join(FRAMEWORK_NAMES)}.",
        )
    )
    statistics: Statistics = None


class TraceQuestion(EvaluationSettingQuestion):
    """Question for a measured step beside the prediction for its execution."""

    execution: Execution
    text: Annotated[str, Text(LONGEST_TRACE, shortest=1)] = Field(
        description="Trace of one rank: JSON of PyTorch's profiler. The command `trace` reads packed and larger ones."
    )
    name: Annotated[str, Text(200, shortest=1)] = Field(default="trace.json", description="File name, for messages.")
