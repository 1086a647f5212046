"""Studies: what they count, what each point is, what is refused."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import engine
import hardware
from engine import codesign
from engine.codesign.folder import ResultFolder
from tests import reference
from tests.engine.codesign.small_study import ONE_POINT, SMALL, study


def test_points_are_the_optima_that_the_reference_model_gives(tmp_path: Path) -> None:
    """Nine spaces that Calculon 0.1.0 searched whole, as a study of one point each."""
    for number, space in enumerate(each for each in reference.spaces() if "best_sample_rate" in each):
        asked = codesign.Study.from_document(
            {
                "format": codesign.FORMAT,
                "models": [space["model"]],
                "systems": [space["system"]],
                "sizes": [space["num_procs"]],
                "datatypes": [space["datatype"]],
                "batches": [space["max_batch_size"]],
                "cost_model": "calculon",
                "objectives": ["tokens_per_s"],
                "limits": {"fused_activation": [True]},
            }
        )
        place = tmp_path / str(number)
        codesign.run(asked, place, workers=1)
        rows = codesign.results(place).rows
        assert rows["samples_per_s"].tolist() == pytest.approx([space["best_sample_rate"]], rel=1e-12)
        assert rows["feasible"].tolist() == [space["feasible"]]


def test_points_are_proven_optima_of_edited_systems(tmp_path: Path) -> None:
    asked = study()
    codesign.run(asked, tmp_path, workers=1)
    found = codesign.results(tmp_path)
    assert found.complete
    assert found.rows["point"].tolist() == list(range(asked.points))
    for point in (0, 7, asked.points - 1):
        design = asked.design(point // 2)
        own = hardware.load("h100_80g_nvl8")
        capacity = (20, 80)[design.edits[1]]
        system = hardware.edited(
            own,
            {
                "networks.0.size": (4, 8)[design.edits[0]],
                "mem1.capacity_gib": capacity,
                "mem1.bandwidth_gb_per_s": own.mem1.bandwidth_gb_per_s * (capacity / own.mem1.capacity_gib) ** 0.5,
            },
        )
        size = (8, 16)[design.size]
        best = engine.best(
            ("megatron-126M", "gpt3-13B")[point % 2],
            system,
            num_procs=size,
            max_batch_size=(16, 4 * size)[design.batch],
            datatype="float16",
        )
        row = found.rows.iloc[point]
        if row["status"] == "infeasible":
            assert not best
            continue
        assert (row["id"], row["samples_per_s"], row["feasible"]) == (best["id"], best["sample_rate"], best.feasible)
        again = found.execution(point)
        assert again is not None
        assert again["sample_rate"] == best["sample_rate"]


def test_every_design_has_one_place_and_early_ones_are_spread() -> None:
    asked = study(
        edits=[
            {"parameter": "hbm_capacity", "from": 20, "to": 200, "count": 7, "scale": "log"},
            {"parameter": "net0_bandwidth", "from": 100, "to": 900, "count": 9},
            {"parameter": "net0_size", "values": [4, 8]},
        ],
        follow=[],
    )
    order = asked.designs_at(0, asked.places)
    assert sorted(order.tolist()) == list(range(asked.designs))
    assert [asked.designs_before(place) for place in range(asked.places + 1)] == [
        len(asked.designs_at(0, place)) for place in range(asked.places + 1)
    ]
    early = asked.positions(order[: 16 * asked.groups])  # 128 of 504
    for number, values in enumerate((7, 9, 2)):
        counts = Counter(early[f"edit {number}"].tolist())
        assert len(counts) >= values - 1, "all but one value is seen in the first fourth"


def test_a_study_survives_its_document() -> None:
    asked = study()
    again = codesign.Study.from_document(json.loads(json.dumps(asked.to_document())))
    assert again.key == asked.key
    assert again.to_document() == asked.to_document()
    assert study(costs={"usd": {"processor": 1}}).key == asked.key, "prices change no row"
    assert study(sizes=[8, 32]).key != asked.key


BAD: list[tuple[dict[str, Any], str]] = [
    ({"colour": 1}, r"unknown key 'colour'"),
    ({"models": []}, r"'models' has 0 entries; it must have at least 1"),
    ({"edits": [{"parameter": "hbm_capacity", "values": []}]}, r"has no values, so that the study would be empty"),
    ({"edits": [{"parameter": "hbm_capcity", "values": [1]}]}, r"no What-if parameter 'hbm_capcity'; did you mean"),
    ({"edits": [{"parameter": "procs", "values": [1]}]}, r"give its values as sizes"),
    ({"edits": [{"parameter": "hbm_capacity", "values": [1e9]}]}, r"it must be from 0.08 to 80,000"),
    ({"edits": [{"parameter": "net0_size", "values": [8.5]}]}, r"must be a whole number of GPUs"),
    ({"edits": [{"parameter": "hbm_capacity", "values": [80]}] * 2}, r"'hbm_capacity' is changed twice"),
    ({"edits": [], "follow": [{"parameter": "vector", "follows": "matrix"}]}, r"'matrix', which no edit changes"),
    (
        {
            "edits": [
                {"parameter": name, "from": 40, "to": 160, "count": 100_000}
                for name in ("hbm_capacity", "host_capacity")
            ]
        },
        r"has 80,000,000,000 points, and 10,000,000 at most can be run; take fewer of its 100,000 values of hbm_capac",
    ),
    (
        {"constraints": [{"quantity": "usd", "at_most": 1}, {"quantity": "usd", "at_least": 2}]},
        r"constraints on usd contradict each other: at least 2 and at most 1",
    ),
    ({"constraints": [{"quantity": "processors", "at_most": 4}]}, r"at most 4, but the sizes go from 8 to 16"),
    ({"costs": {"usd": {"processor": 0}}}, r"The price of a design with h100_80g_nvl8 would be 0"),
    ({"costs": {}}, r"Nothing says the price of h100_80g_nvl8; give costs.usd.processor"),
    ({"costs": {"preset": "h100"}}, r"no preset of costs 'h100'"),
    ({"costs": {"usd": {"processor": [3, 2]}}}, r"goes from 3 to 2; the first number must be the lower one"),
    ({"objectives": ["speed"]}, r"There is no quantity 'speed'"),
    ({"datatypes": ["float4"]}, r"does not compute in 'float4'; it has float8, float16"),
    ({"models": ["mixtral-8x7B"]}, r"which the cost model calculon cannot represent"),
    ({"models": ["../model.json"]}, r"is the path .*; put the document itself there"),
    ({"statistics": ["speed"]}, r"no statistic 'speed'"),
    ({"limits": {"tensor_par": "all"}}, r"Tensor parallel \(tensor_par\) cannot be 'all'"),
    ({"sizes": [8, 8]}, r"has one of its sizes twice"),
    ({"batches": [{}]}, r"must have either samples or per_processor"),
    ({"models": ["gpt3-13B"] * 2}, r"Two of the models are called 'gpt3-13B'; each must be there once"),
    ({"systems": ["h100_80g_nvl8"] * 2}, r"The system 'h100_80g_nvl8' is there twice"),
    ({"statistics": ["proc_mem_tier1_cap_req"] * 2}, r"has one of its statistics twice"),
    ({"edits": [{"parameter": "hbm_capacity", "from": 80, "to": 80.0000000000001, "count": 30}]}, r"too close for 30"),
    (
        {
            "edits": [{"parameter": "hbm_capacity", "values": [80, 800]}],
            "follow": [{"parameter": "hbm_bandwidth", "follows": "hbm_capacity", "exponent": 8}],
        },
        r"'hbm_bandwidth', which follows 'hbm_capacity': HBM bandwidth is .*; it must be from",
    ),
    ({"constraints": [{"quantity": "hbm_gib", "at_most": 40}]}, r"not kept; add proc_mem_tier1_cap_req to the stat"),
    ({"constraints": [{"quantity": "watts", "at_most": 1}]}, r"watts must be at most 1, but the designs have from 1\d"),
    (
        {
            "edits": [{"parameter": "host_capacity", "values": [512, 0]}],
            "costs": {"usd": {"processor": 0, "mem2_gib": 4}},
        },
        r"The price of a design with h100_80g_nvl8 would be 0",
    ),
]


@pytest.mark.parametrize(("wrong", "told"), BAD, ids=[told[:30] for _, told in BAD])
def test_what_cannot_be_is_told_in_one_sentence(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told) as refused:
        codesign.Study.from_document(
            {**SMALL, **({} if "follow" in wrong or "edits" not in wrong else {"follow": []}), **wrong}
        )
    assert type(refused.value).__module__.split(".")[0] in ("engine", "models", "hardware")
    assert "\n" not in str(refused.value)


def test_prices_and_powers_are_amounts_times_what_each_costs() -> None:
    asked = study(
        costs={
            "usd": {
                "processor": [10, 20],
                "tflops": 0.5,
                "mem1_gib": [1, 3],
                "mem2_gib": 0.25,
                "network_gb_per_s": [2, 4],
                "host": 1000,
                "switch": 5000,
            },
            "watts": {"processor": 700, "host": 100},
            "processors_per_host": 8,
            "processors_per_switch": 12,
            "pue": 1.5,
            "usd_per_processor_hour": [2, 3],
        }
    )
    numbers = np.arange(asked.designs)
    bill = codesign.bill(asked, numbers)
    last = bill.iloc[-1]  # 16 processors, 80 GiB, 8 per inner network
    each = 10 + 0.5 * 1000 + 1 * 80 + 0.25 * 512 + 2 * 450 + 4 * 50
    assert last["usd_low"] == 16 * each + 2 * 1000 + 2 * 5000
    assert last["usd_high"] == last["usd_low"] + 16 * (10 + 2 * 80)
    assert last["watts_low"] == (16 * 700 + 2 * 100) * 1.5
    assert (last["usd_per_h_low"], last["usd_per_h_high"]) == (32, 48)
    parts = codesign.breakdown(asked, asked.designs - 1)
    for column in ("usd_low", "usd_high", "watts_low", "watts_high"):
        assert parts[column].sum() == pytest.approx(last[column], rel=1e-15)


def test_counts_and_time_are_told_before_anything_runs(tmp_path: Path, shardscape: Any) -> None:
    file = tmp_path / "study.json"
    file.write_text(json.dumps(SMALL), encoding="utf-8")
    code, out, _ = shardscape("codesign", file, "--count")
    assert code == 0
    assert "32 points: 16 designs with 2 models each" in out
    assert list(tmp_path.iterdir()) == [file]
    code, out, told = shardscape("codesign", file, "--workers", "1", "--json")
    assert code == 0
    assert "32 points in" in told
    answer = json.loads(out)
    assert answer["complete"]
    assert answer["front"]
    code, again, told = shardscape("codesign", file, "--workers", "1", "--json")
    assert (code, again) == (0, out)
    assert "All 32 points were there" in told
    place = tmp_path / "study.results"
    code, out, _ = shardscape("codesign", place, "--csv", "--objective", "usd", "--objective", "watts")
    assert (code, out.count("\n")) == (0, 2)


def test_the_command_answers_whatever_a_study_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shardscape: Any
) -> None:
    """One thing alone, nothing that has a price, designs that were skipped, and nothing that runs."""
    monkeypatch.chdir(tmp_path)
    base = {**SMALL, "models": ["megatron-126M"], "edits": [], "follow": [], "sizes": [4], "batches": [4]}
    tiny, none = ([{"parameter": "hbm_capacity", "values": [value]}] for value in (80, 0.1))

    def told(more: dict[str, Any], *options: str) -> tuple[int, str, str]:
        Path("study.json").write_text(json.dumps({**base, **more}), encoding="utf-8")
        found: tuple[int, str, str] = shardscape(
            "codesign", "study.json", "--workers", "1", "--folder", str(len(list(tmp_path.iterdir()))), *options
        )
        return found

    for more in (
        {"objectives": ["usd"]},
        {"objectives": ["tokens_per_s"], "costs": {}},
        {"objectives": ["tokens_per_s"], "prune": True},
        {"objectives": ["tokens_per_s", "tokens_per_joule"], "prune": True, "edits": tiny},
    ):
        code, out, _ = told(more)
        assert (code, out.startswith(f"Best {more['objectives'][0]}\n")) == (0, True)  # type: ignore[index]
        code, out, _ = told(more, "--csv")
        assert (code, out.count("\n")) == (0, 2)
    code, out, _ = told({}, "--sensitivity", "0")
    assert (code, "Where one more dollar goes from design 0\nparameter " in out) == (0, True)
    code, out, _ = told({"edits": [*none, {"parameter": "host_capacity", "values": [0]}]})
    assert (code, out) == (1, "No design runs.\n")
    for more in ((), ("--json",)):  # the answers first
        code, out, text = told(
            {"edits": [*none, {"parameter": "host_capacity", "values": [0]}]}, "--sensitivity", "0", *more
        )
        assert (code, "Design 0 does not run" in text) == (2, True)
        assert json.loads(out)["best"] is None if more else out == "No design runs.\n"
    there = set(tmp_path.iterdir())
    for options, sentence in (
        (("--objective", "usdd"), "did you mean 'usd'"),
        (("--of", "gpt"), "no model 'gpt'"),
        (("--budget", "0"), "must be a number above 0"),
        (("--sensitivity", "99"), "no design 99"),
        (("--objective", "usd", "--budget", "5"), "--budget bounds"),
    ):
        code, _, text = told({}, *options)
        assert (code, sentence in text) == (2, True)
    assert set(tmp_path.iterdir()) == there, "what cannot be answered is told before it is computed"
    # A ready study goes on where it was, and its results are not taken for what is asked.
    with pytest.raises(codesign.StudyCancelled):
        codesign.run(codesign.ready_study("hbm_capacity"), "hbm_capacity.results", workers=1, cancel=lambda: True)
    (tmp_path / "hbm_capacity").mkdir()
    code, out, _ = shardscape("codesign", "hbm_capacity", "--count")
    assert (code, out[:10]) == (0, "54 points:")
    monkeypatch.setattr(
        codesign,
        "run",
        lambda study, place, **how: asked.append(place) or codesign.Progress(54, 54, 54, 0, 0, 0, 0, 0, 0.0),
    )
    asked: list[str] = []
    shardscape("codesign", "hbm_capacity")
    assert asked == ["hbm_capacity.results"]


def test_small_parts_become_one_whatever_stops_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, place, left = study(), ResultFolder(tmp_path), []
    monkeypatch.setattr("engine.codesign.running.FIRST_TASK", 1)
    # The power goes when the large part is written, and the small ones are still there.
    monkeypatch.setattr(ResultFolder, "remove", lambda self, name: left.append(name))
    # Another run is complete while this one writes, and sweeps away a draft that it is at.
    replace, gone = Path.replace, []

    def swept(draft: Path, target: Path) -> Path:
        if draft.parent.name == "parts" and not gone:
            gone.append(draft.name)
            place.sweep()
        return replace(draft, target)

    monkeypatch.setattr(Path, "replace", swept)
    codesign.run(asked, tmp_path, workers=1, task_seconds=ONE_POINT)
    assert gone
    assert len(left) == len(place.parts()) - 1 > 2
    found = codesign.results(tmp_path)
    assert found.complete
    monkeypatch.undo()
    (tmp_path / "parts" / ".000000000003-000001.parquet.41.00c0ffee").write_bytes(b"PAR")  # of a killed writer
    again = codesign.run(asked, tmp_path, workers=1)
    assert (again.before, again.tasks) == (again.total, 0)
    assert os.listdir(tmp_path / "parts") == [f"{0:012d}-{asked.places:06d}.parquet"]
    pd.testing.assert_frame_equal(codesign.results(tmp_path).rows, found.rows, check_exact=True)
    # A reader that listed the small ones finds the large one.
    (name,) = (part[2] for part in place.parts())
    listed = iter([[(0, 1, "000000000000-000001.parquet")], [(0, asked.places, name)]])
    monkeypatch.setattr(ResultFolder, "parts", lambda self: next(listed))
    assert codesign.results(tmp_path).complete
