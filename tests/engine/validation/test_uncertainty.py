"""Intervals come from unseen runs of the same kind of model, hold what they say on sources left out, and say what they
rest on; what was never measured has a name and no interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from engine import Scenario
from engine.cost_models.calibrated.measured import measured_kinds
from engine.validation import stored_coverage
from engine.validation.uncertainty import (
    LEAST_ROWS,
    LEAST_SOURCES,
    SHARES,
    SOURCE_WEIGHT,
    coverage_of,
    coverage_table,
    interval,
    interval_of,
    residuals,
)
from tests.engine.validation.library_outcomes import mapped, outcomes

FIELDS = {"num_procs": 2048, "max_batch_size": 2048, "datatype": "float8"}


def kind(generation: str, experts: bool) -> pd.DataFrame:
    table = residuals()
    return table[(table["generation"] == generation) & (table["experts"] == experts)]


@pytest.mark.parametrize("generation", ["ampere", "hopper", "blackwell"])
@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("without", ["", "NVIDIA", "MosaicML"])
def test_an_interval_is_a_quantile_of_runs_of_the_same_kind_and_of_other_sources(
    generation: str, experts: bool, without: str
) -> None:
    """The weight of its runs inside is what conformal prediction asks for, and dense runs never count for experts."""
    found = {share: interval(generation=generation, experts=experts, share=share, without=without) for share in SHARES}
    for share, one in found.items():
        if one is None:
            continue
        own = kind(generation, experts) if "any" not in one.described else residuals().query("experts == @experts")
        own = own[own["source"] != without]
        assert (one.rows, one.sources) == (len(own), own["source"].nunique())
        assert one.rows >= LEAST_ROWS
        assert one.sources >= LEAST_SOURCES
        assert ("experts" in one.described) == experts
        weight = own.groupby("source")["ratio"].transform("size") ** -SOURCE_WEIGHT
        wanted = share * (weight.sum() + weight.mean())
        inside = own["ratio"].between(one.low * (1 - 1e-9), one.high * (1 + 1e-9))
        within = own["ratio"].between(one.low * (1 + 1e-9), one.high * (1 - 1e-9))
        assert weight[within].sum() < wanted <= weight[inside].sum() + 1e-9
        assert one.low * one.high == pytest.approx(1)
    widths = [one.high for one in found.values() if one is not None]
    assert widths == sorted(widths)


def test_a_kind_that_too_few_sources_measured_has_none_or_says_so() -> None:
    assert interval(generation="other", experts=False) is None
    few = residuals()[residuals()["source"] == "NVIDIA"]
    assert interval(generation="hopper", experts=False, table=few) is None
    pair = _made({(name, 16.0): [0.01 * each for each in range(10)] for name in "ab"})
    sparse = interval(generation="hopper", experts=False, table=pair)
    assert sparse is not None
    assert sparse.is_weak
    assert "20 measured runs of dense models on Hopper, from 2 sources, too few to generalise" in sparse.rests_on
    dense = interval(generation="hopper", experts=False)
    assert dense is not None
    assert not dense.is_weak


def test_the_intervals_hold_what_they_say_on_sources_left_out() -> None:
    """Runs of every source, by fits and intervals that saw nothing of it; and what the stored errors give is near."""
    found = stored_coverage().set_index("name")
    overall = found.iloc[0]
    assert overall["runs"] == len(residuals())
    assert 75 <= overall["covered_80"] <= 86
    assert overall["none"] == 0
    again = coverage_table(residuals(), {"all": np.ones(len(residuals()), bool)}, lambda _: residuals()).iloc[0]
    for name in ("covered_80", "sources_80", "covered_90"):
        assert again[name] == pytest.approx(overall[name], abs=0.5)
    assert "vTrain's single node, apart" in found.index


def test_coverage_is_the_share_for_sources_that_are_alike() -> None:
    random = np.random.default_rng(5)
    rows = 4000
    made = pd.DataFrame(
        {
            "source": random.integers(0, 20, rows).astype(str),
            "generation": "hopper",
            "experts": False,
            "ratio": np.exp(random.normal(0, 0.1, rows)),
        }
    )
    found = coverage_table(made, {"all": np.ones(rows, bool)}, lambda source: made[made["source"] != source]).iloc[0]
    for share in SHARES:
        assert found[f"covered_{100 * share:.0f}"] == pytest.approx(100 * share, abs=2.5)


def test_a_source_of_its_own_has_no_part_in_its_interval() -> None:
    """However far off a source is, the intervals that its own runs are counted in do not see it."""
    table = residuals()
    odd = table["source"] == "MosaicML"
    shifted = table.assign(ratio=table["ratio"].where(~odd, 50.0))
    a, b = (interval(generation="hopper", experts=False, without="MosaicML", table=each) for each in (table, shifted))
    assert a == b


def test_runs_of_ones_own_are_counted_in_the_shipped_intervals() -> None:
    found = coverage_of(mapped(), outcomes()).iloc[0]
    assert found["runs"] > 1000
    assert 0 < found["covered_50"] < found["covered_80"] < found["covered_90"] < 100


def _made(errors: dict[tuple[str, float], list[float]]) -> pd.DataFrame:
    rows = [
        {"source": source, "generation": "hopper", "experts": False, "bits": bits, "ratio": float(np.exp(size))}
        for (source, bits), sizes in errors.items()
        for size in sizes
    ]
    return pd.DataFrame(rows)


def test_runs_of_the_same_width_count_and_others_only_where_they_are_too_few() -> None:
    small, large = np.linspace(0.001, 0.01, 20).tolist(), np.linspace(0.1, 0.2, 20).tolist()
    table = _made({("a", 16): small, ("b", 16): small, ("a", 8): large, ("b", 8): large})
    wide, narrow = (interval(generation="hopper", experts=False, bits=bits, table=table) for bits in (16, 8.25))
    assert wide is not None
    assert narrow is not None
    assert wide.high < 1.011 < 1.1 < narrow.high
    assert narrow.described.endswith("on Hopper in 8 bits")
    few = table[(table["bits"] == 16) | (table.groupby(["source", "bits"]).cumcount() < 5)]
    found = interval(generation="hopper", experts=False, bits=8, table=few)
    assert found is not None
    assert (found.rows, found.described) == (50, "dense models on Hopper")


def test_a_large_source_does_not_drown_the_others_and_its_share_is_said() -> None:
    """A hundred good runs of one source, five bad ones of each of four: what holds for a new source is measured."""
    table = _made({("large", 16.0): [0.01] * 100} | {(name, 16.0): [0.1, 0.11, 0.12, 0.13, 0.14] for name in "abcd"})
    found = interval(generation="hopper", experts=False, bits=16, table=table)
    assert found is not None
    assert found.high > 1.1, "by runs alone, 80 % are within 1 %"
    # Of the five sources, each judged by the others: all of the large one, and what its weight leaves of the small.
    each = []
    for name in ("large", *"abcd"):
        other = interval(generation="hopper", experts=False, bits=16, table=table, without=name)
        assert other is not None
        own = table[table["source"] == name]["ratio"]
        each.append(own.between(other.low, other.high * (1 + 1e-12)).mean())
    assert found.held == pytest.approx(np.mean(each))
    assert f"{found.held:.0%}" in found.held_words


def test_shares_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="share is 1"):
        interval(generation="hopper", experts=False, share=1.0)


def scenario(model: str, system: str, **more: Any) -> Scenario:
    return Scenario.of(model, system, **{**FIELDS, **more})


@pytest.mark.parametrize(
    ("model", "system", "change", "words"),
    [
        ("deepseek-v3", "h800_80g_sxm", {}, ()),
        ("deepseek-v3", "h800_80g_sxm", {"optimizer_offload": True}, ("offloading the optimizer",)),
        ("deepseek-v3", "h800_80g_sxm", {"weight_offload": True}, ("offloading weights",)),
        ("deepseek-v3", "h800_80g_sxm", {"activations_offload": True}, ("offloading activations",)),
        ("deepseek-v3", "a100_80g_sxm", {"datatype": "bfloat16"}, ("mixtures of experts on Ampere",)),
        ("llama-3-70B", "h100_80g_sxm", {}, ()),
        ("llama-3-70B", "mi300x_192g", {"datatype": "bfloat16"}, ("this generation of processors",)),
        (
            "llama-3-70B",
            "mi300x_192g",
            {"datatype": "bfloat16", "weight_offload": True},
            ("this generation of processors", "offloading weights"),
        ),
        ("llama-3-70B", "h100_80g_sxm", {"optimizer_datatype": "bfloat16"}, ("an optimizer in 16 bits",)),
        ("llama-3-70B", "h100_80g_sxm", {"cost_model": "calculon", "weight_offload": True}, ()),
    ],
)
def test_what_was_never_measured_is_named_and_has_no_interval(
    model: str, system: str, change: dict[str, Any], words: tuple[str, ...]
) -> None:
    datatype, cost_model = change.get("datatype", "float8"), change.get("cost_model")
    made = scenario(model, system, datatype=datatype, cost_model=cost_model)
    execution = {
        "num_procs": 2048,
        "tensor_par": 8,
        "pipeline_par": 4,
        "data_par": 64,
        "tensor_par_net": 0,
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "batch_size": 2048,
        "microbatch_size": 1,
        "datatype": datatype,
        "fused_activation": True,
        "attention_type": "multihead",
        "activation_recompute": "full",
        "pipeline_interleaving": 1,
        "optimizer_sharding": True,
        "tensor_par_comm_type": "rs_ag",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": False,
        "data_par_overlap": False,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    } | {name: value for name, value in change.items() if name != "cost_model"}
    assert made.not_measured(execution) == words
    found = interval_of(made, execution)
    assert (found is None) == (bool(words) or cost_model == "calculon")
    if found is not None:
        assert ("experts" in found.described) == (model == "deepseek-v3")


def test_what_was_measured_is_told_of_the_runs_that_are_scored() -> None:
    assert {"dense models on Hopper", "latent attention", "8-bit matrix products on Hopper"} <= measured_kinds()
    assert not any("offload" in words for words in measured_kinds())
