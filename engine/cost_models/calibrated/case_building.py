"""From a model, a system and columns of executions to the arrays of a `Case`.

Calculon's fields keep their names and meaning. Fields that it does not have are optional columns with the names of
`Layout` and `Software`; where they are not given, the defaults are a current Megatron-style stack.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.columns import EXTENSIONS, by_name
from engine.columns.stage_layouts import EVEN, canonical
from engine.cost_models.calibrated.physics.formats import DATATYPES, LINEAR_BITS, LINEAR_FORMATS
from engine.cost_models.calibrated.physics.inputs import (
    ATTENTION_KERNELS,
    CONTEXT_EXCHANGES,
    DISPATCHERS,
    LAUNCHES,
    RECOMPUTES,
    SIZES,
    Accelerators,
    Case,
    Layout,
    ModelShapes,
    Software,
    TunedShapes,
)
from engine.cost_models.calibrated.physics.layers.views import pattern_shapes
from engine.cost_models.calibrated.physics.pipeline.schedules import plain_schedule
from engine.cost_models.calibrated.systems import accelerator_of, fastest_attention
from hardware import System
from models import Model, ModelTuning
from models.patterns import pattern_of as architecture_pattern
from models.tuning import count_adapted_norms, targeted_products

__all__ = ["NEUTRAL", "SOFTWARE_DEFAULTS", "case_of", "model_shapes", "shaped_case"]

RECOMPUTE_OF = {"full": "full", "attn_only": "selective", "none": "none"}

NEUTRAL: dict[str, Any] = {
    column.name: column.choices.index(str(column.default)) if column.choices else column.default
    for column in EXTENSIONS
}
"""The register's default of every extension, words as positions."""

SOFTWARE_DEFAULTS: dict[str, float | str] = {
    **{item.name: float(NEUTRAL[item.name]) for item in fields(Software) if item.name in NEUTRAL},
    "attention_kernel": "native",
    "launch": "fused",
    "unfused_elementwise": 0.0,
    "overlap_data": 0.0,
    "overlap_tensor": 0.0,
    "overlap_expert": 0.0,
    "overlap_pipeline": 0.0,
    "split_messages": 1.0,
    "messages": 2.0,
    "gradient_bytes": 4.0,
    "moment_bytes": 4.0,
    "gather_bytes": 2.0,
    "gather_cast_bytes": 0.0,
    "gather_calls": 1.0,
    "gather_efficiency": 1.0,
    "pytorch_native": 0.0,
    "shard_gradient_bytes": 4.0,
    "grouped_experts": 1.0,
    "age_years": float("inf"),
    "token_dispatcher": "all_to_all",
    "dispatch_bytes": 2.0,
    "kept_bytes": 2.0,
    "fp8_parameters": 0.0,
    "busiest_load": 1.0,
    "context_par_comm": "p2p",
}
"""Default software facts of an execution: fused kernels, 32-bit gradients, no overlap, mature software."""


@lru_cache(maxsize=64)
def model_shapes(model: Model) -> ModelShapes:
    """Returns what the cost model reads of a model, as plain numbers.

    A model known by Calculon's six numbers only has plain attention, an ungated feed-forward layer and no vocabulary.

    Args:
        model: any model.
    """
    shapes = _untuned_shapes(model)
    return shapes if model.tuning is None else replace(shapes, tuning=_tuned_shapes(model, model.tuning, shapes))


_QUANTIZED_SCALES = {4: 0.127}
"""Bits of scales per weight by width of frozen weights [bits]: with double quantisation, 8 of a scale per 64 weights
and 32 of a scale of 256 of those. Source: QLoRA (arXiv:2305.14314, section 3, "Double Quantization")."""


def _tuned_shapes(model: Model, tuning: ModelTuning, shapes: ModelShapes) -> TunedShapes:
    """Return the tuning of a model, with the products that have an adapter in the order of its sizes of blocks."""
    pattern = model.pattern_or_assumed()
    products, norms = targeted_products(pattern, tuning), count_adapted_norms(pattern, tuning)
    if shapes.pattern is None:
        # The sizes of a model without a pattern: a block with a dense feed-forward layer, and one with experts.
        routed = [any(layer.routing() is not None for layer in block.layers) for block in pattern.blocks]
        places = [routed.index(wanted) if wanted in routed else -1 for wanted in (False, True)]
        products = tuple(() if place < 0 else products[place] for place in places)
        norms = tuple(0 if place < 0 else norms[place] for place in places)
    packing = model.packing
    return TunedShapes(
        rank=float(tuning.adapter_rank),
        products=products,
        adapted_norms=norms,
        frozen_bits=tuning.frozen_weight_bits + _QUANTIZED_SCALES.get(tuning.frozen_weight_bits, 0.0),
        loss_chunk=float(tuning.loss_chunk),
        fill=packing.fill,
        square_share=packing.square_share,
    )


def _untuned_shapes(model: Model) -> ModelShapes:
    if model.layers is not None:
        return pattern_shapes(model.layers, model.seq_size)
    found = model.architecture
    if found is not None and found.sparse_attention is not None:
        # Attention to chosen tokens is no fused kernel over a window: its layers state their work themselves.
        return pattern_shapes(architecture_pattern(found), model.seq_size, found.trained_prediction_layers)
    if found is None:
        block = model.calculon or model.require_block()
        values = dict.fromkeys(SIZES, 0.0)
        values |= {
            "hidden": block.hidden,
            "feedforward": block.feedforward,
            "num_blocks": block.num_blocks,
            "attn_heads": block.attn_heads,
            "key_value_heads": block.attn_heads,
            "attn_size": block.attn_size,
            "value_size": block.attn_size,
            "seq_size": model.seq_size,
            "vocabulary": 1.0,
            "experts_per_token": 1.0,
            "expert_groups": 1.0,
            "groups_per_token": 1.0,
            "tied_embeddings": 1.0,
        }
        return ModelShapes.of(values)
    latent, experts = found.latent_attention, found.experts
    return ModelShapes.of(
        {
            "hidden": found.hidden,
            "feedforward": found.ffn,
            "num_blocks": found.layers,
            "attn_heads": found.heads,
            "key_value_heads": found.heads if latent else found.kv_heads,
            "attn_size": latent.qk_head_dim if latent else found.head_dim,
            "value_size": latent.v_head_dim if latent else found.head_dim,
            "vocabulary": found.vocab_padded,
            "seq_size": model.seq_size,
            "gated": float(found.gated_mlp),
            "tied_embeddings": float(found.tied_embeddings),
            "latent": float(latent is not None),
            "query_rank": (latent.q_rank or 0) if latent else 0,
            "key_value_rank": latent.kv_rank if latent else 0,
            "rope_size": latent.rope_head_dim if latent else 0,
            "window": found.sliding_window or 0,
            "window_chunked": float(found.window_kind == "chunked"),
            "full_attention_every": found.full_attention_every or 0,
            "experts": experts.routed if experts else 0,
            "experts_per_token": experts.top_k if experts else 1,
            "expert_feedforward": experts.ffn if experts else 0,
            # Shared experts count in widths of a routed one.
            "shared_experts": experts.shared_width / experts.ffn if experts else 0,
            "leading_dense": experts.leading_dense_layers if experts else 0,
            "experts_every": experts.every if experts else 0,
            "expert_groups": experts.groups if experts else 1,
            "groups_per_token": experts.groups_per_token if experts else 1,
            "prediction_layers": found.trained_prediction_layers,
        }
    )


def case_of(model: Model, system: System, executions: Mapping[str, Any]) -> Case:
    """Returns the case of one model on one system for columns of executions.

    Args:
        model, system: turned into plain numbers that broadcast.
        executions: columns [rows] or numbers, at least tensor_par, pipeline_par, data_par, microbatch_size and
            batch_size. Read where given: Calculon's pipeline_interleaving, datatype, activation_recompute,
            optimizer_sharding, tensor_par_comm_type, tensor_par_overlap, data_par_overlap; and every field of `Layout`
            and `Software` by its own name, which has precedence. `attention_kernel`, `launch`, `recompute` and
            `stage_layout` may be words or positions.

    Raises:
        KeyError: one of the five required columns is missing.
        ValueError: an unknown word.
    """
    return shaped_case(model_shapes(model), system, executions)


def shaped_case(shapes: ModelShapes, system: System, executions: Mapping[str, Any]) -> Case:
    """Returns the case of shapes, as of a part of a model, on one system for columns of executions.

    Args:
        shapes: of the model, numbers or arrays [rows].
        system: becomes plain numbers that broadcast.
        executions: as for `case_of`.

    Raises as `case_of`.
    """
    return Case(
        shapes, Accelerators.of(accelerator_of(system)), _build_layout(executions), _build_software(system, executions)
    )


def _build_layout(e: Mapping[str, Any]) -> Layout:
    number = _number_reader(e)
    tensor = number("tensor_par", None)
    values = {
        "tensor_par": tensor,
        **{name: number(name, None) for name in ("pipeline_par", "data_par", "microbatch_size", "batch_size")},
        **{name: number(name, 1.0) for name in ("context_par", "expert_par", "recompute_share")},
        "expert_tensor_par": number("expert_tensor_par", tensor),
        "pipeline_interleaving": number("pipeline_interleaving", 1.0),
        "schedule": number("schedule", plain_schedule(number("pipeline_interleaving", 1.0))),
        "stage_layout": _layout_positions(e),
        "sequence_par": number("sequence_par", _is_word(e, "tensor_par_comm_type", "rs_ag", 1.0)),
        "fully_sharded": number("fully_sharded", 0.0),
        **_linear_formats(e),
        "recompute": _word_positions(e, "recompute", RECOMPUTES, _recompute_words(e)),
        "recompute_modules": number("recompute_modules", 0.0),
        "training": number("training", 1.0),
    }
    sharded = np.asarray(e["optimizer_sharding"], np.float64) if "optimizer_sharding" in e else 1.0
    values["zero_stage"] = number("zero_stage", np.where(values["fully_sharded"] > 0, 3.0, sharded))
    return Layout.of(values)


def _layout_positions(e: Mapping[str, Any]) -> npt.NDArray[np.float64]:
    """Return positions of stage layouts among the words of the field, from positions or words."""
    given = np.asarray(e.get("stage_layout", EVEN))
    if given.dtype.kind in "iufb":
        return given.astype(np.float64)
    words, which = np.unique(given.astype(str), return_inverse=True)
    positions = [canonical(word) and by_name("stage_layout").position(word) for word in words.tolist()]
    return np.array(positions, np.float64)[which].reshape(given.shape)


def _build_software(system: System, e: Mapping[str, Any]) -> Software:
    number = _number_reader(e)
    values = {name: number(name, value) for name, value in SOFTWARE_DEFAULTS.items() if not isinstance(value, str)}
    values["overlap_data"] = number("overlap_data", np.asarray(e.get("data_par_overlap", 0.0), np.float64))
    values["overlap_tensor"] = number("overlap_tensor", 1.0 - _is_word(e, "tensor_par_overlap", "none", 1.0))
    values["attention_kernel"] = _word_positions(e, "attention_kernel", ATTENTION_KERNELS, fastest_attention(system))
    values["launch"] = _word_positions(e, "launch", LAUNCHES, "fused")
    values["token_dispatcher"] = _word_positions(e, "token_dispatcher", DISPATCHERS, "all_to_all")
    values["context_par_comm"] = _word_positions(e, "context_par_comm", CONTEXT_EXCHANGES, "p2p")
    return Software.of(values)


def _number_reader(e: Mapping[str, Any]) -> Any:
    def number(name: str, default: Any) -> npt.NDArray[np.float64]:
        if name in e:
            return np.asarray(e[name], np.float64)
        if default is None:
            raise KeyError(name)
        return np.asarray(default, np.float64)

    return number


def _is_word(e: Mapping[str, Any], name: str, word: str, default: float) -> npt.NDArray[np.float64]:
    return np.asarray(np.asarray(e[name]) == word, np.float64) if name in e else np.asarray(default)


def _linear_formats(e: Mapping[str, Any]) -> dict[str, Any]:
    """Return width and format of the linear layers, from both fields or from the datatype."""
    if "linear_bits" in e:
        number = _number_reader(e)
        return {name: number(name, 0.0) for name in ("linear_bits", "linear_format")}
    positions = _word_positions(e, "datatype", DATATYPES, "bfloat16").astype(np.intp)
    return {"linear_bits": LINEAR_BITS[positions], "linear_format": LINEAR_FORMATS[positions]}


def _recompute_words(e: Mapping[str, Any]) -> Any:
    if "activation_recompute" not in e:
        return "none"
    words = np.asarray(e["activation_recompute"])
    return np.select([words == word for word in RECOMPUTE_OF], [*RECOMPUTE_OF.values()], "none")


def _word_positions(e: Mapping[str, Any], name: str, choices: tuple[str, ...], default: Any) -> npt.NDArray[np.float64]:
    value = e.get(name, default)
    if isinstance(value, str) and value in choices:  # of all rows
        return np.asarray(choices.index(value), np.float64)
    given = np.asarray(value)
    if given.dtype.kind in "iufb":
        return given.astype(np.float64)
    words = given.astype(str)
    positions = np.full(words.shape, -1.0)
    for position, word in enumerate(choices):
        positions[words == word] = position
    if (positions < 0).any():
        unknown = min(words[positions < 0].tolist())
        raise ValueError(f"{name} is {unknown!r}; it must be one of {', '.join(choices)}")
    return positions
