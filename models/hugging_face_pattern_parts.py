"""Parts of configurations that families of patterns share: lists of kinds, attention, the pattern itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from models.documents import shown
from models.hugging_face_config import HuggingFaceConfig
from models.layers.attention import AttentionLayer
from models.layers.latent_attention import LatentAttentionLayer
from models.layers.pattern import Block, LayerPattern, runs_of

__all__ = [
    "MOST_LAYERS",
    "build_pattern",
    "count_layers",
    "list_kinds",
    "note_prediction",
    "read_attention",
    "read_latent_attention",
]

MOST_LAYERS = 10_000
"""Layers of a configuration whose blocks are listed one by one."""


def build_pattern(config: HuggingFaceConfig, blocks: Sequence[Block], *, tied: bool, **more: Any) -> LayerPattern:
    """Return the pattern of a list of blocks, with keys that most families share; `tied` is their default."""
    kinds, runs = runs_of(blocks)
    longest = ("max_position_embeddings", "model_max_length")  # the latter in Kimi Linear's files
    return LayerPattern(
        hidden=config.whole("hidden_size"),
        blocks=kinds,
        runs=runs,
        vocab=config.whole("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings", tied),
        max_seq=config.whole(*longest) if config.has(*longest) else None,
        **more,
    )


def count_layers(config: HuggingFaceConfig, *keys: str) -> int:
    """Return the number of layers. Raises where it is not from 1 to `MOST_LAYERS`."""
    layers = config.whole(*(keys or ("num_hidden_layers",)))
    if not 1 <= layers <= MOST_LAYERS:
        raise config.refuse(
            f"'{(keys or ('num_hidden_layers',))[0]}' is {layers:,}; it must be from 1 to {MOST_LAYERS:,}"
        )
    return layers


def list_kinds(
    config: HuggingFaceConfig, key: str, layers: int, known: Sequence[Any], *, extra: int = 0
) -> list[Any] | None:
    """Return a list with one word or number per layer; None where the file has none.

    Args:
        config: the file.
        key: of the list.
        layers: number of layers.
        known: words or numbers that it may have.
        extra: blocks for multi-token prediction, which may follow in the list and are left out.
    """
    found = config.items(key)
    if found is None:
        return None
    if len(found) not in (layers, layers + extra):
        raise config.refuse(f"'{key}' has {len(found)} entries for 'num_hidden_layers' {layers}")
    strange = next((each for each in found if isinstance(each, bool) or each not in known), None)
    if strange is not None or None in found:
        raise config.refuse(f"'{key}' has {shown(strange)}; it may have {', '.join(map(str, known))}")
    return found[:layers]


def read_attention(config: HuggingFaceConfig, **more: Any) -> AttentionLayer:
    """Return attention by the keys that most families share; `more` are the family's own choices."""
    hidden, heads = config.whole("hidden_size"), config.whole("num_attention_heads")
    shape: dict[str, Any] = {
        "heads": heads,
        "kv_heads": config.assumed("num_key_value_heads", heads, "one per attention head"),
        "qkv_bias": config.flag("attention_bias", False),
        "output_bias": config.flag("attention_bias", False),
    }
    if "head_dim" not in more:
        shape["head_dim"] = config.head_dim(hidden, heads)
    return AttentionLayer(**{**shape, **more})


def read_latent_attention(config: HuggingFaceConfig, **more: Any) -> LatentAttentionLayer:
    """Return latent attention by DeepSeek's keys; `more` are the family's own choices."""
    config.refuse_latent_biases()
    if "q_rank" not in more and "q_lora_rank" not in config.content and not config.has("q_lora_rank"):
        config.notes.append("q_lora_rank is not in the file; queries without a low rank are assumed.")
    shape: dict[str, Any] = {
        "heads": config.whole("num_attention_heads"),
        "q_rank": config.whole("q_lora_rank") if config.has("q_lora_rank") else None,
        "kv_rank": config.whole("kv_lora_rank"),
        "nope_head_dim": config.whole("qk_nope_head_dim"),
        "rope_head_dim": config.whole("qk_rope_head_dim"),
        "v_head_dim": config.whole("v_head_dim"),
    }
    return LatentAttentionLayer(**{**shape, **more})


def note_prediction(config: HuggingFaceConfig, *keys: str) -> None:
    """Note that blocks for multi-token prediction are left out, if the configuration has any."""
    number = config.whole(*keys, default=0)
    if number:
        blocks = "Its block" if number == 1 else f"Its {number} blocks"
        config.left_out.append(f"{blocks} for multi-token prediction {'is' if number == 1 else 'are'} not counted.")
