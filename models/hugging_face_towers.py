"""Towers that read images, from `vision_config`: blocks without a mask, with products before and after them.

Keys and fixed choices come from the family's configuration and modelling files in Hugging Face Transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pydantic import ValidationError

from models.hugging_face_config import HuggingFaceConfig
from models.layers.attention import AttentionLayer
from models.layers.feedforward import FeedForwardLayer
from models.layers.pattern import Block, EdgeProduct, LayerPattern, Run
from models.schema import ModelFileError

__all__ = ["read_tower"]

COLOURS: Final = 3
"""Channels of an image."""


def read_tower(whole: HuggingFaceConfig, text: HuggingFaceConfig) -> tuple[LayerPattern | None, str]:
    """Return (the tower of a model that reads images, empty), or (None, words on the key for which it is left out).

    Args:
        whole: the file.
        text: its language model.
    """
    read = TOWERS.get(whole.model_type)
    if read is None or whole.content.get("vision_config") is None:
        return None, ""
    vision = HuggingFaceConfig(whole.part("vision_config").content, whole.where, whole.model_type, "vision_config")
    try:
        return read(vision, whole, text), ""
    except (ModelFileError, ValidationError) as problem:
        return None, f" ({_describe_fault(problem, whole)})"


def _describe_fault(problem: ModelFileError | ValidationError, whole: HuggingFaceConfig) -> str:
    """Return the fault of a tower without the name of the file."""
    if isinstance(problem, ValidationError):
        fault = problem.errors(include_url=False)[0]
        return f"'vision_config': {'.'.join(map(str, fault['loc']))} {fault['msg']}"
    return str(problem).removeprefix(f"{whole.where}: ").partition(" (read as")[0]


def _build_tower(
    vision: HuggingFaceConfig,
    block: Block,
    layers: str,
    edges: tuple[EdgeProduct, ...],
    *,
    norms: int,
    shift: bool,
    tables: int,
) -> LayerPattern:
    """Return a tower of equal blocks.

    Args:
        vision: the configuration of the tower.
        block: each of them.
        layers: key of their number.
        edges: products before and after them.
        norms: norms of the residual stream outside blocks.
        shift: True if norms have a shift.
        tables: other weights, such as embeddings of positions.
    """
    return LayerPattern(
        hidden=_stream_width(vision),
        blocks=(block,),
        runs=(Run(block=0, count=vision.whole(layers)),),
        vocab=0,
        tied_embeddings=True,
        norm_width=2 if shift else 1,
        final_norms=norms,
        edges=edges,
        other_parameters=tables,
    )


def _stream_width(vision: HuggingFaceConfig) -> int:
    """Return the width of the residual stream [elements]."""
    return vision.whole("hidden_size") if vision.has("hidden_size") else vision.whole("vt_hidden_size")


def _plain_block(vision: HuggingFaceConfig, heads: str, width: str) -> Block:
    """Return attention and a two-matrix MLP, both with biases."""
    hidden, number = _stream_width(vision), vision.whole(heads)
    attention = AttentionLayer(
        heads=number,
        kv_heads=number,
        head_dim=_divide(vision, hidden, number, heads),
        qkv_bias=True,
        output_bias=True,
    )
    return Block(
        mixers=(attention,), feedforwards=(FeedForwardLayer(width=vision.whole(width), gated=False, bias=True),)
    )


def _divide(vision: HuggingFaceConfig, hidden: int, heads: int, key: str) -> int:
    if heads < 1 or hidden % heads:
        raise vision.refuse(f"'vision_config.{key}' is {heads}, which does not divide the width {hidden}")
    return hidden // heads


def read_qwen(vision: HuggingFaceConfig, whole: HuggingFaceConfig, text: HuggingFaceConfig) -> LayerPattern:
    """Qwen3-VL and Qwen3.5: after the tower, and after the listed layers of it, four tokens become one."""
    hidden, merged = vision.whole("hidden_size"), vision.whole("spatial_merge_size") ** 2
    patch = vision.whole("in_channels", default=COLOURS) * vision.whole("temporal_patch_size")
    patch *= vision.whole("patch_size") ** 2
    deep, wide = len(vision.items("deepstack_visual_indexes") or []), merged * hidden
    count = 1 + deep
    edges = (
        EdgeProduct(outputs=hidden, inputs=patch, bias=True),
        EdgeProduct(outputs=wide, inputs=wide, bias=True, count=count, merged=merged),
        EdgeProduct(outputs=vision.whole("out_hidden_size"), inputs=wide, bias=True, count=count, merged=merged),
    )
    tables = vision.whole("num_position_embeddings") * hidden + deep * 2 * wide
    block = _plain_block(vision, "num_heads", "intermediate_size")
    return _build_tower(vision, block, "depth", edges, norms=1, shift=True, tables=tables)


def read_kimi(vision: HuggingFaceConfig, whole: HuggingFaceConfig, text: HuggingFaceConfig) -> LayerPattern:
    """Kimi K2.5: learned positions by row and column, four tokens become one."""
    hidden = vision.whole("vt_hidden_size")
    sides = vision.items("merge_kernel_size") or [2, 2]
    if len(sides) != 2 or not all(isinstance(each, int) and 1 <= each <= 64 for each in sides):
        raise vision.refuse("'vision_config.merge_kernel_size' must be two numbers from 1 to 64")
    merged = sides[0] * sides[1]
    wide = merged * hidden
    edges = (
        EdgeProduct(outputs=hidden, inputs=COLOURS * vision.whole("patch_size") ** 2, bias=True),
        EdgeProduct(outputs=wide, inputs=wide, bias=True, merged=merged),
        EdgeProduct(outputs=text.whole("hidden_size"), inputs=wide, bias=True, merged=merged),
    )
    tables = vision.whole("init_pos_emb_height") * vision.whole("init_pos_emb_width") * hidden
    block = _plain_block(vision, "vt_num_attention_heads", "vt_intermediate_size")
    return _build_tower(vision, block, "vt_num_hidden_layers", edges, norms=2, shift=True, tables=tables)


def read_gemma4(vision: HuggingFaceConfig, whole: HuggingFaceConfig, text: HuggingFaceConfig) -> LayerPattern:
    """Gemma 4: norms before and after, of queries and keys, a gated MLP, positions by row and column."""
    hidden, heads = vision.whole("hidden_size"), vision.whole("num_attention_heads")
    if vision.flag("attention_bias", False):
        raise vision.refuse("'vision_config.attention_bias' is true, which is not covered for this family")
    attention = AttentionLayer(
        heads=heads,
        kv_heads=vision.whole("num_key_value_heads", default=heads),
        head_dim=vision.whole("head_dim"),
        qk_norm="head",
    )
    dense = FeedForwardLayer(width=vision.whole("intermediate_size"))
    block = Block(mixers=(attention,), feedforwards=(dense,), norms=4)
    merged = vision.whole("pooling_kernel_size", default=1) ** 2
    edges = (
        EdgeProduct(outputs=hidden, inputs=COLOURS * vision.whole("patch_size") ** 2),
        EdgeProduct(outputs=text.whole("hidden_size"), inputs=hidden, merged=merged),
    )
    tables = 2 * vision.whole("position_embedding_size") * hidden
    return _build_tower(vision, block, "num_hidden_layers", edges, norms=0, shift=False, tables=tables)


def read_pixtral(vision: HuggingFaceConfig, whole: HuggingFaceConfig, text: HuggingFaceConfig) -> LayerPattern:
    """Mistral 3: Pixtral's tower, whose tokens are merged before two products."""
    hidden, heads = vision.whole("hidden_size"), vision.whole("num_attention_heads")
    if isinstance(whole.content.get("vision_feature_layer"), list):
        raise whole.refuse("'vision_feature_layer' is a list; only one layer is covered")
    attention = AttentionLayer(
        heads=heads, kv_heads=heads, head_dim=_divide(vision, hidden, heads, "num_attention_heads")
    )
    block = Block(mixers=(attention,), feedforwards=(FeedForwardLayer(width=vision.whole("intermediate_size")),))
    merged, out = whole.whole("spatial_merge_size", default=2) ** 2, text.whole("hidden_size")
    bias = whole.flag("multimodal_projector_bias", False)
    edges = (
        EdgeProduct(
            outputs=hidden, inputs=vision.whole("num_channels", default=COLOURS) * vision.whole("patch_size") ** 2
        ),
        EdgeProduct(outputs=hidden, inputs=merged * hidden, merged=merged),
        EdgeProduct(outputs=out, inputs=hidden, bias=bias, merged=merged),
        EdgeProduct(outputs=out, inputs=out, bias=bias, merged=merged),
    )
    return _build_tower(vision, block, "num_hidden_layers", edges, norms=2, shift=False, tables=0)


def read_llama4(vision: HuggingFaceConfig, whole: HuggingFaceConfig, text: HuggingFaceConfig) -> LayerPattern:
    """Llama 4: learned positions and one more token, four tokens become one."""
    hidden, patch = vision.whole("hidden_size"), vision.whole("patch_size")
    inside = vision.whole("projector_output_dim")
    edges = (
        EdgeProduct(outputs=hidden, inputs=vision.whole("num_channels", default=COLOURS) * patch**2),
        EdgeProduct(outputs=vision.whole("projector_input_dim"), inputs=vision.whole("intermediate_size"), merged=4),
        EdgeProduct(outputs=inside, inputs=inside, merged=4),
        EdgeProduct(outputs=text.whole("hidden_size"), inputs=vision.whole("vision_output_dim"), merged=4),
    )
    tables = ((vision.whole("image_size") // max(patch, 1)) ** 2 + 2) * hidden
    block = _plain_block(vision, "num_attention_heads", "intermediate_size")
    return _build_tower(vision, block, "num_hidden_layers", edges, norms=2, shift=True, tables=tables)


TOWERS: Final[dict[str, Callable[[HuggingFaceConfig, HuggingFaceConfig, HuggingFaceConfig], LayerPattern]]] = {
    "gemma4": read_gemma4,
    "kimi_k25": read_kimi,
    "llama4": read_llama4,
    "mistral3": read_pixtral,
    "qwen3_5": read_qwen,
    "qwen3_5_moe": read_qwen,
    "qwen3_vl": read_qwen,
    "qwen3_vl_moe": read_qwen,
}
"""By `model_type` of the whole file."""
