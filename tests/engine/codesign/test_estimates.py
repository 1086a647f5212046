"""How long a study takes: from points that are timed, so that it follows what they took."""

from __future__ import annotations

from typing import Any

import pytest

from engine import codesign
from engine.codesign.estimates import TIMING_SECONDS
from engine.codesign.running import Progress
from tests.engine.codesign.small_study import study

TWO: dict[str, Any] = {
    "models": ["megatron-126M", "gpt3-13B"],
    "sizes": [4, 8],
    "batches": [4],
    "follow": [],
    "edits": [{"parameter": "hbm_capacity", "values": [20, 30, 40, 60, 80]}],
}
"""Two models on two sizes, five designs each."""


class Clock:
    """A clock that goes on by so many seconds whenever it is read."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def test_the_time_is_that_of_the_points_that_were_timed() -> None:
    asked = study(**TWO)
    quick, slow = (codesign.time_points(asked, clock=Clock(step)) for step in (0.001, 0.01))
    assert {each.model for each in quick} == {0, 1}
    assert [round(each.first_s / 0.001) for each in quick] == [1] * len(quick)
    one, ten = codesign.estimate(asked, 1, quick), codesign.estimate(asked, 1, slow)
    assert (one.seconds, ten.seconds) == (pytest.approx(20 * 0.001), pytest.approx(20 * 0.01))
    assert one.point_seconds == pytest.approx(0.001)
    assert one.timed == sum(each.points for each in quick) > 4
    assert one.seconds_low < one.seconds < one.seconds_high
    assert codesign.estimate(asked, 4, slow).seconds == pytest.approx(ten.seconds / 4)
    assert codesign.estimate(study(**TWO, prune=True), 1, quick).seconds_low < one.seconds_low
    guess = codesign.estimate(asked)
    assert (guess.timed, "a guess" in guess.sentence) == (0, True)
    assert guess.seconds_high / guess.seconds_low > ten.seconds_high / ten.seconds_low


def test_every_model_counts_with_its_own_points() -> None:
    """Experts are slower: the model that is searched twenty times as long is nearly all of the study's time."""
    asked = study(**{**TWO, "sizes": [8]})
    sizes = [each.executions for each in codesign.time_points(asked, clock=Clock(0.001))]
    dense, experts = (
        codesign.PointTime(model, sizes[model], 2 * step, step, 2) for model, step in enumerate((0.1, 2.0))
    )
    both = codesign.estimate(asked, 1, [dense, experts])
    # The space is laid out once for every model, and four more designs are searched in it.
    assert both.seconds == pytest.approx((0.2 + 4 * 0.1) + (4.0 + 4 * 2.0))
    only = codesign.estimate(study(**{**TWO, "models": ["megatron-126M"], "sizes": [8]}), 1, [dense])
    assert both.seconds > 10 * only.seconds
    # One that was not timed is guessed from the other, and says so by its range.
    half = codesign.estimate(asked, 1, [dense])
    assert half.seconds_high / half.seconds_low > both.seconds_high / both.seconds_low


def test_timing_ends_in_time_and_sees_every_model() -> None:
    asked = study(**TWO)
    timed = codesign.time_points(asked, clock=Clock(TIMING_SECONDS / 1.5))
    assert [(each.model, each.points) for each in timed] == [(0, 1), (1, 1)]
    with pytest.raises(codesign.StudyCancelled):
        codesign.time_points(asked, cancel=lambda: True)


def test_progress_is_said_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    from engine.cli.commands.codesign import _Line

    line = _Line()
    for seconds, done in ((0.0, 0), (5.0, 10), (12.0, 20), (15.0, 30), (30.0, 60), (60.0, 120)):
        line(Progress(done, 120, 0, done, 0, 0, 1, 0, seconds))
    told = capsys.readouterr().err.splitlines()
    assert [each.split("  ")[1] for each in told] == ["20 of 120 points", "60 of 120 points"]
    assert told[1].strip() == "50%  60 of 120 points  2/s  30 s left"
