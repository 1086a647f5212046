"""What accelerators sustain by a calibration, and how well that is founded."""

from __future__ import annotations

from unittest import mock

import pytest

import engine
import hardware
from engine.cost_models.calibrated import accelerator_error, accelerator_of, effective_rates, library_calibration
from engine.cost_models.calibrated.effective import BITS, MODELLED, PROVENANCES
from engine.cost_models.calibrated.measured import measured_kinds, precision_words
from engine.cost_models.calibrated.systems import generation_of
from engine.cost_models.contract import SustainedRate
from engine.cost_models.registry import COST_MODELS


def rates(name: str, **more: object) -> dict[str, SustainedRate]:
    return {rate.name: rate for rate in effective_rates(hardware.load(name), **more)}  # type: ignore[arg-type]


def value(name: str) -> float:
    return library_calibration().parameters[name].value


def test_the_reference_accelerators_sustain_the_fitted_shares() -> None:
    hopper = rates("h100_80g_sxm")
    assert hopper["matrix, 16 bits"].sustained == pytest.approx(989e12 * value("sustained_hopper"), rel=1e-3)
    eight = 1979e12 * value("sustained_hopper") * value("eight_bit")
    assert hopper["matrix, 8 bits"].sustained == pytest.approx(eight, rel=1e-3)
    assert hopper["memory"].sustained == pytest.approx(3350e9 * value("memory"))
    assert hopper["NVLink"].sustained == pytest.approx(450e9 * value("scale_up"))
    assert hopper["InfiniBand"].share == pytest.approx(value("scale_out"))
    assert rates("a100_80g_sxm")["matrix, 16 bits"].sustained == pytest.approx(312e12 * value("sustained_ampere"))


def test_power_scales_what_a_variant_sustains() -> None:
    full, less = rates("h100_80g_sxm"), rates("h100_96g_500w")
    ratio = less["matrix, 16 bits"].share / full["matrix, 16 bits"].share
    assert ratio == pytest.approx((500 / 700) ** value("power_exponent"), rel=2e-3)


def test_power_that_matrix_units_cannot_use_brings_nothing() -> None:
    cut = rates("h20_96g_sxm")
    assert cut["matrix, 16 bits"].share == pytest.approx(0.9)
    assert cut["matrix in fused attention"].share == pytest.approx(0.75)
    assert cut["matrix, 8 bits"].share == pytest.approx(0.9 * value("eight_bit"))


def test_precisions_without_a_peak_are_left_out() -> None:
    assert "matrix, 8 bits" not in rates("a100_80g_sxm")
    assert "matrix, 4 bits" not in rates("h100_80g_sxm")
    assert rates("b200_180g_sxm")["matrix, 4 bits"].sustained > rates("b200_180g_sxm")["matrix, 8 bits"].sustained


def test_young_software_sustains_less() -> None:
    young = rates("h100_80g_sxm", age_years=1.0)["matrix, 16 bits"].sustained
    slower = 1 + value("immaturity") * (value("mature_years") - 1.0)
    assert young * slower == pytest.approx(rates("h100_80g_sxm")["matrix, 16 bits"].sustained)


def test_every_system_has_rates_with_a_provenance() -> None:
    for name in hardware.names():
        found = effective_rates(hardware.load(name))
        networks = hardware.network_names(hardware.load(name))
        assert {"matrix, 16 bits", "memory", *networks} <= {rate.name for rate in found}, name
        for rate in found:
            assert 0 < rate.share < 1, (name, rate)
            assert rate.provenance in PROVENANCES, (name, rate)
            assert set(rate.parameters) <= set(library_calibration().parameters), (name, rate)
            assert all(parameter in rate.basis for parameter in rate.parameters), (name, rate)


def test_provenance_tells_measured_accelerators_from_their_kin_and_from_others() -> None:
    own, kin, other = (rates(name)["matrix, 16 bits"] for name in ("h100_80g_sxm", "h20_96g_sxm", "mi300x_192g"))
    assert (own.provenance, kin.provenance, other.provenance) == ("fitted", "fitted", MODELLED)
    error = accelerator_error(hardware.load("h100_80g_sxm"))
    assert error is not None
    assert f"{error.rows} runs of this accelerator" in own.basis
    assert "other accelerators of its generation" in kin.basis
    assert accelerator_error(hardware.load("h20_96g_sxm")) is None
    assert {rate.provenance for rate in rates("mi300x_192g").values()} == {MODELLED}
    assert rates("h100_80g_sxm")["memory"].provenance == "stated"


def test_a_rate_is_fitted_only_where_all_that_makes_it_is_and_runs_in_its_precision_were_measured() -> None:
    parameters, measured = library_calibration().parameters, measured_kinds()
    for name in hardware.names():
        generation, found = generation_of(hardware.load(name)), rates(name)
        for rate in found.values():
            if rate.provenance != "fitted":
                continue
            made_of = {parameters[each].kind for each in rate.parameters if each != "power_exponent"}
            assert made_of == {"fitted"}, (name, rate)
            if rate.name in BITS:
                assert precision_words(BITS[rate.name], generation) in measured, (name, rate)
        for precision in ("matrix, 8 bits", "matrix, 4 bits"):
            known = found.get(precision)
            assert known is None or known.provenance in ("stated", MODELLED), (name, precision)


def test_a_fitted_factor_needs_runs_in_its_precision() -> None:
    document = hardware.calibration_document(library_calibration())
    document["parameters"]["eight_bit"] |= {"kind": "fitted"}
    ours = hardware.load_calibration_document(document)
    assert rates("h100_80g_sxm", calibration=ours)["matrix, 8 bits"].provenance == "fitted"
    with mock.patch("engine.cost_models.calibrated.effective.measured_kinds", return_value=frozenset()):
        assert rates("h100_80g_sxm", calibration=ours)["matrix, 8 bits"].provenance == "stated"


def test_a_calibration_made_on_a_machine_covers_it() -> None:
    document = hardware.calibration_document(library_calibration())
    document |= {"name": "ours", "system": "mi300x_192g"}
    document["parameters"]["sustained_cdna"] |= {"kind": "fitted", "value": 0.4, "low": 0.4, "high": 0.4}
    document["parameters"]["memory"] |= {"kind": "measured"}
    ours = hardware.load_calibration_document(document)
    found = rates("mi300x_192g", calibration=ours)
    assert found["matrix, 16 bits"].provenance == "fitted"
    assert found["matrix, 16 bits"].share == pytest.approx(0.4)
    assert found["memory"].provenance == "measured"
    assert found["Infinity Fabric"].provenance == "stated"
    assert rates("gaudi3_128g", calibration=ours)["matrix, 16 bits"].provenance == MODELLED


@pytest.mark.parametrize("chip", ["b200_180g_sxm", "b300_270g_sxm", "gb200_186g_nvl72", "gb300_279g_nvl72"])
def test_four_bits_are_at_most_twice_as_fast_as_eight(chip: str) -> None:
    """Of the three times higher peak of Blackwell Ultra runs show no more than of the twice higher one of Blackwell."""
    found = {rate.name: rate.sustained for rate in effective_rates(hardware.load(chip))}
    for name in ("matrix, 4 bits", "matrix, NVFP4", "matrix, MXFP4"):
        assert found[name] == pytest.approx(2.0 * found["matrix, 8 bits"])


def test_blackwell_ultra_computes_twice_the_exponentials() -> None:
    found = {name: accelerator_of(hardware.load(name))["exponentials"] for name in hardware.names()}
    assert {name for name, value in found.items() if value != 16.0} == {"b300_270g_sxm", "gb300_279g_nvl72"}
    facts = hardware.load("b300_270g_sxm").accelerator
    assert facts is not None
    assert found["b300_270g_sxm"] == facts.exponentials_per_clock == 32
    # What is usual is not written, so that documents of earlier versions stay as they were.
    assert "exponentials_per_clock" not in hardware.to_document(hardware.load("h100_80g_sxm"))["accelerator"]


def test_a_format_that_no_run_had_is_modelled() -> None:
    chip = "gb300_279g_nvl72"
    found = {rate.name: rate for rate in effective_rates(hardware.load(chip))}
    assert found["matrix, MXFP4"].provenance == MODELLED
    assert found["matrix, NVFP4"].provenance != MODELLED
    # Its own peak is three times that of FP8; runs sustain twice.
    assert found["matrix, NVFP4"].sustained == pytest.approx(2.0 * found["matrix, 8 bits"].sustained)
    assert found["matrix, MXFP8"].sustained == found["matrix, 8 bits"].sustained
    sizes = {"num_procs": 64, "max_batch_size": 64}
    said = {}
    for name in ("float4", "mxfp4", "nvfp4", "mxfp8"):
        scenario = engine.Scenario.of("llama-3-70B", chip, datatype=name, **sizes)
        executions = scenario.space.table([0])
        said[name] = COST_MODELS["calibrated"].not_measured(scenario.model, scenario.system, executions)
    assert any("MXFP4 matrix products" in words for words in said["mxfp4"][0])
    assert said["nvfp4"] == said["float4"]
    assert not any("matrix products" in words for words in said["mxfp8"][0])
