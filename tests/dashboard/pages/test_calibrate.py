"""The Calibrate page shows what the engine fits, says what is wrong with each run, and takes strangers' files apart."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

import hardware
from dashboard.charts.accuracy.calibration import Moved, before_and_after, parameters_moved
from dashboard.link.document_validation import Refused
from dashboard.link.scenario_parameters import parameters_of as parameters_of_link
from dashboard.link.scenario_parameters import read_scenario
from dashboard.link.user_files import UserFiles
from dashboard.pages import registry
from dashboard.pages.calibrate import queries as calibrate_data
from engine import Scenario, best_of, calibrate
from engine.cost_models.calibrated import library_calibration, parameters
from tests.dashboard.page_runs import SMALL, figure, html, page_alone, plainly
from tests.dashboard.server import own_server
from tests.engine.calibrate.runs import LAYOUTS, LLAMA, checked, plans, timed
from tests.engine.calibrate.test_reading import megatron

TRUTH = parameters().model_copy(update={"sustained_hopper": 0.58})
SYSTEM = {"calibrate_system": "h100_80g_sxm"}


@functools.cache
def outcome() -> calibrate.CalibrationOutcome:
    """What the engine makes of the runs that most tests upload."""
    return calibrate.calibrate(checked(timed(plans(), TRUTH)))


class File(NamedTuple):
    """A file to upload."""

    name: str
    content: bytes


@pytest.fixture(autouse=True)
def own_files(tmp_path: Path) -> Iterator[UserFiles]:
    """User files of their own for every test."""
    with own_server(tmp_path) as place:
        yield place.files


def run(link: Mapping[str, str] | None = None, files: tuple[File, ...] = (), given: str = "") -> AppTest:
    app = page_alone("calibrate", 90)
    app.session_state["_url"] = dict(link or {})
    again(app)
    if files:
        app.file_uploader[0].set_value([(file.name, file.content, "text/csv") for file in files])
    if given:
        app.text_input(key="calibrate_given").set_value(given)
    return again(app) if files or given else app


def again(app: AppTest) -> AppTest:
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def said(page: AppTest) -> str:
    parts = [*page.caption, *page.info, *page.warning, *page.error]
    return plainly(" ".join(part.value for part in parts).replace("\\", ""))


def shown_in(page: AppTest, column: str) -> pd.DataFrame:
    """The one table of the page that has a column."""
    (found,) = [table.value for table in page.dataframe if column in table.value]
    return found


def content(table: pd.DataFrame) -> bytes:
    return table.to_csv(index=False).encode()


def test_the_page_is_in_the_navigation_between_validation_and_library() -> None:
    names = [entry.name for entry in registry.PAGES]
    assert names[names.index("calibrate") - 1] == "validation"
    assert names[names.index("calibrate") + 1] == "library"
    (entry,) = [entry for entry in registry.PAGES if entry.name == "calibrate"]
    assert not entry.about_scenario


def test_uploaded_runs_are_fitted_as_the_engine_does() -> None:
    table = timed(plans(), TRUTH)
    page = run(SYSTEM, (File("runs.csv", content(table)),))
    expected = outcome()
    assert expected.errors_unseen is not None
    text = plainly(html(page))
    assert f"Runs used {len(table)} of {len(table)}" in text
    assert f"Mean error before {expected.errors_before['mean']:.1f} %" in text
    assert f"Mean error, unseen {expected.errors_unseen['mean']:.1f} %" in text
    assert f"Mean error, fitted {expected.errors_after['mean']:.1f} %" in text
    assert expected.verdict in said(page)
    values = shown_in(page, "learned")
    assert len(values) == len(expected.estimates)
    drawn = figure(page, "calibrate_errors")["data"]
    before, after = drawn[1], drawn[2]
    order = np.argsort(before["x"])
    np.testing.assert_allclose(np.sort(before["x"]), np.sort(table["step_time_s"]), rtol=1e-6)
    wanted = 100 * (expected.predicted_before / table["step_time_s"] - 1).to_numpy()
    np.testing.assert_allclose(np.array(before["y"])[order], wanted[np.argsort(table["step_time_s"])], atol=1e-6)
    wanted = 100 * (expected.predicted_unseen / table["step_time_s"] - 1).to_numpy()
    np.testing.assert_allclose(np.array(after["y"])[order], wanted[np.argsort(table["step_time_s"])], atol=1e-6)
    assert after["name"] == "left out of the fit"


def test_a_fit_that_does_not_help_does_not_invite() -> None:
    """Runs that the library already predicts exactly are no reason to leave its values."""
    helping = run(SYSTEM, (File("runs.csv", content(timed(plans(), TRUTH))),))
    assert "Use it nevertheless" not in [each.label for each in helping.expander]
    page = run(SYSTEM, (File("runs.csv", content(timed(plans(), parameters()))),))
    assert "Use it nevertheless" in [each.label for each in page.expander]
    assert "Stay with the values it started from." in said(page)
    (use,) = [each for each in page.button if each.key == "calibrate_use"]
    assert use.proto.type == "secondary"


def test_bad_rows_are_told_by_row_and_come_first() -> None:
    table = timed(plans(), TRUTH).astype(object)
    table.loc[3, "step_time_s"] = -2
    table.loc[5, "num_gpus"] = 12
    table.loc[7, "vocab"] = ""
    table.loc[7, "model"] = "<img src=x onerror=alert(1)>"
    page = run({**SYSTEM, "calibrate_parameters": "sustained_hopper"}, (File("runs.csv", content(table)),))
    rows = shown_in(page, "used")
    assert rows["run"].tolist()[:4] == ["row 4", "row 6", "row 8", "row 1"]
    assert rows["used"].tolist()[:4] == ["refused", "refused", "refused", "used"]
    assert "step_time_s is -2" in rows["why"].iloc[0]
    assert rows["missing"].iloc[2] == "vocab"
    assert "3 runs are refused. Row 4: step_time_s is -2" in said(page)
    assert "<img" not in html(page)
    assert len(shown_in(page, "learned")) == 1


def test_a_log_is_fitted_once_what_it_lacks_is_given() -> None:
    log = File("run.log", megatron([4_300.0] * 10).replace("new size", "size now").encode())
    page = run(SYSTEM, (log,))
    assert "None of these runs can be used" in said(page)
    assert "vocab" in shown_in(page, "used")["missing"].iloc[0]
    page = run(SYSTEM, (log,), "vocab=128256")
    assert "Runs used 1 of 1" in html(page)
    assert "too few" in said(page)
    assert figure(page, "calibrate_errors")["data"][2]["name"] == "the fitted runs"
    page = run(SYSTEM, (log,), "wheels=4")
    assert "gives no field of a run" in said(page)


def test_examples_are_published_runs_and_say_that_the_library_knows_them() -> None:
    examples = calibrate_data.examples()
    assert len(examples) > 10
    page = run()
    assert "torchtitan" in next(iter(examples.values())).label
    assert "The library's own calibration was fitted to" in said(page)
    assert "On runs left out of the fit (3 groups" in said(page)
    for key, example in examples.items():
        prepared = calibrate_data.prepared_example(key, library_calibration())
        assert prepared.checked.accepted.sum() >= 3, example.label


def test_parameters_may_be_chosen_and_nonsense_in_a_link_is_not() -> None:
    table = timed(plans(), TRUTH)
    page = run({**SYSTEM, "calibrate_parameters": "launch-attention"}, (File("runs.csv", content(table)),))
    chosen = shown_in(page, "learned")["parameter"].tolist()
    assert chosen == ["Host time per kernel", "Attention rate"]
    for link in (
        {"calibrate_parameters": "speed", "calibrate_system": "abacus"},
        {"calibrate_parameters": "%", "calibrate_example": "../..", "calibrate_base": "x"},
    ):
        page = run({**SYSTEM, **link}, (File("runs.csv", content(table)),))
        assert len(shown_in(page, "used")) == len(table)


def test_other_runs_begin_with_the_parameters_that_they_suggest() -> None:
    page = run({"calibrate_parameters": "sustained_ampere-launch"})
    assert shown_in(page, "learned")["parameter"].tolist() == ["Matrix rate", "Host time per kernel"]
    labels = {key: example.label for key, example in calibrate_data.examples().items()}
    other = next(key for key, label in labels.items() if "B300" in label)
    chooser = page.get_by_key("_calibrate_example")
    chooser.set_value(other)  # type: ignore[union-attr]
    page = again(page)
    suggested = shown_in(run({"calibrate_example": other}), "learned")["parameter"].tolist()
    assert shown_in(page, "learned")["parameter"].tolist() == suggested
    assert page.session_state["_url"] == {"calibrate_example": other}
    assert "_url_problems" not in page.session_state  # nothing was said to be wrong with the link


def test_a_fit_is_kept_used_and_given_up(own_files: UserFiles) -> None:
    files = (File("runs.csv", content(timed(plans(), TRUTH))),)
    page = run(SYSTEM, files)
    name = page.text_input[1].value
    page.text_input[1].set_value("our <b>cluster</b>")
    page = again(page)
    page.button(key="calibrate_keep").click()
    page = again(page)
    kept = own_files.calibrations()
    assert list(kept) == ["our <b>cluster</b>"]
    assert name.startswith("h100_80g_sxm-")
    found = kept["our <b>cluster</b>"]
    assert found.system == "h100_80g_sxm"
    assert found.parameters["sustained_hopper"].value == pytest.approx(outcome().after.sustained_hopper, rel=1e-4)
    assert page.button(key="calibrate_use").disabled is False  # the default scenario is on H100 too
    page.button(key="calibrate_use").click()
    page = again(page)
    assert "The scenario uses **our <b>cluster</b>**" in said(page)
    scenario = read_scenario(page.session_state["_url"]).scenario
    assert scenario.calibration == found
    assert scenario.cost_model == "calibrated"
    page.button(key="calibrate_drop").click()
    page = again(page)
    assert read_scenario(page.session_state["_url"]).scenario.calibration is None
    # A kept one may be started from.
    page = run({**SYSTEM, "calibrate_base": "our <b>cluster</b>"}, files)
    assert "our <b>cluster</b>" in page.selectbox[1].value


def test_kept_calibrations_are_checked_and_library_names_are_taken(own_files: UserFiles) -> None:
    with pytest.raises(Refused, match="library has a calibration"):
        own_files.keep_calibration(library_calibration())
    mine = library_calibration().model_copy(update={"name": "mine"})
    own_files.keep_calibration(mine)
    assert own_files.calibrations() == {"mine": mine}
    assert own_files.folder is not None
    (path,) = (own_files.folder / "calibrations").iterdir()
    document = json.loads(path.read_text())
    document["parameters"]["launch"]["value"] = "fast"
    path.write_text(json.dumps(document))
    assert own_files.calibrations() == {}
    (problem,) = own_files.problems
    assert "launch" in problem
    path.unlink()
    assert own_files.calibrations() == {}
    assert own_files.problems == ()


def test_a_kept_calibration_of_another_cost_model_is_a_sentence(own_files: UserFiles) -> None:
    document = hardware.calibration_document(library_calibration())
    del document["parameters"]["launch"]
    own_files.keep_calibration(hardware.load_calibration_document({**document, "name": "old"}))
    page = run({**SYSTEM, "calibrate_base": "old"}, (File("runs.csv", content(timed(plans(), TRUTH))),))
    assert "launch" in said(page)


def test_a_scenario_is_ranked_again_by_the_fit() -> None:
    scenario = Scenario.of("gpt3-13B", "h100_80g_sxm", **{**SMALL, "datatype": "bfloat16"})
    files = (File("runs.csv", content(timed(plans(), TRUTH))),)
    page = run({**SYSTEM, "calibrate_rank": "on", **parameters_of_link(scenario)}, files)
    shown = shown_in(page, "alike")
    assert shown["rank"].is_monotonic_increasing
    assert shown["rank"].iloc[0] == 1
    assert shown["after"].is_monotonic_decreasing
    assert (shown["after"] < shown["before"]).all()  # the machine of the runs is slower than the library's
    best = best_of(calibrate.recalibrated(scenario, calibrate.document(outcome())))
    assert shown["after"].iloc[0] == pytest.approx(best["sample_rate"], rel=1e-9)
    assert "Kendall's tau" in said(page)


def test_a_scenario_that_cannot_be_ranked_says_why() -> None:
    none = Scenario.of("megatron-1T", "h100_80g_sxm", **{**SMALL, "datatype": "bfloat16", "num_procs": 1})
    files = (File("runs.csv", content(timed(plans(), TRUTH))),)
    page = run({**SYSTEM, "calibrate_rank": "on", **parameters_of_link(none)}, files)
    assert "No execution of the scenario runs" in said(page)


def test_a_scenario_on_another_machine_is_not_ranked() -> None:
    page = run()  # A100; the default scenario is on H100
    assert "choose that system in the scenario" in said(page)
    assert page.button(key="calibrate_use").disabled


HOSTILE = [
    (b"", "is empty"),
    (bytes(range(256)) * 99, "not text"),
    (b"a,b\n1,2\n", "neither a table of runs"),
    (b"hidden,layers,heads,tp\n" + b"4096,32,32,2\n" * 600_000, "more than 5,000 runs"),
    (b"x" * 10_000_001, "MB"),
]


@pytest.mark.parametrize(("data", "told"), HOSTILE)
def test_hostile_uploads_are_one_sentence(data: bytes, told: str) -> None:
    page = run(SYSTEM, (File("<script>alert(1)</script>.csv", data),))
    (error,) = page.error
    assert told in error.value.replace("\\", "")
    assert "\n" not in error.value
    assert "<script>" not in html(page)


def test_charts_escape_names_and_state_their_finding() -> None:
    rows = pd.DataFrame(
        {
            "row": [1, 2],
            "label": ["<i>x", "row 2"],
            "model": ["<img src=x>", "b"],
            "measured": [1.0, 20.0],
            "before": [0.2, -3.0],
            "after": [0.1, np.nan],
        }
    )
    drawn = before_and_after(rows, "left out of the fit")
    assert "<img" not in drawn.figure.to_json()
    assert "<i>x" not in drawn.figure.to_json()
    assert plainly(drawn.alt) == "2 runs: mean error before the fit 160.0 %, left out of the fit 10.0 %."
    # Far errors are drawn at the edge; a run without an error after has no line.
    assert min(drawn.figure.data[1].y) > -113
    assert list(drawn.figure.data[0].x) == [1.0, 1.0, None]
    assert before_and_after(rows.iloc[:0], "x").alt == "No run can be used."
    moved = [
        Moved("A", 1.1, (0.9, 1.2), (1.05, 1.15), "1 before, 1.1 after"),
        Moved("B", 0.5, (0.4, 2.0), (0.45, 0.6), "2 before, 1 after"),
    ]
    chart = parameters_moved(moved)
    assert "B moved most: 2 before, 1 after" in chart.alt
    assert list(chart.figure.data[2].x) == pytest.approx([10.0, -50.0])
    assert parameters_moved([]).alt == "No parameter was fitted."


def test_one_run_draws() -> None:
    table = timed(plans((LLAMA,), LAYOUTS[:1]), TRUTH)
    page = run(SYSTEM, (File("runs.csv", content(table)),))
    assert "1 configuration of 1 model is too few" in said(page)
    assert len(figure(page, "calibrate_errors")["data"][1]["x"]) == 1
