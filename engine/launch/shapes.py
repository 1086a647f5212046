"""Shape of a model in the flat words that configurations are compared in, from and to `models.Model`.

Words are the fields of `models.Architecture` if it has one: `layers`, `hidden`, `ffn`, `heads`, `kv_heads`, `head_dim`,
`gated_mlp`, `tied_embeddings`, `norm`, `positions`; `q_rank`, `kv_rank`, `nope_head_dim`, `rope_head_dim`, `v_head_dim`
of latent attention; and `index_heads`, `index_head_dim`, `index_top_k`, `index_layers` of an indexer of sparse
attention. Also: `seq` and `vocab`, as stored [tokens], `experts` of a layer, `top_k` of which a token visits,
`expert_ffn` and `shared_ffn`, their widths, `moe_layer_freq`, 1 where all layers have experts or a list with a 1 for
each that has, and `mtp_layers`, the trained layers for multi-token prediction.

A model with a pattern of layers has `pattern`, its `blocks` and `runs` as in its document; its first attention and
mixture then give heads and experts.

With latent attention `head_dim` is the value of its flag, if any, not the width of a query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import models
from engine.launch.contract import LaunchError
from models import Model
from models.layers import Block, LayerPattern, Run

__all__ = ["SHAPE_WORDS", "model_of_shape", "named_shape", "pattern_word", "shape_of", "words_of_blocks"]

SHAPE_WORDS: Final[Mapping[str, str]] = {
    "layers": "blocks",
    "hidden": "width of the residual stream",
    "ffn": "width of an ordinary MLP",
    "heads": "query heads",
    "kv_heads": "key and value heads",
    "head_dim": "width of a head",
    "seq": "tokens of a sequence",
    "vocab": "tokens of the vocabulary",
    "gated_mlp": "whether the MLP is gated",
    "tied_embeddings": "whether the head is the embedding",
    "norm": "kind of norm",
    "positions": "kind of positions",
    "rope_theta": "base of rotary positions",
    "linear_bias": "whether products have biases",
    "qk_norm": "whether queries and keys are normalised",
    "experts": "routed experts of a layer",
    "top_k": "experts that a token visits",
    "expert_ffn": "width of an expert",
    "shared_ffn": "width of the shared experts together",
    "moe_layer_freq": "which layers have experts",
    "q_rank": "width of the compressed query",
    "kv_rank": "width of the compressed key and value",
    "nope_head_dim": "width of a head without position",
    "rope_head_dim": "width of its rotated part",
    "v_head_dim": "width of a value head",
    "index_heads": "heads of the indexer of sparse attention",
    "index_head_dim": "width of such a head",
    "index_top_k": "tokens that a query attends to",
    "index_layers": "layers with an indexer of their own",
    "mtp_layers": "layers for multi-token prediction",
    "pattern": "blocks of unlike layers and their order",
}
"""Words of a shape, with their meaning."""

_NEEDED: Final = ("layers", "hidden", "ffn", "heads", "seq")
_TOLD: Final = (
    "layers",
    "hidden",
    "ffn",
    "heads",
    "kv_heads",
    "experts",
    "top_k",
    "expert_ffn",
    "shared_ffn",
    "kv_rank",
    "gated_mlp",
    "index_heads",
    "index_head_dim",
    "index_top_k",
    "index_layers",
)
"""Words that tell models of the library apart."""


def shape_of(model: Model) -> dict[str, Any]:
    """Returns the shape of a model by the words of this module; words that it has no value for are absent.

    Args:
        model: any.
    """
    if model.layers is not None:
        return _pattern_shape(model.layers, model.seq_size)
    a = model.architecture_or_assumed()
    shape: dict[str, Any] = {
        "layers": a.layers,
        "hidden": a.hidden,
        "ffn": a.ffn,
        "heads": a.heads,
        "kv_heads": a.kv_heads,
        "head_dim": a.head_dim,
        "seq": model.seq_size,
        "vocab": a.vocab_padded,
        "gated_mlp": a.gated_mlp,
        "tied_embeddings": a.tied_embeddings,
        "norm": a.norm,
        "positions": a.positions,
        "rope_theta": a.rope_theta,
        "linear_bias": a.linear_bias,
        "qk_norm": a.qk_norm,
    }
    if a.experts is not None:
        shape |= {
            "experts": a.experts.routed,
            "top_k": a.experts.top_k,
            "expert_ffn": a.experts.ffn,
            "shared_ffn": a.experts.shared_width,
            "moe_layer_freq": 1 if all(a.expert_layers) else [int(each) for each in a.expert_layers],
        }
    if (latent := a.latent_attention) is not None:
        shape |= {
            "q_rank": latent.q_rank,
            "kv_rank": latent.kv_rank,
            "nope_head_dim": latent.nope_head_dim,
            "rope_head_dim": latent.rope_head_dim,
            "v_head_dim": latent.v_head_dim,
        }
        shape["head_dim"] = latent.v_head_dim
    if (index := a.sparse_attention) is not None:
        shape |= {
            "index_heads": index.heads,
            "index_head_dim": index.head_dim,
            "index_top_k": index.top_k,
            "index_layers": a.indexer_layers,
        }
    if a.trained_prediction_layers:
        shape["mtp_layers"] = a.trained_prediction_layers
    return {word: value for word, value in shape.items() if value is not None}


def _pattern_shape(pattern: LayerPattern, sequence: int) -> dict[str, Any]:
    return {
        "hidden": pattern.hidden,
        "seq": sequence,
        "vocab": pattern.vocab,
        "tied_embeddings": pattern.tied_embeddings,
        "norm": "RMSNorm" if pattern.norm_width == 1 else "LayerNorm",
        "pattern": pattern_word(pattern.blocks, pattern.runs),
        **words_of_blocks(pattern.blocks),
        "layers": pattern.layers,
    }


def pattern_word(blocks: Sequence[Block], runs: Sequence[Run]) -> dict[str, Any]:
    """Return the word `pattern` of a shape.

    Args:
        blocks: the different blocks.
        runs: their order.
    """
    return {
        "blocks": [each.model_dump(mode="json", exclude_defaults=True) for each in blocks],
        "runs": [each.model_dump(mode="json") for each in runs],
    }


def words_of_blocks(blocks: Sequence[Block]) -> dict[str, Any]:
    """Return the words for heads and experts, of the first attention and the first mixture of these blocks.

    Args:
        blocks: the different blocks of a pattern.
    """
    found: dict[str, Any] = {}
    layers = [layer for block in blocks for layer in block.layers]
    attention = next((shape for layer in layers if (shape := layer.softmax()) is not None), None)
    if attention is not None:
        found |= {"heads": attention.heads, "kv_heads": attention.kv_heads, "head_dim": attention.key_width}
    routing = next((choice for layer in layers if (choice := layer.routing()) is not None), None)
    if routing is not None:
        found |= {
            "experts": routing.routed,
            "top_k": routing.top_k,
            "expert_ffn": routing.width,
            "shared_ffn": routing.shared_width,
        }
    return found


def model_of_shape(shape: Mapping[str, Any], name: str = "imported") -> Model:
    """Returns the model that a shape is of: that of the library where it has just this shape, else one made of it.

    Args:
        shape: values by the words of this module.
        name: of a model that the library does not have.

    Raises `LaunchError` where the shape says too little; `models.ModelFileError` where no model can be such.
    """
    needed = ("hidden", "seq") if "pattern" in shape else _NEEDED
    missing = [word for word in needed if word not in shape]
    if missing:
        told = ", ".join(f"{SHAPE_WORDS[word]} ({word})" for word in missing)
        raise LaunchError(f"The configuration does not say the model's {told}; name the model beside it.")
    known = named_shape(shape)
    if known is not None:
        model = models.load(known)
        changes: dict[str, Any] = {} if model.seq_size == shape["seq"] else {"seq_size": int(shape["seq"])}
        if predictions := int(shape.get("mtp_layers", 0)):
            published = model.architecture_or_assumed().prediction_layers
            changes |= {"architecture.trained_prediction_layers": predictions}
            changes |= {"architecture.prediction_layers": predictions} if predictions > published else {}
        return models.edited(model, changes) if changes else model
    vocab = int(shape.get("vocab", 51_200))
    notes = [] if "vocab" in shape else ["The vocabulary was not stated; 51,200 tokens are assumed."]
    described = {
        "format": "shardscape-model/1",
        "name": name,
        "title": name,
        "source": "a launch configuration",
        "seq_size": shape["seq"],
        "notes": notes,
    }
    if "pattern" in shape:
        layers = {
            **shape["pattern"],
            "hidden": shape["hidden"],
            "vocab": vocab,
            "tied_embeddings": shape.get("tied_embeddings", False),
            "norm_width": 2 if shape.get("norm") == "LayerNorm" else 1,
        }
        return models.load_document({**described, "layers": layers}, where=name)
    heads = int(shape["heads"])
    document: dict[str, Any] = {
        "hidden": shape["hidden"],
        "ffn": shape["ffn"],
        "layers": shape["layers"],
        "heads": heads,
        "kv_heads": shape.get("kv_heads", heads),
        "head_dim": shape.get("head_dim", int(shape["hidden"]) // heads),
        "gated_mlp": shape.get("gated_mlp", False),
        "norm": shape.get("norm"),
        "vocab": vocab,
        "vocab_padded": vocab,
        "tied_embeddings": shape.get("tied_embeddings", True),
        "rope_theta": shape.get("rope_theta"),
        "linear_bias": shape.get("linear_bias"),
        "qk_norm": shape.get("qk_norm"),
        "prediction_layers": shape.get("mtp_layers", 0),
        "positions": shape.get("positions"),
        "trained_prediction_layers": shape.get("mtp_layers", 0),
    }
    if document["positions"] == "learned":
        document["max_seq"] = shape["seq"]
    if "kv_rank" in shape:
        nope, rope = int(shape.get("nope_head_dim", 128)), int(shape.get("rope_head_dim", 64))
        document |= {
            "head_dim": nope + rope,
            "kv_heads": heads,
            "latent_attention": {
                "q_rank": shape.get("q_rank"),
                "kv_rank": shape["kv_rank"],
                "nope_head_dim": nope,
                "rope_head_dim": rope,
                "v_head_dim": shape.get("v_head_dim", 128),
            },
        }
    if "index_top_k" in shape:
        document["sparse_attention"] = {
            "heads": shape["index_heads"],
            "head_dim": shape["index_head_dim"],
            "top_k": shape["index_top_k"],
            "layers": shape.get("index_layers"),
        }
    if "experts" in shape:
        document["experts"] = _expert_fields(shape)
    return models.load_document({**described, "architecture": document}, where=name)


def _expert_fields(shape: Mapping[str, Any]) -> dict[str, Any]:
    shared = int(shape.get("shared_ffn", 0))
    found: dict[str, Any] = {
        "routed": shape["experts"],
        "top_k": shape.get("top_k", 2),
        "ffn": shape.get("expert_ffn", shape["ffn"]),
    }
    if shared:
        found |= {"shared": 1, "shared_ffn": shared}
    which = shape.get("moe_layer_freq", 1)
    if isinstance(which, Sequence) and not isinstance(which, str):
        layers = [bool(each) for each in which]
        dense = next((place for place, each in enumerate(layers) if each), len(layers))
        if all(layers[dense:]):
            found["leading_dense_layers"] = dense
            return found
        every = dense + 1
        if [place % every == 0 for place in range(1, len(layers) + 1)] != layers:
            raise LaunchError(
                "The layers with experts follow no rule that is known here; every n-th, or all after the "
                "first few, can be evaluated."
            )
        found["every"] = every
    elif isinstance(which, int) and which > 1:
        found["every"] = which
    return found


def named_shape(shape: Mapping[str, Any]) -> str | None:
    """Return the name of the library's model that has a shape, None without one.

    Models are distinguished by their blocks; the sequence length is the training run's, and the vocabulary decides only
    where blocks are equal. Of several that are equal in all of that, one without sparse attention counts, then the
    first in the alphabet; a shape without an indexer may belong to a model with one.

    Args:
        shape: values by the words of this module.
    """
    if "pattern" in shape:
        same = ("pattern", "hidden", "tied_embeddings")
        alike = [
            (abs(int(known["vocab"]) - int(shape.get("vocab", known["vocab"]))), name)
            for name, known in _library_shapes()
            if all(known.get(word) == shape.get(word) for word in same)
        ]
        return min(alike)[1] if alike and min(alike)[0] <= 1_024 else None
    if any(word not in shape for word in ("layers", "hidden", "ffn", "heads")):
        return None
    matches = [
        (
            abs(int(known["vocab"]) - int(shape.get("vocab", known["vocab"]))),
            "index_top_k" in known,
            known["seq"] != shape.get("seq"),
            name,
        )
        for name, known in _library_shapes()
        if "pattern" not in known
        and all(
            known.get(word, 0) == shape[word] for word in _TOLD if word in shape and (word != "ffn" or _has_mlps(known))
        )
        and ("experts" in known) == ("experts" in shape)
        and ("kv_rank" in known) == ("kv_rank" in shape)
        and all(known[word] == shape[word] for word in ("positions", "norm") if word in known and word in shape)
        and ("kv_heads" in shape or known["kv_heads"] == known["heads"])
    ]
    close = [each for each in matches if each[0] <= 1_024]
    return min(close)[3] if close else None


def _has_mlps(shape: Mapping[str, Any]) -> bool:
    """Return whether a layer has an ordinary MLP; if all layers have experts, its width has no effect."""
    return "experts" not in shape or shape["moe_layer_freq"] != 1


@lru_cache(maxsize=1)
def _library_shapes() -> tuple[tuple[str, Mapping[str, Any]], ...]:
    return tuple((name, shape_of(models.load(name))) for name in models.plain_names())
