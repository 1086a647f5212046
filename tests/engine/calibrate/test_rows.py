"""Every kind of bad row is refused by its row and in one sentence, and has no part in a fit."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import hardware
from engine import calibrate
from engine.calibrate.rows import FURTHER_REASONS
from engine.cost_models.calibrated import parameters, step_times
from engine.validation.mapping import REASONS
from tests.engine.calibrate.runs import LAYOUTS, LLAMA, checked, measured, plans, timed

GOOD = timed(plans((LLAMA,), LAYOUTS), parameters())
ROW = 2
TIME = float(GOOD["step_time_s"].iloc[ROW])
RATE = 256 * float(GOOD["seq_len"].iloc[ROW]) / 64 / TIME


@cache
def others() -> calibrate.CheckedRuns:
    """The good runs without the one that is changed."""
    return checked(GOOD.drop(index=ROW).reset_index(drop=True))


def spoilt(**change: Any) -> calibrate.CheckedRuns:
    """The good runs, one of them changed."""
    table = GOOD.astype(object).copy()
    for name, value in change.items():
        if name not in table:
            table[name] = pd.Series("", index=table.index, dtype=object)
        table.loc[ROW, name] = value
    return checked(table)


def test_good_rows_are_accepted() -> None:
    found = checked(GOOD)
    assert found.accepted.all()
    np.testing.assert_allclose(found.expected, GOOD["step_time_s"], rtol=1e-12)
    assert found.missing == ((),) * len(GOOD)


@pytest.mark.parametrize(
    ("change", "reason", "told"),
    [
        ({"step_time_s": -TIME}, "bad_value", "step_time_s is -"),
        ({"step_time_s": 0}, "bad_value", "must be above 0"),
        ({"step_time_s": "soon"}, "bad_value", "not a number"),
        ({"step_time_s": "nan"}, "missing_field", "step_time_s"),
        ({"step_time_s": ""}, "missing_field", "Not given: step_time_s, tokens_per_s_per_gpu, nor tflops_per_gpu"),
        ({"hidden": ""}, "missing_field", "Not given: hidden."),
        ({"dtype": ""}, "missing_field", "dtype"),
        ({"vocab": "", "gbs": ""}, "missing_field", "Not given: vocab, gbs."),
        ({"num_gpus": 128}, "impossible_product", "num_gpus = 128"),
        ({"tp": 3, "num_gpus": 48}, "impossible_split", "heads is no multiple of tp"),
        ({"tp": 0}, "bad_value", "tp is 0"),
        ({"tp": -4}, "bad_value", "tp is -4"),
        ({"layers": 2.5}, "bad_value", "whole number"),
        ({"step_time_s": TIME * 1000}, "wrong_unit", "1,000 times the expected"),
        ({"step_time_s": TIME * 1000}, "wrong_unit", "which is in seconds, not milliseconds."),
        ({"step_time_s": TIME / 1000}, "wrong_unit", "1/1,000 of the expected"),
        ({"step_time_s": TIME * 60}, "wrong_unit", "60 times the expected"),
        ({"step_time_s": "", "tokens_per_s_per_gpu": RATE / 30}, "wrong_unit", "tokens_per_s_per_gpu"),
        (
            {"step_time_s": "", "tflops_per_gpu": 400, "tflops_kind": "model"},
            "missing_field",
            "tflops_kind does not say how it counts attention: causal or full",
        ),
        ({"step_time_s": "", "tflops_per_gpu": "fast", "tflops_kind": "causal"}, "bad_value", "tflops_per_gpu is"),
        ({"tokens_per_s_per_gpu": RATE * 1.2}, "contradiction", "tokens_per_s_per_gpu means"),
        ({"tokens_per_s_per_gpu": RATE * 1000}, "contradiction", "one of them"),
        ({"hardware": "A100-80GB-SXM"}, "other_hardware", "calibrate each accelerator by itself"),
        ({"hardware": "Abacus"}, "other_hardware", "'Abacus' is not the accelerator of h100_80g_sxm"),
        ({"status": "oom"}, "no_measurement", "'oom'"),
        ({"id": "example: delete this row"}, "example_row", "example"),
        ({"dtype": "int3"}, "unknown_precision", "int3"),
        ({"recompute": "sometimes"}, "unknown_recompute", "sometimes"),
        ({"launch": "rocket"}, "bad_value", "launch is 'rocket'"),
        ({"hidden": "1e400"}, "bad_value", "out of range"),
        ({"model": "<script>alert(1)</script>", "step_time_s": -1}, "bad_value", "step_time_s is -1"),
    ],
)
def test_a_bad_row_is_told_by_itself(change: dict[str, Any], reason: str, told: str) -> None:
    found = spoilt(**change)
    assert np.flatnonzero(~found.accepted).tolist() == [ROW]
    assert found.labels[ROW] == "row 3"
    code, sentence = str(found.reason[ROW]), str(found.reason_text[ROW])
    assert code == reason
    assert code in FURTHER_REASONS or code in REASONS
    assert told in sentence
    assert sentence.endswith((".", "None"))
    assert "\n" not in sentence
    # What a fit reads are the others, as if it were not there.
    np.testing.assert_array_equal(step_times(found.case(), parameters()).step, others().expected)
    np.testing.assert_array_equal(found.measured[found.accepted], others().measured)


def test_a_whole_table_in_milliseconds() -> None:
    slow = checked(GOOD.assign(step_time_s=GOOD["step_time_s"] * 1000))
    assert not slow.accepted.any()
    assert all("not milliseconds" in text for text in slow.reason_text)
    with pytest.raises(calibrate.CalibrateError, match=r"None of the 6 runs .* Row 1: The measured"):
        calibrate.calibrate(slow)


def test_runs_a_few_times_slower_than_expected_are_measurements() -> None:
    table = GOOD.assign(step_time_s=GOOD["step_time_s"] * 4)
    assert checked(table).accepted.all()


def test_missing_fields_are_named_for_every_row() -> None:
    table = GOOD.astype(object).copy()
    table.loc[0, ["vocab", "dtype"]] = ""
    table.loc[1, ["dp", "num_gpus"]] = ""
    table.loc[2, "step_time_s"] = ""
    found = checked(table)
    assert found.missing[0] == ("vocab", "dtype")
    assert found.missing[1] == ("num_gpus",)
    assert found.missing[2] == ("step_time_s",)
    assert found.missing[3] == ()
    assert found.accepted.tolist() == [False, False, False, True, True, True]


def test_no_hardware_means_the_system_and_names_of_it_are_taken() -> None:
    for word in ("", "H100-80GB-SXM", "h100_80g_sxm", " h100-80gb-sxm "):
        assert checked(GOOD.assign(hardware=word)).accepted.all(), word


def test_a_system_of_ones_own_is_what_runs_are_predicted_with() -> None:
    system = hardware.load("h100_80g_sxm")
    slow = system.model_copy(
        update={
            "name": "half",
            "networks": tuple(
                network.model_copy(update={"bandwidth_gb_per_s": network.bandwidth_gb_per_s / 8})
                for network in system.networks
            ),
        }
    )
    found = calibrate.check(measured(GOOD), slow, parameters())
    usual = calibrate.check(measured(GOOD), system, parameters())
    assert (found.expected > usual.expected).all()
    np.testing.assert_allclose(usual.expected, step_times(usual.mapped.case, parameters()).step)


def test_codes_are_not_those_of_the_mapping() -> None:
    assert not set(FURTHER_REASONS) & set(REASONS)
