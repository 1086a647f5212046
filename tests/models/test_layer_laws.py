"""Laws that every kind of layer keeps at any shape: work, kept activations, caches, and divisors."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.layers.contract import LayerKind
from models.layers.latent_attention import LatentAttentionLayer, TokenIndexer
from models.layers.pattern import block_of_letter
from models.layers.registry import Addition, FeedForward, Mixer

KINDS: list[type[LayerKind]] = [
    each for union in (Mixer, FeedForward, Addition) for each in get_args(get_args(union)[0])
]
HIDDEN = 1024
GATED = st.booleans()
WIDTHS = st.sampled_from([16, 48, 128, 256])
FEW = st.integers(1, 8)


@st.composite
def grouped(draw: st.DrawFn, heads: str, groups: str) -> dict[str, int]:
    """Numbers of which the second divides the first."""
    number = draw(FEW)
    return {groups: number, heads: number * draw(FEW)}


def shape(*parts: st.SearchStrategy[dict[str, int]], **fields: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Fields of a layer: parts of several fields, and single ones."""
    return st.tuples(st.fixed_dictionaries(fields), *parts).map(
        lambda found: {k: v for part in found for k, v in part.items()}
    )


def maybe(value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | value


BLOCKS = st.fixed_dictionaries({"heads": FEW, "head_dim": WIDTHS, "block": WIDTHS, "top_k": FEW})
TOKENS = st.fixed_dictionaries({"heads": FEW, "head_dim": WIDTHS, "top_k": WIDTHS, "is_shared": st.booleans()})
SHAPES: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "attention": shape(
        grouped("heads", "kv_heads"),
        head_dim=WIDTHS,
        value_head_dim=maybe(WIDTHS),
        window=maybe(st.integers(1, 5000)),
        chunked=st.booleans(),
        qk_norm=st.sampled_from(["none", "head", "heads", "weightless"]),
        gate=st.sampled_from(["none", "element", "head"]),
        has_keys=st.booleans(),
        has_values=st.booleans(),
        indexer=maybe(BLOCKS),
    ).map(lambda found: {**found, "window": None} if found["indexer"] else found),
    "latent_attention": shape(
        heads=FEW,
        q_rank=maybe(WIDTHS),
        kv_rank=WIDTHS,
        nope_head_dim=WIDTHS,
        rope_head_dim=WIDTHS,
        v_head_dim=WIDTHS,
        gated=GATED,
        indexer=maybe(TOKENS),
    ),
    "compressed_attention": shape(
        grouped("heads", "output_groups"),
        head_dim=WIDTHS,
        q_rank=WIDTHS,
        output_rank=WIDTHS,
        window=st.integers(1, 5000),
        ratio=st.sampled_from([1, 4, 128]),
        index_heads=FEW,
        index_head_dim=WIDTHS,
        top_k=WIDTHS,
    ),
    "gated_deltanet": shape(
        grouped("value_heads", "key_heads"), key_head_dim=WIDTHS, value_head_dim=WIDTHS, kernel=FEW
    ),
    "kda": shape(heads=FEW, head_dim=WIDTHS, kernel=FEW, full_rank_gate=GATED),
    "lightning": shape(heads=FEW, head_dim=WIDTHS),
    "mamba1": shape(inner=WIDTHS, states=FEW, step_rank=WIDTHS, kernel=FEW, normed=GATED),
    "mamba2": shape(grouped("heads", "groups"), head_dim=WIDTHS, states=WIDTHS, kernel=FEW, normed=GATED, chunk=WIDTHS),
    "short_conv": shape(kernel=FEW, bias=GATED),
    "rg_lru": shape(width=st.sampled_from([64, 128]), blocks=st.sampled_from([1, 2, 4, 8]), kernel=FEW),
    "feedforward": shape(width=WIDTHS, gated=GATED, bias=GATED),
    "experts": shape(grouped("routed", "top_k"), width=WIDTHS, gated=GATED, shared_width=WIDTHS, latent=maybe(WIDTHS)),
    "hyper_connections": shape(streams=FEW),
    "residual_attention": shape(block_size=FEW),
    "alternating_updates": shape(streams=FEW, side_rank=WIDTHS, input_width=WIDTHS),
}
LENGTHS = np.array([1.0, 7.0, 64.0, 1000.0, 4096.0, 131072.0])


def numbers(found: Any) -> list[Any]:
    return [getattr(found, name) for name in found.__slots__]


def test_every_registered_kind_has_shapes_here() -> None:
    assert {each.model_fields["kind"].default for each in KINDS} == set(SHAPES)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_layer_keeps_the_laws_of_its_effects(kind: type[LayerKind], data: st.DataObject) -> None:
    layer = kind.model_validate(data.draw(SHAPES[kind.model_fields["kind"].default]))
    full, causal, step = (
        layer.mixing(HIDDEN, LENGTHS, causal=False),  # type: ignore[arg-type]
        layer.mixing(HIDDEN, LENGTHS, causal=True),  # type: ignore[arg-type]
        layer.decoding(HIDDEN, LENGTHS),  # type: ignore[arg-type]
    )
    for work in (full, causal, step):
        assert all(np.all(np.asarray(each) >= 0) for each in numbers(work))
        assert np.all(work.repeated_matrix <= work.matrix)
        assert np.all(work.repeated_moved <= work.moved)
    assert np.all(causal.matrix <= full.matrix)
    assert np.all(causal.moved <= full.moved)
    one = layer.mixing(HIDDEN, 4096.0, causal=True)  # figures of arrays are those of their numbers
    assert one.matrix == np.broadcast_to(causal.matrix, LENGTHS.shape)[4]
    kept, sent = layer.kept(HIDDEN), layer.context_exchange(HIDDEN)
    assert all(each >= 0 for each in (*numbers(kept), *numbers(sent), layer.reduced(HIDDEN)))
    state = layer.sequence_state(HIDDEN)
    elements, reads = state.count_elements(LENGTHS), layer.count_cache_reads(HIDDEN, LENGTHS)  # type: ignore[arg-type]
    assert np.all(np.diff(np.broadcast_to(elements, LENGTHS.shape)) >= 0)
    if getattr(layer, "has_keys", True):  # else an earlier layer's cache is read
        assert np.all(reads <= elements - sum(state.per_sequence.values()) + 1e-6)
    if layer.is_scan:
        assert np.ndim(full.matrix) == np.ndim(step.moved) == 0  # at any length
        assert full == causal
        assert state.per_sequence
        assert not state.per_token


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_degree_that_divides_the_stated_sizes_divides_the_products(
    kind: type[LayerKind], data: st.DataObject
) -> None:
    layer = kind.model_validate(data.draw(SHAPES[kind.model_fields["kind"].default]))
    sizes = layer.tensor_divisors()
    assert all(size >= 1 and name for name, size in sizes.items())
    assert set(layer.context_divisors()) <= set(sizes)
    degree = int(np.gcd.reduce([*sizes.values(), HIDDEN]))
    kv_heads = getattr(layer, "kv_heads", degree)
    if kv_heads % degree and degree % kv_heads:
        return  # refused by the rule of key and value heads
    for product in layer.products(HIDDEN):
        if product.name.startswith("experts_") or product.split == "none":  # experts have a degree of their own
            continue
        side = product.local_outputs(degree) if product.split == "outputs" else product.local_inputs(degree)
        assert side == int(side), product.name


@given(
    fields=SHAPES["attention"],
    tokens=st.integers(1, 10_000),
    more=st.integers(0, 5000),
    causal=st.booleans(),
)
def test_a_window_of_all_tokens_is_full_attention(fields: dict[str, Any], tokens: int, more: int, causal: bool) -> None:
    kind = next(each for each in KINDS if each.model_fields["kind"].default == "attention")
    fields = {**fields, "indexer": None}
    found = [
        kind.model_validate({**fields, "window": window}).mixing(HIDDEN, tokens, causal=causal)
        for window in (None, tokens + more)
    ]
    assert found[0] == found[1]


def test_what_a_new_token_computes_and_reads_stops_at_the_window() -> None:
    kind = next(each for each in KINDS if each.model_fields["kind"].default == "attention")
    layer = kind.model_validate({"heads": 64, "kv_heads": 8, "head_dim": 64, "window": 128})
    # 128 keys: 2 x 64 heads x (64 + 64) FLOP each, 8 heads x (64 + 64) elements each.
    assert [layer.decoding(2880, context).matrix for context in (100, 131_072)] == [100 * 16_384, 128 * 16_384]
    assert [layer.count_cache_reads(2880, context) for context in (100, 131_072)] == [100 * 1_024, 128 * 1_024]
    assert layer.sequence_state(2880).count_elements(131_072) == 128 * 1_024


def test_sparse_latent_attention_by_hand() -> None:
    shape = {"heads": 128, "q_rank": 1536, "kv_rank": 512, "nope_head_dim": 128, "rope_head_dim": 64, "v_head_dim": 128}
    layer = LatentAttentionLayer(**shape, indexer=TokenIndexer(heads=64, head_dim=128, top_k=2048))
    step = layer.decoding(7168, 131_072)
    scores = 2 * 64 * 128 * 131_072  # the whole context, on every rank
    assert step.repeated_matrix == scores
    assert step.matrix - scores == 2 * 128 * (2 * 512 + 64) * 2048  # absorbed, on the chosen tokens
    assert layer.count_cache_reads(7168, 131_072) == 2048 * 576 + 128 * 131_072
    assert layer.count_mixing_flops(7168, 131_072, causal=False) == scores + 2 * 128 * (192 + 128) * 2048  # expanded
    # 2q + 6kv + 2r on every rank; queries, output, log-sum-exp, absorbed queries and outputs; the indexer's.
    kept = layer.kept(7168)
    assert kept.split == 128 * (2 * 192 + 2 * 128 + 4 + 2 * (512 + 64) + 2 * 512)
    assert kept.whole == 2 * 1536 + 6 * 512 + 2 * 64 + 2 * (64 * 128 + 128 + 64) + 4 * 2048


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_a_layer_is_read_back_from_its_words_or_refused_with_a_reason(
    kind: type[LayerKind], data: st.DataObject
) -> None:
    layer = kind.model_validate(data.draw(SHAPES[kind.model_fields["kind"].default]))
    for framework in ("megatron", "megatron-bridge", "torchtitan", "maxtext", "deepspeed", "a new one"):
        words = layer.launch_words(framework, HIDDEN)
        if words.refusal:
            assert not words.letter
            assert words.refusal[0].islower()
            assert not words.refusal.endswith(".")
    words = layer.launch_words("megatron", HIDDEN)
    assert bool(words.letter) != bool(words.refusal)  # one or the other, always
    if words.refusal:
        return
    block = block_of_letter("megatron", words.letter, words.arguments, HIDDEN)
    assert block is not None
    back = block.layers[0]
    assert isinstance(back, kind)
    assert back.products(HIDDEN) == layer.products(HIDDEN)
    assert back.count_parameters(HIDDEN) == layer.count_parameters(HIDDEN)
    assert (back.kept(HIDDEN), back.sequence_state(HIDDEN)) == (layer.kept(HIDDEN), layer.sequence_state(HIDDEN))
    if not words.differences:
        assert back.mixing(HIDDEN, 4096.0, causal=True) == layer.mixing(HIDDEN, 4096.0, causal=True)
