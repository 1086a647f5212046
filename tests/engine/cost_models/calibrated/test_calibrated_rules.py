"""Every way an execution of the calibrated cost model can fail: its code and its sentence; and values that none has."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
import hardware
import models
from engine import Scenario
from engine.columns import ALL_FIELDS, EXTENSIONS, NEUTRAL_EXTENSIONS, by_name
from engine.cost_models.calibrated.fields import NOT_READ
from engine.executions import reasons
from tests.engine.cost_models.calibrated.small import system_of
from tests.reference import CALIBRATED_ONLY
from tests.texts import any_text

GOOD: dict[str, Any] = {
    **NEUTRAL_EXTENSIONS,
    "num_procs": 64,
    "tensor_par": 4,
    "pipeline_par": 4,
    "data_par": 4,
    "tensor_par_net": 0,
    "pipeline_par_net": 1,
    "data_par_net": 1,
    "batch_size": 64,
    "microbatch_size": 2,
    "datatype": "bfloat16",
    "fused_activation": True,
    "attention_type": "multihead",
    "activation_recompute": "full",
    "pipeline_interleaving": 2,
    "optimizer_sharding": True,
    "tensor_par_comm_type": "rs_ag",
    "tensor_par_overlap": "ring",
    "seq_par_ag_redo": False,
    "data_par_overlap": True,
    "weight_offload": False,
    "activations_offload": False,
    "optimizer_offload": False,
    "training": True,
    "zero_stage": 1,
    "attention_kernel": "native",
}
FIELDS = [column.name for column in ALL_FIELDS]
# One replica, so that there is nobody to share with.
ALONE = {"num_procs": 16, "data_par": 1, "data_par_overlap": False}
DENSE, EXPERTS, SMALL = "llama-3-8B", "mixtral-8x7B", "small"
STATES, LINEAR = "mamba-codestral-7B", "qwen3-next-80B-A3B"

# reason, model, what to change in an execution that runs on 80 GB H100s, and the sentence
CASES: list[tuple[str, str, dict[str, Any], str]] = [
    ("extension_not_positive", DENSE, {"context_par": 0}, "context_par is 0; it must be at least 1."),
    ("extension_not_positive", DENSE, {"expert_par": -3}, "expert_par is -3; it must be at least 1."),
    ("extension_not_positive", EXPERTS, {"expert_tensor_par": 0}, "expert_tensor_par is 0; it must be at least 1."),
    (
        "unknown_word",
        DENSE,
        {"launch": "quick"},
        "launch is quick; it must be one of eager, fused, compiled, graphs, partial_graphs.",
    ),
    (
        "unknown_word",
        DENSE,
        {"attention_kernel": "flash9"},
        "attention_kernel is flash9; it must be one of unfused, flash1, flash2, native.",
    ),
    (
        "unknown_word",
        DENSE,
        {"datatype": "float32"},
        f"datatype is float32; it must be one of {', '.join(engine.COST_MODELS['calibrated'].datatypes)}.",
    ),
    (
        "schedule_needs_training",
        DENSE,
        {
            "training": False,
            "activation_recompute": "none",
            "data_par_overlap": False,
            "optimizer_sharding": False,
            "pipeline_interleaving": 1,
            "schedule": "zb_h1",
            "zero_stage": 0,
        },
        "schedule is zb_h1, which orders backward passes, but training is false; use 1f1b or interleaved.",
    ),
    (
        "parallelism_product_with_context",
        DENSE,
        {"context_par": 2},
        "tensor_par 4 x pipeline_par 4 x data_par 4 x context_par 2 is 128, but num_procs is 64; they must be equal.",
    ),
    (
        "expert_load_below_mean",
        EXPERTS,
        {"expert_imbalance": 90},
        "expert_imbalance is 90 %; the busiest expert rank has at least the mean, 100 %.",
    ),
    ("zero_stage_unknown", DENSE, {"zero_stage": 4}, "zero_stage is 4; it must be 0, 1, 2 or 3."),
    ("zero_stage_unknown", DENSE, {"zero_stage": -1}, "zero_stage is -1; it must be 0, 1, 2 or 3."),
    (
        "zero_stage_against_sharding",
        DENSE,
        {"zero_stage": 0},
        "zero_stage is 0, but optimizer_sharding is true; the optimizer is sharded from stage 1 on.",
    ),
    (
        "zero_stage_against_sharding",
        DENSE,
        {"optimizer_sharding": False},
        "zero_stage is 1, but optimizer_sharding is false; the optimizer is sharded from stage 1 on.",
    ),
    (
        "selective_needs_attn_only",
        DENSE,
        {"selective_recompute": "half"},
        "selective_recompute is half, but activation_recompute is full; only attn_only is selective, leave it at "
        "attention.",
    ),
    (
        "fp8_parameters_of_8_bits",
        DENSE,
        {"fp8_param_gather": True},
        "fp8_param_gather is true, but datatype is bfloat16; only weights of 8-bit products are held in 8 bits, so it "
        "must be false.",
    ),
    (
        "recompute_blocks_of_full",
        DENSE,
        {"recompute_blocks": 2, "activation_recompute": "none"},
        "recompute_blocks is 2, but activation_recompute is none; only full recomputation counts blocks, leave it at "
        "0.",
    ),
    (
        "recompute_blocks_negative",
        DENSE,
        {"recompute_blocks": -1},
        "recompute_blocks is -1; it must be 0, which recomputes all blocks of a chunk, or how many.",
    ),
    (
        "attention_of_the_model",
        DENSE,
        {"attention_type": "multiquery"},
        "attention_type is multiquery, but this model has 8 heads of keys and values; leave it at multihead, the "
        "calibrated cost model takes the heads from the model.",
    ),
    (
        "gradient_sharding_in_pipeline",
        DENSE,
        {"zero_stage": 2},
        "ZeRO stage 2 shards gradients after every microbatch, which a pipeline of 4 stages keeps until the last; use "
        "stage 1.",
    ),
    (
        "context_not_dividing_sequence",
        DENSE,
        {"context_par": 3, "num_procs": 192},
        "The sequence has 8,192 tokens, which 2 × CP 3 does not divide; every rank takes two pieces.",
    ),
    (
        "expert_par_without_experts",
        DENSE,
        {"expert_par": 2},
        "expert_par is 2 and expert_tensor_par 1, but this model has no experts; both must be 1.",
    ),
    (
        "expert_par_not_dividing_experts",
        EXPERTS,
        {"expert_par": 16},
        "EP 16 does not divide the 8 experts of the model.",
    ),
    (
        "expert_par_not_dividing_ranks",
        EXPERTS,
        {"expert_par": 8, "expert_tensor_par": 4},
        "TP × CP × DP is 16, which EP 8 × expert TP 4 does not divide.",
    ),
    (
        "key_value_heads_not_divisible",
        SMALL,
        {"tensor_par": 4},
        "The model has 6 heads of keys and values; TP 4 must divide them or be a multiple of them.",
    ),
    (
        "layer_not_divisible",
        STATES,
        {"tensor_par": 16, "num_procs": 256},
        "TP 16 does not divide the 8 Mamba-2 groups of the model's layers.",
    ),
    (
        "layer_not_divisible_by_context",
        LINEAR,
        {"tensor_par": 8, "context_par": 4, "num_procs": 512},
        "TP × CP is 32, which does not divide the 16 delta-net key heads of the model's layers; context-parallel ranks "
        "of them exchange tokens for heads.",
    ),
    (
        "stages_not_even",
        DENSE,
        {"pipeline_interleaving": 3},
        "PP 4 × interleaving 3 divides neither the 32 blocks nor two more, which embedding and loss would be.",
    ),
    (
        "pipeline_exceeds_blocks",
        DENSE,
        {"pipeline_par": 64, "num_procs": 1024, "pipeline_interleaving": 1},
        "PP 64 exceeds the 32 blocks of the model.",
    ),
    (
        "schedule_needs_pipeline",
        DENSE,
        {"schedule": "zb_h1", "pipeline_par": 1, "num_procs": 16, "pipeline_interleaving": 1},
        "schedule is zb_h1, but pipeline_par is 1; without a pipeline it must be 1f1b.",
    ),
    (
        "schedule_against_interleaving",
        DENSE,
        {"schedule": "zb_h1"},
        "schedule is zb_h1, but pipeline_interleaving is 2; it must be 1 for zb_h1 and dualpipe, 2 for zb_v and "
        "dualpipev, more than 1 for interleaved and combined_1f1b.",
    ),
    (
        "schedule_needs_microbatches",
        DENSE,
        {"schedule": "dualpipe", "pipeline_interleaving": 1, "batch_size": 32},
        "4 microbatches are too few for dualpipe with 4 stages: zb_h1 needs as many as stages, zb_v twice as many less "
        "one, dualpipe and dualpipev twice as many.",
    ),
    (
        "schedule_needs_even",
        DENSE,
        {"schedule": "dualpipe", "pipeline_interleaving": 1, "batch_size": 72},
        "dualpipe needs even numbers of stages and of microbatches; there are 4 and 9.",
    ),
    (
        "schedule_needs_whole_groups",
        EXPERTS,
        {"schedule": "combined_1f1b", "expert_par": 4, "batch_size": 72},
        "combined_1f1b takes microbatches in groups of 4, which do not divide the 9 microbatches.",
    ),
    (
        "schedule_needs_experts",
        EXPERTS,
        {"schedule": "combined_1f1b"},
        "combined_1f1b overlaps the exchange of tokens between experts, but expert_par is 1; use interleaved.",
    ),
    (
        "schedule_against_recompute",
        EXPERTS,
        {"schedule": "combined_1f1b", "expert_par": 4},
        "combined_1f1b does not run with full recomputation; recompute a selection, or use interleaved.",
    ),
    (
        "layout_needs_pipeline",
        DENSE,
        {"stage_layout": "loss_counted", "pipeline_par": 1, "num_procs": 16, "pipeline_interleaving": 1},
        "stage_layout is loss_counted, but pipeline_par is 1; without a pipeline it must be even.",
    ),
    (
        "layout_not_of_blocks",
        DENSE,
        {"stage_layout": "first_4_last_3"},
        "stage_layout first_4_last_3 does not cut 32 blocks into 4 stages of 2 chunks: Megatron refuses 25 other "
        "layers on 2 ranks: they do not divide.",
    ),
]

# What both cost models ask, as this one tells it.
SHARED: list[tuple[str, str, dict[str, Any], str]] = [
    (
        "parallelism_product",
        DENSE,
        {"num_procs": 65},
        "tensor_par 4 x pipeline_par 4 x data_par 4 is 64, but num_procs is 65; they must be equal.",
    ),
    (
        "parallelism_product",
        DENSE,
        dict.fromkeys(("tensor_par", "pipeline_par", "data_par"), 2**31 - 1),
        "tensor_par 2,147,483,647 x pipeline_par 2,147,483,647 x data_par 2,147,483,647 is "
        "9,903,520,300,447,984,150,353,281,023, but num_procs is 64; they must be equal.",
    ),
    (
        "data_par_overlap_needs_data_par",
        DENSE,
        {**ALONE, "data_par_overlap": True, "optimizer_sharding": False},
        "data_par_overlap is true, but data_par is 1; there is no gradient exchange to overlap.",
    ),
    (
        "offload_needs_three_blocks",
        DENSE,
        {"pipeline_par": 16, "num_procs": 256, "pipeline_interleaving": 1, "optimizer_offload": True},
        "Offloading needs at least 3 blocks on each GPU; a pipeline of 16 stages leaves 2.",
    ),
    (
        "sequence_not_divisible",
        SMALL,
        {"tensor_par": 3, "num_procs": 48, "microbatch_size": 1},
        "A microbatch has 4,096 tokens, which TP 3 does not divide; reduce-scatter and all-gather split them.",
    ),
    (
        "hidden_not_divisible",
        DENSE,
        {"tensor_par": 3, "num_procs": 48, "tensor_par_comm_type": "ar"},
        "TP 3 does not divide the hidden size 4,096.",
    ),
    (
        "heads_not_divisible",
        DENSE,
        {"tensor_par": 64, "num_procs": 1024},
        "TP 64 does not divide the 32 attention heads.",
    ),
    (
        "datatype_not_on_system",
        DENSE,
        {"datatype": "float4"},
        "This system has no rates for float4; it has float8, float16, bfloat16, float8_block.",
    ),
    ("missing_value", DENSE, {"batch_size": None}, "batch_size has no value; every one of the 23 fields needs one."),
    ("not_an_integer", DENSE, {"context_par": 1.5}, "context_par is 1.5; it must be a whole number."),
    ("not_a_boolean", DENSE, {"expert_overlap": "yes"}, "expert_overlap is 'yes'; it must be true or false."),
    (
        "not_a_word",
        DENSE,
        {"launch": 1},
        "launch is 1; it must be a text such as eager, fused, compiled, graphs, partial_graphs.",
    ),
    (
        "out_of_range",
        DENSE,
        {"expert_par": 2**31},
        "expert_par is 2147483648; it must lie between 0 and 2,147,483,647.",
    ),
]


def model_of(name: str) -> models.Model:
    """A model of the library, or one with 6 heads of keys and values under 12 of queries."""
    if name != SMALL:
        return models.load(name)
    document = models.to_document(models.load(DENSE))
    shape = {**document["architecture"], "hidden": 1536, "heads": 12, "kv_heads": 6, "ffn": 3072}
    return models.load_document({**document, "seq_size": 4096, "architecture": shape}, "small")


def evaluated(name: str, changes: dict[str, Any]) -> dict[str, Any]:
    table = pd.DataFrame([{**GOOD, **changes}]).astype(dict.fromkeys(changes, object))
    row = engine.evaluate(model_of(name), "h100_80g_sxm", table).iloc[0]
    return {str(key): value for key, value in row.items()}


def table_of(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Executions whose fields may hold anything."""
    return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in FIELDS})


@cache
def told(name: str) -> pd.DataFrame:
    """What is said of all the executions of a model above in one table, after one that runs."""
    rows = [GOOD, *({**GOOD, **changes} for _, model, changes, _ in (*CASES, *SHARED) if model == name)]
    return engine.evaluate(model_of(name), "h100_80g_sxm", table_of(rows))


@pytest.mark.parametrize("case", [*CASES, *SHARED], ids=lambda case: f"{case[0]} {case[1]} {case[2]}"[:80])
def test_the_sentence_says_what_is_wrong(case: tuple[str, str, dict[str, Any], str]) -> None:
    reason, name, _, text = case
    row = told(name).iloc[1 + [each for each in (*CASES, *SHARED) if each[1] == name].index(case)]
    assert (row["reason"], row["reason_text"]) == (reason, text)
    assert row["status"] == reasons.BY_CODE[reason].status
    assert row["sample_rate"] != row["sample_rate"]


@pytest.mark.parametrize("name", [DENSE, EXPERTS, SMALL])
def test_what_is_changed_above_runs(name: str) -> None:
    running = {"tensor_par": 2, "num_procs": 32} if name == SMALL else {"expert_par": 4} if name == EXPERTS else {}
    assert evaluated(name, running)["reason_text"] == ""


def test_every_reason_is_tried() -> None:
    assert {case[0] for case in CASES} == CALIBRATED_ONLY - {"sharding_needs_replicas"}  # of earlier versions


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("pipeline", [1, 4])
def test_sharding_among_one_replica_is_as_none(stage: int, pipeline: int) -> None:
    """ZeRO 3 on one GPU, as DeepSpeed files have it: evaluated as stage 0, with nothing to share, not refused."""
    alone = {
        "data_par": 1,
        "pipeline_par": pipeline,
        "num_procs": 4 * pipeline,
        "data_par_overlap": False,
        "pipeline_interleaving": 1,
    }
    shared, plain = (
        evaluated(DENSE, {**alone, "optimizer_sharding": number > 0, "zero_stage": number}) for number in (stage, 0)
    )
    assert shared["status"] == "ok"
    assert (shared["zero_stage"], bool(shared["optimizer_sharding"])) == (stage, True)
    found, expected = (pd.Series(each).drop(["zero_stage", "optimizer_sharding"]) for each in (shared, plain))
    pd.testing.assert_series_equal(found, expected)


@pytest.mark.parametrize("name", hardware.names())
def test_the_default_attention_kernel_is_one_that_the_system_has(name: str) -> None:
    system = hardware.load(name)
    datatype = next(each for each in ("bfloat16", "float16") if each in system.datatypes)
    scenario = Scenario.of(
        "gpt3-6.7B", system, num_procs=8, max_batch_size=8, datatype=datatype, cost_model="calibrated"
    )
    kernels = {row["attention_kernel"] for row in scenario.space.table([0]).to_dict("records")}
    fused = system.accelerator is None or system.accelerator.fused_attention
    assert ("unfused" in kernels) == (not fused)
    assert fused == (name != "v100_32g_sxm")


@pytest.mark.parametrize(("tier", "first", "second"), [("1", 10.0, 512.0), ("2", 80.0, 0.5)])
def test_memory_that_is_missing_is_told(tier: str, first: float, second: float) -> None:
    offload = {"weight_offload": True, "optimizer_offload": True}
    given = pd.DataFrame([{**GOOD, **({} if tier == "1" else offload), "activation_recompute": "none"}])
    roomy = engine.evaluate(DENSE, system_of("h100_80g_sxm", first=1e6, second=1e6), given).iloc[0]
    row = engine.evaluate(DENSE, system_of("h100_80g_sxm", first=first, second=second), given).iloc[0]
    need = roomy[f"proc_mem_tier{tier}_cap_req"] / 2**30
    have = first if tier == "1" else second
    assert (row["status"], row["reason"]) == ("infeasible", f"memory_tier{tier}")
    kind = {"1": "HBM", "2": "host memory"}[tier]
    there = f"{have:g} GiB" if tier == "1" else "512 MiB"
    found = re.fullmatch(
        rf"Needs ([\d.]+) GiB of {kind}, but a GPU has {there}: ([\d.]+) GiB too much\.", row["reason_text"]
    )
    assert found is not None
    assert [float(number) for number in found.groups()] == pytest.approx([need, need - have], rel=0.005)


def test_context_parallel_ranks_share_the_optimizer() -> None:
    shared = {"context_par": 4, "data_par": 1, "batch_size": 16}
    row = evaluated(DENSE, shared)
    assert row["reason_text"] == ""
    assert evaluated(DENSE, {**shared, "zero_stage": 3})["reason_text"] == ""
    assert evaluated(DENSE, {**shared, "num_procs": 63})["reason"] == "parallelism_product_with_context"


def test_rows_do_not_touch_each_other() -> None:
    """Executions above that are evaluated alone say what they say in one table; so does the one that runs."""
    assert told(DENSE)["reason_text"].iloc[0] == ""
    for _, name, changes, text in [*CASES, *SHARED][::4]:
        assert evaluated(name, changes)["reason_text"] == text


RUBBISH: tuple[Any, ...] = (
    float("inf"),
    -float("inf"),
    "",
    "8",
    "true",
    b"8",
    2.5,
    1e300,
    2**63,
    -(2**63),
    10**400,
    1 + 2j,
    Decimal("3.5"),
    [],
    [1],
    {},
    (1, 2),
    object(),
    pd.Timestamp(0),
    -5,
    "\u00fcn\u00ef",
    " fused",
    "fused\x00",
)
NOTHING: tuple[Any, ...] = (None, float("nan"), pd.NA, pd.NaT, np.float32("nan"))


def rubbish_for(name: str) -> list[Any]:
    """What a field refuses; a number of a network is a number here, as it is not read."""
    return [value for value in RUBBISH if value != -5] if name in NOT_READ else [*RUBBISH]


@cache
def rubbish_told() -> pd.DataFrame:
    """What is said of rubbish in each field in turn, of all in one table: before and after it one that runs."""
    rows = [{**GOOD, name: value} for name in FIELDS for value in (GOOD[name], *rubbish_for(name), GOOD[name])]
    field = [name for name in FIELDS for _ in range(len(rubbish_for(name)) + 2)]
    return engine.evaluate(DENSE, "h100_80g_sxm", table_of(rows)).assign(spoilt=field)


@cache
def good() -> pd.Series:
    """What is said of the execution that runs."""
    return engine.evaluate(DENSE, "h100_80g_sxm", pd.DataFrame([GOOD])).iloc[0]


@cache
def without(name: str) -> pd.DataFrame:
    """What is said of it where a column is not given."""
    return engine.evaluate(DENSE, "h100_80g_sxm", pd.DataFrame([GOOD]).drop(columns=name))


@pytest.mark.parametrize("name", FIELDS)
def test_rubbish_in_a_field_is_refused_and_spoils_nothing_else(name: str) -> None:
    found = rubbish_told().query("spoilt == @name")
    assert len(found) == len(rubbish_for(name)) + 2
    assert (found["status"].iloc[1:-1] == "invalid").all(), found[["reason_text"]]
    assert found["reason_text"].iloc[1:-1].str.contains(name).all()
    for row in (0, -1):
        assert found["status"].iloc[row] == "ok"
        assert found["total_time"].iloc[row] == good()["total_time"]


@pytest.mark.parametrize("name", FIELDS)
def test_no_value_is_refused_but_in_an_extension(name: str) -> None:
    table = pd.DataFrame({field: pd.Series([GOOD[field]] * len(NOTHING), dtype=object) for field in FIELDS})
    table[name] = pd.Series(NOTHING, dtype=object)
    found = engine.evaluate(DENSE, "h100_80g_sxm", table)
    if name in {column.name for column in EXTENSIONS}:
        plain = without(name).iloc[0]
        assert (found["status"] == "ok").all()
        assert found[name].tolist() == [plain[name]] * len(NOTHING)
        assert found["total_time"].tolist() == [plain["total_time"]] * len(NOTHING)
    else:
        assert (found["reason"] == "missing_value").all()


@given(
    changes=st.dictionaries(
        st.tuples(st.integers(0, 3), st.sampled_from(FIELDS)),
        st.sampled_from((*RUBBISH, *NOTHING)) | st.integers() | st.floats() | any_text(max_size=5),
        max_size=8,
    )
)
def test_any_mixture_of_rubbish_gives_an_answer(changes: dict[tuple[int, str], Any]) -> None:
    rows = {
        name: pd.Series([changes.get((row, name), GOOD[name]) for row in range(4)], dtype=object) for name in FIELDS
    }
    found = engine.evaluate(DENSE, "h100_80g_sxm", pd.DataFrame(rows))
    assert set(found["status"]) <= {"ok", "infeasible", "invalid"}
    assert (found["reason_text"].astype(str).str.len() > 10).eq(found["status"] != "ok").all()
    assert set(found["reason"]) <= {"", *reasons.BY_CODE}


@pytest.mark.parametrize("model", [DENSE, EXPERTS, "deepseek-v3"])
def test_any_pipeline_gives_an_answer(model: str) -> None:
    """Whatever number of stages and chunks comes with a schedule and a layout: rules are told, not run into."""
    words = ([*by_name(name).choices] for name in ("schedule", "stage_layout"))
    rows = [
        {
            **GOOD,
            "num_procs": 16 * stages,
            "pipeline_par": stages,
            "pipeline_interleaving": chunks,
            "schedule": schedule,
            "stage_layout": layout,
        }
        for stages, chunks, schedule, layout in product((1, 2, 3, 4, 8, 16), (1, 2, 3), *words)
    ]
    found = engine.evaluate(model, "h100_80g_sxm", pd.DataFrame(rows))
    assert set(found["status"]) <= {"ok", "infeasible", "invalid"}
    kept = set(found["schedule"][found["reason"].isin(("", "memory_tier1"))])
    assert kept == {*by_name("schedule").choices} - {"combined_1f1b"}  # which needs experts that are spread


@pytest.mark.parametrize("name", FIELDS)
def test_a_missing_column_is_named_unless_it_has_a_default(name: str) -> None:
    if name in {column.name for column in EXTENSIONS}:
        assert without(name)["status"].tolist() == ["ok"]
    else:
        with pytest.raises(engine.ExecutionTableError, match=name):
            without(name)
    double = pd.concat([pd.DataFrame([GOOD]), pd.DataFrame([GOOD])[[name]]], axis=1)
    with pytest.raises(engine.ExecutionTableError, match=name):
        engine.evaluate(DENSE, "h100_80g_sxm", double)
