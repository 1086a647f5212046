"""Reading systems: both formats, and one clear sentence for whatever is wrong or could never run."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import hardware
from tests.texts import any_text

CALCULON = json.loads((Path(__file__).parent / "calculon" / "h100_80g_nvl8.json").read_text())
OURS = hardware.to_document(hardware.load("h100_80g_sxm"))


def fault(document: object, where: str = "mine.json") -> str:
    with pytest.raises(hardware.SystemFileError) as caught:
        hardware.load_document(document, where)
    message = str(caught.value)
    assert message.startswith(where)
    assert message.endswith(".")
    assert "\n" not in message
    assert "pydantic" not in message
    assert len(message) < 1000
    return message


def changed(base: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy of `base` with the value at a dotted path replaced, or removed where `value` is `...`."""
    document: dict[str, Any] = copy.deepcopy(base)
    place: Any = document
    *parents, last = path.split(".")
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]
    key = int(last) if isinstance(place, list) else last
    if value is ...:
        del place[key]
    else:
        place[key] = value
    return document


@pytest.mark.parametrize("base", [OURS, CALCULON])
def test_loading_leaves_the_document_alone(base: dict[str, Any]) -> None:
    before = copy.deepcopy(base)
    hardware.load_document(base)
    assert base == before


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        # could never run
        ("matrix.float16.gflops_efficiency", [[128, 0.9], [1, 0.5]], "does not reach down to 0"),
        ("vector.float16.gflops_efficiency", [[16, 0.9]], "'vector.float16.gflops_efficiency' does not reach down"),
        ("mem1.mb_efficiency", [[1, 0.5]], "'mem1.mb_efficiency' does not reach down to 0"),
        ("mem2.mb_efficiency", [], "'mem2.mb_efficiency' has 0 entries; it must have at least 1"),
        ("matrix.float16.gflops_efficiency", [[0, 0]], "is [0, 0]; it must be a pair [threshold, efficiency]"),
        ("matrix.float16.gflops_efficiency", [[0, 1.01]], "the efficiency from 1e-9 to 1"),
        ("matrix.float16.gflops_efficiency", [[0, -0.1]], "the efficiency from 1e-9 to 1"),
        ("matrix.float16.gflops_efficiency", [[-1, 0.1]], "the threshold from 0 to 1e12"),
        ("matrix.float16.gflops_efficiency", [[2e12, 0.1], [0, 0.1]], "the threshold from 0 to 1e12"),
        ("matrix.float16.gflops_efficiency", [[0, 0.1, 2]], "it must be a pair"),
        ("matrix.float16.gflops_efficiency", [0, 0.1], "'matrix.float16.gflops_efficiency[0]' is 0; it must be a pair"),
        ("matrix.float16.gflops_efficiency", {"0": 1}, "it must be a list"),
        ("matrix.float16.gflops_efficiency", [[1, 0.9], [16, 0.9], [0, 0.1]], "has threshold 16 after 1"),
        ("matrix.float16.gflops_efficiency", [[1, 0.9], [1, 0.8], [0, 0.1]], "must strictly decrease"),
        ("mem1.capacity_gib", 0, "has a mem1 of 0 GiB; nothing could run"),
        ("mem1.bandwidth_gb_per_s", 0, "'mem1' has a bandwidth of 0 GB/s behind a capacity of 79.6475 GiB"),
        ("mem2.bandwidth_gb_per_s", 0, "'mem2' has a bandwidth of 0 GB/s behind a capacity of 256 GiB"),
        ("mem2.bandwidth_gb_per_s", 1e-300, "'mem2' has a bandwidth of 1e-300 GB/s behind"),
        ("networks", [], "'networks' has 0 entries; it must have at least 1"),
        ("networks.0.bandwidth_gb_per_s", 0, "'networks[0].bandwidth_gb_per_s' is 0; it must be a number from 1e-09"),
        ("networks.0.efficiency", 0, "'networks[0].efficiency' is 0; it must be a number from 1e-09 to 1"),
        ("networks.0.efficiency", 1.5, "it must be a number from 1e-09 to 1"),
        ("networks.1.size", 0, "'networks[1].size' is 0; it must be a whole number from 1 to"),
        ("networks.1.size", 8.0, "it must be a whole number"),
        ("networks.0.processor_usage", 1, "'networks[0].processor_usage' is 1; it must be a number from 0"),
        ("networks.0.latency_s", -1e-6, "'networks[0].latency_s' is -1e-06; it must be a number from 0"),
        ("networks.0.must_be_filled", 1, "'networks[0].must_be_filled' is 1; it must be true or false"),
        ("networks.0.must_be_filled", "false", "is 'false'; it must be true or false"),
        ("networks.0.operations.all_gather", ..., "'networks[0].operations' lacks 'all_gather'; it must have p2p"),
        ("networks.0.operations.gossip", {"scalar": 1}, "has the unknown operation 'gossip'; it must have p2p"),
        ("networks.0.operations.p2p", [1, 0, 0], "'networks[0].operations.p2p' is [1, 0, 0]; it must be an object"),
        ("networks.0.operations.p2p.scalar", 0, "'networks[0].operations.p2p.scalar' is 0; it must be a number from"),
        ("networks.0.operations.p2p.offset", -3, "it must be a number from -2"),
        ("matrix.float16.tflops", 0, "'matrix.float16.tflops' is 0; it must be a number from 1e-09"),
        ("matrix.float16.tflops", True, "'matrix.float16.tflops' is true"),
        ("matrix.float16.tflops", "989", "'matrix.float16.tflops' is '989'"),
        ("matrix.float16.tflops", float("nan"), "'matrix.float16.tflops' is nan"),
        ("matrix.float16.tflops", 10**400, "'matrix.float16.tflops' is "),
        ("matrix", {}, "'matrix' has no datatype"),
        ("matrix", {"": OURS["matrix"]["float16"]}, "is ''; it must be text of 1 to 40 characters"),
        ("matrix", {"float16": {}}, "(and 1 more fault)"),
        ("vector.float8", ..., "has the matrix datatypes bfloat16, float16, float32, float8 but the vector datatypes"),
        ("processing_mode", "fast", "'processing_mode' is 'fast'; it must be 'roofline' or 'no_overlap'"),
        ("processing_mode", ["roofline"], "it must be 'roofline' or 'no_overlap'"),
        # misspelt, missing, of another version
        ("mem1.capacity_gb", 80, "unknown key 'mem1.capacity_gb'; did you mean 'capacity_gib'; accepted keys"),
        ("mem1.GiB", 80, "unknown key 'mem1.GiB'"),
        ("mem1.capacity_gib", ..., "key 'mem1.capacity_gib' is missing; accepted keys here: capacity_gib"),
        ("networks.1.latency", 1, "unknown key 'networks[1].latency'; did you mean 'latency_s'"),
        ("colour", "x", "unknown key 'colour'; accepted keys here: name, title"),
        ("networks", ..., "key 'networks' is missing"),
        ("networks", {}, "'networks' is {}; it must be a list"),
        ("networks.0", 5, "'networks[0]' is 5; it must be an object with named keys"),
        ("mem1", None, "'mem1' is null; it must be an object"),
        ("format", "shardscape-system/7", "written by a newer Shardscape; this one reads format 1"),
        ("format", "shardscape-model/1", "it must be 'shardscape-system/1' for a system"),
        ("name", "", "'name' is ''; it must be text of 1 to 255"),
    ],
)
def test_each_fault_gets_its_sentence(path: str, value: object, words: str) -> None:
    assert words in fault(changed(OURS, path, value))


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("mem1.GiB", -1, "'mem1.GiB' is -1; it must be a number from 0"),
        ("mem1.GBps", ..., "key 'mem1.GBps' is missing; accepted keys here: GiB, GBps, MB_efficiency"),
        ("mem1.capacity_gib", 80, "unknown key 'mem1.capacity_gib'; accepted keys here: GiB, GBps, MB_efficiency"),
        ("networks.0.ops.p2p", [1], "'networks[0].ops.p2p' is [1]; it must be an object"),
        ("networks.0.ops.p2p", ["1", None], "'networks[0].ops.p2p.scalar' is '1'"),
        ("networks.1.latency", None, "'networks[1].latency' is null"),
        ("mem2", ..., "key 'mem2' is missing; accepted keys here: matrix, vector, mem1, mem2"),
        ("name", "x", "unknown key 'name'"),
        ("matrix.float16.tflop", 5, "unknown key 'matrix.float16.tflop'; did you mean 'tflops'"),
    ],
)
def test_faults_in_calculons_format_use_its_keys(path: str, value: object, words: str) -> None:
    assert words in fault(changed(CALCULON, path, value))


@pytest.mark.parametrize("value", [None, 5, "text", [], True])
def test_a_document_that_is_no_object(value: object) -> None:
    assert "a system must be an object with named keys" in fault(value)


# --- what must work


@pytest.mark.parametrize("bandwidth", [0, 32])
def test_a_second_tier_of_no_capacity(bandwidth: float) -> None:
    document = changed(changed(OURS, "mem2.capacity_gib", 0), "mem2.bandwidth_gb_per_s", bandwidth)
    assert hardware.load_document(document).mem2.bandwidth_gb_per_s == bandwidth


@pytest.mark.parametrize("tiers", [1, 3, 8])
def test_one_to_eight_networks(tiers: int) -> None:
    document = changed(OURS, "networks", [OURS["networks"][0]] * tiers)
    assert len(hardware.load_document(document).networks) == tiers


@pytest.mark.parametrize("tiers", [1, 2, 3])
def test_networks_have_names_whatever_the_system(tiers: int) -> None:
    document = {**changed(OURS, "networks", [OURS["networks"][0]] * tiers), "accelerator": None}
    found = hardware.load_document({key: value for key, value in document.items() if value is not None})
    assert hardware.network_names(found) == (
        "inner network",
        *["network 2"] * (tiers == 3),
        *["outer network"] * (tiers > 1),
    )
    assert hardware.network_words(found)[0] == "the inner network"
    assert hardware.network_words(hardware.load("h100_80g_sxm")) == ("NVLink", "InfiniBand")


def test_nine_networks_are_too_many() -> None:
    nine = OURS["networks"] * 4 + OURS["networks"][:1]
    assert "'networks' has 9 entries; it must have at most 8" in fault(changed(OURS, "networks", nine))


def test_memory_tables_come_in_any_order() -> None:
    table = [[1, 0.5], [100, 0.9], [0, 0.1], [50, 0.2]]
    system = hardware.load_document(changed(OURS, "mem1.mb_efficiency", table))
    assert system.mem1.mb_efficiency == ((1, 0.5), (100, 0.9), (0, 0.1), (50, 0.2))


def test_any_datatype_and_both_modes() -> None:
    document = changed(OURS, "processing_mode", "roofline")
    for engine in ("matrix", "vector"):
        document[engine] = {"posit16": document[engine]["float16"]}
    document["assumptions"] = []
    document["unverified_fields"] = []
    system = hardware.load_document(document)
    assert system.datatypes == ("posit16",)
    assert system.processing_mode == "roofline"


def test_an_operation_without_offset() -> None:
    document = changed(OURS, "networks.0.operations.all_reduce", {"scalar": 2})
    assert hardware.load_document(document).networks[0].operations["all_reduce"].offset is None


# --- objects


def test_systems_are_values() -> None:
    system = hardware.load("h100_80g_sxm")
    again = pickle.loads(pickle.dumps(system))
    assert again == copy.deepcopy(system) == hardware.load_document(OURS) == system
    assert len({system, again}) == 1
    assert json.loads(system.model_dump_json())["matrix"]["float16"]["tflops"] == 989


@pytest.mark.parametrize(
    "change",
    [
        lambda system: setattr(system, "name", "x"),
        lambda system: system.matrix.update(float16=None),
        lambda system: system.matrix.__setitem__("float16", None),
        lambda system: system.matrix.pop("float16"),
        lambda system: system.networks[0].operations.clear(),
        lambda system: pickle.loads(pickle.dumps(system)).matrix.clear(),
    ],
)
def test_systems_do_not_change(change: Callable[[hardware.System], object]) -> None:
    system = hardware.load("h100_80g_sxm")
    with pytest.raises((TypeError, ValidationError)):
        change(system)
    assert hardware.to_document(system) == OURS


def test_assumed_values_carry_the_value_they_mark() -> None:
    assumed = {path: value for path, value, _ in hardware.load("h100_80g_sxm").assumed_values()}
    assert assumed["networks.0.efficiency"] == 0.65
    assert assumed["vector.float8.tflops"] == pytest.approx(66.9)


def test_names_and_unknown_names() -> None:
    assert hardware.load("h100_80g_nvl8") is hardware.load("h100_80g_nvl8")
    with pytest.raises(hardware.SystemFileError, match="did you mean 'h100_80g_nvl8' or 'h100_80g_pcie'"):
        hardware.load("h100_80g")
    with pytest.raises(hardware.SystemFileError, match="did you mean 'b200_180g_sxm'"):
        hardware.load("B200")


def test_a_calculon_file_is_named_after_itself(tmp_path: Path) -> None:
    file = tmp_path / "own.json"
    file.write_text(json.dumps(CALCULON))
    assert hardware.load(file).name == "own"


# --- arbitrary documents

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | any_text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


def loaded_or_told(document: object) -> hardware.System | None:
    """The system, or None after a check of the sentence; any other exception fails the test."""
    try:
        return hardware.load_document(document, "mine.json")
    except hardware.SystemFileError:
        fault(document)
        return None


@given(JSON)
def test_any_json_gets_a_clear_sentence(document: object) -> None:
    assert loaded_or_told(document) is None


@settings(max_examples=13 * settings.default.max_examples)
@given(st.data())
def test_any_change_to_a_system_is_a_system_or_a_clear_sentence(data: st.DataObject) -> None:
    document = copy.deepcopy(data.draw(st.sampled_from([CALCULON, OURS])))
    place: Any = document
    while True:
        key = data.draw(st.sampled_from([*place, "new"]) if isinstance(place, dict) else st.integers(0, len(place) - 1))
        child = place.get(key) if isinstance(place, dict) else place[key]
        if not isinstance(child, dict | list) or not child or data.draw(st.integers(0, 3)) == 0:
            break
        place = child
    place[key] = data.draw(st.one_of(JSON, st.floats(0, 2), st.integers(0, 100)))
    system = loaded_or_told(document)
    assert system is None or hardware.load_document(hardware.to_document(system)) == system
