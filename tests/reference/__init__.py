"""The reference figures as Python and pandas objects; README.md says where they come from."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

HERE = Path(__file__).parent

CALIBRATED_ONLY: frozenset[str] = frozenset(
    {
        "extension_not_positive",
        "unknown_word",
        "schedule_needs_training",
        "parallelism_product_with_context",
        "expert_load_below_mean",
        "zero_stage_unknown",
        "zero_stage_against_sharding",
        "sharding_needs_replicas",
        "selective_needs_attn_only",
        "attention_of_the_model",
        "gradient_sharding_in_pipeline",
        "context_not_dividing_sequence",
        "expert_par_without_experts",
        "expert_par_not_dividing_experts",
        "expert_par_not_dividing_ranks",
        "key_value_heads_not_divisible",
        "layer_not_divisible",
        "layer_not_divisible_by_context",
        "recompute_blocks_of_full",
        "recompute_blocks_negative",
        "fp8_parameters_of_8_bits",
        "stages_not_even",
        "pipeline_exceeds_blocks",
        "schedule_needs_pipeline",
        "schedule_against_interleaving",
        "schedule_needs_microbatches",
        "schedule_needs_even",
        "schedule_needs_whole_groups",
        "schedule_needs_experts",
        "schedule_against_recompute",
        "layout_needs_pipeline",
        "layout_not_of_blocks",
    }
)
"""Codes that `calculon` never gives."""

# The line of Calculon that raised an error -> the reason this project gives.
REASON_OF_LINE = {
    "llm.py:90": "parallelism_product",
    "llm.py:96": "batch_size_not_positive",
    "llm.py:99": "batch_not_divisible_by_data_par",
    "llm.py:101": "local_batch_not_divisible_by_microbatch",
    "llm.py:106": "unknown_attention_type",
    "llm.py:108": "unknown_recompute",
    "llm.py:110": "recompute_needs_training",
    "llm.py:112": "interleaving_not_positive",
    "llm.py:115": "interleaving_needs_pipeline",
    "llm.py:119": "sharding_needs_data_par",
    "llm.py:122": "unknown_tensor_par_comm_type",
    "llm.py:124": "unknown_tensor_par_overlap",
    "llm.py:126": "overlap_needs_tensor_par",
    "llm.py:130": "ag_redo_needs_rs_ag",
    "llm.py:132": "ag_redo_with_full_recompute",
    "llm.py:138": "data_par_overlap_needs_training",
    "llm.py:139": "data_par_overlap_needs_data_par",
    "llm.py:144": "optimizer_offload_needs_training",
    "llm.py:1099": "network_does_not_exist",
    "llm.py:1100": "network_does_not_exist",
    "llm.py:1101": "network_does_not_exist",
    "llm.py:1122": "network_too_small",
    "llm.py:1125": "network_not_filled",
    "system.py:59": "unknown_datatype",
    "llm.py:1050": "interleaving_exceeds_blocks",
    "llm.py:1053": "interleaving_not_dividing_blocks",
    "llm.py:1061": "offload_needs_three_blocks",
    "llm.py:1083": "sequence_not_divisible",
    "llm.py:644": "hidden_not_divisible",
    "llm.py:650": "heads_not_divisible",
    "processor.py:47": "datatype_not_on_system",
    "llm.py:1932": "memory_tier1",
    "llm.py:1937": "memory_tier2",
}
STATUS_OF_CLASS = {"": "ok", "Llm.Error": "infeasible", "AssertionError": "invalid"}


def _json(name: str) -> Any:
    return json.loads((HERE / name).read_text(encoding="utf-8"))


@cache
def models() -> dict[str, dict[str, int]]:
    """Calculon's models, by name."""
    found: dict[str, dict[str, int]] = _json("calculon_models.json")
    return found


@cache
def systems() -> dict[str, dict[str, Any]]:
    """Calculon's systems, by name."""
    found: dict[str, dict[str, Any]] = _json("calculon_systems.json")
    return found


@cache
def golden() -> pd.DataFrame:
    """The golden sample with two columns more: the status and reason expected here."""
    table = pd.read_parquet(HERE / "golden.parquet")
    for name in table.select_dtypes("category"):
        table[name] = table[name].astype(str)
    table["status"] = table["error_class"].map(STATUS_OF_CLASS)
    table["reason"] = table["error_line"].map({"": "", **REASON_OF_LINE})
    return table


def golden_fields() -> list[str]:
    """Names of the 23 execution fields."""
    columns = list(golden().columns)
    return columns[columns.index("num_procs") : columns.index("training") + 1]


def golden_statistics() -> list[str]:
    """Names of the 96 statistics, in Calculon's order."""
    columns = list(golden().columns)
    return columns[columns.index("block_fw_flops") : columns.index("sample_rate") + 1]


@cache
def layers() -> list[dict[str, Any]]:
    """Twelve executions: model, system, execution and a frame of per-layer figures each."""
    document = _json("layers.json")
    return [
        {**entry, "layers": pd.DataFrame(entry["layers"], columns=document["columns"])}
        for entry in document["executions"]
    ]


@cache
def spaces() -> list[dict[str, Any]]:
    """Calculon's exhaustive searches."""
    found: list[dict[str, Any]] = _json("spaces.json")
    return found
