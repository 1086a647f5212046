"""Verbs about single executions: their figures, and the launch configurations that they are."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import pandas as pd
from pydantic import Field

from engine.columns import fields_of
from engine.launch import FRAMEWORKS, LaunchReading, Written, named_shape, read_text, settle, write
from engine.launch.conversion import evaluable
from engine.questions.bounds import Context
from engine.questions.documents.executions import (
    EvaluateQuestion,
    ExportQuestion,
    ImportQuestion,
    OperationsQuestion,
    ReadingTermsQuestion,
)
from engine.questions.evaluation_settings import EvaluationSetting, load_evaluation_setting
from engine.questions.plain import chosen_statistics, plain, rows_of, units_of
from engine.questions.scenario_documents import found_model
from engine.questions.standings import reading_document
from engine.questions.verb import Document, Row, Verb
from engine.recommendation import add_fits, describe_fit
from engine.scenarios.dispatch import evaluate
from models import load, unrepresented

__all__ = [
    "EVALUATE",
    "EXPORT_LAUNCH",
    "IMPORT_LAUNCH",
    "OPERATIONS",
    "evaluate_in",
    "find_operations",
    "named_model",
    "reading_options",
    "write_launch",
    "written_document",
]

FRAMEWORK_NAMES: Final = ", ".join(FRAMEWORKS)


class EvaluateAnswer(Document):
    """Figures or errors of executions, in their order."""

    model: str
    system: str
    cost_model: str
    calibration: str | None
    not_represented: list[str] = Field(description="What of the model the figures leave out or approximate.")
    ok: int = Field(description="How many run.")
    executions: list[Row] = Field(
        description="Fields, status (ok, infeasible, invalid), the reason, and statistics; with the calibrated cost "
        "model also fit: fits, may not fit, may fit (above the capacity by less than the error of predicted memory, "
        "with statistics), does not fit."
    )
    units: dict[str, str] = Field(description="Units of the statistics by name.")


class OperationsAnswer(Document):
    """Operations of one block of an execution."""

    model: str
    system: str
    cost_model: str
    calibration: str | None
    not_represented: list[str] = Field(description="Parts of the model that figures leave out or approximate.")
    called: str = Field(description="Name of the rows: layers of Calculon's block, or operations.")
    operations: list[Row] = Field(description="Times [s], work [FLOP], traffic [bytes] and rates [FLOP/s], in order.")


class ExportAnswer(Document):
    """A launch configuration."""

    framework: str
    version: str = Field(description="Version of the framework that it is for.")
    files: dict[str, str] = Field(description="Text of each file by its name.")
    flags: dict[str, Any] = Field(description="Values by the framework's own names.")
    not_expressible: list[str] = Field(description="What of the execution the framework cannot say.")
    not_modelled: list[str] = Field(description="What the configuration sets that no field stands for.")
    remarks: list[str]


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
    setting = load_evaluation_setting(asked)
    table = pd.DataFrame(asked.executions, dtype=object)
    found = evaluate_in(setting, table)
    cost_model = setting.cost_model.name
    statistics = chosen_statistics(cost_model, asked.statistics)
    known = {column.name for column in fields_of(cost_model)}
    fitting = add_fits(
        setting.model, setting.system, table, found, cost_model=cost_model, calibration=setting.calibration
    )
    fits = fitting["fit"].tolist()
    rows = rows_of(fitting[[name for name in found if name != "id"]], cost_model, statistics)
    rows = [row if fit is None else {**row, "fit": fit} for row, fit in zip(rows, fits, strict=True)]
    for row in rows:
        if sentence := describe_fit(setting.model, setting.system, row.get("fit")):
            row["reason_text"] = f"{row['reason_text']} {sentence}"
    return {
        **_setting_document(setting),
        "ok": int((found["status"] == "ok").sum()),
        "executions": [
            {name: value for name, value in row.items() if name not in known or name in table} for row in rows
        ],
        "units": units_of(statistics),
    }


def evaluate_in(setting: EvaluationSetting, executions: pd.DataFrame) -> pd.DataFrame:
    """Return executions with their status, the reason if they cannot run, and all statistics, in their order.

    Args:
        setting: model, system and cost model.
        executions: fields [rows].
    """
    return evaluate(
        setting.model,
        setting.system,
        executions,
        cost_model=setting.cost_model.name,
        calibration=setting.calibration,
    )


def find_operations(setting: EvaluationSetting, execution: Mapping[str, Any]) -> pd.DataFrame:
    """Return the operations of one block of an execution, in order.

    Args:
        setting: model, system and cost model.
        execution: values by field.

    Raises `engine.LayerError` if the execution cannot run.
    """
    return setting.cost_model.operations(setting.model, setting.system, execution, setting.calibration)


def _setting_document(setting: EvaluationSetting) -> dict[str, Any]:
    return {
        "model": setting.model.name,
        "system": setting.system.name,
        "cost_model": setting.cost_model.name,
        "calibration": setting.calibration_name,
        "not_represented": list(unrepresented(setting.model)),
    }


def _answer_operations(asked: OperationsQuestion, context: Context) -> dict[str, Any]:
    setting = load_evaluation_setting(asked)
    found = find_operations(setting, asked.execution)
    return {
        **_setting_document(setting),
        "called": setting.cost_model.words.operations,
        "operations": plain(found.to_dict("records")),
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


def write_launch(asked: ExportQuestion, note: str = "") -> Written:
    """Return an execution as a launch configuration.

    Args:
        asked: the question.
        note: sentence about the execution, which the files have as a comment.

    Raises the errors of `engine.launch.write` and of loading the model.
    """
    return write(asked.execution, found_model(asked.model), framework=asked.framework, nodes=asked.nodes, note=note)


def _answer_export(asked: ExportQuestion, context: Context) -> dict[str, Any]:
    return written_document(write_launch(asked))


def reading_options(asked: ReadingTermsQuestion) -> dict[str, Any]:
    """Return what a question states of a configuration, as keywords of `engine.launch.read`.

    Args:
        asked: the question.

    Raises the errors of loading the model.
    """
    model = asked.model
    return {
        "framework": asked.framework,
        "gpus": asked.num_procs,
        "recipe": asked.recipe,
        "stated": asked.stated,
        "model": model if model is None or isinstance(model, str) else found_model(model),
        "takes_defaults": asked.takes_defaults,
    }


def _answer_import(asked: ImportQuestion, context: Context) -> dict[str, Any]:
    if isinstance(asked.model, str):
        found_model(asked.model)  # a name of the library, no path
    found = read_text(asked.text, asked.name, **reading_options(asked))
    complete, assumed = None, {}
    with suppress(ValueError):  # `left` and `origins` say what is open
        complete, assumed = plain(evaluable(found)), plain(settle(found)[1])
    named, left_out = named_model(found, asked)
    document = plain(reading_document(found, named, left_out))
    return {**document, "complete_execution": complete, "assumed": assumed}


def named_model(found: LaunchReading, asked: ReadingTermsQuestion) -> tuple[str | None, list[str]]:
    """Return the name of a configuration's model, and its parts that figures leave out.

    Args:
        found: the configuration.
        asked: the question, which may name the model.
    """
    if asked.model is not None:
        model = found_model(asked.model)
        return model.name, list(unrepresented(model))
    named = named_shape(found.model)
    return named, [] if named is None else list(unrepresented(load(named)))


EVALUATE = Verb(
    "evaluate",
    "Evaluate executions",
    "Predicts step time, throughput, memory and other figures of given executions, or says why they cannot run.",
    EvaluateQuestion,
    EvaluateAnswer,
    _answer_evaluate,
)
OPERATIONS = Verb(
    "operations",
    "Operations of a block",
    "Shows the times, work and memory traffic of each operation of one block of an execution, for one microbatch.",
    OperationsQuestion,
    OperationsAnswer,
    _answer_operations,
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
