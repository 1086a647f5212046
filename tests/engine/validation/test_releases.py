"""Errors by release: a row per state and set, appended by `refresh`; and the steps that `refresh` shows."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest

from engine.cost_models.calibrated import library_calibration
from engine.validation import stored_releases
from engine.validation.accepted import stored_errors, stored_left_out_errors
from engine.validation.refresh import SECONDS
from engine.validation.releases import RELEASE_COLUMNS, append_release, current_release
from engine.validation.selection import sets_of
from engine.validation.steps import StepReport
from tests.engine.validation.library_outcomes import mapped


def test_a_release_has_the_accepted_errors_of_every_set() -> None:
    now = current_release().set_index("name")
    table = mapped().table
    assert list(now.index) == list(sets_of(table, pd.Series(True, table.index).to_numpy()))
    errors = stored_errors().query("kind == 'set'").set_index("name")
    assert (now["mean"] == errors["mean"]).all()
    assert (now["sources"] == stored_left_out_errors().set_index("name")["mean"]).all()
    stated = {each.described.split(":")[0]: each.mean_absolute_percent for each in library_calibration().errors}
    assert now["halves"].to_dict() == {name: stated[name] for name in now.index}


def test_stored_releases_end_with_the_accepted_state() -> None:
    releases = stored_releases()
    assert tuple(releases.columns) == RELEASE_COLUMNS
    assert releases["date"].is_monotonic_increasing
    assert not releases.duplicated(["date", "version", "name"]).any()
    last = releases[releases["date"] == releases["date"].iloc[-1]].reset_index(drop=True)
    shown = current_release()
    assert last["name"].tolist() == shown["name"].tolist()
    assert last["mean"].tolist() == pytest.approx(shown["mean"].tolist(), rel=1e-3), "run the command refresh"


def test_a_release_is_appended_once_and_replaces_one_of_the_same_day(tmp_path: Path) -> None:
    path = tmp_path / "releases.csv"
    append_release(path)
    once = path.read_text(encoding="utf-8")
    append_release(path)
    assert path.read_text(encoding="utf-8") == once
    # An earlier state stays, one of the same day with other figures is replaced.
    now = pd.read_csv(path)
    earlier, same_day = now.assign(date="2020-01-01", mean=50.0), now.assign(mean=60.0)
    pd.concat([earlier, same_day]).to_csv(path, index=False)
    append_release(path)
    found = pd.read_csv(path)
    assert found["date"].tolist() == ["2020-01-01"] * len(now) + now["date"].tolist()
    assert found["mean"].tolist() == [50.0] * len(now) + now["mean"].tolist()


def test_steps_say_what_is_done_and_the_time_left() -> None:
    now, stream = [0.0], io.StringIO()
    with StepReport({"one": 10.0, "two": 30.0, "three": 10.0}, stream=stream, clock=lambda: now[0]) as steps:
        steps.begin("one")
        now[0] = 20.0
        steps.begin("two")
        steps.progress(0.1)  # too soon after the line before
        now[0] = 40.0
        steps.progress(0.5)
        steps.begin("three")
        now[0] = 80.0
    # 50 s are usual. Where the first 10 take 20, the other 40 take 80; where 25 take 40, the other 25 take 40.
    assert stream.getvalue().splitlines() == [
        "[1/3] one, about 50 s left",
        "[2/3] two, about 80 s left",
        "[2/3] two, about 40 s left",
        "[3/3] three, about 10 s left",
        "done in 80 s",
    ]


def test_the_steps_of_a_refresh_take_two_minutes() -> None:
    assert sum(SECONDS.values()) < 150
