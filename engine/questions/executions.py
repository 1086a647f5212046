"""Verbs about single executions: their figures, and the launch configurations that they are."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from engine.columns import fields_of
from engine.launch import FRAMEWORKS, Written, named_shape, read_text, settle, write
from engine.launch.conversion import evaluable
from engine.questions.bounds import Context
from engine.questions.plain import Statistics, chosen_statistics, plain, rows_of, units_of
from engine.questions.scenario_documents import found_calibration, found_model, found_system
from engine.questions.standings import reading_document
from engine.questions.verb import Document, Execution, Named, Row, Verb
from engine.scenarios.dispatch import evaluate
from models import load, unrepresented
from models.documents import Accepts, Text, Whole

__all__ = ["EVALUATE", "EXPORT_LAUNCH", "IMPORT_LAUNCH", "written_document"]

MOST_EXECUTIONS = 1_000
LONGEST_TEXT = 500_000
FRAMEWORK_NAMES = ", ".join(FRAMEWORKS)


class EvaluateQuestion(Document):
    """Question for the figures of given executions."""

    model: Named = Field(description="Model: a name that `list_models` has, or a whole model document.")
    system: Named = Field(description="System: a name that `list_systems` has, or a whole system document.")
    executions: list[Execution] = Field(min_length=1, max_length=MOST_EXECUTIONS)
    cost_model: str | None = Field(default=None, description="calibrated or calculon; null as for a scenario.")
    calibration: Named | None = Field(default=None, description="Values for the cost model calibrated.")
    statistics: Statistics = None


class EvaluateAnswer(Document):
    """Figures or errors of executions, in their order."""

    model: str
    system: str
    cost_model: str
    calibration: str | None
    not_represented: list[str] = Field(description="What of the model the figures leave out or approximate.")
    ok: int = Field(description="How many run.")
    executions: list[Row] = Field(description="Fields, status (ok, infeasible, invalid), the reason, and statistics.")
    units: dict[str, str] = Field(description="Units of the statistics by name.")


class ExportQuestion(Document):
    """Execution to export as a launch configuration, and its destination."""

    execution: Execution
    model: Named = Field(description="Model: a name that `list_models` has, or a whole model document.")
    framework: str = Field(description=f"One of {FRAMEWORK_NAMES}.")
    nodes: Annotated[int, Whole(1, 2**20)] | None = Field(
        default=None, description="Machines that the GPUs stand in, evenly; of eight GPUs each by default."
    )


class ExportAnswer(Document):
    """A launch configuration."""

    framework: str
    version: str = Field(description="Version of the framework that it is for.")
    files: dict[str, str] = Field(description="Text of each file by its name.")
    flags: dict[str, Any] = Field(description="Values by the framework's own names.")
    not_expressible: list[str] = Field(description="What of the execution the framework cannot say.")
    not_modelled: list[str] = Field(description="What the configuration sets that no field stands for.")
    remarks: list[str]


class ImportQuestion(Document):
    """A launch configuration that is to be read."""

    text: Annotated[str, Text(LONGEST_TEXT, shortest=1)] = Field(
        description="Command line, script, recipe or configuration file."
    )
    name: Annotated[str, Text(200, shortest=1)] = Field(
        default="launch.sh", description="Name of its file; the ending tells what it is."
    )
    framework: str | None = Field(default=None, description=f"One of {FRAMEWORK_NAMES}; recognised where null.")
    num_procs: Annotated[int, Whole(1, 2**31 - 1)] | None = Field(
        default=None, description="GPUs, where the text does not say."
    )
    recipe: str | None = Field(default=None, description="Which recipe of a Python file that has several.")
    stated: Annotated[dict[str, Any], Accepts("an object with values by field name")] = Field(
        default_factory=dict,
        description="Values of fields that the text leaves open.",
        json_schema_extra={"additionalProperties": True},
    )


class ImportAnswer(Document):
    """Execution and model of a launch configuration."""

    framework: str
    version: str
    num_procs: int | None
    model_name: str | None = Field(description="Name in the library, where it is one of its models.")
    model: dict[str, Any] = Field(description="Sizes of the model as they are read.")
    execution: Row = Field(description="Fields that are said.")
    complete_execution: Row | None = Field(
        description="The same with every field, for `evaluate`; null where a field that decides is open."
    )
    assumed: Row = Field(description="Values of it that nothing states.")
    origins: dict[str, Any] = Field(
        description="Source of every value, by field: kind (stated, default, unknown), words, file and line."
    )
    left: list[str] = Field(description="What is left open, or to other sources.")
    not_modelled: list[str] = Field(description="What is set and no field stands for.")
    without_effect: list[str] = Field(description="What is set and changes nothing that is predicted.")
    recipes: list[str] = Field(description="Recipes of which the text has several.")
    unread: list[str] = Field(description="What is not known or not understood.")
    remarks: list[str]
    not_represented: list[str] = Field(
        description="What of the model figures leave out or approximate; empty where it is none of the library."
    )
    refused: str = Field(description="Why the framework would not start it; empty where nothing speaks against it.")


def _answer_evaluate(asked: EvaluateQuestion, context: Context) -> dict[str, Any]:
    model, system, calibration = (
        found_model(asked.model),
        found_system(asked.system),
        found_calibration(asked.calibration),
    )
    table = pd.DataFrame(asked.executions, dtype=object)
    found = evaluate(model, system, table, cost_model=asked.cost_model, calibration=calibration)
    cost_model = str(found.attrs["cost_model"])
    statistics = chosen_statistics(cost_model, asked.statistics)
    known = {column.name for column in fields_of(cost_model)}
    rows = rows_of(found[[name for name in found if name != "id"]], cost_model, statistics)
    return {
        "model": model.name,
        "system": system.name,
        "cost_model": cost_model,
        "calibration": found.attrs.get("calibration"),
        "not_represented": list(unrepresented(model)),
        "ok": int((found["status"] == "ok").sum()),
        "executions": [
            {name: value for name, value in row.items() if name not in known or name in table} for row in rows
        ],
        "units": units_of(statistics),
    }


def written_document(made: Written) -> dict[str, Any]:
    """Returns a launch configuration as a document.

    Args:
        made: what `engine.launch.write` returned.
    """
    return {
        "framework": made.framework,
        "version": made.version,
        "files": made.texts,
        "flags": dict(made.flags),
        "not_expressible": list(made.not_expressible),
        "not_modelled": list(made.not_modelled),
        "remarks": list(made.remarks),
    }


def _answer_export(asked: ExportQuestion, context: Context) -> dict[str, Any]:
    made = write(asked.execution, found_model(asked.model), framework=asked.framework, nodes=asked.nodes)
    return written_document(made)


def _answer_import(asked: ImportQuestion, context: Context) -> dict[str, Any]:
    found = read_text(
        asked.text,
        asked.name,
        framework=asked.framework,
        gpus=asked.num_procs,
        recipe=asked.recipe,
        stated=asked.stated,
    )
    complete, assumed = None, {}
    with suppress(ValueError):  # `left` and `origins` say what is open
        complete, assumed = plain(evaluable(found)), plain(settle(found)[1])
    named = named_shape(found.model)
    left_out = () if named is None else unrepresented(load(named))
    document = plain(reading_document(found, named, left_out))
    return {**document, "complete_execution": complete, "assumed": assumed}


EVALUATE = Verb(
    "evaluate",
    "Evaluate executions",
    "Predicts step time, throughput, memory and other figures of given executions, or says why they cannot run.",
    EvaluateQuestion,
    EvaluateAnswer,
    _answer_evaluate,
)
EXPORT_LAUNCH = Verb(
    "export_launch",
    "Export a launch configuration",
    f"Writes an execution as a complete configuration with all flags that a framework starts with: {FRAMEWORK_NAMES}.",
    ExportQuestion,
    ExportAnswer,
    _answer_export,
)
IMPORT_LAUNCH = Verb(
    "import_launch",
    "Read a launch configuration",
    f"Reads a launch script or configuration ({FRAMEWORK_NAMES}) as a model and an execution, naming what is unread.",
    ImportQuestion,
    ImportAnswer,
    _answer_import,
)
