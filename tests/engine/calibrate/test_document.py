"""The document of a fit says what it rests on and reads back; a scenario is ranked by both calibrations."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pytest

import engine
import hardware
from engine import Scenario, calibrate
from engine.cost_models.calibrated import library_calibration, parameters, parameters_of
from tests.engine.calibrate.runs import LAYOUTS, LLAMA, checked, plans, timed

TRUTH = parameters().model_copy(update={"sustained_hopper": 0.60})
DAY = datetime.date(2026, 5, 1)


@pytest.fixture(scope="module")
def outcome() -> calibrate.CalibrationOutcome:
    table = timed(plans(), TRUTH)
    return calibrate.calibrate(checked(table.assign(step_time_s=table["step_time_s"].where(table.index != 4, -1))))


def test_a_document_reads_back_and_has_the_fitted_values(outcome: calibrate.CalibrationOutcome) -> None:
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


def test_its_errors_are_those_of_the_fit_and_say_which_were_held_out(outcome: calibrate.CalibrationOutcome) -> None:
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


def test_names_differ_with_values_and_bad_ones_are_refused(outcome: calibrate.CalibrationOutcome) -> None:
    other = calibrate.calibrate(outcome.checked, ["sustained_hopper"])
    assert calibrate.document(outcome).name != calibrate.document(other).name
    assert calibrate.document(outcome).name.startswith("h100_80g_sxm-")
    assert calibrate.document(outcome, "  a \n b ").name == "a b"
    with pytest.raises(calibrate.CalibrateError, match="name"):
        calibrate.document(outcome, "x" * 300)


def test_a_fit_may_start_from_a_calibration_of_ones_own(outcome: calibrate.CalibrationOutcome) -> None:
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


def calibration(**values: float) -> hardware.Calibration:
    """The library's calibration with other values."""
    document = hardware.calibration_document(library_calibration())
    for name, value in values.items():
        document["parameters"][name] = {"value": value, "kind": "stated", "source": "a test"}
    return hardware.load_calibration_document({**document, "name": "-".join(values)})


SCENARIO = Scenario.of("llama-3-8B", "h100_80g_sxm", num_procs=64, max_batch_size=64, datatype="bfloat16")
SLOW = calibration(scale_up=0.05, overlap_tensor=0.01)
"""Traffic inside hosts costs sixteen times as much: whatever needs it falls behind."""


def test_executions_are_ranked_by_both() -> None:
    found = calibrate.rerank(SCENARIO, library_calibration(), SLOW, k=30)
    whole = {
        name: engine.explore_scenario(calibrate.recalibrated(SCENARIO, one))
        for name, one in (("before", library_calibration()), ("after", SLOW))
    }
    for when, exploration in whole.items():
        best = exploration.best
        assert best is not None
        (first,) = found.table.loc[found.table[f"rank_{when}"] == 1].to_dict("records")
        assert first[f"rate_{when}"] == pytest.approx(best["sample_rate"], rel=1e-12)
        again = exploration.evaluate_ids(found.table["id"].to_numpy())
        np.testing.assert_allclose(again["sample_rate"], found.table[f"rate_{when}"], rtol=1e-12)
        np.testing.assert_allclose(again["total_time"], found.table[f"step_{when}"], rtol=1e-12)
        ranks = found.table.sort_values(f"rank_{when}")
        assert ranks[f"rate_{when}"].is_monotonic_decreasing
    assert found.table["rank_after"].tolist() == list(range(1, len(found.table) + 1))
    best_before, best_after = whole["before"].best, whole["after"].best
    assert best_before is not None
    assert best_after is not None
    # What needs that traffic most is worst off: of the two bests the new one has no more of it.
    assert best_after["tensor_par"] <= best_before["tensor_par"]
    (old,) = found.table.loc[found.table["rank_before"] == 1, "rate_after"]
    assert found.gain == pytest.approx(best_after["sample_rate"] / old - 1)
    before, after = found.table["rate_before"].to_numpy(), found.table["rate_after"].to_numpy()
    pairs = [(a, b) for a in range(len(found.table)) for b in range(a)]
    signs = [(np.sign(before[a] - before[b]), np.sign(after[a] - after[b])) for a, b in pairs]
    norm = np.sqrt(sum(a != 0 for a, _ in signs) * sum(b != 0 for _, b in signs))
    assert found.tau == pytest.approx(sum(a * b for a, b in signs) / norm)


def test_the_same_calibration_changes_nothing() -> None:
    same = calibrate.rerank(SCENARIO, library_calibration(), library_calibration(), k=30)
    assert not same.changed
    assert same.gain == 0
    assert same.tau == pytest.approx(1)
    assert (same.table["rank_before"] == same.table["rank_after"]).all()


def test_executions_that_cost_the_same_are_shown_as_one() -> None:
    found = calibrate.rerank(SCENARIO, library_calibration(), SLOW, k=200)
    assert found.distinct["alike"].sum() == len(found.table)
    keys = found.distinct[["tensor_par", "pipeline_par", "data_par", "microbatch_size", "rate_before", "rate_after"]]
    assert not keys.round(8).duplicated().any()
    assert (found.distinct["alike"] > 1).any()


def test_a_scenario_of_which_nothing_runs_is_a_sentence() -> None:
    none = Scenario.of("megatron-1T", "h100_80g_sxm", num_procs=1, max_batch_size=1, datatype="bfloat16")
    with pytest.raises(calibrate.CalibrateError, match="none to rank"):
        calibrate.rerank(none, library_calibration(), SLOW)
