"""Nearest measured runs: a run finds itself, row order does not matter, sources have addresses, FLOP both ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from engine.validation import library_runs, runs_of, validate
from engine.validation.model_flops import flops_of_runs
from engine.validation.nearest import WEIGHTS, TrainingSetting, find_nearest_runs, settings_of_runs
from engine.validation.reading import Runs
from engine.validation.source_links import find_link
from tests.engine.validation.runs import table


def test_both_conventions_are_those_that_the_collection_computed() -> None:
    # norm_model_tflops_* were computed from throughput and architecture outside this project, both conventions.
    runs = library_runs().table
    flops = flops_of_runs(runs)
    compared = 0
    for convention in ("full", "causal"):
        expected = pd.to_numeric(runs[f"norm_model_tflops_{convention}"], errors="coerce").to_numpy(float)
        ours = [
            np.nan if each is None else each.model(convention) * rate / 1e12
            for each, rate in zip(flops, runs["tokens_per_s_per_gpu"], strict=True)
        ]
        ratio = np.array(ours) / expected
        # They ignore windows (GPT-OSS), packed examples, and prediction layers (DeepSeek-V3).
        others = runs["model"].str.contains("GPT-OSS|DeepSeek") | runs["notes"].str.contains("packed")
        plain = np.isfinite(ratio) & ~others.to_numpy(bool)
        assert np.abs(ratio[plain] - 1.0).max() < 0.045
        assert np.quantile(np.abs(ratio[plain] - 1.0), 0.95) < 2e-4
        compared += int(plain.sum())
    assert compared > 1_500


def setting_of(settings: pd.DataFrame, row: int) -> TrainingSetting:
    return TrainingSetting(**{str(name): value for name, value in settings.iloc[row].to_dict().items()})


def test_a_run_of_the_package_finds_itself_first() -> None:
    runs = library_runs()
    settings = settings_of_runs(runs.table)
    measured = runs.table["step_time_s"].notna() | runs.table["tokens_per_s_per_gpu"].notna()
    known = np.flatnonzero((measured & settings.notna().all(axis=1) & (settings["accelerator"] != "")).to_numpy(bool))
    assert len(known) > 1_400
    for row in known[:: len(known) // 120]:
        found = find_nearest_runs(setting_of(settings, row), 40)
        ids = found.runs.table["id"].tolist()
        assert found.distances[0] == 0.0
        place = ids.index(runs.table["id"].iloc[row])
        # Before it are only repeated measurements of the same setting.
        assert found.distances[place] == 0.0
        assert (np.diff(found.distances) >= 0.0).all()
        assert np.allclose(found.parts.sum(axis=1), found.distances, atol=1e-8)


def test_the_order_does_not_depend_on_the_order_of_rows() -> None:
    runs = library_runs()
    settings = settings_of_runs(runs.table)
    for seed, row in enumerate((3, 250, 700, 1_000)):
        wanted = find_nearest_runs(setting_of(settings, row), 15, runs)
        order = np.random.default_rng(seed).permutation(len(runs.table))
        mixed = Runs(runs.table.iloc[order].reset_index(drop=True), runs.faults[order])
        found = find_nearest_runs(setting_of(settings, row), 15, mixed)
        assert found.runs.table["id"].tolist() == wanted.runs.table["id"].tolist()
        assert found.distances.tolist() == wanted.distances.tolist()


def test_parts_matter_in_the_order_of_their_weights() -> None:
    assert list(WEIGHTS.values()) == sorted(WEIGHTS.values(), reverse=True)
    changes: dict[str, dict[str, Any]] = {
        "same": {},
        "layout": {"mbs": 2, "gbs": 512},
        "processors": {"num_gpus": 128, "dp": 32},
        "sequence": {"seq_len": 4096},
        "size": {"hidden": 8192, "ffn": 28672, "layers": 20, "vocab": 64_000},
        "datatype": {"dtype": "fp8"},
        "hardware": {"hardware": "A100-80GB-SXM"},
        "kind": {"moe_experts": 8, "moe_topk": 2, "moe_ffn": 7168, "ep": 8},
    }
    runs = runs_of(table(*changes.values()).assign(id=list(changes)))
    found = find_nearest_runs(setting_of(settings_of_runs(runs.table), 0), 8, runs)
    assert found.runs.table["id"].tolist() == list(changes)


@pytest.mark.parametrize(
    ("place", "link"),
    [
        ("arXiv:2104.04473 Table 1 (image Megatron-LM@84529b20c2:images/a.png)", "https://arxiv.org/abs/2104.04473"),
        (
            'NVIDIA-NeMo/Megatron-Bridge@067f987:docs/performance-summary.md section "26.08"',
            "https://github.com/NVIDIA-NeMo/Megatron-Bridge/blob/067f987/docs/performance-summary.md",
        ),
        (
            "bigscience-workshop/bigscience@9e64ede:train/tr11-176B-ml/chronicles-prequel.md line 476 (section)",
            "https://github.com/bigscience-workshop/bigscience/blob/9e64ede/train/tr11-176B-ml/"
            "chronicles-prequel.md?plain=1#L476",
        ),
        (
            "mlcommons/training_results_v4.1@b87b9e3:Google/results/x/gpt3/ + config by name",
            "https://github.com/mlcommons/training_results_v4.1/tree/b87b9e3/Google/results/x/gpt3",
        ),
        ("https://gist.github.com/a/b (docs corpus)", "https://gist.github.com/a/b"),
        ("pytorch/torchtitan@HEAD:benchmarks/a.md Table 1", None),
        ("MooreThreads/SimuMax docs/b200/summary.json (real_ms)", None),
        ("javascript:alert(1)", None),
        ("", None),
    ],
)
def test_places_become_addresses_only_where_they_name_one(place: str, link: str | None) -> None:
    assert find_link(place) == link


def test_most_runs_with_a_place_have_an_address() -> None:
    places = library_runs().table["source_loc"].dropna()
    assert np.mean([find_link(str(place)) is not None for place in places]) > 0.85


def test_a_measured_rate_is_read_in_its_convention() -> None:
    time = validate(table({"step_time_s": 3.0}))["measured_step_time_s"].iloc[0]
    assert time == 3.0
    (flops,) = flops_of_runs(runs_of(table({})).table)
    assert flops is not None
    rate = 256 * 8192 / 64 / 3.0  # tokens per second and GPU
    kinds = {
        "causal": flops.model("causal"),
        "model, full attention": flops.model("full"),
        "hardware causal": flops.hardware("full", "causal"),
        "HFU causal": flops.hardware("full", "causal"),
        "full attention, hardware (full recomputation)": flops.hardware("full", "full"),
    }
    rows = table(
        *(
            {"tflops_per_gpu": rate * work / 1e12, "tflops_kind": kind, "recompute": "full"}
            for kind, work in kinds.items()
        ),
        drop=("step_time_s",),
    )
    assert validate(rows)["measured_step_time_s"].to_numpy() == pytest.approx(3.0, rel=1e-12)


@pytest.mark.parametrize("kind", ["", "model", "hardware(incl recompute)", "causal or full", "MFU"])
def test_a_rate_without_a_convention_is_named_as_unread(kind: str) -> None:
    rows = table({"tflops_per_gpu": 400.0, "tflops_kind": kind}, drop=("step_time_s",))
    found = validate(rows).iloc[0]
    assert found["status"] == "predicted"
    assert np.isnan(found["measured_step_time_s"])
    assert "tflops_per_gpu is not read, because tflops_kind does not say how it counts" in found["assumptions"]
    # With another measurement nothing depends on it.
    both = validate(table({"tflops_per_gpu": 400.0, "tflops_kind": kind})).iloc[0]
    assert both["measured_step_time_s"] == 3.0
    assert "tflops" not in both["assumptions"]


def test_a_hardware_rate_with_partial_recomputation_is_named_as_unread() -> None:
    row = {"tflops_per_gpu": 400.0, "tflops_kind": "hardware causal", "recompute": "full: 5 layers"}
    found = validate(table(row, drop=("step_time_s",))).iloc[0]
    assert np.isnan(found["measured_step_time_s"])
    assert (
        "hardware FLOP are known for recompute none, selective and full, not for 'full: 5 layers'"
        in (found["assumptions"])
    )
