"""Rows as other people write them: other words, other frameworks, fields left out. Always an outcome with a reason."""

from __future__ import annotations

import random
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
import pytest

from engine.validation import error_table, memory_table, runs_of, validate
from engine.validation.mapping import map_runs
from engine.validation.reading import Runs
from engine.validation.words import accelerator_named, datatype_of, recompute_of
from tests.engine.validation.runs import table

WORDS: dict[str, tuple[str, ...]] = {
    "framework": ("", "PyTorch FSDP2", "DeepSpeed", "JAX MaxText", "other", "nemo 24.12", "NeMo 99.99", "(", "\\"),
    "hardware": ("H100", "NVIDIA H100 80GB HBM3", "H200", "A100", "B100", "TPU-v6e", "gb200", "MI300X", "?", "("),
    "dtype": ("BF16", "fp8-cs", "bf16 + fp8", "fp32", "", "NVFP4", "??"),
    "recompute": ("None", "FULL", "no", "core_attn", "full:4 layers", "full:0layers", "modules:x", "block", "("),
    "seq_parallel": ("unknown", "TRUE", "maybe", "", "n/a"),
    "gated_mlp": ("", "yes"),
    "tied_embeddings": ("", "None"),
    "fsdp": ("", "True", "False"),
    "zero_stage": ("", "0", "2", "3", "7", "unknown"),
    "cp": ("", "0", "2", "64", "-1", "1.5"),
    "ep": ("", "0", "2", "8", "512", "7"),
    "tp": ("1", "8", "16", "72", ""),
    "pp": ("1", "4", "8", "1000000"),
    "vpp": ("", "0", "2", "1000"),
    "dp": ("", "1", "8", "1000000"),
    "num_gpus": ("", "8", "999999999"),
    "mbs": ("", "1", "128", "1e9"),
    "gbs": ("", "1", "1e9", "7"),
    "seq_len": ("1", "128", "1e9", "4096.5"),
    "hidden": ("1", "", "1e9"),
    "layers": ("1", "", "1e9"),
    "heads": ("1", "3", "1e9"),
    "kv_heads": ("", "1", "7", "1e6"),
    "head_dim": ("", "1", "0.5", "1e9"),
    "moe_experts": ("", "0", "8", "1e6"),
    "moe_topk": ("", "0", "1", "100"),
    "moe_ffn": ("", "0", "1"),
    "moe_shared": ("", "3"),
    "moe_dense_layers": ("", "1", "500"),
    "gpus_per_node": ("", "1", "4", "72", "1e9"),
    "scaleup": ("", "0-GPU domain", "NVL72", "999999999999-GPU domain"),
    "scaleout": ("", "8x0Gb/s IB", "0Gb/s per GPU", "9999999999999999999999x99999999999Gb/s"),
    "notes": ("", "CUDA graphs (attn)", "packed 4096", "(((", "ETP=0", "ETP=99", "MP mode DEFAULT", "\x00"),
    "attn": ("", "mla", "SWA=4096", "sliding-window0", "MLA(q_lora0)", "MLA(kv_lora0,nope0,rope0,v0)"),
    "family": ("", "Hybrid", "weird"),
    "date": ("", "soon", "2024", "2024-99", "24.13", "9999"),
    "step_time_s": ("", "0", "-1", "1e-12", "1e12"),
    "tokens_per_s_per_gpu": ("", "0", "1e-9"),
    "mem_gib": ("", "0", "1e9"),
}


@cache
def published() -> pd.DataFrame:
    with (files("engine.validation") / "data" / "runs.csv").open(encoding="utf-8") as file:
        return pd.read_csv(file, dtype=str, keep_default_na=False)


@cache
def predicted() -> pd.DataFrame:
    """What is predicted of the published rows as they are."""
    return validate(published())


def has_outcomes(rows: pd.DataFrame) -> None:
    """Every row: predicted with finite positive figures, or unsupported with a reason and none."""
    runs = runs_of(rows)
    assert len(runs.table) == len(rows)
    have_outcomes(runs)


def have_outcomes(runs: Runs) -> None:
    """The same of runs that were read."""
    found = validate(runs)
    assert len(found) == len(runs.table)
    predicted = (found["status"] == "predicted").to_numpy(bool)
    figures = found[["predicted_step_time_s", "predicted_tokens_per_s_per_gpu", "predicted_mem_gib"]].to_numpy(float)
    assert np.isfinite(figures[predicted]).all()
    assert (figures[predicted] > 0).all()
    assert np.isnan(figures[~predicted]).all()
    assert (found.loc[predicted, "reason"] == "").all()
    assert (found.loc[~predicted, "reason"] != "").all()
    assert found.loc[~predicted, "reason_text"].str.endswith(".").all()
    assert error_table(runs.table, found)["rows"].notna().all()
    assert memory_table(runs.table, found).notna().all(axis=None)


@cache
def dozen(seed: int) -> pd.DataFrame:
    return published().sample(12, random_state=seed)


def some(column: str) -> pd.DataFrame:
    """A dozen published rows, others for other fields."""
    return dozen(len(column))


def test_one_field_written_otherwise() -> None:
    """All in one table, as every row is predicted by itself."""
    parts = [some(column).assign(**{column: word}) for column, words in WORDS.items() for word in words]
    has_outcomes(pd.concat(parts, ignore_index=True))


def test_one_field_left_out() -> None:
    """Each table is read without a column of its own; what was read has all of them, so they are predicted as one."""
    columns = [column for column in WORDS if column not in ("hardware", "hidden", "layers")]
    read = [runs_of(some(column).drop(columns=column)) for column in columns]
    tables = [each.table for each in read]
    assert all(set(each) >= {*WORDS} for each in tables)
    have_outcomes(Runs(pd.concat(tables, ignore_index=True), np.concatenate([each.faults for each in read])))


@pytest.mark.parametrize("seed", range(4))
def test_many_fields_written_otherwise(seed: int) -> None:
    draw = random.Random(seed)
    rows = published().sample(60, random_state=seed).copy()
    for row in rows.index:
        for column in draw.sample(sorted(WORDS), draw.randint(1, 5)):
            rows.loc[row, column] = draw.choice(WORDS[column])
    has_outcomes(rows)


def test_the_names_of_rows_models_and_groups_change_nothing() -> None:
    rows = published()
    renamed = rows.assign(id=[f"x{i}" for i in range(len(rows))], model="y", group="", source_loc="", quality="")
    before, after = predicted(), validate(renamed)
    columns = ["status", "reason", "predicted_step_time_s", "predicted_mem_gib"]
    pd.testing.assert_frame_equal(before[columns], after[columns])


def test_letter_case_changes_nothing() -> None:
    rows = published()
    columns = ["framework", "hardware", "dtype", "recompute", "attn", "family", "seq_parallel", "fsdp", "gated_mlp"]
    upper = rows.assign(**{column: rows[column].str.upper() for column in columns})
    column = "predicted_step_time_s"
    np.testing.assert_allclose(validate(upper)[column], predicted()[column], rtol=1e-6, atol=0.0)


def test_headers_in_any_letter_case() -> None:
    shouted = table().rename(columns=str.upper)
    assert validate(shouted)["predicted_step_time_s"][0] == validate(table())["predicted_step_time_s"][0]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("H100-80GB-SXM", "h100_80g_sxm"),
        ("H100", "h100_80g_sxm"),
        ("NVIDIA H100 80GB HBM3", "h100_80g_sxm"),
        ("H100 PCIe", "h100_80g_pcie"),
        ("8xH100", "h100_80g_sxm"),
        ("NVIDIA A100-SXM4-40GB", "a100_40g_sxm"),
        ("A100", "a100_80g_sxm"),
        ("GB200", "gb200_186g_nvl72"),
        ("MI300X", "mi300x_192g"),
        ("TPU v5p", "tpu_v5p_95g"),
        ("H100-94GB-NVL", None),
        ("GH200", None),
        ("B100", None),
        ("A100 or H100", None),
        ("", None),
    ],
)
def test_accelerators_by_other_words(words: str, name: str | None) -> None:
    found = accelerator_named(words)
    assert (found[0].name if found else None) == name


def test_what_a_word_for_the_hardware_leaves_open_is_said() -> None:
    found = validate(table({"hardware": "H100"}, {})).iloc
    assert "hardware taken as H100-80GB-SXM" in found[0]["assumptions"]
    assert "hardware" not in found[1]["assumptions"]
    assert found[0]["predicted_step_time_s"] == found[1]["predicted_step_time_s"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("BF16", "bfloat16"),
        ("bfloat16", "bfloat16"),
        ("fp16", "float16"),
        ("bf16-mixed", "bfloat16"),
        ("fp8-cs", "float8"),
        ("FP8_CS", "float8"),
        ("mxfp8", "mxfp8"),
        ("bf16 + fp8", "float8"),
        ("e4m3", "float8"),
        ("NVFP4", "nvfp4"),
        ("mxfp4", "mxfp4"),
        ("fp32", None),
        ("tf32", None),
        ("int8", "int8"),
        ("", None),
    ],
)
def test_precisions_by_other_words(words: str, name: str | None) -> None:
    found = datatype_of(words)
    assert (found and found.name) == name


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("none", ("none", 1, ())),
        ("Full", ("full", 1, ())),
        ("core_attn", ("selective", 1, ())),
        ("modules:core_attn", ("selective", 1, ())),
        ("full:8layers", ("full", 0.25, ())),
        ("modules:mla_up_proj", ("by_module", 1, ("mla_up_proj",))),
        ("modules: moe_act", ("by_module", 1, ("moe_act",))),
        ("moe,layernorm core_attn+moe", ("by_module", 1, ("core_attn", "layernorm", "moe"))),
        ("other:SAVE_DOT_ONLY", ("save_dots", 1, ())),
        ("other:magic", None),
        ("modules:layernorm+magic", None),
        ("modules:", None),
        ("by_module", None),
    ],
)
def test_recomputation_by_other_words(words: str, found: tuple[str, float, tuple[str, ...]] | None) -> None:
    assert recompute_of(words, 32.0) == found


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"framework": "Megatron-LM", "date": "2022-05"}, {"attention_kernel": 0}),
        ({"framework": "Megatron-LM", "date": "2024-05"}, {"attention_kernel": 3, "gradient_bytes": 4}),
        ({"framework": "Megatron-LM", "dtype": "fp16"}, {"gradient_bytes": 2}),
        (
            {"framework": "Megatron-LM", "notes": "--overlap-grad-reduce --tp-comm-overlap"},
            {"overlap_data": 1, "overlap_tensor": 1},
        ),
        ({"framework": "Megatron-LM", "notes": "overlap_grad_reduce off"}, {"overlap_data": 0}),
        ({"framework": "MEGATRON-BRIDGE 26.03"}, {"grouped_experts": 0, "overlap_data": 1}),
        ({"framework": "Megatron-Bridge 26.05"}, {"grouped_experts": 1}),
        ({"framework": "PyTorch FSDP2", "date": "2025"}, {"attention_kernel": 2, "pytorch_native": 1, "launch": 0}),
        ({"framework": "PyTorch FSDP2", "notes": "torch.compile"}, {"launch": 2, "unfused_elementwise": 0}),
        ({"framework": "Hugging Face Trainer"}, {"unfused_elementwise": 2}),
        ({"framework": "DeepSpeed 0.16"}, {"unfused_elementwise": 1, "overlap_data": 1}),
        ({"framework": "Nemotron trainer", "source": "Nemotron-4"}, {"overlap_data": 0}),
    ],
)
def test_software_of_other_frameworks(change: dict[str, Any], facts: dict[str, float]) -> None:
    software = map_runs(runs_of(table(change))).case.software
    assert {name: float(getattr(software, name)[0]) for name in facts} == facts


def test_smaller_hosts_end_the_scale_up_domain_and_racks_span_hosts() -> None:
    def accelerator(**change: Any) -> Any:
        runs: Runs = runs_of(table(change))
        return map_runs(runs).case.accelerator

    assert accelerator(gpus_per_node=4).domain[0] == 4
    assert accelerator(gpus_per_node=4, scaleup="8-GPU domain").domain[0] == 8
    assert accelerator(gpus_per_node=4, hardware="GB200-NVL72").domain[0] == 72


@pytest.mark.parametrize(
    ("change", "reason", "says"),
    [
        ({"moe_experts": 8, "moe_ffn": 512, "ep": 4}, "missing_field", "moe_topk"),
        ({"moe_experts": 64, "moe_ffn": 512, "moe_topk": 2, "ep": 64}, "impossible_split", "split over 64"),
        ({"kv_heads": 5}, "impossible_split", "kv_heads"),
        ({"zero_stage": 4}, "bad_value", "zero_stage is 4"),
        ({"attn": "MLA(kv_lora0)"}, "bad_value", "latent attention"),
        ({"hardware": "B100"}, "unknown_hardware", "B100"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], reason: str, says: str) -> None:
    found = validate(table(change)).iloc[0]
    assert (found["status"], found["reason"]) == ("unsupported", reason)
    assert says in found["reason_text"]


def test_degrees_of_0_and_words_for_nothing_are_blanks() -> None:
    blank = validate(table({"cp": "", "vpp": "", "ep": "", "seq_parallel": ""})).iloc[0]
    zeros, words = {"cp": 0, "vpp": 0, "ep": 0, "seq_parallel": "unknown"}, {"cp": "n/a", "vpp": "None", "dp": "-"}
    for change in (zeros, words):
        found = validate(table(change)).iloc[0]
        assert found["predicted_step_time_s"] == blank["predicted_step_time_s"]
        assert "cp 1" in found["assumptions"]
