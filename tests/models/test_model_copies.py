"""Edited copies of models: what they change, what they remember, and which marks they lose."""

from __future__ import annotations

import json
from typing import Any

import pytest

import models

BASE = models.load("llama-3.1-8B")


def test_a_copy_remembers_its_original_and_every_change() -> None:
    copied = models.edited(BASE, {"architecture.layers": 40, "seq_size": 4096}, name="mine", title="Mine")
    assert (copied.name, copied.title, copied.derived_from) == ("mine", "Mine", "llama-3.1-8B")
    assert (copied.num_blocks, copied.seq_size) == (40, 4096)
    assert [(each.field, each.old, each.new) for each in copied.changes] == [
        ("architecture.layers", 32, 40),
        ("seq_size", 8192, 4096),
    ]
    assert models.load_document(json.loads(json.dumps(models.to_document(copied)))) == copied
    again = models.edited(copied, {"architecture.layers": 32, "architecture.sliding_window": 1024})
    assert again.name == "mine"
    assert [(each.field, each.old, each.new) for each in again.changes] == [
        ("seq_size", 8192, 4096),
        ("architecture.sliding_window", None, 1024),
    ]


def test_block_numbers_are_edited_where_they_are_given() -> None:
    copied = models.edited(models.load("gpt3-175B"), {"feedforward": 65536})
    assert copied.feedforward == 65536
    assert copied.architecture is not None
    assert [each.field for each in copied.changes] == ["feedforward"]


def test_experts_can_be_added_and_taken_out() -> None:
    mixture = models.edited(BASE, {"architecture.experts": {"routed": 8, "top_k": 2, "ffn": 14336}}, name="mixture")
    assert mixture.block is None
    assert mixture.changes[0].new == '{"routed": 8, "top_k": 2, "ffn": 14336, "shared": 0, "shared_ffn": null, ' + (
        '"leading_dense_layers": 0, "every": 1, "groups": 1, "groups_per_token": 1, "router_bias": false}'
    )
    assert models.edited(mixture, {"architecture.experts": None}).block == BASE.block


def test_a_replaced_value_is_no_longer_unverified() -> None:
    assert "architecture.tied_embeddings: recalled, not read" in BASE.unverified_fields
    assert models.edited(BASE, {"architecture.tied_embeddings": True}).unverified_fields == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden": 5}, "The model has no field 'hidden', so it cannot be changed; there are title"),
        ({"name": "x"}, "has no field 'name'"),
        ({"architecture.layer": 5}, "has no field 'layer' in 'architecture', so it cannot be changed; did you mean"),
        ({"architecture.layers": 0}, "llama-3.1-8B (edited): 'architecture.layers' is 0; it must be a whole number"),
        ({"architecture.kv_heads": 5}, "has 5 key/value heads for 32 query heads"),
        ({"architecture": None}, "'architecture' is null"),
    ],
)
def test_what_cannot_be_changed_is_said(changes: Any, words: str) -> None:
    with pytest.raises(models.ModelFileError) as caught:
        models.edited(BASE, changes)
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")
