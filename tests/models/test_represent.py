"""Deriving the block numbers of an architecture, and the sentences on what they leave out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import Architecture
from models.represent import UNRECORDED, attention_weights, block_shape, differences, mlp_weights


def architecture(**changes: Any) -> Architecture:
    values: dict[str, Any] = {
        "hidden": 4096,
        "ffn": 14336,
        "layers": 32,
        "heads": 32,
        "kv_heads": 8,
        "head_dim": 128,
        "vocab": 128000,
        "vocab_padded": 128256,
        "gated_mlp": True,
        "tied_embeddings": False,
    }
    return Architecture(**{**values, **changes})


def test_gated_mlp_keeps_weights_and_odd_widths_round_up() -> None:
    assert block_shape(architecture())["feedforward"] == 21504
    assert block_shape(architecture(ffn=5461))["feedforward"] == 8192
    assert block_shape(architecture(gated_mlp=False))["feedforward"] == 14336


@given(ffn=st.integers(1, 2**20), hidden=st.integers(1, 2**20))
def test_gated_mlp_never_loses_weights_and_adds_at_most_one_column(ffn: int, hidden: int) -> None:
    shape = architecture(ffn=ffn, hidden=hidden)
    assert 0 <= 2 * hidden * block_shape(shape)["feedforward"] - mlp_weights(shape) <= hidden


def test_attention_weights_of_llama_3_8b() -> None:
    # query and output 4096 x 4096, key and value 4096 x 1024
    assert attention_weights(architecture()) == 2 * 4096 * 4096 + 2 * 4096 * 1024
    assert attention_weights(architecture(), kv_heads=32) == 4 * 4096 * 4096


@pytest.mark.parametrize(
    ("changes", "seq_size", "words"),
    [
        ({}, 8192, "8 key/value heads are counted as 32, which adds 11.5 % to the block's weights"),
        ({"kv_heads": 1}, 8192, "Multi-query attention: 1 key/value head is counted as 32"),
        ({}, 8192, "Embedding and LM head (1.05 bn parameters, 13.1 % of the model) are in neither"),
        ({"tied_embeddings": True}, 8192, "which is the LM head too (525 M parameters"),
        ({}, 8192, "gated MLP of width 14,336 is counted as two matrices of width 21,504: equal weights"),
        ({"ffn": 5461}, 8192, "width 8,192: 0.01 % more weights"),
        ({"sliding_window": 4096}, 8192, "sliding window of 4,096 tokens are counted as attending to all 8,192"),
        ({"parallel_residual": True}, 8192, "parallel in the published block"),
        ({"norm": "RMSNorm"}, 8192, "16,384 instead of 8,192 norm weights"),
        ({"qkv_bias": True}, 8192, "The 6,144 query, key and value biases"),
        ({"rope_theta": 1e4}, 8192, "Rotating queries and keys"),
        ({"params_published_b": 9.0}, 8192, "10.8 % fewer than the 9.00 bn published"),
    ],
)
def test_each_difference_is_said_with_its_numbers(changes: dict[str, Any], seq_size: int, words: str) -> None:
    assert any(words in each for each in differences(architecture(**changes), seq_size))


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"kv_heads": 32}, "key/value"),
        ({"gated_mlp": False}, "gated MLP"),
        ({"sliding_window": 8192}, "window"),
        ({"params_published_b": 8.03}, "published."),
        ({"norm": "LayerNorm"}, "RMSNorm"),
        ({"qkv_bias": False}, "biases"),
    ],
)
def test_nothing_is_said_where_nothing_differs(changes: dict[str, Any], word: str) -> None:
    assert not any(word in each for each in differences(architecture(**changes), 8192))


def test_without_an_architecture_nothing_is_claimed() -> None:
    assert differences(None, 2048) == (UNRECORDED,)
