"""The replay gives the action lists of real programs, and what follows from them, exactly."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.executions.layer_splits import LayerSplitError, even_split, megatron_split, torchtitan_split
from engine.simulate import NAMES, ScheduleError, replay, replay_many
from engine.simulate.exports import chrome_trace, torch_csv
from engine.simulate.imports import read_torch_csv
from engine.simulate.residence import held_over_time, shared_peaks

GOLDEN = Path(__file__).parent.parent.parent / "reference" / "schedules" / "golden.json"
EQUAL = {"F": 1.0, "B": 1.0, "W": 1.0}


@functools.cache
def golden() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return found


def cases(schedule: str | None = None) -> list[dict[str, Any]]:
    return [case for case in golden()["cases"] if schedule in (None, case["schedule"])]


def replayed(case: dict[str, Any], **changes: Any) -> Any:
    asked = {
        "stages": case["P"],
        "microbatches": case["M"],
        "chunks": case["stages"] // case["P"],
        "times": case["times"],
        "sends": case["comm"],
        "group": case.get("group"),
    }
    return replay(case["schedule"], **asked | changes)


@pytest.mark.parametrize("name", sorted({case["schedule"] for case in cases()}))
def test_golden_lists_and_figures(name: str) -> None:
    for case in cases(name):
        found = replayed(case)
        assert found.order.digest == case["ranks_sha256"], case["id"]
        assert found.makespan == pytest.approx(case["makespan"], abs=1e-6), case["id"]
        assert found.longest_span == pytest.approx(case["longest_span"], abs=1e-6), case["id"]
        assert found.bubble_fraction == pytest.approx(case["bubble_fraction"], abs=1e-6), case["id"]
        for figure in ("peak_activations", "peak_if_freed_at_B", "peak_pending_W", "messages_sent"):
            assert getattr(found, figure) == case[figure], (case["id"], figure)


def test_every_idle_second_has_a_cause_and_the_critical_path_is_the_makespan() -> None:
    for case in cases():
        found = replayed(case)
        idle = found.idle
        waited = np.bincount(idle["rank"], weights=idle["end"] - idle["start"], minlength=case["P"])
        assert waited == pytest.approx(found.makespan - found.busy, abs=1e-6), case["id"]
        path = found.critical_path
        spent = sum(float(found.timing.duration[each]) for each in path.entries)
        assert spent + path.counts["c"] * case["comm"]["c"] == pytest.approx(found.makespan, abs=1e-6), case["id"]
        entries = sum(count for kind, count in path.counts.items() if kind != "c")
        assert entries == len(path), case["id"]


def test_pictures_of_a_plain_schedule() -> None:
    found = replay(
        "1f1b", stages=2, microbatches=2, times={"F": 1, "B": 1, "W": 1}, sends={"mode": "overlap", "c": 0.5}
    )
    assert found.ranks == ["F0 F1 BW0 BW1", "F0 BW0 F1 BW1"]
    assert found.makespan == 10.0
    assert found.critical_path.counts == {"F": 3, "B": 0, "W": 0, "BW": 3, "FB": 0, "c": 2}
    first = found.idle[found.idle["rank"] == 0]
    assert list(first["cause"]) == ["gradient", "latency", "gradient", "latency"]
    assert set(first["of"]) == {1}
    assert list(found.idle[found.idle["rank"] == 1]["cause"]) == ["fill", "drain"]
    held = held_over_time(found.order, found.timing)
    assert held[held["rank"] == 0]["held"].max() == 2
    assert held.groupby("rank")["held"].last().tolist() == [0, 0]
    events = chrome_trace(found)
    assert events[0] == {"name": "F0.0", "ph": "X", "ts": 0.0, "dur": 1e6, "pid": 0, "tid": 0}
    assert len(events) == len(found.tasks) == 8


def test_torch_loads_what_is_exported() -> None:
    found = replay("dualpipev", stages=2, microbatches=4, times=EQUAL)
    rows = torch_csv(found).splitlines()
    assert rows[0] == (
        "0F0,0F1,0F2,3F0,3I0,3W0,3F1,(0F3;3B1)OVERLAP_F_B,(3F2;0B0)OVERLAP_F_B,3B2,(3F3;0B1)OVERLAP_F_B,3B3,0I2,0W2,0I3,0W3"
    )
    again = read_torch_csv(torch_csv(found))
    assert replay(again, stages=2, microbatches=4, times=EQUAL, placement="v").makespan == found.makespan
    with pytest.raises(ScheduleError, match=r"row 1, cell 2.*0X1"):
        read_torch_csv("0F0,0X1\n")


def test_shares_of_activations_lie_between_both_conventions() -> None:
    order = replay("zb-h1", stages=4, microbatches=8, times=EQUAL).order
    assert shared_peaks(order, 1.0) == [4, 4, 4, 4]
    assert shared_peaks(order, 0.0) == [4, 3, 2, 1]
    between = shared_peaks(order, 0.5)
    assert all(low <= each <= high for low, each, high in zip([4, 3, 2, 1], between, [4, 4, 4, 4], strict=True))


def test_many_executions_are_one_replay() -> None:
    rng = np.random.default_rng(3)
    for name, chunks in (("1f1b", 1), ("interleaved", 2), ("zbv", 2), ("dualpipev", 2), ("zb-h1", 1)):
        times = {kind: rng.uniform(0.5, 1.5, (40, 4 * chunks)) for kind in "FBW"}
        latency = rng.uniform(0.0, 0.3, 40)
        many = replay_many(
            name, stages=4, microbatches=12, chunks=chunks, times=times, sends={"mode": "overlap", "c": latency}
        )
        for each in (0, 17, 39):
            own = {kind: values[each].tolist() for kind, values in times.items()}
            one = replay(
                name,
                stages=4,
                microbatches=12,
                chunks=chunks,
                times=own,
                sends={"mode": "overlap", "c": float(latency[each])},
            )
            assert many.makespan[each] == pytest.approx(one.makespan, rel=1e-12)
            assert many.longest_span[each] == pytest.approx(one.longest_span, rel=1e-12)
            assert many.bubble_fraction[each] == pytest.approx(one.bubble_fraction, abs=1e-12)


def test_planned_orders_keep_their_memory_limit() -> None:
    for limit in (4, 6, 8):
        found = replay("zb-auto-1p", stages=4, microbatches=16, times=EQUAL, memory_limit=limit)
        assert max(shared_peaks(found.order, 0.5)) <= limit
    wide, tight = (replay("zbv-auto", stages=4, microbatches=16, times=EQUAL, memory_limit=limit) for limit in (16, 8))
    assert wide.makespan <= tight.makespan


def test_calculon_pads_the_last_group() -> None:
    full = replay("interleaved", stages=4, microbatches=8, chunks=2, times=EQUAL)
    assert replay("calculon-1f1b", stages=4, microbatches=8, chunks=2, times=EQUAL).ranks == full.ranks
    short = replay("calculon-1f1b", stages=4, microbatches=6, chunks=2, times=EQUAL)
    # (v-1)(P - M mod P) chunk times more than an even interleaving would take.
    assert short.makespan == (6 * 2 + 3 + 2) * 3.0
    assert len(short.tasks) == 2 * 8 * 6


def test_distir_has_no_cap_on_its_warm_up() -> None:
    found = replay("distir-1f1b", stages=4, microbatches=16, times=EQUAL)
    assert found.peak_activations == [7, 5, 3, 1]
    assert found.makespan == (16 + 3) * 3.0


REFUSED = [
    (("interleaved", 4, 10, {"chunks": 2, "group": 4}), "Megatron refuses M mod g = 2.*group=5"),
    (("interleaved", 4, 11, {"chunks": 2}), "Megatron refuses M mod g = 3.*torch refuses"),
    (("interleaved", 4, 8, {"chunks": 2, "group": 2}), "Megatron refuses a group of 2"),
    (("interleaved", 4, 8, {}), "two chunks"),
    (("interleaved-ep-overlap", 4, 8, {}), "virtual stages"),
    (("interleaved-zb", 4, 11, {"chunks": 2}), "torch refuses 11 microbatches"),
    (("dualpipe", 4, 7, {}), "even"),
    (("dualpipe", 4, 6, {}), "at least 2P = 8"),
    (("dualpipev", 4, 7, {}), "at least 2P = 8"),
    (("zb-h2", 4, 6, {}), "at least 2P-1 = 7"),
    (("1f1b-overlap", 4, 6, {}), "at least 2P-1 = 7"),
    (("chimera", 4, 6, {}), "M = P or M = 2P"),
    (("zbv", 4, 8, {"chunks": 3}), "2 chunks per rank"),
    (("gpipe", 4, 8, {"group": 4}), "no group size"),
    (("1f1b", 4, 8, {"memory_limit": 3}), "no memory limit"),
    (("1f1b", 4, 10_000_000, {}), "at most 500,000 are replayed"),
    (("1f1b", 4, 0, {}), "microbatches must be a whole number"),
    (("1f1b", True, 8, {}), "stages must be a whole number"),
    (("1f1b", 4, 8.5, {}), "microbatches must be a whole number"),
    (("nothing", 4, 8, {}), "no schedule 'nothing'"),
    (("1f1b", 2, 2, {"times": {"F": 1}}), "must have F and B"),
    (("1f1b", 2, 2, {"times": {"F": 1, "B": float("nan"), "W": 1}}), "B must be finite"),
    (("1f1b", 2, 2, {"times": {"F": -1, "B": 1, "W": 1}}), "not negative"),
    (("1f1b", 2, 2, {"times": {"F": [1, 2, 3], "B": 1, "W": 1}}), "2 stages"),
    (("1f1b", 2, 2, {"times": {"F": "x", "B": 1, "W": 1}}), "F must be a duration"),
    (("1f1b", 2, 2, {"times": {"F": 1, "B": 1, "X": 1}}), "no duration 'X'"),
    (("1f1b", 2, 2, {"sends": {"mode": "fast", "c": 1}}), "none, overlap or block"),
    (("1f1b", 2, 2, {"sends": {"mode": "block", "c": -1}}), "not negative"),
    (("zb-auto-1p", 2, 4, {"times": {"F": [1, 2], "B": 1, "W": 1}}), "unequal stages"),
    (("zb-auto-1p", 4, 8, {"memory_limit": 0.5}), "at least 1"),
    ((["F0 BW0"], 2, 1, {}), "1 ranks; 2 were said"),
    ((["F0 BW0", "F0"], 2, 1, {}), "BW of microbatch 0 at stage 1 is missing"),
    ((["F0 F0 BW0", "F0 BW0"], 2, 1, {}), "done twice"),
    ((["F0 BW0 W0", "F0 BW0"], 2, 1, {}), "whole and in parts"),
    ((["F0 BW0", "F1 BW0"], 2, 1, {}), "not of this pipeline"),
    ((["F0 BW0", "F0.0 BW0"], 2, 1, {}), "stage is on rank 0"),
    ((["F0 XX", "F0 BW0"], 2, 1, {}), "'XX' is no action"),
    ((["BW0 F0", "F0 BW0"], 2, 1, {}), "waits for ever.*Rank 0.*BW0"),
    ((["F0 BW0 F1 BW1", "F1 F0 BW1 BW0"], 2, 2, {}), "waits for ever.*first to be blocked"),
    ((["F0+BW0", "F0 BW0"], 2, 1, {}), "waits for ever|runs together"),
]


@pytest.mark.parametrize(("asked", "words"), REFUSED, ids=[str(number) for number in range(len(REFUSED))])
def test_what_cannot_be_is_refused_in_words(asked: Any, words: str) -> None:
    schedule, stages, microbatches, more = asked
    with pytest.raises(ScheduleError, match=words) as told:
        replay(schedule, **{"stages": stages, "microbatches": microbatches, "times": EQUAL} | more)
    assert len(str(told.value)) < 500


def test_an_order_of_ones_own_is_replayed_like_the_rule_that_it_is() -> None:
    for name, placement, chunks in (
        ("1f1b", None, 1),
        ("interleaved", None, 2),
        ("zbv", "v", 2),
        ("dualpipe", "bidir", 1),
    ):
        found = replay(name, stages=4, microbatches=8, chunks=chunks, times=EQUAL)
        own = replay(found.ranks, stages=4, microbatches=8, chunks=chunks, times=EQUAL, placement=placement)
        assert own.makespan == found.makespan
        assert own.peak_activations == found.peak_activations


def test_numbers_of_a_table_are_as_good_as_others() -> None:
    numbers: dict[str, Any] = {"stages": np.int64(4), "microbatches": np.int32(8), "chunks": np.int8(2)}
    found = replay("zbv", **numbers, times={"F": np.float64(1), "B": 1, "W": 1})
    assert found.ranks == replay("zbv", stages=4, microbatches=8, times=EQUAL).ranks
    assert list(found.critical_path) == list(found.critical_path.entries)


def test_numbers_that_one_framework_refuses_are_remarked() -> None:
    assert "Megatron refuses M mod g = 2" in " ".join(
        replay("interleaved", stages=4, microbatches=8, chunks=2, group=6, times=EQUAL).remarks
    )
    assert "torch refuses M < P" in replay("1f1b", stages=4, microbatches=2, times=EQUAL).remarks[0]


def test_every_schedule_says_what_it_is() -> None:
    assert len(NAMES) == len(set(NAMES)) >= 20
    assert (
        replay("ZB1P", stages=2, microbatches=4, times=EQUAL).rule
        is replay("zb_h1", stages=2, microbatches=4, times=EQUAL).rule
    )


def test_layers_are_cut_as_the_frameworks_cut_them() -> None:
    for split in golden()["layer_splits"]:
        try:
            if split["program"] == "megatron":
                found: list[int] | None = megatron_split(
                    split["layers"],
                    split["P"],
                    virtual=split["virtual"],
                    first=split["first"],
                    last=split["last"],
                    account_for_embedding=split["account_for_embedding"],
                    account_for_loss=split["account_for_loss"],
                )
            else:
                found = torchtitan_split(
                    split["layers"],
                    split["stages"],
                    input_weight=split["input_weight"],
                    output_weight=split["output_weight"],
                )
        except LayerSplitError:
            found = None
        assert found == split["layers_per_stage"], split
    assert even_split(10, 4) == [3, 3, 2, 2]
