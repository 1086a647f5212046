"""The scenario in a question: the document that files and pages have, with names of the library where they do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import Field

import hardware
import models
from engine.columns import ALL_FIELDS
from engine.columns.fields import EXTENSION_ROWS
from engine.cost_models.registry import COST_MODELS
from engine.executions.frameworks.registry import ANY, FRAMEWORK_RULES, FRAMEWORK_WORDS
from engine.executions.limits import OPTIONS
from engine.questions.fields import Asked, FieldKind
from engine.questions.verb import Document, Named
from engine.scenarios.scenario import FORMAT, Scenario, load_entity
from hardware import Calibration, System
from models import Model, datatypes
from models.documents import Accepts, Text, Whole
from models.tuning import TARGET_GROUPS

__all__ = [
    "LIMITS_SCHEMA",
    "AdapterRank",
    "AdapterTargets",
    "AttentionName",
    "CalibrationName",
    "CostModelName",
    "FrameworkName",
    "FrozenWeightBits",
    "Limits",
    "LossChunk",
    "ModelName",
    "SampleLengths",
    "ScenarioDocument",
    "ScenarioSummary",
    "SystemName",
    "found_calibration",
    "found_model",
    "found_system",
    "own_model_document",
    "scenario_of",
    "summary_of",
    "tuned_model",
]

LIMITED = [column.name for column in ALL_FIELDS if not column.of_scenario]

LIMITS_SCHEMA: dict[str, Any] = {
    "propertyNames": {"enum": [*LIMITED, *OPTIONS]},
    "additionalProperties": {
        "anyOf": [
            {"type": ["boolean", "integer", "string"]},
            {"type": "array", "items": {"type": ["boolean", "integer", "string"]}, "minItems": 1},
            {
                "type": "object",
                "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}},
                "additionalProperties": False,
                "minProperties": 1,
            },
        ]
    },
}


_TAKEN: Final = {name for each in COST_MODELS.values() for name in each.datatypes}
_DATATYPES: Final = [each.name for each in datatypes.for_products() if each.name in _TAKEN]
_CALIBRATED_FIELDS: Final = [row[0] for row in EXTENSION_ROWS]
"""Fields that only the cost model calibrated has."""

Limits = Annotated[
    dict[str, Any],
    Accepts("an object with limits by field name"),
    Asked(
        "Limits",
        option="limit",
        kind=FieldKind.LIMITS,
        metavar="FIELD=VALUES",
        option_help="Values of a field: a,b,.. or lo..hi; may be repeated. The cost model calibrated has more: "
        f"{', '.join(_CALIBRATED_FIELDS)}.",
    ),
]
"""Limits on fields of executions. See `LIMITS_SCHEMA`."""

FrameworkName = Annotated[
    Literal["any", "megatron", "megatron-bridge", "torchtitan", "deepspeed", "maxtext"] | None,
    Asked(
        "Framework",
        words={ANY: "any framework", **{name: each.title for name, each in FRAMEWORK_RULES.items()}},
        option_help="Training framework; executions that it does not run are not searched. any by default.",
    ),
]
"""Training framework; None and `any` for any."""

CostModelName = Annotated[
    str | None,
    Asked(
        "Cost model",
        metavar="|".join(COST_MODELS),
        option_help="calibrated predicts measured runs, calculon is exact against Calculon; by default calibrated, but "
        "calculon for systems that are Calculon's own descriptions.",
    ),
]
"""Cost model; None for what the system's figures are meant for."""


CalibrationName = Annotated[
    Named | None, Asked("Calibration", option_help="Values for the cost model calibrated; the library's by default.")
]
"""Calibration; None for the library's."""

AttentionName = Annotated[
    Literal["causal", "full"] | None,
    Asked("Attention in FLOP", option="attention", words={"causal": "without masked products", "full": "in full"}),
    Field(
        description="How MFU and TFLOP/s count attention: causal, without masked products, as Megatron does, or full, "
        "as PaLM does. Null: causal with the cost model calibrated, full with calculon. No other figure depends on it."
    ),
]
"""Convention of figures in FLOP."""

ModelName = Annotated[Named, Asked("Model", option_help="Library name or JSON file of the model.")]
SystemName = Annotated[Named, Asked("System", option_help="Library name or JSON file of the system.")]


AdapterRank = Annotated[
    Annotated[int, Whole(0, 2**16)] | None,
    Asked("Adapter rank", metavar="R", option_help="Rank of LoRA adapters on frozen weights; 0 trains all weights."),
    Field(description="Rank of LoRA adapters on frozen weights; 0 trains all weights. Null: as the model says."),
]
"""Rank of adapters."""

AdapterTargets = Annotated[
    Annotated[str, Text(500, shortest=1)] | None,
    Asked(
        "Adapted layers",
        option="adapter-targets",
        metavar="|".join((*TARGET_GROUPS, "NAME+NAME")),
        option_help="Linear layers with an adapter, by group or by name; all_linear by default.",
    ),
    Field(
        description="Linear layers with an adapter: all_linear, attention, mlp, or names of products joined by +, such "
        "as query_key_value+attention_output. Null: all_linear."
    ),
]
"""Targets of adapters."""

FrozenWeightBits = Annotated[
    Literal[32, 16, 8, 4] | None,
    Asked(
        "Frozen weights",
        option="frozen-weight-bits",
        words={each: f"{each} bits" for each in (32, 16, 8, 4)},
        option_help="Width of frozen weights in memory [bits], 16 by default; time is not calibrated below.",
    ),
    Field(description="Width of frozen weights in memory [bits]; time is not calibrated below 16. Null: 16."),
]
"""Width of frozen weights."""

LossChunk = Annotated[
    Annotated[int, Whole(0, 2**30)] | None,
    Asked("Loss chunk", "tokens", option_help="Tokens whose logits are in memory at once; all by default."),
    Field(description="Tokens whose logits are in memory at once, chunk by chunk; 0 for all. Null: 0."),
]
"""Chunk of the loss."""

SampleLengths = Annotated[
    Annotated[list[Annotated[int, Whole(1, 2**30)]], Field(max_length=4_096)] | None,
    Asked(
        "Sample lengths",
        "tokens",
        metavar="N",
        option_help="Lengths of samples, each equally often, to pack into sequences; one each by default.",
    ),
    Field(
        description="Lengths of samples, each equally often, that are packed into sequences; attention stays within a "
        "sample. Null: one sample per sequence."
    ),
]
"""Lengths of packed samples."""


class ScenarioDocument(Document):
    """A model on a system: what a space of executions is made of. Saved scenarios of the dashboard are such."""

    format: Literal["shardscape-scenario/1"] = Field(
        default="shardscape-scenario/1", description="Of saved scenarios; left out where one is typed."
    )
    model: ModelName = Field(description="Model: a name that `list_models` has, or a whole model document.")
    system: SystemName = Field(description="System: a name that `list_systems` has, or a whole system document.")
    num_procs: Annotated[int, Whole(1, 2**31 - 1), Asked("GPUs", option="procs")] = Field(
        description="GPUs; every execution uses all of them."
    )
    max_batch_size: Annotated[int, Whole(1, 2**31 - 1), Asked("Largest batch", option="max-batch")] = Field(
        description="Largest global batch [samples]; each data parallel degree uses its largest multiple."
    )
    datatype: Annotated[str, Accepts("a text such as bfloat16"), Asked("Datatype")] = Field(
        description="Datatype of the matrix arithmetic; the system must compute in it, and the cost model take it: "
        f"{', '.join(_DATATYPES)}."
    )
    limits: Limits = Field(
        default_factory=dict,
        description="What fields of executions may be: a value, a list of values, or {min, max}; others are tried in "
        "all ways. `list_columns` explains the fields; only calibrated has "
        f"{', '.join(_CALIBRATED_FIELDS)}.",
        json_schema_extra=LIMITS_SCHEMA,
    )
    cost_model: CostModelName = Field(
        default=None,
        description=f"{' or '.join(COST_MODELS)}; null for what the system's figures are meant for. calibrated "
        "predicts measured runs, calculon is exact against Calculon.",
    )
    calibration: CalibrationName = Field(
        default=None, description="Values for the cost model calibrated: a name or a document; null for the library's."
    )
    attention: AttentionName = None
    framework: FrameworkName = Field(
        default=None,
        description=f"Training framework: {', '.join(FRAMEWORK_WORDS)}. Executions that it does not run are not "
        "searched. Null: any.",
    )
    adapter_rank: AdapterRank = None
    adapter_targets: AdapterTargets = None
    frozen_weight_bits: FrozenWeightBits = None
    loss_chunk: LossChunk = None
    sample_lengths: SampleLengths = None


class ScenarioSummary(Document):
    """Scenario of a question, by names."""

    model: str
    system: str
    num_procs: int
    max_batch_size: int
    datatype: str
    limits: dict[str, Any]
    cost_model: str
    calibration: str | None = Field(description="Name of the calibration whose values were used.")
    not_represented: list[str] = Field(description="What of the model the figures leave out or approximate.")
    model_document: dict[str, Any] | None = Field(
        default=None, description="The model as a document; null where the library has it under its name."
    )
    framework: str = Field(description="Training framework that runs the executions; any without one.")
    attention: Literal["causal", "full"] = Field(
        description="How figures named in no convention count attention: without masked products, or in full."
    )


def scenario_of(document: ScenarioDocument | Mapping[str, Any], where: str = "the scenario") -> Scenario:
    """Returns the scenario of a document whose format and limits may be left out.

    Args:
        document: parsed JSON.
        where: name of the document in messages.

    Raises what `Scenario.from_document` raises.
    """
    given = document.model_dump(exclude_unset=True) if isinstance(document, ScenarioDocument) else dict(document)
    # A saved scenario that names no cost model is from before there were several; one that is typed leaves the choice.
    open_ones = {} if "format" in given else {"cost_model": None}
    return Scenario.from_document({"format": FORMAT, "limits": {}, **open_ones, **given}, where)


def summary_of(scenario: Scenario) -> dict[str, Any]:
    """Returns the scenario by names, as the head of an answer.

    Args:
        scenario: what was asked about.
    """
    return {
        "model": scenario.model.name,
        "system": scenario.system.name,
        "num_procs": scenario.num_procs,
        "max_batch_size": scenario.max_batch_size,
        "datatype": scenario.datatype,
        "limits": scenario.field_limits,
        "cost_model": scenario.cost_model,
        "calibration": scenario.calibration_name,
        "framework": scenario.framework,
        "attention": scenario.flop_convention,
        "not_represented": list(models.unrepresented(scenario.model)),
        "model_document": own_model_document(scenario.model),
    }


def own_model_document(model: Model) -> dict[str, Any] | None:
    """Returns a model as a document where its name alone would not find it; None for a model of the library.

    Args:
        model: one that was read or made.
    """
    if model.name in models.names() and models.load(model.name) == model:
        return None
    return models.to_document(model)


def found_model(given: str | Mapping[str, Any]) -> Model:
    """Returns the model of a name or a document.

    Args:
        given: see `Named`.

    Raises what `Scenario.from_document` raises.
    """
    return load_entity(given, "model", models.load, models.load_document)


class TunedQuestion(Protocol):
    """A question about a model, with fields about its tuning."""

    @property
    def model(self) -> Any:
        """Name or document of the model."""


def tuned_model(asked: TunedQuestion) -> Model:
    """Return the model of a question, trained as the question says.

    Args:
        asked: with a model and the fields of `models.ModelTuning`, None to leave a field as the model has it.

    Raises what `Scenario.from_document` raises.
    """
    given = {name: getattr(asked, name, None) for name in models.ModelTuning.model_fields}
    return models.tuned(found_model(asked.model), {name: value for name, value in given.items() if value is not None})


def found_system(given: str | Mapping[str, Any]) -> System:
    """Returns the system of a name or a document.

    Args:
        given: see `Named`.

    Raises what `Scenario.from_document` raises.
    """
    return load_entity(given, "system", hardware.load, hardware.load_document)


def found_calibration(given: str | Mapping[str, Any] | None) -> Calibration | None:
    """Returns the calibration of a name or a document; None of None.

    Args:
        given: see `Named`.

    Raises what `Scenario.from_document` raises.
    """
    if given is None:
        return None
    return load_entity(given, "calibration", hardware.load_calibration, hardware.load_calibration_document)
