"""The document of a fit says what it rests on and reads back; a scenario is ranked by both calibrations."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pytest

import hardware
import models
from engine import calibrate
from engine.calibrated import Parameters, case_of, library_calibration, parameters, parameters_of, step_times
from tests.calibrate.runs import LAYOUTS, LLAMA, checked, plans, timed

TRUTH = parameters().model_copy(update={"sustained_hopper": 0.60})
DAY = datetime.date(2026, 5, 1)


@pytest.fixture(scope="module")
def outcome() -> calibrate.Outcome:
    table = timed(plans(), TRUTH)
    return calibrate.calibrate(checked(table.assign(step_time_s=table["step_time_s"].where(table.index != 4, -1))))


def test_a_document_reads_back_and_has_the_fitted_values(outcome: calibrate.Outcome) -> None:
    found = calibrate.document(outcome, "ours", DAY)
    again = hardware.load_calibration_document(json.loads(json.dumps(hardware.calibration_document(found))))
    assert again == found
    assert found.name == "ours"
    assert found.system == "h100_80g_sxm"
    assert found.date == "2026-05-01"
    assert found.derived_from == "global"
    assert found.fitted_on.startswith("23 runs of 23 configurations; 1 run refused: run0, run1")
    values = parameters_of(found)
    for name, value in outcome.after:
        assert getattr(values, name) == pytest.approx(value, rel=1e-4), name
    fitted = {item.about.name for item in outcome.estimates}
    for name, item in found.parameters.items():
        if name in fitted:
            assert item.kind == "fitted"
            assert "23 runs" in item.source
            assert item.low is not None
            assert item.high is not None
            assert item.low <= item.value <= item.high
        else:
            assert item == library_calibration().parameters[name]


def test_its_errors_are_those_of_the_fit_and_say_which_were_held_out(outcome: calibrate.Outcome) -> None:
    found = calibrate.document(outcome)
    before, unseen, fitted = found.errors
    assert outcome.errors_unseen is not None
    assert [error.held_out for error in found.errors] == [True, True, False]
    expected = (outcome.errors_before, outcome.errors_unseen, outcome.errors_after)
    for error, values in zip((before, unseen, fitted), expected, strict=True):
        assert error.rows == 23
        assert error.mean_absolute_percent == pytest.approx(values["mean"], abs=0.006)
        assert error.bias_percent == pytest.approx(values["bias"], abs=0.006)
    assert outcome.verdict in found.notes
    assert any("sustained_hopper 10 %" in note for note in found.notes)


def test_names_differ_with_values_and_bad_ones_are_refused(outcome: calibrate.Outcome) -> None:
    other = calibrate.calibrate(outcome.checked, ["sustained_hopper"])
    assert calibrate.document(outcome).name != calibrate.document(other).name
    assert calibrate.document(outcome).name.startswith("h100_80g_sxm-")
    assert calibrate.document(outcome, "  a \n b ").name == "a b"
    with pytest.raises(calibrate.CalibrateError, match="name"):
        calibrate.document(outcome, "x" * 300)


def test_a_fit_may_start_from_a_calibration_of_ones_own(outcome: calibrate.Outcome) -> None:
    mine = calibrate.document(outcome, "ours", DAY)
    second = calibrate.calibrate(outcome.checked, ["sustained_hopper"], mine)
    assert second.before == parameters_of(mine)
    assert calibrate.document(second).derived_from == "ours"
    # It goes on from there, towards the truth.
    assert abs(second.after.sustained_hopper - 0.6) < abs(outcome.after.sustained_hopper - 0.6)


def test_few_runs_leave_no_unseen_error_in_the_document() -> None:
    found = calibrate.document(calibrate.calibrate(checked(timed(plans((LLAMA,), LAYOUTS[:2]), TRUTH))))
    assert [error.held_out for error in found.errors] == [True, False]
    assert any("too few" in note for note in found.notes)


def slow_network() -> Parameters:
    """Parameters under which traffic between hosts costs ten times as much."""
    return parameters().model_copy(update={"scale_out": parameters().scale_out / 10, "overlap_data": 0.01})


def test_executions_are_ranked_by_both() -> None:
    model, system = models.load("gpt3-13B"), hardware.load("h100_80g_sxm")
    table = plans((LLAMA,)).rename(columns={"tp": "tensor_par", "pp": "pipeline_par", "dp": "data_par",
                                            "mbs": "microbatch_size", "gbs": "batch_size"})  # fmt: skip
    table = table[["tensor_par", "pipeline_par", "data_par", "microbatch_size", "batch_size"]].assign(id=range(6))
    found = calibrate.rerank(model, system, table, parameters(), slow_network())
    case = case_of(model, system, {name: table[name].to_numpy() for name in table})
    before = 256 / step_times(case, parameters()).step
    after = 256 / step_times(case, slow_network()).step
    assert found.table["id"].tolist() == np.argsort(-after).tolist()
    assert found.table.sort_values("rank_before")["id"].tolist() == np.argsort(-before).tolist()
    np.testing.assert_allclose(found.table.sort_values("id")["rate_after"], after)
    assert found.changed == (before.argmax() != after.argmax())
    assert found.gain == pytest.approx(after.max() / after[before.argmax()] - 1)
    pairs = [(a, b) for a in range(6) for b in range(a)]
    agree = sum(np.sign(before[a] - before[b]) * np.sign(after[a] - after[b]) for a, b in pairs) / len(pairs)
    assert found.tau == pytest.approx(agree)
    same = calibrate.rerank(model, system, table, parameters(), parameters())
    assert not same.changed
    assert same.gain == 0
    assert same.tau == pytest.approx(1)
    with pytest.raises(ValueError, match="no execution"):
        calibrate.rerank(model, system, table.iloc[:0], parameters(), parameters())


def test_executions_that_cost_the_same_are_shown_as_one() -> None:
    model, system = models.load("gpt3-13B"), hardware.load("h100_80g_sxm")
    columns = {"tensor_par": [8, 8, 4], "pipeline_par": [1, 1, 1], "data_par": [8, 8, 16], "microbatch_size": [1, 1, 1],
               "batch_size": [64, 64, 64], "weight_offload": [False, True, False]}  # fmt: skip
    import pandas as pd

    found = calibrate.rerank(model, system, pd.DataFrame(columns), parameters(), slow_network())
    assert len(found.table) == 3
    assert sorted(zip(found.distinct["tensor_par"], found.distinct["alike"], strict=True)) == [(4, 1), (8, 2)]
