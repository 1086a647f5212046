"""Facts about training software that a table of runs does not carry, inferred by stated rules.

The first rule whose pattern is found in the row's framework or source sets the facts; a column of the same name in
the table overrides any of them. Later rules on notes and hardware refine what the framework leaves open.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from engine.calibrated.inputs import ATTENTION_KERNELS, LAUNCHES

__all__ = ["RULES", "SOFTWARE_COLUMNS", "Rule", "infer_software"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Facts of a family of frameworks: `pattern` is searched in "framework | source"."""

    name: str
    pattern: str
    facts: dict[str, float | str] = field(default_factory=dict)


DEFAULTS: dict[str, float | str] = {
    "attention_kernel": "native",
    "launch": "fused",
    "unfused_elementwise": 0.0,
    "overlap_data": 0.0,
    "overlap_tensor": 0.0,
    "overlap_expert": 0.0,
    "overlap_pipeline": 0.0,
    "split_messages": 1.0,
    "gradient_bytes": 2.0,
    "gather_bytes": 2.0,
    "gather_cast_bytes": 0.0,
    "shard_gradient_bytes": 2.0,
    "grouped_experts": 1.0,
    "gather_calls": 1.0,
    "gather_efficiency": 1.0,
    "messages": 2.0,
    "age_years": np.inf,
}
SOFTWARE_COLUMNS = tuple(DEFAULTS)

NVIDIA = {"overlap_data": 1.0, "overlap_tensor": 1.0, "overlap_pipeline": 1.0}
RULES: tuple[Rule, ...] = (
    Rule("vTrain", r"vTrain", {"attention_kernel": "unfused"}),
    Rule(
        "DeepSpeed pipeline", r"Megatron-DeepSpeed|DeepSpeed\+Megatron|MT-NLG|BigScience",
        {"attention_kernel": "unfused", "gradient_bytes": 4.0, "split_messages": 0.0, "messages": 4.0},
    ),
    Rule(
        "Megatron with DeepSpeed ZeRO-3", r"Megatron-LM\+DeepSpeed",
        {"attention_kernel": "unfused", "gather_calls": 12.0, "gather_efficiency": 1.0 / 3.0},
    ),
    Rule("Korthikanti", r"Korthikanti", {"attention_kernel": "unfused", "gradient_bytes": 4.0}),
    Rule("Megatron 2021", r"SC21", {"attention_kernel": "unfused"}),
    Rule("Megatron-Bridge", r"Megatron-Bridge", {**NVIDIA, "gradient_bytes": 4.0}),
    Rule("NeMo AutoModel", r"AutoModel", {"overlap_data": 1.0, "unfused_elementwise": 1.0, "launch": "eager", "attention_kernel": "flash2"}),
    Rule("NeMo", r"NeMo|dgxc|PaXML", NVIDIA),
    Rule(
        "Composer", r"llm-foundry|Composer",
        {"attention_kernel": "flash1", "overlap_data": 1.0, "unfused_elementwise": 1.0, "launch": "eager"},
    ),
    Rule(
        "torchtitan", r"torchtitan",
        {"attention_kernel": "flash2", "overlap_data": 1.0, "launch": "compiled", "shard_gradient_bytes": 4.0},
    ),
    Rule(
        "Hugging Face with DeepSpeed", r"HF \+ DeepSpeed",
        {"attention_kernel": "flash2", "overlap_data": 1.0, "unfused_elementwise": 2.0, "launch": "eager"},
    ),
    Rule("SimuMax", r"SimuMax", {"gradient_bytes": 4.0}),
    Rule("Megatron", r"Megatron|MegaScale", {}),
)  # fmt: skip


def infer_software(runs: pd.DataFrame) -> pd.DataFrame:
    """Software facts of every row, as numbers, with a column `software_rule` naming the rule that set them.

    Args:
        runs: columns framework, source, notes, hardware, tp, pp, dtype (missing ones count as empty).
    """
    text = {name: runs[name].fillna("").astype(str) if name in runs else pd.Series("", index=runs.index) for name in ("framework", "source", "notes", "hardware")}
    where = text["framework"] + " | " + text["source"]
    facts = pd.DataFrame({name: [value] * len(runs) for name, value in DEFAULTS.items()}, index=runs.index)
    named = pd.Series("default", index=runs.index)
    open_rows = np.ones(len(runs), bool)
    for rule in RULES:
        hit = open_rows & where.str.contains(rule.pattern, regex=True).to_numpy()
        named[hit] = rule.name
        for name, value in rule.facts.items():
            facts.loc[hit, name] = value
        open_rows &= ~hit
    ampere = text["hardware"].str.contains(r"A100|A800").to_numpy()
    facts.loc[ampere & (facts["attention_kernel"] == "native").to_numpy(), "attention_kernel"] = "flash2"
    notes = text["notes"]
    facts.loc[notes.str.contains(r"MP mode DEFAULT").to_numpy(), ["gather_bytes", "gather_cast_bytes"]] = [4.0, 6.0]
    facts.loc[notes.str.contains(r"async|AsyncTP", flags=re.IGNORECASE).to_numpy(), "overlap_tensor"] = 1.0
    facts.loc[notes.str.contains(r"A2A overlap").to_numpy(), "overlap_expert"] = 1.0
    graphs = notes.str.contains(r"CUDA graphs").to_numpy()
    facts.loc[graphs & notes.str.contains(r"full_iteration").to_numpy(), "launch"] = "graphs"
    facts.loc[graphs & notes.str.contains(r"'attn'").to_numpy(), "launch"] = "partial_graphs"
    early = text["framework"].str.contains(r"Megatron-Bridge (?:25|26\.0[0-3])|NeMo").to_numpy()
    facts.loc[early, "grouped_experts"] = 0.0
    for name in SOFTWARE_COLUMNS:
        if name in runs:
            given = runs[name].notna().to_numpy()
            facts.loc[given, name] = runs.loc[given, name]
    facts["attention_kernel"] = facts["attention_kernel"].map({word: float(i) for i, word in enumerate(ATTENTION_KERNELS)})
    facts["launch"] = facts["launch"].map({word: float(i) for i, word in enumerate(LAUNCHES)})
    facts = facts.astype("float64")
    facts["software_rule"] = named
    return facts
