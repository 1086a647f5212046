"""Reading models: both formats, paths and names, and one clear sentence for whatever is wrong."""

from __future__ import annotations

import copy
import json
import os
import pickle
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import models
from tests.texts import any_text

CALCULON = {
    "hidden": 12288,
    "feedforward": 49152,
    "seq_size": 2048,
    "attn_heads": 96,
    "attn_size": 128,
    "num_blocks": 96,
}
OURS = models.to_document(models.load("gpt3-175B"))
PUBLISHED = models.to_document(models.load("llama-3.1-8B"))
EXPERTS = {"routed": 8, "top_k": 2, "ffn": 14336}
LATENT = {"q_rank": 1536, "kv_rank": 512, "nope_head_dim": 128, "rope_head_dim": 64, "v_head_dim": 128}
MIXTURE = {**PUBLISHED, "architecture": {**PUBLISHED["architecture"], "experts": EXPERTS}}


def fault(document: object, where: str = "mine.json") -> str:
    with pytest.raises(models.ModelFileError) as caught:
        models.load_document(document, where)
    message = str(caught.value)
    assert message.startswith(where)
    assert message.endswith(".")
    assert "\n" not in message
    assert "pydantic" not in message
    assert len(message) < 1000
    return message


def without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}


def test_calculon_document_is_named_after_its_file() -> None:
    model = models.load_document(CALCULON, "some/where/big-model.json")
    assert model.name == model.title == "big-model"
    assert models.to_calculon(model) == CALCULON


@pytest.mark.parametrize("document", [OURS, PUBLISHED])
def test_loading_leaves_the_document_alone(document: dict[str, Any]) -> None:
    before = copy.deepcopy(document)
    models.load_document(document)
    assert document == before


def test_hidden_needs_no_relation_to_heads() -> None:
    assert models.load_document({**CALCULON, "hidden": 5140, "attn_heads": 40}).hidden == 5140


@pytest.mark.parametrize("base", [CALCULON, OURS])
def test_a_number_out_of_place_is_named_with_what_is_accepted(base: dict[str, Any]) -> None:
    out_of_place = [0, -5, 1.0, 12288.5, True, "12288", None, [], {}, 2**40, 10**400, float("nan"), float("inf")]
    for key, value in product(CALCULON, out_of_place):
        message = fault({**base, key: value})
        assert f"'{key}' is " in message, value
        assert "it must be a whole number from 1 to " in message, value


@pytest.mark.parametrize("base", [CALCULON, OURS])
def test_a_missing_key_is_named(base: dict[str, Any]) -> None:
    for key in CALCULON:
        message = fault(without(base, key))
        assert f"key '{key}' is missing; accepted keys here: hidden, feedforward" in message


def test_a_misspelt_key_gets_a_suggestion_before_the_missing_one() -> None:
    message = fault({**without(OURS, "hidden"), "hiden": 12288})
    assert "unknown key 'hiden'; did you mean 'hidden'; accepted keys here: hidden, feedforward" in message


def test_a_calculon_document_with_our_keys_is_told_of_the_format() -> None:
    message = fault({**CALCULON, "title": "GPT"})
    assert "unknown key 'title'" in message
    assert '"format": "shardscape-model/1"' in message


@pytest.mark.parametrize(
    ("given_format", "words"),
    [
        ("shardscape-model/2", "written by a newer Shardscape; this one reads format 1"),
        ("shardscape-system/1", "'format' is 'shardscape-system/1'; it must be 'shardscape-model/1' for a model"),
        ("shardscape-model/0", "it must be 'shardscape-model/1'"),
        ("shardscape-model/1 ", "it must be 'shardscape-model/1'"),
        (None, "'format' is null"),
        (1, "'format' is 1"),
        (["x"] * 1000, "'format' is ["),
    ],
)
def test_other_formats(given_format: object, words: str) -> None:
    assert words in fault({**OURS, "format": given_format})


@pytest.mark.parametrize("value", [None, 5, "text", [], [CALCULON], True, 1.5])
def test_a_document_that_is_no_object(value: object) -> None:
    assert "a model must be an object with named keys" in fault(value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kv_heads": 5}, "'architecture' has 5 key/value heads for 32 query heads; kv_heads must divide heads"),
        ({"kv_heads": 64}, "kv_heads must divide heads"),
        ({"vocab_padded": 5}, "'architecture' has vocab_padded 5 below vocab 128000"),
        ({"gated_mlp": 1}, "'architecture.gated_mlp' is 1; it must be true or false"),
        ({"hyper": 8}, "unknown key 'architecture.hyper'; accepted keys here: hidden, ffn, layers"),
        ({"experts": 8}, "'architecture.experts' is 8; it must be an object with named keys"),
        ({"experts": {**EXPERTS, "top_k": 9}}, "'architecture.experts' has top_k 9 of 8 routed experts"),
        ({"experts": {**EXPERTS, "shared_ffn": 9}}, "'architecture.experts' has a shared_ffn without shared experts"),
        ({"experts": {**EXPERTS, "every": 33}}, "'architecture' has experts in none of its 32 layers"),
        ({"experts": {**EXPERTS, "leading_dense_layers": 32}}, "has experts in none of its 32 layers"),
        ({"latent_attention": LATENT}, "has latent attention with head_dim 128 and 8 key/value heads; they must be"),
        ({"full_attention_every": 2}, "'architecture' has full_attention_every without a sliding_window"),
        ({"positions": "learned", "max_seq": None}, "'architecture' has learned positions but no max_seq"),
        ({"positions": "sine"}, "'architecture.positions' is 'sine'; it must be 'rotary', 'learned', 'relative'"),
        ({"ffn": 0}, "'architecture.ffn' is 0; it must be a whole number from 1 to 4,194,304"),
        ({"params_published_b": float("nan")}, "'architecture.params_published_b' is nan; it must be a number from"),
    ],
)
def test_faults_inside_an_architecture(change: dict[str, Any], words: str) -> None:
    assert words in fault({**PUBLISHED, "architecture": {**PUBLISHED["architecture"], **change}})


def test_an_architecture_and_block_numbers_may_both_be_given() -> None:
    both = {**PUBLISHED, **models.to_calculon(models.load("llama-3.1-8B")), "feedforward": 57344}
    model = models.load_document(both)
    assert model.feedforward == 57344
    assert model.architecture is not None
    assert any("two matrices of width 57,344: 166.67 % more weights" in each for each in model.not_represented)
    assert models.load_document(models.to_document(model)) == model


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"hidden": 2048}, "the document has hidden 2048 where its architecture gives 4096; change one of them"),
        ({"num_blocks": 1}, "the document has num_blocks 1 where its architecture gives 32"),
        ({"attn_heads": None}, "'attn_heads' is null"),
        ({"architecture": MIXTURE["architecture"]}, "has block numbers beside a mixture of 8 experts"),
    ],
)
def test_block_numbers_that_contradict_the_architecture_are_refused(change: dict[str, Any], words: str) -> None:
    both = {**PUBLISHED, **models.to_calculon(models.load("llama-3.1-8B"))}
    assert words in fault({**both, **change})


def test_block_numbers_in_part_are_missing_the_rest() -> None:
    assert "key 'feedforward' is missing" in fault({**PUBLISHED, "hidden": 4096})


def test_neither_block_numbers_nor_an_architecture() -> None:
    assert "key 'hidden' is missing" in fault(without(PUBLISHED, "architecture"))
    with pytest.raises(ValidationError, match="neither block numbers nor an architecture"):
        models.Model(name="x", seq_size=1)


# --- models that six numbers cannot stand for


def test_a_mixture_has_no_block_numbers_and_says_so() -> None:
    model = models.load_document(MIXTURE)
    assert model.block is None
    assert model.seq_size == 8192
    for key in ("hidden", "feedforward", "attn_heads", "attn_size", "num_blocks"):
        with pytest.raises(models.ModelFileError, match=r"llama-3\.1-8B has a mixture of 8 experts, which Calculon's"):
            getattr(model, key)
    with pytest.raises(models.ModelFileError, match="or a cost model that reads the architecture itself"):
        models.to_calculon(model)
    assert model.not_represented == (
        "Calculon's block recipe cannot represent a mixture of 8 experts, so the model has no block numbers.",
    )


def test_each_obstacle_is_named() -> None:
    shape = {"heads": 32, "kv_heads": 32, "head_dim": 192, "latent_attention": LATENT}
    indexer = {"heads": 64, "head_dim": 128, "top_k": 2048}
    document = {**PUBLISHED, "architecture": {**PUBLISHED["architecture"], **shape, "sparse_attention": indexer}}
    with pytest.raises(
        models.ModelFileError, match="has multi-head latent attention and attention to 2048 tokens that an indexer"
    ):
        models.load_document(document).require_block()


def test_a_shape_is_assumed_only_where_none_is_recorded() -> None:
    published = models.load("llama-3.1-8B")
    assert published.architecture_or_assumed() is published.architecture
    assumed = models.load_document(CALCULON).architecture_or_assumed(vocab=50257)
    assert (assumed.hidden, assumed.ffn, assumed.layers, assumed.heads, assumed.kv_heads) == (12288, 49152, 96, 96, 96)
    assert assumed.vocab_padded == 50257


@pytest.mark.parametrize("value", [None, [], "Llama"])
def test_an_architecture_that_is_no_object(value: object) -> None:
    assert "'architecture' is " in fault({**PUBLISHED, "architecture": value})


def test_a_name_has_to_be_text() -> None:
    assert "'name' is 5; it must be text of 1 to 255 characters" in fault({**OURS, "name": 5})
    assert "'name' is ''" in fault({**OURS, "name": ""})


# --- names and paths


def test_names_load_once() -> None:
    assert models.load("gpt3-175B") is models.load("gpt3-175B")


def test_an_unknown_name_lists_what_is_near() -> None:
    with pytest.raises(models.ModelFileError, match=r"no model named 'gpt3-175' .*did you mean 'gpt3-175B'"):
        models.load("gpt3-175")
    with pytest.raises(models.ModelFileError, match=r"did you mean 'llama-3\.1-70B'"):
        models.load("Llama-3.1-70b")


@pytest.mark.parametrize("name", ["", " ", "..", "zzzz", "x" * 100_000, "\x00", "\ud800", "gpt3-175B\n"])
def test_a_strange_name_is_only_unknown(name: str) -> None:
    with pytest.raises(models.ModelFileError, match="no model named"):
        models.load(name)


@pytest.mark.parametrize("value", [None, 5, 1.5, [], {"hidden": 1}, b"gpt3-175B", True])
def test_neither_a_name_nor_a_path(value: Any) -> None:
    with pytest.raises(models.ModelFileError, match="neither the name of a model nor a path"):
        models.load(value)


def test_paths_as_text_and_as_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(CALCULON))
    monkeypatch.chdir(tmp_path)
    assert models.load(file) == models.load(str(file)) == models.load("mine.json") == models.load("./mine.json")
    assert models.load("mine.json").name == "mine"


def test_a_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(CALCULON))
    assert models.load(file).num_blocks == 96
    file.write_text(json.dumps({**CALCULON, "num_blocks": 48}))
    assert models.load(file).num_blocks == 48


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON: .* at line 1, column"),
        (b"\xff\xfe{}", "not UTF-8 text"),
        (b'{"hidden": 1, "hidden": 2}', "key 'hidden' appears twice"),
        (b'{"hidden": NaN}', "NaN is not a number"),
        (b'{"hidden": -Infinity}', "-Infinity is not a number"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply"),
        (b'{"hidden": ' + b"9" * 100_000 + b"}", "has a number of 100,000 digits"),
        (b" " * 3_000_000, "larger than 2 MB"),
        (b"null", "a model must be an object"),
    ],
)
def test_files_that_are_not_models(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(content)
    with pytest.raises(models.ModelFileError, match=words) as caught:
        models.load(file)
    assert "mine.json" in str(caught.value)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(CALCULON).encode())
    assert models.load(file).hidden == 12288


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    for path, words in [
        (tmp_path / "none.json", "There is no file"),
        (tmp_path, "is not a file"),
        (pipe, "is not a file"),
        (Path("/dev/zero"), "is not a file"),
        (str(tmp_path / "none.json") + "/x", "There is no file|cannot be read"),
        ("nul\x00l.json", "cannot be read"),
        ("/" + "x" * 5000, "cannot be read"),
    ]:
        with pytest.raises(models.ModelFileError, match=words):
            models.load(path)


# --- objects


@pytest.mark.parametrize("name", ["gpt3-175B", "llama-3.1-8B"])
def test_models_are_values(name: str) -> None:
    model = models.load(name)
    assert pickle.loads(pickle.dumps(model)) == copy.deepcopy(model) == model
    assert len({model, models.load_document(models.to_document(model))}) == 1
    with pytest.raises(ValidationError):
        model.hidden = 1  # type: ignore[misc]


# --- arbitrary documents

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def loaded_or_told(document: object) -> models.Model | None:
    """The model, or None after a check of the sentence; any other exception fails the test."""
    try:
        return models.load_document(document, "mine.json")
    except models.ModelFileError:
        fault(document)
        return None


@given(JSON)
def test_any_json_is_a_model_or_a_clear_sentence(document: object) -> None:
    assert loaded_or_told(document) is None or document.keys() >= CALCULON.keys()  # type: ignore[attr-defined]


@settings(max_examples=10 * settings.default.max_examples)
@given(st.data())
def test_any_change_to_a_model_is_a_model_or_a_clear_sentence(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from([CALCULON, OURS, PUBLISHED])))
    place: dict[str, Any] = document
    key = data.draw(st.sampled_from([*place, "new"]))
    if isinstance(place.get(key), dict) and data.draw(st.booleans()):
        place = place[key]
        key = data.draw(st.sampled_from([*place, "new"]))
    place[key] = data.draw(JSON)
    model = loaded_or_told(document)
    assert model is None or models.load_document(models.to_document(model)) == model
