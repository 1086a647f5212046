"""Models that a framework knows by a name of its own, as models of the library.

torchtitan's flavors, MaxText's `model_name`: the framework's code holds the shape, and the configuration only its name.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import models
from engine.launch.shapes import shape_of
from models import Model

__all__ = ["PatternSize", "library_shape", "named_pattern", "same_blocks"]

_TOLD: Final = (
    "layers",
    "hidden",
    "heads",
    "kv_heads",
    "gated_mlp",
    "tied_embeddings",
    "experts",
    "top_k",
    "expert_ffn",
    "shared_ffn",
    "moe_layer_freq",
    "q_rank",
    "kv_rank",
    "nope_head_dim",
    "rope_head_dim",
    "v_head_dim",
)


class PatternSize(NamedTuple):
    """Size of a model with a pattern of layers, by which it is recognised."""

    hidden: int
    layers: int
    parameters: int
    """All weights of the language model, to the last one."""


def named_pattern(model: Model, names: Mapping[str, PatternSize]) -> str | None:
    """Return the framework's name of a model with a pattern of layers; None without one.

    Args:
        model: to look for.
        names: sizes by the framework's name.
    """
    assert model.layers is not None
    size = PatternSize(model.layers.hidden, model.layers.layers, model.parameters or 0)
    return next((name for name, each in names.items() if each == size), None)


_VOCABULARY: Final = 1_024
"""Vocabularies that differ by less count as one: some are counted without special tokens, others padded."""


@functools.lru_cache(maxsize=256)
def _model_shape(name: str) -> Mapping[str, Any]:
    model = models.load(name)
    shape = shape_of(model)
    del shape["seq"]
    # A framework holds the matrix as it is stored.
    shape["vocab"] = model.architecture_or_assumed().vocab_padded
    return shape


def library_shape(name: str) -> dict[str, Any]:
    """Returns the shape of a model of the library, without a sequence length, which is the training run's.

    Args:
        name: of the model.
    """
    return dict(_model_shape(name))


def same_blocks(name: str, shape: Mapping[str, Any]) -> bool:
    """Return whether a model of the library has the blocks and the vocabulary of a shape.

    Args:
        name: name of a library model.
        shape: by the words of `engine.launch.shapes`.
    """
    known = _model_shape(name)
    if any(known.get(word) != shape.get(word) for word in _TOLD):
        return False
    # The width of an ordinary MLP is used by no layer where all of them have experts.
    if shape.get("moe_layer_freq") != 1 and known["ffn"] != shape.get("ffn"):
        return False
    return abs(int(known["vocab"]) - int(shape.get("vocab", known["vocab"]))) < _VOCABULARY
