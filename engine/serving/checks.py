"""The first rule that a deployment breaks, and its sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from engine.cost_models.calibrated import farthest, layer_rules, undivided_sizes
from engine.executions.arrays import Floats, Ints
from engine.executions.rules import undivided
from engine.executions.sentences import excess
from engine.serving.columns import FIELDS
from engine.serving.deployments import Deployments, deployments_of, expert_layout
from engine.serving.figures import ServingSubject, draft_deployments, host_bytes
from engine.serving.reasons import FITS, code_of, number_of, sentence
from engine.serving.shapes import longest_context
from hardware import GIB

__all__ = ["BITS", "limit_reasons", "reason_text", "shape_reasons"]

BITS = (16, 8, 4)
"""Widths of weights and of the KV cache that the model has rates for [bits]."""
BIT_FIELDS = ("weight_bits", "kv_bits", "attention_bits", "compute_bits")
"""Fields with one of them."""


def shape_reasons(subject: ServingSubject, d: Deployments) -> Ints:
    """Returns the number of the first rule that each deployment breaks by its shape alone; 0 for none [rows].

    Args:
        subject: model, system, price and assumptions.
        d: deployments [rows].
    """
    model, t, e = subject.shapes, np.maximum(d.tensor_par, 1.0), np.maximum(d.expert_par, 1.0)
    experts, blocks = float(model.experts), len(subject.pattern.blocks)
    routed = experts > 0
    nowhere = np.zeros(len(d), bool)
    if model.pattern is None:
        undividable = undivided(
            t,
            feedforward=int(model.feedforward) if subject.pattern.is_dense else None,
            attn_heads=int(model.attn_heads),
            key_value_heads=None if model.latent > 0 else int(model.key_value_heads),
        )
    else:
        undividable = layer_rules(model, t, 1.0, with_repeated=False)
    positive = np.min([getattr(d, column.name) for column in FIELDS if column.dtype == "int64"], axis=0) >= 1
    context = longest_context(subject.model)
    slices = np.maximum(t / e, 1.0)
    broken = (
        ("not_positive", ~positive),
        ("unknown_bits", ~np.all([np.isin(getattr(d, name), BITS) for name in BIT_FIELDS], axis=0)),
        ("unknown_launch", d.launch < 0),
        ("unknown_engine", d.engine < 0),
        ("narrow_products", d.compute_bits < d.weight_bits),
        ("heads_not_divisible", undividable.get("heads_not_divisible", nowhere)),
        ("layer_not_divisible", undividable.get("layer_not_divisible", nowhere)),
        ("kv_heads_not_divisible", undividable.get("key_value_heads_not_divisible", nowhere)),
        ("feedforward_not_divisible", undividable.get("feedforward_not_divisible", nowhere)),
        ("pipeline_exceeds_blocks", d.pipeline_par > blocks),
        ("no_experts", (not routed) & (e != 1)),
        ("experts_not_divisible", routed & (np.mod(max(experts, 1.0), e) != 0)),
        ("expert_layout", routed & ~expert_layout(t, e, np.maximum(d.replicas, 1.0))),
        ("expert_width_not_divisible", routed & (np.mod(float(model.expert_feedforward), slices) != 0)),
        ("context_too_long", d.prompt + d.output > (np.inf if context is None else context)),
        ("network_too_small", d.reach > farthest(subject.system)),
    )
    found = np.zeros(len(d), np.int64)
    for code, where in broken:
        found = np.where((found == FITS) & where, number_of(code), found)
    if subject.draft is not None:
        there = draft_deployments(d, subject.assumptions.draft_bits)
        refused = shape_reasons(subject.draft, there) != FITS
        found = np.where((found == FITS) & refused, number_of("draft_model"), found)
    return found


def limit_reasons(first_token: Floats, per_token: Floats, ttft_limit: float | None, tpot_limit: float | None) -> Ints:
    """Returns the number of the first limit that each deployment misses; 0 for none [rows].

    Args:
        first_token: time to the first token [s] [rows].
        per_token: time per output token [s] [rows].
        ttft_limit: longest time to the first token [s]; None for none.
        tpot_limit: longest time per output token [s]; None for none.
    """
    found = np.zeros(len(first_token), np.int64)
    if ttft_limit is not None:
        found = np.where(first_token > ttft_limit, number_of("time_to_first_token"), found)
    if tpot_limit is not None:
        found = np.where((found == FITS) & (per_token > tpot_limit), number_of("time_per_output_token"), found)
    return found


def reason_text(
    subject: ServingSubject,
    number: int,
    row: Mapping[str, Any],
    ttft_limit: float | None = None,
    tpot_limit: float | None = None,
) -> str:
    """Returns the sentence on the reason why one deployment does not run.

    Args:
        subject: model, system, price and assumptions.
        number: of a reason; 0 for none.
        row: fields of the deployment, and its figures where the reason is one of them.
        ttft_limit: longest time to the first token [s]; None for none.
        tpot_limit: longest time per output token [s]; None for none.
    """
    if number == FITS:
        return ""
    model, code = subject.shapes, code_of(number)
    special = code in ("draft_model", "host_memory")
    quantities: dict[str, Any] = {column.name: row[column.name] for column in FIELDS} | {
        "heads": int(model.attn_heads),
        "kv_heads": int(model.key_value_heads),
        "feedforward": int(model.feedforward),
        "blocks": len(subject.pattern.blocks),
        "undivided_sizes": undivided_sizes(model, "layer_not_divisible", int(row["tensor_par"]), 1),
        "experts": int(model.experts),
        "expert_feedforward": int(model.expert_feedforward),
        "length": int(row["prompt"]) + int(row["output"]),
        "tensor_replicas": int(row["tensor_par"]) * int(row["replicas"]),
        "slices": max(int(row["tensor_par"]) // max(int(row["expert_par"]), 1), 1),
        "context": longest_context(subject.model),
        "reach": max(int(row["tensor_par"]), int(row["expert_par"])) * int(row["pipeline_par"]),
        "connected": farthest(subject.system),
        "ttft": 1e3 * row.get("time_to_first_token", 0.0),
        "ttft_limit": 1e3 * (ttft_limit or 0.0),
        "tpot": 1e3 * row.get("time_per_output_token", 0.0),
        "tpot_limit": 1e3 * (tpot_limit or 0.0),
    }
    one = deployments_of(pd.DataFrame([{column.name: row[column.name] for column in FIELDS}])) if special else None
    if code == "draft_model" and subject.draft is not None and one is not None:
        bits = subject.assumptions.draft_bits
        there = draft_deployments(one, bits)
        beside = {**row, "pipeline_par": 1, "expert_par": 1}
        beside |= {"weight_bits": bits, "attention_bits": bits, "compute_bits": bits}
        quantities["draft_reason"] = reason_text(subject.draft, int(shape_reasons(subject.draft, there)[0]), beside)
    if code == "host_memory" and one is not None:
        need = float(one.batch[0] * host_bytes(subject, one)[0])
        told = excess(need / GIB, subject.host_capacity / GIB)
        quantities |= {f"host_{name}": text for name, text in told.items()}
    if "memory_total" in row:
        quantities |= excess(float(row["memory_total"]) / GIB, float(subject.accelerator.capacity) / GIB)
    return sentence(code, quantities)
