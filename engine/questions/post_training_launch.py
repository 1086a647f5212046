"""Verbs about launch files of reinforcement learning: a plan as a launch file, and a launch file as a question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, ValidationError

from engine.launch.contract import Written
from engine.launch.post_training import (
    LAYOUT_FIELDS,
    RUN_SETTINGS,
    RunReading,
    read_run_text,
    run_framework_of,
    run_limits,
    write_run,
)
from engine.post_training.constants import FRAMEWORKS
from engine.post_training.iteration import MODES
from engine.post_training.search import COLOCATED_SHARE, SPLIT_SHARE, split_unit
from engine.questions.bounds import Context
from engine.questions.documents.post_training import PostTrainingQuestion
from engine.questions.documents.post_training_launch import PostTrainingExportQuestion, PostTrainingImportQuestion
from engine.questions.plain import plain
from engine.questions.post_training import (
    STALENESS,
    PostTrainingAnswer,
    find_asked_post_training,
    post_training_document,
)
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, QuestionError, Row, Verb
from models.documents import sentence

__all__ = [
    "EXPORT_POST_TRAINING",
    "IMPORT_POST_TRAINING",
    "export_document",
    "limited_to_framework",
    "origin_rows_of_run",
    "plan_question_of",
    "plan_with_framework",
    "question_of_run",
    "read_post_training",
    "run_document",
    "write_planned_run",
    "written_run_document",
]

NEEDED: Final = (
    "model",
    "num_procs",
    "prompts",
    "group",
    "prompt_tokens",
    "response.mean",
    "response.cap",
    "updates",
    "mode",
)
"""Settings of a run that a step depends on, by path."""
NO_CONSTANTS: Final = "slime has no constants of its own: figures use those of NeMo-RL."


class PostTrainingExportAnswer(Document):
    """Launch file of the fastest mode that a framework runs."""

    framework: str
    version: str = Field(description="Version of the framework that it is for.")
    mode: str = Field(description="Mode that it runs.")
    step_s: float = Field(description="Step of that mode [s].")
    limits: dict[str, Any] = Field(description="Limits of executions that the framework brought, by field.")
    files: dict[str, str] = Field(description="Text of each file by its name.")
    flags: dict[str, Any] = Field(description="Values by the framework's own keys.")
    not_expressible: list[str] = Field(description="What of the plan the framework cannot say.")
    not_modelled: list[str] = Field(description="What the file sets without a field here.")
    remarks: list[str]


class PostTrainingImportAnswer(Document):
    """Question about post-training that a launch file asks, with the origin of each value."""

    framework: str
    version: str = Field(description="Version of the framework whose options and defaults are known.")
    checkpoint: str = Field(description="Model as the file names it.")
    question: dict[str, Any] = Field(description="Known part of the question `plan_post_training`.")
    missing: list[str] = Field(description="Settings that nothing says and the question needs, by path.")
    assumed: dict[str, Any] = Field(description="Settings that nothing says, with the question's own default.")
    origins: list[Row] = Field(description="Setting, value, kind (stated, default or unknown), words, file and line.")
    replicas: Row = Field(description="Replicas of the rollout by field; the plan chooses what the question lacks.")
    refused: str = Field(description="Why the framework would not start; empty without a reason.")
    not_modelled: list[str]
    without_effect: list[str]
    unread: list[str]
    remarks: list[str]
    plan: PostTrainingAnswer | None = Field(description="Plan of the question; null without a system.")


# Writing.


def limited_to_framework(asked: PostTrainingQuestion, framework: str, mode: str) -> PostTrainingQuestion:
    """Return a question for one mode as a framework runs it: the executions that it has, its constants where there are
    some, and its way to send weights; limits of the question itself count.

    Args:
        asked: the question.
        framework: one of `engine.launch.post_training.RUN_FRAMEWORKS`.
        mode: one of the question's modes.
    """
    chosen = run_framework_of(framework)
    limits = {**run_limits(framework, found_model(asked.model)), **asked.training.limits}
    changes: dict[str, Any] = {"mode": mode, "training": asked.training.model_copy(update={"limits": limits})}
    if framework in FRAMEWORKS:
        changes["framework"] = framework
    if asked.synchronisation == PostTrainingQuestion.model_fields["synchronisation"].default:
        changes["synchronisation"] = chosen.synchronisation.get(mode, asked.synchronisation)
    if mode != "asynchronous":
        changes["staleness"] = None
    return PostTrainingQuestion.model_validate(
        {name: value for name, value in asked.model_copy(update=changes) if name in PostTrainingQuestion.model_fields}
    )


def plan_with_framework(
    asked: PostTrainingQuestion, framework: str, context: Context | None = None
) -> tuple[PostTrainingQuestion, dict[str, Any]]:
    """Return the question and the answer of the fastest mode as a framework runs it.

    Args:
        asked: the question; of `any` mode all are tried.
        framework: one of `engine.launch.post_training.RUN_FRAMEWORKS`.
        context: progress and cancelling.

    Raises `QuestionError` where nothing runs, with the reasons, and the errors of planning.
    """
    modes: tuple[str, ...] = MODES if asked.split is None else MODES[1:]
    if asked.mode != "any":
        modes = (asked.mode,)
    else:
        # A question for one of these modes is refused; for any mode they are left out, or go without.
        refused = {"colocated": asked.helping, "asynchronous": asked.launched > 1.0}
        modes = tuple(each for each in modes if not refused.get(each))
    best: tuple[PostTrainingQuestion, dict[str, Any]] | None = None
    reasons: dict[str, str] = {}
    for mode in modes:
        question = limited_to_framework(asked, framework, mode)
        document = post_training_document(find_asked_post_training(question, context))
        reasons |= document["reasons"]
        if document["best"] and (best is None or _step_of(document) < _step_of(best[1])):
            best = question, document
    if best is None:
        title = run_framework_of(framework).title
        raise QuestionError(f"Nothing runs that {title} can start. {' '.join(dict.fromkeys(reasons.values()))}")
    return best


def _step_of(document: Mapping[str, Any]) -> float:
    return float(document["best"][0]["step_s"]["value"])


def write_planned_run(
    asked: PostTrainingQuestion,
    row: Mapping[str, Any],
    framework: str,
    *,
    checkpoint: str | None = None,
    note: str = "",
) -> Written:
    """Return the launch file of one mode of a plan.

    Args:
        asked: the question.
        row: a mode of the answer's `best`.
        framework: one of `engine.launch.post_training.RUN_FRAMEWORKS`.
        checkpoint: weights of the model; the library's where None.
        note: a sentence at the top of the files.

    Raises `LaunchError` for a run that the framework would refuse, and the errors of loading model and system.
    """
    is_colocated = row["mode"] == "colocated"
    said = asked.response
    cap = said.cap if said.lengths is None else math.ceil(max(said.lengths))
    share = asked.rollout.memory_share or (COLOCATED_SHARE if is_colocated else SPLIT_SHARE)
    settings = {
        "num_procs": asked.num_procs,
        "method": asked.method,
        "prompts": asked.prompts,
        "group": asked.group,
        "prompt_tokens": asked.prompt_tokens,
        "response.mean": said.mean,
        "response.cap": cap,
        "updates": asked.updates,
        # The defaults that the question states in words.
        "reference": asked.method != "dapo" if asked.reference is None else asked.reference,
        "old_log_probs": asked.updates > 1 if asked.old_log_probs is None else asked.old_log_probs,
        "steps": asked.steps,
        "mode": row["mode"],
        "staleness": asked.staleness or STALENESS,
        "pack_to": asked.pack_to,
        "rollout.datatype": asked.rollout.datatype,
        "rollout.memory_share": share,
        "rollout.max_sequences": asked.rollout.max_sequences,
        "synchronisation": asked.synchronisation,
    }
    return write_run(
        settings,
        row["execution"],
        row["deployment"],
        found_model(asked.model),
        framework=framework,
        gpus_train=int(row["gpus_train"]),
        gpus_rollout=int(row["gpus_rollout"]),
        gpus_per_node=split_unit(found_system(asked.system)),
        checkpoint=checkpoint,
        note=note,
        lacking=_not_written(asked),
    )


def _not_written(asked: PostTrainingQuestion) -> list[str]:
    """Return a sentence for each part of a question that the plan counts and no launch file gets."""
    parts = {
        "Judge: counted in the plan, and not written; give the reward that asks it.": asked.judge.scored_by,
        "Teacher: counted in the plan, and not written; the file trains without it.": asked.teacher,
        "Speculative decoding: counted in the plan, and not written.": asked.speculation.accepted,
        "More launched responses than kept ones: counted in the plan, and not written.": asked.launched > 1.0,
        "Training GPUs that help to generate: counted in the plan, and not written.": asked.helping,
    }
    return [words for words, value in parts.items() if value]


def written_run_document(made: Written) -> dict[str, Any]:
    """Return a written launch file as JSON has it.

    Args:
        made: result of `write_planned_run`.
    """
    return {
        "framework": made.framework,
        "version": made.version,
        "files": made.texts,
        "flags": plain(dict(made.flags)),
        "not_expressible": list(made.not_expressible),
        "not_modelled": list(made.not_modelled),
        "remarks": list(made.remarks),
    }


def _answer_export(asked: PostTrainingExportQuestion, context: Context) -> dict[str, Any]:
    question, document = plan_with_framework(asked, asked.launch, context)
    row = document["best"][0]
    made = write_planned_run(question, row, asked.launch, checkpoint=asked.checkpoint)
    return export_document(asked, question, row, made)


def export_document(
    asked: PostTrainingQuestion, question: PostTrainingQuestion, row: Mapping[str, Any], made: Written
) -> dict[str, Any]:
    """Return an export as JSON has it.

    Args:
        asked: the question.
        question: as the framework runs it.
        row: mode that is written.
        made: its launch file.
    """
    own = {name: value for name, value in question.training.limits.items() if name not in asked.training.limits}
    return {**written_run_document(made), "mode": row["mode"], "step_s": row["step_s"]["value"], "limits": own}


# Reading.


def read_post_training(asked: PostTrainingImportQuestion) -> RunReading:
    """Return the run that a text describes. Raises the errors of `engine.launch.post_training.read_run_text`.

    Args:
        asked: the question.
    """
    return read_run_text(
        asked.text,
        asked.name,
        framework=asked.framework,
        files=asked.files,
        stated=asked.stated,
        model=None if asked.model is None else found_model(asked.model),
        takes_defaults=asked.takes_defaults,
    )


def question_of_run(found: RunReading) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """Return what a run says of a `PostTrainingQuestion`, the settings that it needs and lacks, and those for which the
    question's own default counts.

    Args:
        found: run of a launch file.
    """
    document: dict[str, Any] = {}
    for path, value in found.settings.items():
        table, _, name = path.rpartition(".")
        (document.setdefault(table, {}) if table else document)[name] = value
    limits = dict(run_framework_of(found.framework).limits)
    if found.layout.get("zero_stage", 0) > 1:
        limits = {}  # trained by FSDP, not by what the writer writes
    limits |= {name: [found.layout[name]] for name in LAYOUT_FIELDS if name in found.layout}
    if found.layout.get("pipeline_par", 1) > 1 and "stage_layout" not in limits:
        limits["stage_layout"] = ["even"]
    training: dict[str, Any] = {"limits": limits}
    if "datatype" in found.layout:
        training["train_datatype"] = found.layout["datatype"]
    document["training"] = training
    if found.framework in FRAMEWORKS:
        document["framework"] = found.framework
    missing = [path for path in NEEDED if path not in found.settings]
    assumed = {}
    for path in RUN_SETTINGS:
        if path not in found.settings and path not in NEEDED and path in found.origins:
            assumed[path] = _default_of(path)
    return document, missing, assumed


def _default_of(path: str) -> Any:
    if path == "staleness":
        return STALENESS
    table, _, name = path.rpartition(".")
    fields = PostTrainingQuestion.model_fields
    if table:
        inner = fields[table].annotation
        assert inner is not None
        fields = inner.model_fields
    return fields[name].default


def plan_question_of(found: RunReading, asked: PostTrainingImportQuestion) -> PostTrainingQuestion:
    """Return the question that a run asks on the system of an import.

    Args:
        found: run of the launch file.
        asked: the import, with a system.

    Raises `QuestionError` with the settings that nothing says, or why the question cannot be.
    """
    document, missing, _ = question_of_run(found)
    if missing:
        names = ", ".join(f"{RUN_SETTINGS[path].lower()} ({path})" for path in missing)
        raise QuestionError(f"The file leaves open what a plan needs: {names}. State them.")
    if asked.model is not None:
        document["model"] = asked.model
    try:
        return PostTrainingQuestion.model_validate({**document, "system": asked.system})
    except ValidationError as problem:
        raise QuestionError(sentence(problem, PostTrainingQuestion, "The file")) from None


def origin_rows_of_run(found: RunReading) -> list[dict[str, Any]]:
    """Return every setting and field of the layout with its value and source.

    Args:
        found: run of a launch file.
    """
    values: dict[str, Any] = {path: found.settings.get(path) for path in RUN_SETTINGS if path in found.origins}
    values |= {
        f"training.{name}": found.layout.get(name) for name in LAYOUT_FIELDS if f"training.{name}" in found.origins
    }
    rows = []
    for path, value in values.items():
        origin = found.origins[path]
        rows.append(
            {
                "setting": path,
                "value": ":".join(str(each) for each in value) if isinstance(value, list) else plain(value),
                "kind": origin.kind,
                "words": origin.words,
                "file": origin.file,
                "line": origin.line,
            }
        )
    return rows


def run_document(
    found: RunReading, asked: PostTrainingImportQuestion, context: Context | None = None
) -> dict[str, Any]:
    """Return a run as JSON has it, planned where a system is named.

    Args:
        found: run of the launch file.
        asked: the import.
        context: progress and cancelling.

    Raises `QuestionError` where a plan is asked for and something that it needs is open.
    """
    document, missing, assumed = question_of_run(found)
    planned = None
    if asked.system is not None:
        question = plan_question_of(found, asked)
        planned = post_training_document(find_asked_post_training(question, context))
    remarks = list(found.remarks)
    if found.framework not in FRAMEWORKS:
        remarks.append(NO_CONSTANTS)
    return {
        "framework": found.framework,
        "version": found.version,
        "checkpoint": found.checkpoint,
        "question": plain(document),
        "missing": missing,
        "assumed": plain(assumed),
        "origins": origin_rows_of_run(found),
        "replicas": plain(found.replicas),
        "refused": found.refused,
        "not_modelled": list(found.not_modelled),
        "without_effect": list(found.without_effect),
        "unread": list(found.unread),
        "remarks": remarks,
        "plan": planned,
    }


def _answer_import(asked: PostTrainingImportQuestion, context: Context) -> dict[str, Any]:
    return run_document(read_post_training(asked), asked, context)


EXPORT_POST_TRAINING = Verb(
    "export_post_training",
    "Write a launch file of reinforcement learning",
    "Plans reinforcement learning among executions that NeMo-RL, verl or slime runs, and writes the file that starts "
    "the fastest mode; names what the framework cannot express.",
    PostTrainingExportQuestion,
    PostTrainingExportAnswer,
    _answer_export,
)
IMPORT_POST_TRAINING = Verb(
    "import_post_training",
    "Read a launch file of reinforcement learning",
    "Reads a configuration of NeMo-RL or a script of verl or slime as a question about post-training, with the origin "
    "of every value, what is missing, and the plan on a system.",
    PostTrainingImportQuestion,
    PostTrainingImportAnswer,
    _answer_import,
)
