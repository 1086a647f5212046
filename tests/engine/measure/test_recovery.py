"""Parameters that are known come back out of timings made with them; what is not measured stays as it was."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hardware
from engine.cost_models.calibrated import case_of, library_calibration, parameters_of, step_times
from engine.measure import MeasureError, Samples, measured_calibration, measured_system
from hardware import Calibration, System
from models import load as load_model
from tests.engine.measure.synthetic import PEAK16, TRUE, Noise, cpu, h100

LIBRARY = library_calibration()
EXECUTION = {
    "tensor_par": [1, 4, 8],
    "pipeline_par": [1, 2, 4],
    "data_par": [8, 4, 2],
    "microbatch_size": 2,
    "batch_size": 64,
}


def both(samples: Samples, like: str | None = "h100_80g_sxm") -> tuple[System, Calibration]:
    system = measured_system(samples, None if like is None else hardware.load(like), "ours")
    return system, measured_calibration(samples, system, "ours")


@cache
def exact() -> tuple[System, Calibration]:
    """What exact timings of an H100 give."""
    return both(h100())


def test_exact_timings_give_the_true_parameters() -> None:
    _, calibration = exact()
    found = {name: calibration.parameters[name] for name in TRUE}
    assert {name: value.value for name, value in found.items()} == pytest.approx(TRUE, rel=5e-3)
    assert {value.kind for value in found.values()} == {"measured"}
    assert all("NVIDIA H100" in value.source and "2026-11-21" in value.source for value in found.values())


def test_noise_and_outliers_move_the_parameters_little() -> None:
    _, calibration = both(h100(Noise(0.01, outliers=1.5)))
    exact = {"wave", "depth", "kernel_start", "launch"}  # the first two weakly determined, the others single timings
    for name in TRUE.keys() - exact:
        assert calibration.parameters[name].value == pytest.approx(TRUE[name], rel=0.05), name


def test_steps_are_predicted_as_with_the_true_parameters() -> None:
    """What counts in the end: the measured pair of documents predicts the machine that the timings come from."""
    system, calibration = exact()
    model = load_model("gpt3-13B")
    true = parameters_of(LIBRARY).model_copy(update=TRUE)
    expected = step_times(case_of(model, hardware.load("h100_80g_sxm"), EXECUTION), true).step
    found = step_times(case_of(model, system, EXECUTION), parameters_of(calibration)).step
    library = step_times(case_of(model, hardware.load("h100_80g_sxm"), EXECUTION), parameters_of(LIBRARY)).step
    np.testing.assert_allclose(found, expected, rtol=2e-3)
    assert (np.abs(library / expected - 1) > 0.02).all()


def test_formulas_fit_the_timings_that_they_were_turned_round_from() -> None:
    _, calibration = exact()
    assert len(calibration.errors) == 5
    assert all(error.mean_absolute_percent < 0.5 for error in calibration.errors)
    _, noisy = both(h100(Noise(0.05)))
    assert all(0.5 < error.mean_absolute_percent < 12 for error in noisy.errors)


def test_what_is_not_measured_keeps_the_librarys_value_and_says_so() -> None:
    _, calibration = exact()
    kept = set(LIBRARY.parameters) - set(TRUE) - {"immaturity"}
    for name in kept:
        value, before = calibration.parameters[name], LIBRARY.parameters[name]
        assert (value.value, value.kind) == (before.value, before.kind)
        assert "Not measured here" in value.source
    assert calibration.parameters["immaturity"].value == 0.0
    assert calibration.derived_from == LIBRARY.name
    assert calibration.system == "ours"
    assert any("scale_out" in note and "Taken over" in note for note in calibration.notes)


def test_without_timings_of_a_kind_its_parameters_stay() -> None:
    skipped = [{"what": "collectives", "reason": "there is one accelerator"}]
    _, calibration = both(h100(exchanges=[], attentions=[], launches=[], skipped=skipped))
    for name in ("scale_up", "latency", "attention", "foreign_kernel", "launch", "kernel_start"):
        assert calibration.parameters[name].value == LIBRARY.parameters[name].value
        assert calibration.parameters[name].kind != "measured"
    assert "Not measured: collectives: there is one accelerator." in calibration.notes


def test_shapes_that_the_library_explains_leave_waves_and_depth_alone() -> None:
    usual = {**TRUE, "wave": LIBRARY.parameters["wave"].value, "depth": LIBRARY.parameters["depth"].value}
    _, calibration = both(h100(Noise(0.01), true=usual))
    assert calibration.parameters["wave"].kind == "stated"
    assert calibration.parameters["depth"].value == usual["depth"]
    assert calibration.parameters["sustained_hopper"].value == pytest.approx(TRUE["sustained_hopper"], rel=0.02)


def test_timings_of_a_busy_machine_are_called_doubtful_and_shape_nothing() -> None:
    _, calibration = both(h100(Noise(0.8)))
    assert calibration.parameters["wave"].kind == calibration.parameters["depth"].kind == "stated"
    told = [note for note in calibration.notes if "again on an idle machine" in note]
    assert any("products in bfloat16" in note for note in told)
    _, calm = both(h100(Noise(0.02)))
    assert not any("idle machine" in note for note in calm.notes)


def test_a_processor_whose_rate_depends_on_no_size_loses_nothing() -> None:
    sizes = [(128, 128, 128), (256, 256, 256), (512, 512, 64), (512, 512, 128), (512, 512, 512), (1024, 1024, 1024)]
    for deviation, error in ((0.0, 1e-6), (0.3, 0.5)):
        noise = Noise(deviation)
        products = [
            {"datatype": "float32", "m": m, "n": n, "k": k, "time": noise.timing(2 * m * n * k / 9e10 + 3e-6)}
            for m, n, k in sizes
        ]
        system, calibration = both(cpu(products=products), like=None)
        assert calibration.parameters["wave"].value == calibration.parameters["depth"].value == 0.0
        rate = calibration.parameters["sustained_other"].value * system.matrix["float32"].tflops * 1e12
        assert rate == pytest.approx(9e10, rel=error)


def test_products_that_wait_for_memory_or_the_host_say_nothing() -> None:
    thin = {"datatype": "bfloat16", "m": 16, "n": 8192, "k": 8192}
    tiny = {"datatype": "bfloat16", "m": 128, "n": 128, "k": 128}
    document = h100().model_dump(mode="json")["products"]
    slow = {"seconds": 2.0, "spread": 0.0, "repeats": 3}
    memory = 2 * (16 * 8192 + 8192 * 8192 + 16 * 8192) / (0.9 * 3350e9)
    more = [{**thin, "time": {**slow, "seconds": 1.1 * memory}} for _ in range(20)] + [
        {**tiny, "time": {**slow, "seconds": 6e-6}} for _ in range(20)
    ]
    _, calibration = both(h100(products=document + more))
    assert calibration.parameters["sustained_hopper"].value == pytest.approx(TRUE["sustained_hopper"], rel=5e-3)


def test_a_power_limit_is_taken_out_of_the_share() -> None:
    """The model multiplies by (power per peak / reference); 500 of 700 W leave 5/7 of the share to be explained."""
    limited = hardware.edited(hardware.load("h100_80g_sxm"), {"accelerator.tdp_w": 500.0})
    system = measured_system(h100(), limited, "ours")
    calibration = measured_calibration(h100(), system, "ours")
    assert calibration.parameters["sustained_hopper"].value == pytest.approx(TRUE["sustained_hopper"] * 7 / 5, rel=5e-3)


def test_the_older_kernel_alone_gives_attention_with_the_librarys_ratio() -> None:
    old = [each for each in h100().model_dump(mode="json")["attentions"] if each["kernel"] == "flash2"]
    _, calibration = both(h100(attentions=old))
    expected = TRUE["attention"] * TRUE["foreign_kernel"] / LIBRARY.parameters["foreign_kernel"].value
    assert calibration.parameters["attention"].value == pytest.approx(expected, rel=5e-3)
    assert calibration.parameters["foreign_kernel"].kind == "stated"


def test_a_value_that_the_model_cannot_take_is_told_and_not_taken() -> None:
    launches = [
        {"kind": kind, "time": {"seconds": seconds, "spread": 0.0, "repeats": 3}}
        for kind, seconds in (("block_forward", 0.1), ("block", 0.3))
    ]
    _, calibration = both(h100(launches=launches))
    assert calibration.parameters["launch"].value == LIBRARY.parameters["launch"].value
    assert any(note.startswith("launch was measured as 0.005357, which") for note in calibration.notes)


def test_the_system_keeps_the_datasheet_and_takes_measured_efficiencies() -> None:
    like = hardware.load("h100_80g_sxm")
    system, _ = exact()
    assert system.matrix["bfloat16"].tflops == 989
    assert system.mem1.bandwidth_gb_per_s == 3350
    assert system.derived_from == "h100_80g_sxm"
    table = dict(system.matrix["bfloat16"].gflops_efficiency)
    largest = 2 * 8192**3 / 1e9
    waves = 64 * 64 / 132
    expected = TRUE["sustained_hopper"] / ((1 + TRUE["wave"] / waves) * (1 + TRUE["depth"] / 8192))
    assert table[float(f"{largest:.4g}")] == pytest.approx(expected, rel=0.01)
    assert dict(system.mem1.mb_efficiency)[100_000.0] == pytest.approx(0.9, rel=1e-3)
    assert system.networks[0].efficiency == pytest.approx(TRUE["scale_up"], rel=1e-3)
    assert system.networks[0].latency_s == pytest.approx(TRUE["latency"] * 1.7, rel=1e-3)
    assert system.networks[1] == like.networks[1]
    assert system.matrix["float16"] == like.matrix["float16"]
    # Marks of what was replaced are gone, all others stay.
    marks = {path for path, _, _ in system.assumed_values()}
    assert "matrix.float16.gflops_efficiency" in marks
    assert not {"matrix.bfloat16.gflops_efficiency", "mem1.mb_efficiency", "networks.0.efficiency"} & marks
    assert any(note.startswith("Measured: matrix.bfloat16") for note in system.notes)


def test_rates_above_the_datasheet_raise_it_and_warn() -> None:
    system, calibration = both(h100(), like="h20_96g_sxm")
    assert system.matrix["bfloat16"].tflops > hardware.load("h20_96g_sxm").matrix["bfloat16"].tflops
    assert any("may describe another accelerator" in note for note in system.notes)
    absolute = calibration.parameters["sustained_hopper"].value * system.matrix["bfloat16"].tflops * 1e12
    facts, reference = system.accelerator, 700 / PEAK16
    assert facts is not None
    assert facts.tdp_w is not None
    power = facts.tdp_w / (system.matrix["bfloat16"].tflops * 1e12) / reference
    assert absolute * power == pytest.approx(TRUE["sustained_hopper"] * PEAK16, rel=0.02)


def test_a_cpu_by_itself_gives_a_system_with_everything_else_marked(tmp_path: Path) -> None:
    system, calibration = both(cpu(), like=None)
    path = tmp_path / "cpu.json"
    path.write_text(json.dumps(hardware.to_document(system)), encoding="utf-8")
    assert hardware.load(path) == system
    assert hardware.load_calibration_document(hardware.calibration_document(calibration)) == calibration
    rate = calibration.parameters["sustained_other"].value * system.matrix["float32"].tflops * 1e12
    assert rate == pytest.approx(100e9, rel=1e-6)
    assert calibration.parameters["memory"].value * system.mem1.bandwidth_gb_per_s == pytest.approx(19.0)
    assert calibration.parameters["scale_up"].value * system.networks[0].bandwidth_gb_per_s == pytest.approx(2.0)
    assert calibration.parameters["latency"].value == pytest.approx(1e-4)
    assert calibration.parameters["kernel_start"].value == 3e-6
    assert calibration.parameters["launch"].value == pytest.approx(6e-6)
    assert system.networks[0].size == 2
    marked = {path.split(".")[0] for path, _, _ in system.assumed_values()}
    assert {"vector", "mem2", "processing_mode"} <= marked
    assert "networks.0.bandwidth_gb_per_s" not in {path for path, _, _ in system.assumed_values()}


def test_a_cpu_alone_marks_its_network_as_a_placeholder() -> None:
    system, _ = both(cpu(exchanges=[]), like=None)
    assert "networks.0.bandwidth_gb_per_s" in {path for path, _, _ in system.assumed_values()}
    assert system.networks[0].size == 1


def test_a_system_of_another_datatype_is_refused() -> None:
    with pytest.raises(MeasureError, match="rated in 16 bits, but on this CPU float32"):
        both(cpu())
    with pytest.raises(MeasureError, match="without products and transfers"):
        both(cpu(products=[]), like=None)
