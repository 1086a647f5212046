"""Prices with a low, a middle and a high value, what is free, and what the presets say of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import codesign
from tests.engine.codesign.small_study import study

EDITS: dict[str, Any] = {
    "models": ["megatron-126M"],
    "follow": [],
    "sizes": [8, 16],
    "batches": [16],
    "edits": [
        *({"parameter": name, "values": [0.5, 1, 2], "relative": True} for name in ("net0_bandwidth", "hbm_bandwidth")),
        {"parameter": "net0_size", "values": [4, 8, 16]},
    ],
}


def test_the_middle_is_what_is_given_or_half_way() -> None:
    usd = {"processor": [10, 11, 40], "mem1_gib": [1, 3], "tflops_16_bit": 2, "network_size": [[1, 2, 9]]}
    asked = study(**{**EDITS, "costs": {"usd": usd}})
    bill = codesign.bill(asked, np.arange(asked.designs))
    last = bill.iloc[-1]  # 16 processors of 80 GiB and 1,000 TFLOP/s in one domain
    for end, processor, gib, domain in (("low", 10, 1, 1), ("middle", 11, 2, 2), ("high", 40, 3, 9)):
        assert last[f"usd_{end}"] == 16 * (processor + 80 * gib + 1000 * 2 + 16 * domain)
        assert codesign.breakdown(asked, asked.designs - 1)[f"usd_{end}"].sum() == last[f"usd_{end}"]
    first = bill.iloc[0]  # 8 processors in domains of 4
    assert first["usd_middle"] == 8 * (11 + 160 + 2000 + 4 * 2)
    # A processor costs the same whatever it computes in.
    eight = study(**{**EDITS, "costs": {"usd": usd}, "datatypes": ["float8", "float16"]})
    prices = codesign.bill(eight, np.arange(eight.designs))["usd_middle"].to_numpy().reshape(2, -1)
    assert (prices[0] == prices[1]).all()
    for wrong, told in (
        ([1], "has 1 numbers"),
        ([1, 2, 3, 4], "has 4 numbers"),
        ([1, 3, 2], "they must rise"),
        ([2, 1], "first number must be the lower"),
    ):
        with pytest.raises(codesign.StudyError, match=told):
            study(costs={"usd": {"processor": wrong}})


def test_what_is_free_is_said_above_the_front(tmp_path: Path, shardscape: Any) -> None:
    old = study(**{**EDITS, "costs": {"preset": "h100_2024"}})
    assert codesign.unpriced(old) == ["HBM bandwidth", "NVLink bandwidth", "NVLink domain size"]
    new = study(**{**EDITS, "costs": {"preset": "h100_2026"}})
    assert codesign.unpriced(new) == codesign.unpriced(new, "watts") == []
    # What all designs have alike is no choice, and the outermost network has every processor of any machine.
    assert codesign.unpriced(study(**{**EDITS, "edits": [], "costs": {"preset": "h100_2024"}})) == []
    place = tmp_path / "results"
    codesign.run(old, place, workers=1)
    code, out, _ = shardscape("codesign", place)
    said = "No price given for HBM bandwidth, NVLink bandwidth, NVLink domain size: the front treats them as free."
    assert (code, out.index(said) < out.index("Designs that none beats")) == (0, True)
    code, out, _ = shardscape("codesign", place, "--json")
    assert json.loads(out)["unpriced"]["usd"] == codesign.unpriced(old)
    # Other prices answer in the same folder, and with a price the largest is no longer free.
    priced = codesign.results(place).otherwise(costs={"preset": "h100_2026"})
    best = [
        [each.best("tokens_per_s_per_usd", at=at) for at in ("middle", "high")]
        for each in (codesign.results(place), priced)
    ]
    assert [[row and row["net0_bandwidth"] for row in rows] for rows in best] == [[2.0, 2.0], [1.0, 0.5]]


def test_presets_have_a_source_of_every_price_and_middles_of_their_own() -> None:
    for name in codesign.preset_names():
        costs = codesign.preset(name)
        for unit in ("usd", "watts"):
            for item in getattr(costs, unit).model_fields_set:
                assert costs.sources[f"{unit}.{item}"], f"{name}: {unit}.{item}"
    usd = codesign.preset("h100_2026").usd
    assert all(
        len(getattr(usd, name)) == 3 for name in ("processor", "tflops_16_bit", "mem1_gb_per_s", "mem2_gb_per_s")
    )
    # An H100 costs what it is sold for, and its parts what they cost the maker.
    one = study(models=["megatron-126M"], edits=[], follow=[], sizes=[8], batches=[16], costs={"preset": "h100_2026"})
    parts = codesign.breakdown(one, 0).set_index("item")
    own = [
        "Processors",
        "Matrix peak in 16 bit",
        "HBM capacity",
        "HBM bandwidth",
        "NVLink bandwidth",
        "NVLink domain size",
    ]
    low, middle = (parts.loc[own, f"usd_{end}"].sum() / 8 for end in ("low", "middle"))
    assert (low, middle) == (pytest.approx(3_320, rel=0.1), pytest.approx(27_500, rel=0.1))


def test_costs_come_back_from_their_shortest_document() -> None:
    costs = {"preset": "h100_2026", "usd": {"mem1_gb_per_s": [1, 2, 5], "network_size": [[1, 2], [3, 4, 5]]}}
    asked = study(costs=costs)
    said = codesign.said_of(asked.document.costs)
    assert said["usd"] == {"mem1_gb_per_s": [1, 2, 5], "network_size": [[1, 2], [3, 4, 5]]}
    assert study(costs=said).document.costs == asked.document.costs
    # Unset, new items are no part of what tells studies apart whose designs are skipped by price.
    pruned = {"prune": True, "costs": {"usd": {"processor": 1}}}
    assert study(**pruned).key == study(**{**pruned, "costs": {"usd": {"processor": 1, "tflops_16_bit": 0}}}).key
    assert study(**pruned).key != study(**{**pruned, "costs": {"usd": {"processor": 1, "tflops_16_bit": 1}}}).key
