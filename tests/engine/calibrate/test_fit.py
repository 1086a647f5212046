"""A fit finds the parameters that runs were made by, stays near its priors with few runs, and is tested honestly."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import hardware
from engine import calibrate
from engine.calibrate.choice import adjustable, influence
from engine.calibrate.fit import CalibrationOutcome
from engine.calibrate.fit import calibrate as fit
from engine.calibrate.rows import CheckedRuns
from engine.cost_models.calibrated import Parameters, library_calibration, parameters, step_times
from engine.validation.fitting import fit_parameters
from engine.validation.mapping import map_runs
from engine.validation.predict import measured_seconds
from engine.validation.reading import library_runs
from engine.validation.refit import start_parameters
from engine.validation.selection import fit_weights
from tests.engine.calibrate.runs import LAYOUTS, LLAMA, MODELS, SMALL, checked, part_of, plans, timed
from tests.engine.validation import library_outcomes

TRUTH = parameters().model_copy(update={"sustained_hopper": 0.60, "attention": 0.75, "launch": 22e-6})
NAMES = ("sustained_hopper", "attention", "launch")


@cache
def made() -> CheckedRuns:
    """Runs of every model in every layout, as the true parameters have them."""
    return checked(timed(plans(), TRUTH))


@cache
def found_again() -> CalibrationOutcome:
    """What a fit to them finds."""
    return fit(made(), NAMES)


def test_known_parameters_are_found_again() -> None:
    outcome = found_again()
    for item in outcome.estimates:
        truth, prior = getattr(TRUTH, item.about.name), item.prior
        # Priors hold back a little, and more where the runs tell less.
        assert abs(np.log(item.value / truth)) < (1.25 - item.learned) * abs(np.log(prior / truth)), item
        assert item.value_range[0] < truth < item.value_range[1]
    assert [item.learned > 0.9 for item in outcome.estimates] == [True, False, True]
    assert outcome.errors_before["mean"] > 8
    assert outcome.errors_after["mean"] < 2
    assert outcome.errors_unseen is not None
    # The small model alone tells the launch time; it is predicted without it once.
    assert outcome.errors_unseen["mean"] < 0.7 * outcome.errors_before["mean"]
    assert outcome.helps


def test_more_models_bring_the_values_nearer_to_the_truth() -> None:
    wider = [
        {**model, "hidden": model["hidden"] + 64 * model["heads"] * step, "model": f"{model['model']} {step}"}
        for step in range(1, 6)
        for model in MODELS
    ]
    many = fit(checked(timed(plans((*MODELS, *wider)), TRUTH)), NAMES)
    few = found_again()
    for far, near in zip(few.estimates, many.estimates, strict=True):
        truth = getattr(TRUTH, far.about.name)
        assert abs(np.log(near.value / truth)) < 0.3 * abs(np.log(far.prior / truth))
        assert abs(np.log(near.value / truth)) < max(abs(np.log(far.value / truth)), 0.01)
        assert near.learned > far.learned


def test_parameters_are_found_in_noise_and_without_naming_them() -> None:
    outcome = fit(checked(timed(plans(), TRUTH, noise=0.04)))
    assert 3 <= len(outcome.estimates) <= 6
    assert outcome.after.sustained_hopper == pytest.approx(TRUTH.sustained_hopper, rel=0.05)
    assert outcome.errors_unseen is not None
    assert outcome.errors_unseen["mean"] < outcome.errors_before["mean"]
    assert outcome.errors_after["mean"] < 4  # the noise: 0.04 * sqrt(2 / pi) is 3.2 %
    moved = {name for name, value in outcome.after if value != getattr(outcome.before, name)}
    assert moved == {item.about.name for item in outcome.estimates}


@pytest.mark.parametrize(("many", "factor"), [(1, 0.5), (2, 0.8), (2, 1.3), (1, 3.0)])
def test_one_or_two_runs_move_little(many: int, factor: float) -> None:
    table = timed(plans((LLAMA,), LAYOUTS[:many]), parameters())
    outcome = fit(checked(table.assign(step_time_s=table["step_time_s"] * factor)))
    for item in outcome.estimates:
        assert abs(np.log(item.value / item.prior)) < 2.5 * item.about.spread, item
    moved = outcome.predicted_after / outcome.predicted_before
    # In the right direction, not beyond the measurement, and a single run by no more than a sixth.
    assert ((moved - 1) * (factor - 1) > 0).all()
    assert (np.abs(np.log(moved)) < min(abs(np.log(factor)), many * np.log(1.2))).all()
    assert outcome.errors_unseen is None
    assert outcome.helps is None
    assert "too few" in outcome.verdict


def test_repeats_of_a_run_count_as_one() -> None:
    table = timed(plans((LLAMA,), LAYOUTS[:1]), TRUTH)
    once = fit(checked(table), NAMES)
    often = fit(checked(table.loc[table.index.repeat(40)].reset_index(drop=True)), NAMES)
    assert often.rows == 40
    assert often.configurations == 1
    for first, second in zip(once.estimates, often.estimates, strict=True):
        assert second.value == pytest.approx(first.value, rel=1e-3)


def test_runs_that_agree_with_the_library_change_nothing() -> None:
    outcome = fit(checked(timed(plans(), parameters())))
    for item in outcome.estimates:
        assert item.value == pytest.approx(item.prior, rel=1e-4)
    assert outcome.errors_after["mean"] < 0.01


def test_unseen_errors_are_of_runs_that_had_no_part_in_the_fit() -> None:
    table = timed(plans(), TRUTH, noise=0.05)
    first = fit(checked(table), NAMES[:1])
    fold = first.held_out.fold
    assert first.held_out.folds == len(MODELS)
    # All runs of a model are left out together.
    assert all(len(set(fold[table["model"] == model["model"]])) == 1 for model in MODELS)
    # Whatever is measured on the runs of one part, their own predictions do not move; those of others do.
    part = fold == fold[0]
    changed = table.assign(step_time_s=np.where(part, 1.5, 1.0) * table["step_time_s"])
    second = fit(checked(changed), NAMES[:1])
    np.testing.assert_allclose(second.predicted_unseen[part], first.predicted_unseen[part], rtol=1e-9)
    assert (np.abs(second.predicted_unseen[~part] / first.predicted_unseen[~part] - 1) > 1e-3).any()
    # And they are what fitting the others alone predicts.
    alone = fit(checked(table[~part].reset_index(drop=True)), NAMES[:1])
    expected = step_times(first.checked.mapped.case.take(np.flatnonzero(part)), alone.after).step
    np.testing.assert_allclose(first.predicted_unseen[part], expected, rtol=1e-3)
    errors = np.abs(first.predicted_unseen / first.checked.measured - 1)
    assert first.errors_unseen is not None
    assert first.errors_unseen["mean"] == pytest.approx(100 * errors.mean())


def test_groups_of_the_table_and_too_few_of_them() -> None:
    named = timed(plans(), TRUTH).assign(group=[f"week {row % 3}" for row in range(len(plans()))])
    assert fit(checked(named), NAMES[:1]).held_out.described == "3 groups named by the table, in 3 parts"
    one = fit(checked(timed(plans((LLAMA,)), TRUTH)), NAMES[:1])
    assert one.errors_unseen is not None
    assert "another model may be further off" in one.held_out.described
    assert len(set(one.held_out.fold)) == 5
    few = fit(checked(timed(plans((LLAMA,), LAYOUTS[:3]), TRUTH)), NAMES[:1])
    assert few.held_out.folds == 0
    assert (few.held_out.fold == -1).all()
    assert np.isnan(few.predicted_unseen).all()


def test_refused_rows_have_no_part() -> None:
    table = timed(plans((LLAMA, SMALL)), TRUTH)
    spoilt = table.assign(step_time_s=table["step_time_s"].where(table.index != 3, -1.0))
    spoilt["num_gpus"] = spoilt["num_gpus"].where(spoilt.index != 7, 5)
    outcome = fit(checked(spoilt), NAMES[:1])
    assert outcome.rows == len(table) - 2
    assert np.flatnonzero(~np.isfinite(outcome.predicted_after)).tolist() == [3, 7]
    without = fit(checked(table.drop(index=[3, 7]).reset_index(drop=True)), NAMES[:1])
    assert outcome.after == without.after


def test_parameters_that_cannot_be_fitted_are_named() -> None:
    data = made()
    with pytest.raises(calibrate.CalibrateError, match=r"'sustained_ampere' is no parameter .* sustained_hopper"):
        fit(data, ["sustained_ampere"])
    with pytest.raises(calibrate.CalibrateError, match="choose 1 to 6"):
        fit(data, list(adjustable(data.system, parameters()))[:7])
    with pytest.raises(calibrate.CalibrateError, match="choose 1 to 6"):
        fit(data, [])
    none = timed(plans(), TRUTH).assign(step_time_s=-1.0)
    with pytest.raises(calibrate.CalibrateError, match=r"None of the 24 runs.*Row 1: step_time_s is -1"):
        fit(checked(none))


def test_what_the_runs_tell_nothing_about_is_not_suggested() -> None:
    one_host = plans((SMALL_ALONE,), ({"tp": 1, "pp": 1, "dp": 8, "mbs": 4, "num_gpus": 8},))
    data = checked(timed(one_host, TRUTH))
    found = influence(data.case(), parameters(), adjustable(data.system, parameters()))
    assert found["scale_out"] < 1e-6
    assert found["overlap_tensor"] < 1e-6
    sizes = list(found.values())
    assert sizes == sorted(sizes, reverse=True)
    names = {item.about.name for item in fit(data).estimates}
    assert "scale_out" not in names


SMALL_ALONE = {"hidden": 2048, "ffn": 8192, "layers": 24, "heads": 16, "kv_heads": 16, "model": "small"}


def test_an_accelerator_without_rates_can_be_calibrated() -> None:
    system = hardware.load("gaudi3_128g")
    truth = parameters().model_copy(update={"sustained_other": 0.36})
    plain = part_of_table(system.name, truth)
    data = calibrate.check(plain, system, parameters())
    assert data.accepted.all(), data.reason_text
    outcome = fit(data, ["sustained_other"])
    assert outcome.after.sustained_other == pytest.approx(0.36, rel=0.03)


def part_of_table(name: str, truth: object) -> calibrate.MeasuredRuns:
    from engine.validation.reading import runs_of
    from tests.engine.calibrate.runs import measured

    assert isinstance(truth, Parameters)
    table = plans().assign(hardware=name)
    mapped = map_runs(runs_of(table), {name: hardware.load(name)})
    return measured(table.assign(step_time_s=step_times(mapped.case, truth).step))


SOURCES = "torchtitan|SimuMax"


@cache
def fitted_without_them() -> Parameters:
    """What a fit to a third of the runs finds that are of neither source, as it would be without a user's own runs."""
    runs, mapped = library_runs(), library_outcomes.mapped()
    seconds = measured_seconds(mapped)
    weights = np.where(mapped.supported & np.isfinite(seconds), fit_weights(runs.table), 0.0)
    rows = np.flatnonzero((weights > 0) & ~runs.table["source"].str.contains(SOURCES).to_numpy(bool))[::3]
    start = start_parameters()
    return fit_parameters(mapped.case.take(rows), seconds[rows], start, weights=weights[rows]).parameters


def test_a_published_source_is_predicted_better_after_a_fit_to_part_of_it() -> None:
    accelerator, system = "A100-80GB-SXM", "a100_80g_sxm"
    runs = library_runs()
    theirs = runs.table["source"].str.contains("torchtitan").to_numpy(bool)
    without = fitted_without_them()
    document = hardware.calibration_document(library_calibration())
    for name in ("sustained_ampere", "sustained_hopper", "sustained_blackwell", "attention", "launch", "immaturity"):
        old = document["parameters"][name]
        document["parameters"][name] = {
            "value": float(getattr(without, name)),
            "kind": "fitted",
            "source": old["source"],
        }
    base = hardware.load_calibration_document(document)

    mine = theirs & (runs.table["hardware"] == accelerator).to_numpy(bool) & (fit_weights(runs.table) > 0)
    data = calibrate.check(part_of(runs, mine), hardware.load(system), without)
    outcome = fit(data, base=base)
    assert outcome.known == outcome.rows
    assert outcome.errors_unseen is not None
    assert outcome.errors_unseen["mean"] < 0.9 * outcome.errors_before["mean"]
    assert outcome.errors_unseen["mean"] < 7
    assert outcome.helps
    assert "goes from" in outcome.verdict
