"""Architectures of measured runs, the model FLOP of their tokens, and rates of runs that were printed in TFLOP/s."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from pydantic import ValidationError

from engine.executions.arrays import Floats
from engine.validation.mapping import map_shapes
from engine.validation.words import convention_of, is_hardware_rate, recompute_of
from models import Architecture
from models.documents import shown
from models.token_flops import Recompute, TokenFlops, architecture_flops

__all__ = ["architectures_of", "explain_unread_rates", "flops_of_runs", "rates_by_flops"]

_UNSTATED: Final = (
    "tflops_per_gpu is not read, because tflops_kind does not say how it counts attention: causal or full, with the "
    "word hardware if recomputation counts"
)
_NO_CLOSED_FORM: Final = (
    "tflops_per_gpu is not read, because hardware FLOP are known for recompute none, selective and full, not for {}"
)
_TERA: Final = 1e12
"""FLOP/s of a TFLOP/s."""
_REPEATED: Final[Mapping[str, Recompute]] = {"none": "none", "selective": "attn_only", "full": "full"}
"""Policy of a run -> what hardware FLOP count twice; others have no closed form."""


def architectures_of(table: pd.DataFrame) -> list[Architecture | None]:
    """Return the architecture of every run's model; None where a size is missing or impossible.

    Args:
        table: runs in one type per field, as `engine.validation.reading` returns them [rows].
    """
    shapes = map_shapes(table)
    names = list(shapes)
    rows = np.column_stack([shapes[name] for name in names])
    return [_build_architecture(tuple(zip(names, row.tolist(), strict=True))) for row in rows]


@lru_cache(maxsize=4_096)
def _build_architecture(shape: tuple[tuple[str, float], ...]) -> Architecture | None:
    size = dict(shape)
    if not all(math.isfinite(size[name]) for name in ("hidden", "num_blocks", "attn_heads", "vocabulary")):
        return None
    try:
        return Architecture.model_validate(_architecture_values(size))
    except (ValidationError, ValueError):
        return None


def _architecture_values(size: Mapping[str, float]) -> dict[str, Any]:
    is_latent = size["latent"] > 0
    heads, kv_heads, head = size["attn_heads"], size["key_value_heads"], size["attn_size"]
    if head != int(head):  # tables that divide hidden by heads: one head of that width has the same products
        heads, kv_heads, head = 1.0, 1.0, size["hidden"]
    experts: dict[str, Any] | None = None
    if size["experts"] > 0:
        experts = {
            "routed": int(size["experts"]),
            "top_k": int(size["experts_per_token"]),
            "ffn": int(size["expert_feedforward"]),
            "shared": int(size["shared_experts"]),
            "leading_dense_layers": int(size["leading_dense"]),
            "groups": int(size["expert_groups"]),
            "groups_per_token": int(size["groups_per_token"]),
        }
    widths = size["feedforward"] if math.isfinite(size["feedforward"]) else size["expert_feedforward"]
    latent = {
        "q_rank": int(size["query_rank"]) or None,
        "kv_rank": int(size["key_value_rank"]),
        "nope_head_dim": int(size["attn_size"] - size["rope_size"]),
        "rope_head_dim": int(size["rope_size"]),
        "v_head_dim": int(size["value_size"]),
    }
    return {
        "hidden": int(size["hidden"]),
        "ffn": int(widths),
        "layers": int(size["num_blocks"]),
        "heads": int(heads),
        "kv_heads": int(kv_heads),
        "head_dim": int(head),
        "latent_attention": latent if is_latent else None,
        "sliding_window": int(size["window"]) or None,
        "window_kind": "chunked" if size["window_chunked"] else "sliding",
        "full_attention_every": int(size["full_attention_every"]) or None,
        "gated_mlp": size["gated"] > 0,
        "experts": experts,
        "vocab": int(size["vocabulary"]),
        "vocab_padded": int(size["vocabulary"]),
        "tied_embeddings": size["tied_embeddings"] > 0,
        "prediction_layers": int(size["prediction_layers"]),
        "trained_prediction_layers": int(size["prediction_layers"]),
    }


def flops_of_runs(table: pd.DataFrame) -> list[TokenFlops | None]:
    """Return the matrix arithmetic of one token of every run; None where the architecture or `seq_len` is unknown.

    Args:
        table: as for `architectures_of` [rows].
    """
    lengths = table["seq_len"].to_numpy(np.float64)
    return [
        None if shape is None or not math.isfinite(length) else _flops_of_architecture(shape, int(length))
        for shape, length in zip(architectures_of(table), lengths, strict=True)
    ]


@lru_cache(maxsize=4_096)
def _flops_of_architecture(shape: Architecture, length: int) -> TokenFlops:
    return architecture_flops(shape, length)


def rates_by_flops(table: pd.DataFrame) -> Floats:
    """Return the tokens per second and processor that `tflops_per_gpu` means by `tflops_kind` [tokens/s] [rows].

    Not a number where none is given, where the kind does not state how attention counts, and where the FLOP of a token
    are unknown.

    Args:
        table: as for `architectures_of` [rows].
    """
    found = np.full(len(table), np.nan)
    given = table["tflops_per_gpu"].to_numpy(np.float64)
    rows = np.flatnonzero(np.isfinite(given) & ~_unstated(table))
    if not len(rows):
        return found
    for row, flops in zip(rows, flops_of_runs(table.iloc[rows]), strict=True):
        if flops is not None:
            found[row] = given[row] * _TERA / _flops_counted(flops, table.iloc[row])
    return found


def _flops_counted(flops: TokenFlops, run: pd.Series[Any]) -> float:
    """Return the FLOP per token that the printed rate of a run counts; not a number for an unknown policy."""
    kind = str(run["tflops_kind"])
    convention = convention_of(kind)
    assert convention is not None
    if not is_hardware_rate(kind):
        return flops.model(convention)
    repeated = _repeated_part(run)
    return math.nan if repeated is None else flops.hardware(repeated, convention)


def _repeated_part(run: pd.Series[Any]) -> Recompute | None:
    policy = recompute_of(str(run["recompute"]) or "none", float(run["layers"]))
    return None if policy is None or (policy.kind != "none" and policy.share != 1.0) else _REPEATED.get(policy.kind)


def explain_unread_rates(table: pd.DataFrame) -> list[str]:
    """Return why the TFLOP/s of every run is not read, if it is the only measurement; empty for others [rows].

    Args:
        table: as for `architectures_of` [rows].
    """
    given = {name: table[name].notna().to_numpy(bool) for name in ("step_time_s", "tokens_per_s_per_gpu")}
    rate = table["tflops_per_gpu"].notna().to_numpy(bool)
    reasons = [""] * len(table)
    for row in np.flatnonzero(rate & ~given["step_time_s"] & ~given["tokens_per_s_per_gpu"]):
        run = table.iloc[row]
        kind = str(run["tflops_kind"])
        if convention_of(kind) is None:
            reasons[row] = _UNSTATED
        elif is_hardware_rate(kind) and _repeated_part(run) is None:
            reasons[row] = _NO_CLOSED_FORM.format(shown(str(run["recompute"])))
    return reasons


def _unstated(table: pd.DataFrame) -> npt.NDArray[np.bool_]:
    return np.array([convention_of(str(kind)) is None for kind in table["tflops_kind"]], bool)
