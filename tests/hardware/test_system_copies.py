"""Edited copies and variants: what they change, what they remember, and which marks they lose."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hardware
from tests.texts import any_text

BASE = hardware.load("h100_80g_sxm")


def test_a_copy_remembers_its_original_and_every_change() -> None:
    copied = hardware.edited(BASE, {"mem1.capacity_gib": 96.0, "networks.1.size": 1024}, name="mine", title="Mine")
    assert (copied.name, copied.title, copied.derived_from) == ("mine", "Mine", "h100_80g_sxm")
    assert copied.mem1.capacity_gib == 96
    assert [(each.field, each.old, each.new) for each in copied.changes] == [
        ("mem1.capacity_gib", BASE.mem1.capacity_gib, 96),
        ("networks.1.size", 65536, 1024),
    ]
    assert BASE.changes == ()
    assert hardware.load_document(json.loads(json.dumps(hardware.to_document(copied)))) == copied


def test_changes_count_from_the_original_however_often_it_is_edited() -> None:
    once = hardware.edited(BASE, {"mem1.bandwidth_gb_per_s": 4000, "networks.0.size": 16}, name="mine")
    twice = hardware.edited(once, {"mem1.bandwidth_gb_per_s": 5000, "networks.0.size": 8})
    assert (twice.name, twice.derived_from) == ("mine", "h100_80g_sxm")
    assert [(each.field, each.old, each.new) for each in twice.changes] == [("mem1.bandwidth_gb_per_s", 3350, 5000)]


def test_nothing_changed_is_no_change() -> None:
    table = [list(each) for each in BASE.mem1.mb_efficiency]
    copied = hardware.edited(BASE, {"mem1.bandwidth_gb_per_s": 3350, "mem1.mb_efficiency": table})
    assert copied.changes == ()
    assert copied.name == "h100_80g_sxm (edited)"
    assert copied.assumptions == BASE.assumptions


@pytest.mark.parametrize(
    ("path", "value", "lost"),
    [
        ("networks.0.efficiency", 0.8, {"networks.0.efficiency"}),
        ("matrix.float16.gflops_efficiency", [[0, 0.8]], {"matrix.float16.gflops_efficiency"}),
        ("vector.float8.tflops", 100.0, {"vector.float8.tflops"}),
        ("processing_mode", "roofline", {"processing_mode"}),
        ("mem1.capacity_gib", 90.0, set()),
    ],
)
def test_a_replaced_value_is_no_longer_assumed_and_the_others_still_are(path: str, value: Any, lost: set[str]) -> None:
    before = {each for each, _, _ in BASE.assumed_values()}
    after = {each for each, _, _ in hardware.edited(BASE, {path: value}).assumed_values()}
    assert before - after == lost
    assert after <= before


def test_a_value_inside_an_assumed_one_takes_only_itself_out() -> None:
    copied = hardware.edited(BASE, {"networks.0.operations.all_reduce.scalar": 1.0})
    marks = {each.field for each in copied.assumptions if each.field.startswith("networks.0.operations")}
    assert marks == {
        "networks.0.operations.p2p",
        "networks.0.operations.reduce_scatter",
        "networks.0.operations.all_gather",
        "networks.0.operations.all_reduce.offset",
    }


def test_a_replaced_value_is_no_longer_unverified() -> None:
    assert "matrix.float32.tflops" in BASE.unverified_fields
    copied = hardware.edited(BASE, {"matrix.float32.tflops": 60.0})
    assert set(BASE.unverified_fields) - set(copied.unverified_fields) == {"matrix.float32.tflops"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"mem1.capacity": 5}, "The system has no field 'capacity' in 'mem1', so it cannot be changed; did you mean"),
        ({"mem1.capacity_gib.x": 5}, "has no field 'x' in 'mem1.capacity_gib', so it cannot be changed."),
        ({"networks.7.size": 5}, "has no field '7' in 'networks', so it cannot be changed; there are 0, 1."),
        ({"networks.-1.size": 5}, "has no field '-1' in 'networks'"),
        ({"": 5}, "has no field ''"),
        ({5: 5}, "has no field ''"),
        ({"mem1.capacity_gib": -1}, "h100_80g_sxm (edited): 'mem1.capacity_gib' is -1; it must be a number from 0"),
        ({"mem1.capacity_gib": None}, "'mem1.capacity_gib' is null"),
        ({"name": "x"}, "has no field 'name'"),
        ({"changes": []}, "has no field 'changes'"),
    ],
)
def test_what_cannot_be_changed_is_said(changes: Any, words: str) -> None:
    with pytest.raises(hardware.SystemFileError) as caught:
        hardware.edited(BASE, changes)
    assert words in str(caught.value)
    assert str(caught.value).endswith(".")


PATHS = [path for path, _ in BASE.values_at("*.*.*")]


@given(st.sampled_from(PATHS), st.none() | st.booleans() | st.floats() | any_text())
def test_any_change_is_a_system_or_a_clear_sentence(path: str, value: Any) -> None:
    with contextlib.suppress(hardware.SystemFileError):
        copied = hardware.edited(BASE, {path: value})
        assert hardware.load_document(hardware.to_document(copied)) == copied


# --- variants

VARIANTS = [name for name in hardware.names(with_variants=True) if "@" in name]


def test_the_published_interconnects_are_there() -> None:
    assert len(VARIANTS) >= 18
    assert hardware.variant_names("a100_80g_sxm") == ["a100_80g_sxm@50g", "a100_80g_sxm@100g"]
    assert hardware.variant_names("h100_80g_nvl8") == []
    assert hardware.load("a100_80g_sxm@50g").networks[1].bandwidth_gb_per_s == 6.25
    assert hardware.load("h100_80g_sxm@200g").networks[1].bandwidth_gb_per_s == 25
    assert hardware.load("gb200_186g_nvl72@nvl36").networks[0].size == 36
    assert set(hardware.names()) == set(hardware.names(with_variants=True)) - set(VARIANTS)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_a_system_that_says_what_it_changes(name: str) -> None:
    system = hardware.load(name)
    base = hardware.load(name.partition("@")[0])
    assert system.name == name
    assert system.derived_from == base.name
    assert system.changes
    assert system.title != base.title
    assert system.source.startswith(base.source)
    assert hardware.load_document(hardware.to_document(system)) == system
    assert hardware.load(name) is system
    assert (system.matrix, system.mem1, system.accelerator) == (base.matrix, base.mem1, base.accelerator)
    for field in system.unverified_fields:
        assert list(system.values_at(field.partition(":")[0]))


def test_unknown_variants_are_named() -> None:
    words = r"no variant '70g'; did you mean '50g'.*there are a100_80g_sxm@50g"
    with pytest.raises(hardware.SystemFileError, match=words):
        hardware.load("a100_80g_sxm@70g")
    with pytest.raises(hardware.SystemFileError, match=r"'l40s_48g' has no variant '50g'; it has none"):
        hardware.load("l40s_48g@50g")
    with pytest.raises(hardware.SystemFileError, match="no system named 'nothing@50g'"):
        hardware.load("nothing@50g")


def test_a_path_may_hold_the_separator(tmp_path: Any) -> None:
    file = tmp_path / "mine@home.json"
    file.write_text(json.dumps(hardware.to_document(BASE)))
    assert hardware.load(str(file)) == BASE
