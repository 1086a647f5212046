"""Runs on every generation of accelerators, in every datatype, are predicted with the rate of their own words."""

from __future__ import annotations

import numpy as np
import pytest

import hardware
from engine.cost_models.calibrated import generation_of
from engine.validation import validate
from engine.validation.mapping import map_runs
from engine.validation.reading import runs_of
from tests.engine.validation.library_outcomes import mapped, outcomes
from tests.engine.validation.runs import table


def test_a_run_on_any_accelerator_of_the_library_is_predicted() -> None:
    """Marked where no run on the generation was measured; never refused."""
    names = [name for name in hardware.names() if hardware.load(name).accelerator is not None]
    found = validate(table(*({"hardware": name, "step_time_s": None, "dtype": "bf16"} for name in names)))
    assert (found["status"] == "predicted").all(), found["reason_text"].tolist()
    modelled = found["assumptions"].str.contains("kernel rates modelled").tolist()
    generations = [generation_of(hardware.load(name)) for name in names]
    assert modelled == [each in ("cdna3", "other") for each in generations]


def test_complete_runs_on_tpus_and_amd_are_predicted() -> None:
    runs, found = mapped().table, outcomes()
    rows = runs["hardware"].str.contains("TPU|MI3") & (runs["completeness"] == "full")
    assert rows.sum() > 70
    assert (found.loc[rows, "status"] == "predicted").mean() >= 0.95


@pytest.mark.parametrize(
    ("words", "system", "bits", "own"),
    [
        ("int8", "tpu_v6e_32g", 8, True),
        ("int8", "h100_80g_sxm", 8, False),
        ("mxfp8", "b200_180g_sxm", 8.25, True),
        ("mxfp8", "h100_80g_sxm", 8, False),
        ("nvfp4", "gb300_279g_nvl72", 4.5, True),
        ("fp8", "b200_180g_sxm", 8, False),
    ],
)
def test_a_datatype_is_itself_where_the_accelerator_computes_in_it(
    words: str, system: str, bits: float, own: bool
) -> None:
    found = map_runs(runs_of(table({"hardware": system, "dtype": words})))
    assert found.case.layout.linear_bits[0] == bits
    assert (found.case.layout.linear_format[0] > 0) == own
    assert ("plain datatype of its width" in found.assumptions[0]) == (not own and words != "fp8")


@pytest.mark.parametrize(
    ("words", "every"),
    [
        ("GQA,alternating sliding-window128", 2),
        ("GQA,5 of 6 layers sliding-window1024", 6),
        ("sliding-window1024", 0),
        ("GQA", 0),
    ],
)
def test_windows_are_of_as_many_layers_as_the_words_say(words: str, every: float) -> None:
    model = map_runs(runs_of(table({"attn": words}))).case.model
    assert np.ravel(model.full_attention_every)[0] == every
