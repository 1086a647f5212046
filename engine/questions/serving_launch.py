"""Verbs about launch configurations of serving engines: a deployment written as one, and one read as a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pandas as pd
from pydantic import Field

from engine.launch import EngineReading, LaunchError, read_engine_text, write_deployment
from engine.launch.serving_engines.contract import SETTINGS, WrittenDeployment
from engine.launch.serving_engines.model_names import checkpoint_of
from engine.launch.serving_engines.writing import UNKNOWN_CHECKPOINT
from engine.questions.bounds import Context
from engine.questions.documents.serving import DeploymentExportQuestion, DeploymentImportQuestion, ServedModel
from engine.questions.plain import plain
from engine.questions.scenario_documents import found_model, found_system
from engine.questions.verb import Document, Row, Verb
from engine.serving import FIELDS, Assumptions, evaluate
from models.documents import did_you_mean, shown

__all__ = [
    "EXPORT_DEPLOYMENT",
    "IMPORT_DEPLOYMENT",
    "SETTING_LABELS",
    "assumptions_of_settings",
    "deployment_rows",
    "export_deployment",
    "launch_settings",
    "open_remarks",
    "read_deployment",
    "reading_document",
    "written_document",
]

_NAMES: Final = tuple(column.name for column in FIELDS)
_SETTINGS: Final = tuple(name for name in SETTINGS if name != "speculation")
_DRAFTING: Final = ("draft_tokens", "draft_model", "draft_bits", "accepted_tokens", "acceptance_rate")
"""Terms of speculation, as questions about serving have them; in figures where all that they need is stated."""
_NEEDED: Final = (
    "tensor_par",
    "pipeline_par",
    "expert_par",
    "replicas",
    "batch",
    "weight_bits",
    "kv_bits",
    "launch",
    "prompt",
    "output",
)
SETTING_LABELS: Final[Mapping[str, str]] = {
    "prefix_cache": "Prefix cache",
    "chunk": "Prefill chunk",
    "max_length": "Longest request",
    "memory_fraction": "Memory share of engine",
    "mtp_tokens": "Predicted tokens",
    "lora_adapters": "LoRA adapters",
    "lora_rank": "LoRA rank",
    "host_cache_gib": "Host memory for cache",
    "draft_tokens": "Draft tokens",
    "draft_model": "Draft model",
    "draft_bits": "Draft model bits",
    "accepted_tokens": "Accepted drafts",
    "acceptance_rate": "Acceptance rate",
}
"""Labels of settings of an engine that are no field of a deployment."""


class DeploymentExportAnswer(Document):
    """A launch configuration of a serving engine."""

    target: str
    engine_version: str = Field(description="Version of the engine that it is for.")
    files: dict[str, str] = Field(description="Text of each file by its name.")
    flags: dict[str, Any] = Field(description="Values by the engine's own names, by pool.")
    not_expressible: list[str] = Field(description="What of the deployment the engine cannot say.")
    unsaid: list[str] = Field(description="Fields of the deployment that it does not say.")
    remarks: list[str]


class DeploymentImportAnswer(Document):
    """Deployment of a launch configuration of a serving engine."""

    engine: str
    version: str = Field(description="Version of the engine whose arguments are known.")
    form: str = Field(description="Kind of the file in words.")
    checkpoint: str = Field(description="Weights as the text names them; empty where it does not.")
    model_name: str | None = Field(description="The same model in the library; null where it is not known there.")
    num_procs: int | None = Field(description="GPUs of all pools and copies.")
    deployment: Row | None = Field(description="Values by field; null for pools.")
    pools: dict[str, Row] | None = Field(description="Values by field by role; null for one deployment.")
    prefix_cache: bool | None
    chunk: int | None = Field(description="Most tokens of a prefill pass, as the engine counts them.")
    max_length: int | None = Field(description="Longest request [tokens].")
    memory_fraction: float | None = Field(description="The engine's own share of memory.")
    mtp_tokens: int | None = Field(description="Tokens that the model's own prediction layers draft.")
    lora_adapters: int | None = Field(description="Adapters of low rank in memory at once.")
    lora_rank: int | None = Field(description="Largest rank of an adapter.")
    host_cache_gib: float | None = Field(description="Host memory for the cache of a GPU [GiB].")
    speculation: dict[str, Any] | None = Field(description="Kind and draft tokens of another speculation.")
    draft: dict[str, Any] | None = Field(
        description="What is stated of speculation: draft_tokens, draft_checkpoint, draft_model (of the library), "
        "draft_bits, accepted_tokens; null without."
    )
    prompt: int | None
    output: int | None
    weight_bits_hint: int | None = Field(description="Bits that the checkpoint's name suggests; never set.")
    rejected_by_us: str | None = Field(description="Layout that no deployment here describes.")
    left: list[str] = Field(description="Fields that other sources have to say.")
    not_modelled: list[str] = Field(description="What is set and no field stands for.")
    without_effect: list[str] = Field(description="What is set and changes nothing that is predicted.")
    unread: list[str] = Field(description="What is not known or not understood.")
    remarks: list[str]
    figures: dict[str, Row] | None = Field(
        description="Figures on the system, by pool, each as if it processed prompts and generated tokens; null "
        "without a system."
    )


def export_deployment(asked: DeploymentExportQuestion, note: str = "") -> WrittenDeployment:
    """Return a deployment as a launch configuration.

    Args:
        asked: the question.
        note: sentence about the deployment, which the files have as a comment.

    Raises the errors of `engine.launch.write_deployment` and of loading the model.
    """
    return write_deployment(
        asked.deployment,
        found_model(asked.model),
        to=asked.target,
        engine=asked.engine,
        prefill=asked.prefill,
        settings=_parse_settings(asked.settings),
        checkpoint=asked.checkpoint,
        gpus_per_node=asked.gpus_per_node,
        note=note,
    )


def _parse_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings with the types of the engine; commands give words."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        word = value.strip().lower() if isinstance(value, str) else value
        if name == "prefix_cache" and word in ("true", "yes", "on", "false", "no", "off"):
            found[name] = word in ("true", "yes", "on")
        elif name in ("memory_fraction", "host_cache_gib") and isinstance(word, str):
            try:
                found[name] = float(word)
            except ValueError:
                found[name] = value
        else:
            found[name] = value
    return found


def written_document(made: WrittenDeployment) -> dict[str, Any]:
    """Return a written deployment as JSON has it.

    Args:
        made: result of `engine.launch.write_deployment`.
    """
    return {
        "target": made.framework,
        "engine_version": made.version,
        "files": made.texts,
        "flags": plain(dict(made.flags)),
        "not_expressible": list(made.not_expressible),
        "unsaid": list(made.unsaid),
        "remarks": list(made.remarks),
    }


def deployment_rows(found: EngineReading, stated: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the deployment of a reading by pool, with values that the caller states.

    Args:
        found: of a configuration.
        stated: values by field; they count more than the configuration.

    Raises `LaunchError` for an unknown field.
    """
    unknown = next((name for name in stated if name not in (*_NAMES, *_SETTINGS, *_DRAFTING)), None)
    if unknown is not None:
        known = (*_NAMES, *_DRAFTING)
        raise LaunchError(f"There is no field {shown(unknown)} of deployments{did_you_mean(unknown, known)}.")
    shared = {name: getattr(found, name) for name in (*_SETTINGS, "prompt", "output")} | {"engine": found.engine}
    drafting = found.draft or {}
    # Draft models that are not in the library have no name here.
    shared |= {name: drafting.get(name) for name in _DRAFTING if found.mtp_tokens is None or name != "draft_tokens"}
    pools = found.pools if found.pools is not None else {"": found.deployment or {}}
    said = {name: _parse_share(name, value) for name, value in stated.items()}
    rows = {}
    for role, fields in pools.items():
        row = {**{name: value for name, value in shared.items() if value is not None}, **fields, **said}
        if role == "prefill":
            row = {name: value for name, value in row.items() if name not in _DRAFTING}
        rows[role] = {name: row[name] for name in (*_NAMES, *_SETTINGS, *_DRAFTING) if name in row}
    return rows


def _parse_share(name: str, value: Any) -> Any:
    """Return a stated number of accepted drafts, which commands give as a word."""
    if name not in ("acceptance_rate", "accepted_tokens") or not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        raise LaunchError(f"{name} is {shown(value)}; it must be a number.") from None


def open_remarks(found: EngineReading, stated: Mapping[str, Any]) -> list[str]:
    """Return the remarks on a reading, without the one on speculation where the caller states what was open.

    Args:
        found: of a configuration.
        stated: values by field.
    """
    answered = {"acceptance_rate", "accepted_tokens"} & stated.keys()
    return [each for each in found.remarks if not (answered and each == found.open_speculation)]


def assumptions_of_settings(row: Mapping[str, Any]) -> Assumptions:
    """Return the assumptions that the settings of an engine imply.

    Args:
        row: fields and settings by name, of `deployment_rows`.

    Raises `LaunchError` for a number that no deployment here can have.
    """
    said = {name: row[name] for name in ("lora_adapters", "lora_rank") if row.get(name) is not None}
    drafted = row.get("draft_tokens", row.get("mtp_tokens"))
    accepted = {name: row[name] for name in ("accepted_tokens", "acceptance_rate") if row.get(name) is not None}
    # Prediction layers are the model's own; any other speculation has figures with a draft model only.
    can_draft = row.get("draft_model") is not None or row.get("mtp_tokens") is not None
    if "acceptance_rate" in accepted:
        accepted.pop("accepted_tokens", None)
    if drafted and accepted and can_draft:
        said |= {"draft_tokens": drafted, **accepted}
        if row.get("draft_model") is not None:
            said |= {"draft_model": found_model(row["draft_model"]), "draft_bits": row.get("draft_bits") or 16}
    try:
        return Assumptions(**said)
    except ValueError as problem:
        raise LaunchError(str(problem)) from None


def launch_settings(asked: ServedModel) -> dict[str, Any]:
    """Return the settings of an engine that a question about serving implies.

    Args:
        asked: the question.
    """
    found: dict[str, Any] = {}
    if asked.lora_adapters:
        found |= {"lora_adapters": asked.lora_adapters, "lora_rank": asked.lora_rank}
    if asked.draft_model is not None:
        name = found_model(asked.draft_model).name
        found |= {"draft_checkpoint": checkpoint_of(name) or UNKNOWN_CHECKPOINT, "draft_tokens": asked.draft_tokens}
        if asked.draft_bits != 16:
            found["draft_bits"] = asked.draft_bits
    elif asked.draft_tokens:
        found["mtp_tokens"] = asked.draft_tokens
    if asked.host_hit_share:
        own = asked.host_cache_gib
        found["host_cache_gib"] = found_system(asked.system).mem2.capacity_gib if own is None else own
    return found


def _evaluate_rows(
    found: EngineReading, rows: Mapping[str, Mapping[str, Any]], asked: DeploymentImportQuestion
) -> dict[str, Any]:
    """Return the figures of every pool. Raises `LaunchError` where a needed field is open."""
    assert asked.system is not None
    model = asked.model if asked.model is not None else found.model_name
    if model is None:
        raise LaunchError("Nothing says which model of the library it is; state it.")
    if found.rejected_by_us is not None:
        raise LaunchError(f"It cannot be evaluated: {found.rejected_by_us}.")
    network, system = found_model(model), found_system(asked.system)
    figures: dict[str, Any] = {}
    for role, row in rows.items():
        missing = [name for name in _NEEDED if name not in row]
        if missing:
            who = f"The {role} pool" if role else "The configuration"
            raise LaunchError(f"{who} leaves open what a prediction needs: {', '.join(missing)}. State them.")
        table = pd.DataFrame([{name: row[name] for name in _NAMES if name in row}])
        found_figures = evaluate(network, system, table, assumptions=assumptions_of_settings(row))
        figures[role or "deployment"] = plain(found_figures.to_dict("records")[0])
    return figures


def reading_document(found: EngineReading, asked: DeploymentImportQuestion) -> dict[str, Any]:
    """Return the reading of a configuration as JSON has it, with figures where a system is named.

    Args:
        found: result of `engine.launch.read_engine_text`.
        asked: the question.

    Raises `LaunchError` for an unknown stated field, or an open one where a system is named.
    """
    rows = deployment_rows(found, asked.stated)
    fields = [{name: row[name] for name in row if name in _NAMES and name != "engine"} for row in rows.values()]
    pools = None if found.pools is None else dict(zip(found.pools, fields, strict=True))
    copied = ("engine", "version", "form", "model_name", *_SETTINGS, "speculation", "prompt", "output")
    return {
        **{name: getattr(found, name) for name in copied},
        "checkpoint": found.model,
        "num_procs": found.gpus,
        "deployment": fields[0] if pools is None else None,
        "pools": pools,
        "weight_bits_hint": found.weight_bits_hint,
        "rejected_by_us": found.rejected_by_us,
        "left": [name for name in found.left if name not in asked.stated],
        "not_modelled": found.not_modelled,
        "without_effect": found.without_effect,
        "unread": found.unread,
        "draft": found.draft,
        "remarks": open_remarks(found, asked.stated),
        "figures": None if asked.system is None else _evaluate_rows(found, rows, asked),
    }


def read_deployment(asked: DeploymentImportQuestion) -> EngineReading:
    """Return the deployment that a text describes.

    Args:
        asked: the question.

    Raises the errors of `engine.launch.read_engine_text`.
    """
    return read_engine_text(
        asked.text, asked.name, engine=asked.engine, gpus=asked.num_procs, environment=asked.variables
    )


def _answer_export(asked: DeploymentExportQuestion, context: Context) -> dict[str, Any]:
    return written_document(export_deployment(asked))


def _answer_import(asked: DeploymentImportQuestion, context: Context) -> dict[str, Any]:
    return reading_document(read_deployment(asked), asked)


EXPORT_DEPLOYMENT = Verb(
    "export_deployment",
    "Export a deployment",
    "Writes a deployment as commands of vLLM, SGLang or TensorRT-LLM, or as manifests of Kubernetes, llm-d or Dynamo.",
    DeploymentExportQuestion,
    DeploymentExportAnswer,
    _answer_export,
)
IMPORT_DEPLOYMENT = Verb(
    "import_deployment",
    "Read a deployment",
    "Reads a command, script or manifest of a serving engine as a deployment, naming what is unread or not modelled.",
    DeploymentImportQuestion,
    DeploymentImportAnswer,
    _answer_import,
)
