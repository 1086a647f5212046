"""Every word of an enumerated column is read as itself, or the row names it; notes set what they state, not deny."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.validation import validate
from engine.validation.mapping import map_runs
from engine.validation.notes import NOTED_FACTS
from engine.validation.reading import BLANK, runs_of
from engine.validation.software import DEFAULTS, WORDS
from tests.engine.validation.runs import table

EXPERTS: dict[str, Any] = {"moe_experts": 8, "moe_topk": 2, "moe_ffn": 1024, "ep": 4}
CANONICAL: dict[str, tuple[str, ...]] = {
    "family": ("dense_megatron", "dense_fsdp", "moe", "tpu_fsdp", "dense_longseq", "dense_sft", "memory_only"),
    "dtype": ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "bfloat16", "float8", "half"),
    "schedule": ("1f1b", "interleaved", "zb_h1", "zb_v", "dualpipe", "dualpipev", "combined_1f1b"),
    "layout": ("even", "balanced", "loss_counted", "embedding_counted"),
    "attn": ("GQA", "MHA", "MLA", "full", "causal", "sliding-window 128", "multi-head attention"),
    "hardware": ("H100-80GB-SXM", "A100-80GB-SXM", "B200", "GB200-NVL72"),
    "split": ("calibration", "aux", "heldout"),
    "completeness": ("full", "near", "partial"),
    "status": ("ok", "oom"),
    "mem_kind": ("peak reserved GiB", "nvidia-smi", "max memory of 288", "GB max on nodes"),
    "attention_kernel": WORDS["attention_kernel"],
    "launch": WORDS["launch"],
    "token_dispatcher": WORDS["token_dispatcher"],
}
"""Enumerated columns, each with words that mean something in it. Words of recomputation are tried with their kinds."""
LETTERS = st.characters(codec="ascii", categories=("Ll", "Lu", "Nd"), include_characters="-_+ ")


def predicted(**change: Any) -> dict[str, Any]:
    (row,) = validate(table({"pp": 2, "mem_gib": 40.0, **change})).to_dict("records")
    return row


@st.composite
def near_misses(draw: st.DrawFn, words: tuple[str, ...]) -> str:
    """Return a word with a letter changed, added or removed, or any other word."""
    word = draw(st.sampled_from(words))
    place, letter = draw(st.integers(0, len(word))), draw(LETTERS)
    changed = (word[:place] + letter + word[place:], word[:place] + word[place + 1 :], letter + " " + word)
    return draw(st.sampled_from(changed) | st.text(LETTERS, min_size=1, max_size=12)).strip()


def is_canonical(column: str, word: str) -> bool:
    """Return True if a text consists of words of a column."""
    known = {each.casefold() for each in CANONICAL[column]}
    return word.casefold() in known or word.casefold() in BLANK or not word


@pytest.mark.parametrize("column", CANONICAL)
@settings(max_examples=20)
@given(data=st.data())
def test_no_word_is_silently_another(column: str, data: st.DataObject) -> None:
    words = data.draw(st.lists(near_misses(CANONICAL[column]), min_size=1, max_size=15))
    found = validate(table(*({"pp": 2, "mem_gib": 40.0, column: word} for word in words)))
    for word, row in zip(words, found.to_dict("records"), strict=True):
        said = f"{row['assumptions']} {row['reason_text']}"
        if row["status"] != "predicted":
            assert column in said or word[:20] in said or column.capitalize() in said or "Precision" in said, said
        elif not is_canonical(column, word) and not reads_alike(column, word):
            assert column in said, f"{column} {word!r} is read without a word about it"
            assert any(part in said for part in re.findall(r"\w+", word) or [word]) or "taken as" in said


def reads_alike(column: str, word: str) -> bool:
    """Return True if a text says the same as a word of the column in another form that the column takes."""
    from engine.validation.unread import CHOICES, unread_part

    if column in CHOICES:
        return word in CHOICES[column]
    if column == "token_dispatcher":
        return word in ("alltoall", "allgather")  # Megatron's words
    if column == "hardware":
        return any(word.casefold() == each.casefold() for each in CANONICAL[column])
    return column in ("attn", "dtype", "mem_kind") and not unread_part(column, word)


def test_words_that_change_a_prediction_do() -> None:
    """Each word of these columns has an effect of its own, so none of them stands for another one."""
    plain = predicted(pp=4, num_gpus=128, layers=32, gbs=512)["predicted_step_time_s"]
    for schedule, chunks in (("zb_h1", 1), ("zb_v", 2), ("dualpipe", 1), ("dualpipev", 2), ("interleaved", 2)):
        row = predicted(pp=4, num_gpus=128, layers=32, gbs=512, schedule=schedule, vpp=chunks)
        assert row["status"] == "predicted", row["reason_text"]
        assert row["predicted_step_time_s"] != plain
    assert (
        predicted(attn="MQA", kv_heads="")["predicted_mem_gib"]
        < predicted(attn="MHA", kv_heads="")["predicted_mem_gib"]
    )
    assert "kv_heads as many as heads" in predicted(attn="GQA", kv_heads="")["assumptions"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schedule": "zb_v"}, "vpp must be"),
        ({"schedule": "zb_h1", "gbs": 16}, "zb_h1 needs pp microbatches"),
        ({"schedule": "interleaved"}, "schedule interleaved read as 1f1b"),
        ({"schedule": "1f1b", "vpp": 2}, "schedule 1f1b read as interleaved"),
        ({"schedule": "zb_h1", "pp": 1, "dp": 32}, "schedule 'zb_h1' not read: pp is 1"),
        ({"layout": "balanced", "pp": 1, "dp": 32}, "layout 'balanced' not read: pp is 1"),
        ({"attn": "linear attention"}, "attn 'linear attention' is no attention"),
        ({"attn": "MQA"}, "attn MQA not read: kv_heads is above 1"),
        ({"framework": "Foo 1.2"}, "framework 'Foo 1.2' not read"),
        ({"date": "last May"}, "date 'last May' not read"),
        ({"scaleout": "carrier pigeons"}, "scaleout 'carrier pigeons' not read"),
        ({"scaleup": "NVLink"}, "scaleup 'NVLink' not read"),
        ({"dtype": "fp8 rowwise"}, "dtype 'rowwise' not read"),
    ],
)
def test_words_without_effect_are_named(change: dict[str, Any], said: str) -> None:
    row = predicted(**change)
    assert said in f"{row['assumptions']} {row['reason_text']}"


PHRASES = {
    "overlap of the gradient exchange": "overlap-grad-reduce",
    "overlap of tensor-parallel communication": "tp-comm-overlap",
    "overlap of the expert exchange": "MoE A2A overlap",
    "DeepEP": "DeepEP",
    "HybridEP": "HybridEP",
    "Ulysses": "Ulysses",
    "FlashAttention": "flash attention",
    "32-bit gathers with casts": "MP mode DEFAULT",
    "CUDA graphs of attention": "CUDA graphs transformer_engine/['attn', 'mlp']",
    "CUDA graphs of the iteration": "CUDA graphs local/full_iteration",
    "launches that block": "CUDA_LAUNCH_BLOCKING",
}
DENIALS = (
    "no {}",
    "without {}",
    "w/o {}",
    "{} off",
    "{}=False",
    "{}=0",
    "{}: off",
    "{} is disabled",
    "{} not used",
    "disabled {}",
    "TFLOPs rounded. No {}, 8 nodes.",
    "8 nodes without the {}; fast",
)
STATEMENTS = (
    "{}",
    "{}; no recompute",
    "No recompute, {}.",
    "{}=1",
    "not rounded; {}",
    "no offload but {}",
    "with {}, w/o MTP",
)


def software_of(notes: str, **change: Any) -> tuple[dict[str, float], str]:
    mapped = map_runs(runs_of(table({"notes": notes, "framework": "Megatron-Bridge 26.04", **EXPERTS, **change})))
    assert mapped.supported.all(), mapped.reason_text
    facts = {name: float(np.atleast_1d(getattr(mapped.case.software, name))[0]) for name in DEFAULTS}
    return facts, str(mapped.assumptions[0])


def test_every_noted_fact_is_tried() -> None:
    assert set(PHRASES) == {each.words for each in NOTED_FACTS}


@pytest.mark.parametrize("fact", NOTED_FACTS, ids=lambda fact: fact.words)
def test_notes_set_what_they_state_and_not_what_they_deny(fact: Any) -> None:
    phrase = PHRASES[fact.words]
    silent, nothing = software_of("8 nodes.")
    assert "read from notes" not in nothing
    stated, _ = software_of(phrase)
    for form in STATEMENTS:
        facts, said = software_of(form.format(phrase))
        assert facts == stated, form
        assert not fact.stated or f"read from notes: {fact.words}" in said
    for form in DENIALS:
        facts, said = software_of(form.format(phrase))
        assert f"read from notes: {fact.words}" not in said, form
        assert (f"read from notes: no {fact.words}" in said) == bool(fact.denied), form
        expected = silent | {name: number(name, value) for name, value in fact.denied.items()}
        assert facts == expected, form


def number(name: str, value: float | str) -> float:
    return float(WORDS[name].index(value)) if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("notes", "launch"),
    [
        ("FSDP+CP+compile+Float8", "compiled"),
        ("torch.compile", "compiled"),
        ("no compile", "eager"),
        ("Float8 without torch.compile", "eager"),
        ("compile=False, Float8", "eager"),
    ],
)
def test_compilation_counts_where_it_is_stated(notes: str, launch: str) -> None:
    facts, said = software_of(notes, framework="torchtitan")
    assert WORDS["launch"][int(facts["launch"])] == launch
    assert f"read from notes: {'' if launch == 'compiled' else 'no '}compilation" in said


def test_packed_examples_and_graphs_of_other_parts() -> None:
    assert "read from notes: packed examples" in software_of("Full SFT (packed 4096).")[1]
    assert "packed" not in software_of("not packed")[1]
    assert "CUDA graphs in notes not read" in software_of("CUDA graphs x/['moe_router'].")[1]
    assert predicted(notes="no offloading of 20 layers")["status"] == "predicted"
