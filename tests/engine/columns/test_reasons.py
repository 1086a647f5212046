"""Every way an execution can fail: its code, its place in the order of checks, and its sentence with the numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import engine
import hardware
import models
from engine.columns import ALL_FIELDS
from engine.executions import reasons
from engine.executions.sentences import excess, excesses
from tests import reference
from tests.reference import CALIBRATED_ONLY

GOOD: dict[str, Any] = {
    "num_procs": 64,
    "tensor_par": 8,
    "pipeline_par": 4,
    "data_par": 2,
    "tensor_par_net": 0,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "batch_size": 64,
    "microbatch_size": 2,
    "datatype": "float16",
    "fused_activation": True,
    "attention_type": "multihead",
    "activation_recompute": "full",
    "pipeline_interleaving": 2,
    "optimizer_sharding": True,
    "tensor_par_comm_type": "ar",
    "tensor_par_overlap": "none",
    "seq_par_ag_redo": False,
    "data_par_overlap": False,
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "training": True,
}
INFERENCE = {"training": False, "activation_recompute": "none"}
ALONE = {"data_par": 1, "num_procs": 32}
WIDE = {"tensor_par_net": 1, "microbatch_size": 1}

# reason, what to change in an execution that runs on gpt3-175B and a100_80g, and the sentence
CASES: list[tuple[str, dict[str, Any], str]] = [
    ("missing_value", {"batch_size": None}, "batch_size has no value; every one of the 23 fields needs one."),
    ("not_an_integer", {"batch_size": 2.5}, "batch_size is 2.5; it must be a whole number."),
    ("not_a_boolean", {"training": "yes"}, "training is 'yes'; it must be true or false."),
    ("not_a_word", {"datatype": 3}, "datatype is 3; it must be a text such as float8, float16, bfloat16, float32."),
    ("out_of_range", {"batch_size": 2**40}, "batch_size is 1099511627776; it must lie between 0 and 2,147,483,647."),
    ("num_procs_not_positive", {"num_procs": 0}, "num_procs is 0; it must be at least 1."),
    (
        "parallelism_not_positive",
        {"tensor_par": 0},
        "tensor_par 0, pipeline_par 4, data_par 2: each must be at least 1.",
    ),
    (
        "parallelism_product",
        {"num_procs": 65},
        "tensor_par 8 x pipeline_par 4 x data_par 2 is 64, but num_procs is 65; they must be equal.",
    ),
    (
        "parallelism_product",
        dict.fromkeys(("tensor_par", "pipeline_par", "data_par"), 2**31 - 1),
        "tensor_par 2,147,483,647 x pipeline_par 2,147,483,647 x data_par 2,147,483,647 is "
        "9,903,520,300,447,984,150,353,281,023, but num_procs is 64; they must be equal.",
    ),
    ("batch_size_not_positive", {"batch_size": 0}, "batch_size is 0; it must be at least 1."),
    ("microbatch_size_not_positive", {"microbatch_size": -1}, "microbatch_size is -1; it must be at least 1."),
    (
        "batch_not_divisible_by_data_par",
        {"batch_size": 63},
        "batch_size 63 is not a multiple of data_par 2.",
    ),
    (
        "local_batch_not_divisible_by_microbatch",
        {"microbatch_size": 3},
        "Each data-parallel replica has 32 samples, which is not a multiple of microbatch_size 3.",
    ),
    (
        "unknown_attention_type",
        {"attention_type": "gqa"},
        "attention_type is gqa; it must be multihead or multiquery.",
    ),
    (
        "unknown_recompute",
        {"activation_recompute": "half"},
        "activation_recompute is half; it must be full, attn_only or none.",
    ),
    (
        "recompute_needs_training",
        {"training": False},
        "activation_recompute is full, but training is false; inference has nothing to recompute, set it to none.",
    ),
    ("interleaving_not_positive", {"pipeline_interleaving": 0}, "pipeline_interleaving is 0; it must be at least 1."),
    (
        "interleaving_needs_pipeline",
        {"pipeline_par": 1, "num_procs": 16},
        "pipeline_interleaving is 2, but pipeline_par is 1; without a pipeline it must be 1.",
    ),
    (
        "sharding_needs_data_par",
        ALONE,
        "optimizer_sharding is true, but data_par is 1; there is nobody to share the optimizer with.",
    ),
    (
        "unknown_tensor_par_comm_type",
        {"tensor_par_comm_type": "x"},
        "tensor_par_comm_type is x; it must be ar, p2p_rs_ag or rs_ag.",
    ),
    (
        "unknown_tensor_par_overlap",
        {"tensor_par_overlap": ""},
        "tensor_par_overlap is ; it must be none, ring or pipe.",
    ),
    (
        "overlap_needs_tensor_par",
        {"tensor_par": 1, "num_procs": 8, "tensor_par_overlap": "ring"},
        "tensor_par_overlap is ring, but tensor_par is 1; there is nothing to overlap, set it to none.",
    ),
    (
        "ag_redo_needs_rs_ag",
        {"seq_par_ag_redo": True},
        "seq_par_ag_redo is true, but tensor_par_comm_type is ar; only rs_ag has an all-gather to redo.",
    ),
    (
        "ag_redo_with_full_recompute",
        {"seq_par_ag_redo": True, "tensor_par_comm_type": "rs_ag"},
        "seq_par_ag_redo is true, but activation_recompute is full, which redoes it already; set one of the two.",
    ),
    (
        "data_par_overlap_needs_training",
        {**INFERENCE, "data_par_overlap": True},
        "data_par_overlap is true, but training is false; inference exchanges no gradients.",
    ),
    (
        "data_par_overlap_needs_data_par",
        {**ALONE, "optimizer_sharding": False, "data_par_overlap": True},
        "data_par_overlap is true, but data_par is 1; there is no gradient exchange to overlap.",
    ),
    (
        "optimizer_offload_needs_training",
        {**INFERENCE, "optimizer_offload": True},
        "optimizer_offload is true, but training is false; inference has no optimizer.",
    ),
    (
        "network_does_not_exist",
        {"data_par_net": 2, "pipeline_par_net": -1},
        "pipeline_par_net is -1; this system has network tiers 0 to 1.",
    ),
    (
        "network_too_small",
        {"pipeline_par_net": 0},
        "NVLink connects 8 GPUs, but 32 would have to share it.",
    ),
    (
        "network_not_filled",
        {"tensor_par": 5, "num_procs": 40},
        "NVLink connects 8 GPUs and must be filled, but 5 does not divide 8.",
    ),
    (
        "unknown_datatype",
        {"datatype": "int8"},
        "datatype is int8; it must be float8, float16, bfloat16 or float32.",
    ),
    (
        "interleaving_exceeds_blocks",
        {"pipeline_interleaving": 48},
        "An interleaving of 48 exceeds the 24 blocks of a stage.",
    ),
    (
        "interleaving_not_dividing_blocks",
        {"pipeline_interleaving": 5},
        "An interleaving of 5 does not divide the 24 blocks of a stage.",
    ),
    (
        "offload_needs_three_blocks",
        {"pipeline_par": 48, "num_procs": 768, "weight_offload": True},
        "Offloading needs at least 3 blocks on each GPU; a pipeline of 48 stages leaves 2.",
    ),
    (
        "sequence_not_divisible",
        {**WIDE, "tensor_par_comm_type": "rs_ag", "tensor_par": 96, "num_procs": 768},
        "A microbatch has 2,048 tokens, which TP 96 does not divide; reduce-scatter and all-gather split them.",
    ),
    (
        "hidden_not_divisible",
        {**WIDE, "tensor_par": 5, "num_procs": 40},
        "TP 5 does not divide the hidden size 12,288.",
    ),
    (
        "feedforward_not_divisible",
        {**WIDE, "tensor_par": 8192, "num_procs": 65536},
        "TP 4,096 does not divide the feedforward size 49,153.",
    ),
    (
        "heads_not_divisible",
        {**WIDE, "tensor_par": 64, "num_procs": 512},
        "TP 64 does not divide the 96 attention heads.",
    ),
    ("datatype_not_on_system", {"datatype": "float8"}, "This system has no rates for float8; it has float16."),
    (
        "memory_tier1",
        {"activation_recompute": "none", "microbatch_size": 32},
        "Needs 616 GiB of HBM, but a GPU has 80 GiB: 536 GiB too much.",
    ),
    (
        "memory_tier2",
        {"weight_offload": True, "optimizer_offload": True},
        "Needs 45.6 GiB of host memory, but a GPU has 1 GiB: 44.6 GiB too much.",
    ),
]


def evaluated(changes: dict[str, Any], reason: str) -> dict[str, Any]:
    """The outcome on the model and system of the cases; two reasons need a slightly different one."""
    model, system = models.load("gpt3-175B"), hardware.load("a100_80g")
    if reason == "feedforward_not_divisible":
        model = models.load_document({**reference.models()["gpt3-175B"], "feedforward": 49153}, "odd")
        changes = {**changes, "tensor_par": 4096, "num_procs": 32768}
    if reason == "memory_tier2":
        document = reference.systems()["a100_80g"]
        system = hardware.load_document({**document, "mem2": {**document["mem2"], "GiB": 1}}, "small")
    table = pd.DataFrame([{**GOOD, **changes}]).astype(dict.fromkeys(changes, object))
    found: dict[str, Any] = engine.evaluate(model, system, table).iloc[0].to_dict()
    return found


@pytest.mark.parametrize(("reason", "changes", "text"), CASES, ids=[case[0] for case in CASES])
def test_the_sentence_says_what_is_wrong(reason: str, changes: dict[str, Any], text: str) -> None:
    row = evaluated(changes, reason)
    assert (row["reason"], row["reason_text"]) == (reason, text)
    assert row["status"] == reasons.BY_CODE[reason].status
    assert row["sample_rate"] != row["sample_rate"]


def test_every_reason_is_tried_above_from_an_execution_that_runs() -> None:
    assert evaluated({}, "")["status"] == "ok"
    assert {case[0] for case in CASES} == {reason.code for reason in reasons.REASONS} - CALIBRATED_ONLY


def test_reasons_are_told_apart() -> None:
    assert len({reason.code for reason in reasons.REASONS}) == len(reasons.REASONS) == len(reasons.BY_CODE)
    assert len({reason.label for reason in reasons.REASONS}) == len(reasons.REASONS)
    known = {column.name for column in ALL_FIELDS}
    known |= {"field", "value", "accepted", "product", "last_tier", "network", "size", "used", "blocks_per_proc"}
    known |= {"local_batch", "batch_seq", "hidden", "feedforward", "attn_heads", "need", "have", "short"}
    known |= {"key_value_heads", "seq_size", "experts", "expert_ranks", "num_blocks", "microbatches"}
    known |= {"layout_problem", "undivided_sizes", "tensor_context"}
    for number, reason in enumerate(reasons.REASONS, start=1):
        assert reasons.number_of(reason.code) == number
        assert reasons.code_of(number) == reason.code
        assert re.fullmatch(r"[a-z0-9_]+", reason.code)
        assert re.fullmatch(r"[A-Z].{5,55}[^.]", reason.label)
        assert reason.template.endswith(".")
        assert set(reasons.placeholders(reason.code)) <= known
    assert reasons.code_of(reasons.FITS) == ""
    with pytest.raises(KeyError):
        reasons.number_of("no such reason")


def test_rows_that_break_several_rules_report_the_first() -> None:
    """The order of checks is the reference's: each row breaks one rule more than the row after it."""
    broken = [
        "num_procs_not_positive",
        "batch_size_not_positive",
        "unknown_recompute",
        "interleaving_not_positive",
        "unknown_tensor_par_overlap",
        "network_does_not_exist",
    ]
    changes = {reason: change for reason, change, _ in CASES if reason in broken}
    rows: list[dict[str, Any]] = []
    row = GOOD
    for reason in reversed(broken):
        rows.insert(0, row := {**row, **changes[reason]})
    found = engine.evaluate("gpt3-175B", "a100_80g", pd.DataFrame(rows))
    assert found["reason"].tolist() == broken


def test_what_hardly_does_not_fit_is_told_in_a_unit_that_shows_it() -> None:
    """Of 80 GiB: 536 GiB, 18.7 MiB (0.01826171875 GiB), 3 MiB twice, 1 KiB and 5 bytes too much."""
    short = [536.0, 18.7 / 1024, 3 / 1024, 3 / 1024, 2.0**-20, 5 / 2**30]
    told = excesses(80.0 + np.array(short), 80.0)
    assert told["need"].to_pylist() == [
        "616 GiB",
        "80.02 GiB",
        "80.003 GiB",
        "80.003 GiB",
        "80.000001 GiB",
        "80.000000 GiB",
    ]
    assert told["have"].to_pylist() == [
        "80 GiB",
        "80.00 GiB",
        "80.000 GiB",
        "80.000 GiB",
        "80.000000 GiB",
        "80.000000 GiB",
    ]
    assert told["short"].to_pylist() == ["536 GiB", "18.7 MiB", "3 MiB", "3 MiB", "1 KiB", "5 B"]
    assert excesses(np.array([]), 80.0)["short"].to_pylist() == []
    whole = reasons.sentence("memory_tier1", told, 6)
    assert whole[1].as_py() == "Needs 80.02 GiB of HBM, but a GPU has 80.00 GiB: 18.7 MiB too much."


def test_every_quantity_is_in_the_unit_that_suits_it() -> None:
    """Of 80 GiB 2,268 (2.2148 TiB); of 2,000 GiB (1.9531 TiB) 1.5 and 0.3 more; of half a GiB 1.5."""
    assert excess(2268.0, 80.0) == {"need": "2.21 TiB", "have": "80 GiB", "short": "2.14 TiB"}
    assert excess(2001.5, 2000.0) == {"need": "1.955 TiB", "have": "1.953 TiB", "short": "1.50 GiB"}
    assert excess(2000.3, 2000.0) == {"need": "1.9534 TiB", "have": "1.9531 TiB", "short": "307 MiB"}
    assert excess(1023.4, 80.0) == {"need": "1,023 GiB", "have": "80 GiB", "short": "943 GiB"}
    assert excess(3.0 * 2**20, 80.0)["need"] == "3 PiB"
    assert excess(1126.5, 80.0) == {"need": "1.10 TiB", "have": "80 GiB", "short": "1.02 TiB"}
    needs = [2268.0, 1126.5, 1640.3, 80.04, 1024.0, 2001.5, 2000.3, 1023.4, 1023.6, 616.0, 3.0e6]
    assert excess(2.0, 0.5) == {"need": "2 GiB", "have": "512 MiB", "short": "1.50 GiB"}
    for have in (0.5, 80.0, 1000.0, 2000.0):
        more = [need for need in needs if need > have]
        each = [excess(need, have) for need in more]
        told = excesses(np.array(more), have)
        assert {name: words.to_pylist() for name, words in told.items()} == {
            name: [one[name] for one in each] for name in ("need", "have", "short")
        }


def test_sentences_of_many_rows_at_once() -> None:
    need = np.array([1.25, 2.0049])
    whole = reasons.sentence("memory_tier1", {"need": need, "have": 80, "short": [1, "x"]}, 2)
    assert whole.to_pylist() == [
        "Needs 1.25 of HBM, but a GPU has 80: 1 too much.",
        "Needs 2 of HBM, but a GPU has 80: x too much.",
    ]
    short = np.array([0.00391, 1e-9, 99.95, 0.06])
    need = np.array([0.0, 9.996, 1234.5, 80.06])
    wide = reasons.sentence("memory_tier2", {"need": need, "have": 80.0, "short": short}, 4)
    said = [re.findall(r"((?:under )?\d[\d.,]*\d|\d)(?= of| too|:)", text) for text in wide.to_pylist()]
    assert said == [
        ["0", "80", "0.00391"],
        ["10", "80", "under 0.001"],
        ["1,234", "80", "100"],
        ["80.1", "80", "0.06"],
    ]
    same = reasons.sentence("num_procs_not_positive", {"num_procs": 0}, 3)
    assert same.to_pylist() == ["num_procs is 0; it must be at least 1."] * 3
    words = reasons.sentence("unknown_datatype", {"datatype": pa.array(["{x}", "ü"])}, 2)
    assert [text.split(";")[0] for text in words.to_pylist()] == ["datatype is {x}", "datatype is ü"]
    assert reasons.sentence("num_procs_not_positive", {"num_procs": np.array([], int)}, 0).to_pylist() == []
    with pytest.raises(KeyError):
        reasons.sentence("memory_tier1", {"need": 1.0}, 1)
