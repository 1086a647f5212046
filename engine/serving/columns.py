"""The register of every field and figure of a deployment: name, unit, description. Labels and help derive from it."""

from __future__ import annotations

from typing import Final, Literal

from engine.columns import Column
from engine.columns.register import outcome_columns, statistic_columns
from engine.columns.statistics import read_statistics

__all__ = [
    "ALL",
    "FIELDS",
    "FIGURES",
    "HEADLINE",
    "MEMORY_PARTS",
    "OUTCOME",
    "SERVICE_FIGURES",
    "STEP_PARTS",
    "by_name",
]


def _field_column(
    name: str,
    label: str,
    short: str,
    description: str,
    dtype: Literal["int64", "str"] = "int64",
    choices: tuple[str, ...] = (),
) -> Column:
    return Column(name, label, short, "", "field", dtype, "Deployment", None, description, choices)


ID: Final = Column(
    "id",
    "Deployment id",
    "id",
    "",
    "identifier",
    "int64",
    "Result",
    None,
    "Position of the deployment in the enumeration of its space, counted from 0.",
)

FIELDS: Final[tuple[Column, ...]] = (
    _field_column("tensor_par", "Tensor parallel", "TP", "Processors that share every layer of a replica."),
    _field_column("pipeline_par", "Pipeline parallel", "PP", "Stages into which the blocks of a replica are cut."),
    _field_column(
        "expert_par",
        "Expert parallel",
        "EP",
        "Groups of routed experts: up to TP inside a replica; above, replicas exchange tokens. 1 slices every "
        "expert over TP.",
    ),
    _field_column("replicas", "Replicas", "replicas", "Copies of the model that serve different requests."),
    _field_column("batch", "Batch per replica", "batch", "Requests that a replica works on at the same time."),
    _field_column(
        "weight_bits",
        "Weight bits",
        "W bits",
        "Bits per weight of the linear layers; embedding and LM head have 16. Products run in the same precision "
        "where the system has it, else in 16 bits.",
    ),
    _field_column("kv_bits", "KV cache bits", "KV bits", "Bits per element of the KV cache."),
    _field_column(
        "attention_bits",
        "Attention bits",
        "attn bits",
        "Bits per weight of the projections around attention, which 4-bit checkpoints often keep in 16; those of the "
        "other layers by default.",
    ),
    _field_column(
        "compute_bits",
        "Compute bits",
        "comp. bits",
        "Precision of products: 16 where weights alone have few bits; that of the weights by default, where the system "
        "has it.",
    ),
    _field_column(
        "launch",
        "Launch",
        "launch",
        "How kernels are launched: one by one, fused by a compiler, or captured in CUDA graphs.",
        "str",
        ("eager", "compiled", "graphs"),
    ),
    _field_column(
        "engine",
        "Engine",
        "engine",
        "Serving engine, whose overheads, waiting and first token are measured; generic is their mean.",
        "str",
        ("generic", "vllm", "sglang", "trtllm"),
    ),
    _field_column("prompt", "Prompt", "prompt", "Tokens of a request's prompt."),
    _field_column("output", "Output", "output", "Tokens that a request generates."),
)
"""Fields of a deployment and its workload."""

OUTCOME: Final = outcome_columns(
    "Whether the deployment runs within all limits (ok), cannot (infeasible), or makes no sense (invalid).",
    "Stable code of the first rule that the deployment breaks; empty when it runs.",
    "Sentence with the numbers behind the reason; empty when it runs.",
)

FIGURES: Final = statistic_columns(read_statistics("engine.serving", "figures.csv"))
"""Results of a deployment that runs, declared in `figures.csv`."""

SERVICE_FIGURES: Final = statistic_columns(read_statistics("engine.serving", "service_figures.csv"))
"""Results of a service under load, declared in `service_figures.csv`."""

HEADLINE: Final[tuple[Column, ...]] = tuple(column for column in FIGURES if column.headline)
"""The figures that an exploration keeps for every deployment; the others are computed for rows in view."""

STEP_PARTS: Final[tuple[str, ...]] = tuple(column.name for column in FIGURES if not column.headline)
"""Parts of a decode step; they add up to `decode_step_time`."""

MEMORY_PARTS: Final = ("memory_weights", "memory_kv_cache", "memory_activations", "memory_reserve")
"""Parts of `memory_total`; they add up to it."""

ALL: Final[tuple[Column, ...]] = (ID, *FIELDS, *OUTCOME, *FIGURES)

_BY_NAME: Final = {column.name: column for column in (*ALL, *SERVICE_FIGURES)}


def by_name(name: str) -> Column:
    """Returns the column called `name`.

    Args:
        name: of a field or figure of deployments.

    Raises KeyError for an unknown name.
    """
    return _BY_NAME[name]
