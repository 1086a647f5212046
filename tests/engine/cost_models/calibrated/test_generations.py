"""Generations of accelerators: each has one rate, everywhere; matrix units and programs of TPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hardware
import models
from engine.cost_models.calibrated import (
    GENERATIONS,
    LAUNCHES,
    SUSTAINED,
    Parameters,
    accelerator_of,
    calibrated,
    case_of,
    generation_of,
    kernel_rate,
    parameters,
    parameters_of,
    step_times,
    sustained_rates,
)
from engine.cost_models.calibrated.measured import generation_words
from engine.cost_models.calibrated.physics.inputs import Accelerators

EARLIER = Path(__file__).parents[3] / "reference" / "earlier" / "calibration.json"
ROWS = {
    "tensor_par": [1.0],
    "pipeline_par": [1.0],
    "data_par": [256.0],
    "microbatch_size": [2.0],
    "batch_size": [512.0],
}
ARRAYS = {name: np.array(values) for name, values in ROWS.items()}


def test_every_generation_has_a_rate_and_words_of_its_own() -> None:
    assert set(SUSTAINED) == set(GENERATIONS)
    assert set(SUSTAINED.values()) <= set(Parameters.model_fields)
    assert len({generation_words(name) for name in GENERATIONS}) == len(GENERATIONS)
    named = {generation_of(hardware.load(name)) for name in hardware.names()}
    assert named == set(GENERATIONS)


@pytest.mark.parametrize(
    "name", ["mi300x_192g", "mi350x_288g", "tpu_v4_32g", "tpu_v5e_16g", "tpu_v6e_32g", "tpu7x_192g"]
)
def test_a_rate_is_the_share_of_the_peak_that_its_parameter_states(name: str) -> None:
    system, p = hardware.load(name), parameters()
    facts = Accelerators.of(accelerator_of(system))
    rate = float(sustained_rates(facts, np.asarray(np.inf), p).matrix16)
    assert rate == pytest.approx(system.matrix["bfloat16"].tflops * 1e12 * getattr(p, SUSTAINED[generation_of(system)]))


def test_a_calibration_of_an_earlier_release_has_the_rates_that_it_had() -> None:
    document = hardware.load_calibration(EARLIER)
    assert "sustained_tpu" not in document.parameters
    found = parameters_of(document)
    assert found.sustained_tpu == found.sustained_cdna == found.sustained_other


def test_narrow_heads_fill_a_part_of_a_tpus_matrix_unit() -> None:
    narrow, wide = models.load("gpt-oss-120B"), models.load("llama-3.1-8B")
    p = parameters()
    for name, width in (("tpu_v6e_32g", 256), ("tpu_v5p_95g", 128)):
        system = hardware.load(name)
        peak = system.matrix["bfloat16"].tflops * 1e12
        assert float(kernel_rate(case_of(narrow, system, ARRAYS), p)) == pytest.approx(peak * 64 / width)
        assert float(kernel_rate(case_of(wide, system, ARRAYS), p)) == pytest.approx(
            peak * min(p.attention, 128 / width)
        )
    gpu = hardware.load("h100_80g_sxm")
    rates = {float(kernel_rate(case_of(model, gpu, ARRAYS), p)) for model in (narrow, wide)}
    assert len(rates) == 1


def test_a_step_is_one_program_on_a_tpu() -> None:
    tiny = {**ARRAYS, "microbatch_size": np.array([1.0]), "batch_size": np.array([256.0])}
    model, p = models.load("llama-3.1-8B"), parameters()

    def seconds(name: str, launch: str) -> float:
        return float(step_times(case_of(model, hardware.load(name), {**tiny, "launch": launch}), p).step[0])

    assert len({seconds("tpu_v6e_32g", word) for word in LAUNCHES if word in ("eager", "fused", "graphs")}) == 1
    assert calibrated(hardware.load("tpu_v6e_32g"))


def test_int8_is_faster_than_16_bits_but_not_as_its_peak_says() -> None:
    model, p = models.load("gpt3-175B"), parameters()
    for name in ("tpu_v6e_32g", "tpu_v5p_95g"):
        system = hardware.load(name)
        assert system.matrix["int8"].tflops == 2 * system.matrix["bfloat16"].tflops
        wide, narrow = (
            step_times(case_of(model, system, {**ARRAYS, "recompute": "full", "datatype": word}), p).step[0]
            for word in ("bfloat16", "int8")
        )
        assert 1.05 < wide / narrow < 1.25
