"""The shipped systems: each loads, round-trips, and keeps its source's figures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hardware
from models import datatypes

CALCULON = Path(__file__).parent / "calculon"
CALCULON_NAMES = sorted(file.stem for file in CALCULON.glob("*.json"))
OURS = [name for name in hardware.names() if name not in CALCULON_NAMES]


@pytest.mark.parametrize("name", CALCULON_NAMES)
def test_calculons_values_are_unchanged(name: str) -> None:
    reference = json.loads((CALCULON / f"{name}.json").read_text())
    assert hardware.to_calculon(hardware.load(name)) == reference
    assert hardware.to_calculon(hardware.load(CALCULON / f"{name}.json")) == reference


def test_calculons_three_are_there() -> None:
    assert CALCULON_NAMES == ["a100_80e", "a100_80g", "h100_80g_nvl8"]
    assert set(CALCULON_NAMES) < set(hardware.names())


def test_every_system_round_trips() -> None:
    for name in hardware.names():
        system = hardware.load(name)
        assert system.name == name
        assert system.title, name
        assert system.source, name
        document = json.loads(json.dumps(hardware.to_document(system)))
        assert hardware.load_document(document) == system
        assert hardware.to_document(hardware.load_document(document)) == document


def test_every_system_survives_calculons_format() -> None:
    physics = {"matrix", "vector", "mem1", "mem2", "processing_mode", "networks"}
    for system in map(hardware.load, hardware.names()):
        calculon = hardware.load_document(json.loads(json.dumps(hardware.to_calculon(system))))
        # Calculon's format has no names of networks, and no nodes.
        bare = tuple(each.model_copy(update={"name": "", "within_node": False}) for each in system.networks)
        expected = system.model_copy(update={"networks": bare})
        assert calculon.model_dump(include=physics) == expected.model_dump(include=physics), system.name


def test_every_assumed_value_of_ours_is_marked() -> None:
    for system in map(hardware.load, OURS):
        marked = {path for path, _, _ in system.assumed_values()}
        rates = {f"{engine}.{d}.gflops_efficiency" for engine in ("matrix", "vector") for d in system.datatypes}
        assumed = ("efficiency", "latency_s", "operations", "processor_usage", "must_be_filled")
        networks = {f"networks.{tier}.{field}" for tier in range(len(system.networks)) for field in assumed}
        one_each = {"mem1.mb_efficiency", "mem2.mb_efficiency", "processing_mode"}
        assert (rates | networks | one_each) - marked == set(), system.name


def test_every_mark_is_on_a_value_that_is_there() -> None:
    for system in map(hardware.load, OURS):
        marked = [assumption.field for assumption in system.assumptions]
        marked += [field.partition(":")[0] for field in system.unverified_fields]
        assert marked, system.name
        assert [path for path in marked if not list(system.values_at(path))] == [], system.name


def test_half_precision_formats_run_at_one_rate() -> None:
    for system in map(hardware.load, OURS):
        assert "bfloat16" in system.datatypes or system.name == "v100_32g_sxm"
        if {"float16", "bfloat16"} <= set(system.datatypes):
            assert system.matrix["float16"] == system.matrix["bfloat16"], system.name
            assert system.vector["float16"] == system.vector["bfloat16"], system.name


@pytest.mark.parametrize(
    ("name", "bfloat16", "memory_bandwidth", "scale_up", "domain", "scale_out"),
    # dense TFLOP/s, GB/s, GB/s per direction, processors, GB/s per processor: from the datasheets
    [
        ("a100_40g_sxm", 312, 1555, 300, 8, 25),
        ("a100_80g_sxm", 312, 2039, 300, 8, 25),
        ("h100_80g_sxm", 989, 3350, 450, 8, 50),
        ("h200_141g_sxm", 989, 4800, 450, 8, 50),
        ("b200_180g_sxm", 2250, 7700, 900, 8, 50),
        ("gb200_186g_nvl72", 2450, 8000, 900, 72, 50),
        ("mi300x_192g", 1307.4, 5300, 448, 8, 50),
        ("tpu_v5p_95g", 459, 2765, 600, 8960, 6.25),
        ("a100_80g_pcie", 312, 1935, 32, 8, 12.5),
        ("h100_80g_pcie", 756, 2000, 64, 8, 25),
        ("h100_96g_500w", 989, 2400, 450, 8, 50),
        ("h20_96g_sxm", 148, 4000, 450, 8, 50),
        ("b300_270g_sxm", 2250, 7700, 900, 8, 100),
        ("gb300_279g_nvl72", 2450, 8000, 900, 72, 100),
        ("l40s_48g", 362, 864, 32, 8, 25),
        ("mi250x_128g", 383, 3277, 200, 4, 25),
        ("mi350x_288g", 2307, 8000, 538, 8, 50),
        ("mi355x_288g", 2516, 8000, 538, 8, 50),
        ("gaudi3_128g", 1835, 3670, 525, 8, 75),
        ("tpu_v5e_16g", 197, 819, 200, 256, 3.125),
        ("tpu_v6e_32g", 918, 1638, 400, 256, 6.25),
        ("tpu7x_192g", 2307, 7380, 600, 9216, 12.5),
        ("trainium2_96g", 667, 2900, 640, 16, 25),
    ],
)
def test_datasheet_figures(
    name: str, bfloat16: float, memory_bandwidth: float, scale_up: float, domain: int, scale_out: float
) -> None:
    system = hardware.load(name)
    inner, outer = system.networks
    assert system.accelerator is not None
    assert system.matrix["bfloat16"].tflops == bfloat16
    assert system.mem1.bandwidth_gb_per_s == memory_bandwidth
    assert (inner.bandwidth_gb_per_s, inner.size, outer.bandwidth_gb_per_s) == (scale_up, domain, scale_out)


THREE_TIERS = {
    # the system with the same accelerator; processors, GB/s per processor and name of each network; node
    "gb200_186g_nvl72_rails": (
        "gb200_186g_nvl72",
        [(72, 900, "NVLink"), (576, 50, "InfiniBand rails"), (9_216, 25, "spine")],
        72,
    ),
    "tpu_v5p_95g_cubes": (
        "tpu_v5p_95g",
        [(64, 600, "ICI cube"), (8_960, 600, "ICI pod"), (65_536, 6.25, "data-centre network")],
        64,
    ),
    "h100_80g_pcie_pairs": (
        "h100_80g_pcie",
        [(2, 300, "NVLink bridge"), (8, 64, "PCIe"), (65_536, 25, "InfiniBand")],
        8,
    ),
}


@pytest.mark.parametrize("name", THREE_TIERS)
def test_systems_of_three_tiers_have_the_accelerator_of_another(name: str) -> None:
    plain, networks, node = THREE_TIERS[name]
    system = hardware.load(name)
    facts = {"matrix", "vector", "mem1", "mem2", "processing_mode", "accelerator"}
    assert system.model_dump(include=facts) == hardware.load(plain).model_dump(include=facts)
    names = hardware.network_names(system)
    found = [(each.size, each.bandwidth_gb_per_s, own) for each, own in zip(system.networks, names, strict=True)]
    assert found == networks
    assert system.node_size == node


def test_all_recorded_accelerators_are_there() -> None:
    chips = {system.accelerator.name for name in OURS if (system := hardware.load(name)).accelerator}
    clusters = {"h100_80g_sxm_pods", *THREE_TIERS}  # the accelerator of another system, with other networks
    assert len(set(OURS) - clusters) == len(chips) == 32


def test_the_system_of_three_tiers_is_another_but_for_its_networks() -> None:
    pods, plain = hardware.load("h100_80g_sxm_pods"), hardware.load("h100_80g_sxm")
    facts = {"matrix", "vector", "mem1", "mem2", "processing_mode", "accelerator"}
    assert pods.model_dump(include=facts) == plain.model_dump(include=facts)
    assert [network.size for network in pods.networks] == [8, 3_072, 24_576]
    assert pods.networks[0] == plain.networks[0]
    assert pods.networks[1].bandwidth_gb_per_s / pods.networks[2].bandwidth_gb_per_s == pytest.approx(7)


@pytest.mark.parametrize(
    ("name", "generation", "power", "tensor_float32", "lowest", "highest"),
    [
        ("a100_80g_sxm", "ampere", 400, 156, 1.1, 3.0),
        ("h100_80g_sxm", "hopper", 700, 494.7, 1.99, 5.0),
        ("mi300x_192g", "cdna3", 750, 653.7, 1.71, 1.85),
        ("gb200_186g_nvl72", "blackwell", 1200, 1250, None, None),
        ("tpu_v5p_95g", "tpu v5p", None, None, None, None),
        ("h100_80g_nvl8", "hopper", 700, 494.7, 1.99, 5.0),
    ],
)
def test_further_datasheet_figures(
    name: str,
    generation: str,
    power: float | None,
    tensor_float32: float | None,
    lowest: float | None,
    highest: float | None,
) -> None:
    accelerator = hardware.load(name).accelerator
    assert accelerator is not None
    assert (accelerator.generation, accelerator.tdp_w) == (generation, power)
    assert accelerator.tfloat32_tflops == tensor_float32
    assert accelerator.usd_per_h == (None if lowest is None else (lowest, highest))
    assert bool(accelerator.usd_source) == (lowest is not None)


@pytest.mark.parametrize(
    ("name", "rates"),
    # Dense TFLOP/s as the vendors print them, to their digits; a datatype that is not named must not be there.
    [
        # NVIDIA, H100 and H200 datasheets: 3,958 TFLOP/s FP8 with sparsity.
        ("h100_80g_sxm", {"float8": 1979}),
        ("h200_141g_sxm", {"float8": 1979}),
        ("h100_80g_pcie", {"float8": 1513}),
        ("l40s_48g", {"float8": 733}),
        # NVIDIA, HGX B200 and B300 datasheets, of eight: 72 PFLOP/s FP8 with sparsity; FP4 dense 72 and 108.
        ("b200_180g_sxm", {"float8": 4500, "float4": 9000, "nvfp4": 9000}),
        ("b300_270g_sxm", {"float8": 4500, "float4": 13500, "nvfp4": 13500}),
        # NVIDIA, GB200 and GB300 NVL72, of 72: 360 PFLOP/s FP8; FP4 dense 720 and 1,080. The library has the rates that
        # NVIDIA's benchmarks divide by, 2 % less.
        ("gb200_186g_nvl72", {"float8": 5000, "float4": 10000, "nvfp4": 10000}),
        ("gb300_279g_nvl72", {"float8": 5000, "float4": 15000, "nvfp4": 15000}),
        # AMD, data sheets: MI300X and MI325X 2,614.9; MI350X 4.6 and 9.2 PFLOP/s, MI355X 5 and 10.1.
        ("mi300x_192g", {"float8": 2614.9}),
        ("mi325x_256g", {"float8": 2614.9}),
        ("mi350x_288g", {"float8": 4600, "float4": 9200}),
        ("mi355x_288g", {"float8": 5033, "float4": 10066}),
        # Google, Cloud TPU documentation (v5e, v6e, TPU7x) and blog of 2023-12-06 (v5p). Before TPU7x only integers
        # double: products in FP8 run at the rate of BF16.
        ("tpu_v5e_16g", {"int8": 393}),
        ("tpu_v5p_95g", {"int8": 918, "float8": 459}),
        ("tpu_v6e_32g", {"int8": 1836, "float8": 918}),
        ("tpu7x_192g", {"float8": 4614}),
        # AWS Neuron documentation: cFP8 as BF16; FP8; MXFP8 and MXFP4 alike.
        ("trainium1_32g", {"float8": 190}),
        ("trainium2_96g", {"float8": 1299}),
        ("trainium3_144g", {"float8": 2517, "float4": 2517}),
        # Intel, Hot Chips 2024: one rate for BF16 and FP8.
        ("gaudi2_96g", {"float8": 865}),
        ("gaudi3_128g", {"float8": 1835}),
        # No matrix rate below 16 bits that training uses.
        ("a100_80g_sxm", {}),
        ("mi250x_128g", {}),
        ("tpu_v4_32g", {}),
        ("v100_32g_sxm", {}),
    ],
)
def test_rates_of_eight_and_four_bits_are_those_of_the_datasheets(name: str, rates: dict[str, float]) -> None:
    matrix = hardware.load(name).matrix
    narrow = {word: rate.tflops for word, rate in matrix.items() if datatypes.named(word).bits < 16}
    assert narrow == pytest.approx(rates, rel=0.0201)
    assert all(rate >= matrix["bfloat16"].tflops for rate in narrow.values())


def test_what_is_not_published_is_not_made_up() -> None:
    assert len(hardware.load("trainium3_144g").networks) == 1
    for name in ("trainium1_32g", "trainium2_96g", "trainium3_144g", "tpu7x_192g"):
        assert hardware.load(name).mem2.capacity_gib == 0
    assert hardware.load("a800_80g_sxm").unverified_fields[0] == "matrix.*.tflops"


def test_capacity_is_what_the_name_says_within_two_percent() -> None:
    for name in OURS:
        # vendors' GB of high-bandwidth memory are nearly GiB; a capacity read as 1e9 bytes would be 7 % lower
        printed = next(float(part[:-1]) for part in name.split("_") if part.endswith("g") and part[:-1].isdigit())
        # a card with GDDR6 gives a sixteenth of it to error correction
        usable = printed * (15 / 16 if name == "l40s_48g" else 1)
        assert 0.98 * usable < hardware.load(name).mem1.capacity_gib <= usable, name


@pytest.mark.parametrize("name", hardware.names())
def test_the_datatype_that_stands_in_has_the_width_of_the_one_asked_for_where_any_has(name: str) -> None:
    system = hardware.load(name)
    offered = system.offered_datatypes
    for wanted in datatypes.names():
        found = system.closest_datatype(wanted)
        same = [each for each in offered if datatypes.named(each).bits == datatypes.named(wanted).bits]
        assert found == wanted if wanted in offered else found in (same or offered)
    assert system.closest_datatype("unheard of") == offered[0]
    assert system.closest_datatype("bfloat16", [offered[-1]]) == offered[-1]
    with pytest.raises(ValueError, match=f"{name} computes in none of"):
        system.closest_datatype("bfloat16", [])
