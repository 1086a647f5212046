"""Progress of long commands: one line on a terminal, few lines elsewhere, never silence; rows as they come."""

from __future__ import annotations

import io
import re
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cli.progress import FIRST_S, LONGEST_S, ProgressReport, duration_text
from engine.cli.text_tables import TableStream


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """A clock that is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.floats(0.01, 30.0), min_size=1, max_size=200))
def test_a_file_gets_few_lines_but_never_a_minute_of_silence(steps: list[float]) -> None:
    """However often it is called, between two lines lie at least five seconds and, with calls, at most a minute more
    than the longest step."""
    stream, clock = io.StringIO(), Clock()
    report = ProgressReport("planning", steps=len(steps), unit="batches", stream=stream, clock=clock)
    told, last = [], 0
    for number, step in enumerate(steps):
        clock.now += step
        report((number + 1) / len(steps))
        if len(lines := stream.getvalue().splitlines()) > last:
            told, last = [*told, clock.now], len(lines)
    gaps = [after - before for before, after in zip([0.0, *told], told, strict=False)]
    assert all(gap >= FIRST_S for gap in gaps)
    assert all(gap <= LONGEST_S + max(steps) for gap in gaps)
    assert bool(told) == (clock.now >= FIRST_S)
    for line in stream.getvalue().splitlines():
        assert "batches" in line
        assert "so far" in line
        assert "\r" not in line


def test_share_rate_and_time_left() -> None:
    stream, clock = Terminal(), Clock()
    report = ProgressReport("planning", steps=64, unit="batches", stream=stream, clock=clock)
    clock.now = 60.0
    report(0.25, "batch 1024")
    line = stream.getvalue().rpartition("\x1b[K")[2]
    assert line.split("  ") == [" 25%", "16 of 64 batches", "16/min", "60 s so far", "about 3 min left", "batch 1024"]
    report.clear()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_step_that_says_nothing_is_not_silent() -> None:
    """A single call that takes minutes: the line is drawn by a thread, which ends with the command."""
    stream = Terminal()
    before = threading.active_count()
    with ProgressReport("fitting", stream=stream):
        time.sleep(1.2)
    assert "fitting" in stream.getvalue()
    assert re.search(r"\d s so far", stream.getvalue())
    assert stream.getvalue().endswith("\r\x1b[K")
    assert threading.active_count() == before


def test_durations_have_one_unit() -> None:
    assert [duration_text(each) for each in (0.4, 8, 99, 780, 9_000)] == ["0 s", "8 s", "99 s", "13 min", "2.5 h"]


def test_rows_are_printed_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    stream = TableStream({"global_batch": 12, "best": 8, "stages": 6}, csv=False)
    stream.add({"global_batch": 32, "best": 7.15432, "stages": "0-2 x8 | 2-3 x8"})
    first = capsys.readouterr().out
    assert [line.split("  ")[0].strip() for line in first.splitlines()] == ["global_batch", "32"]
    assert "7.154" in first
    stream.add({"global_batch": 64})
    assert capsys.readouterr().out.split() == ["64", "-", "-"]
    stream = TableStream({"a": 1, "b": 1}, csv=True)
    stream.add({"a": "x, y", "b": None})
    assert capsys.readouterr().out == 'a,b\n"x, y",\n'


def test_a_sweep_is_quick_without_a_mode_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    from engine.cli.main import main

    def run(*words: str) -> tuple[list[str], str]:
        with pytest.raises(SystemExit) as ended:
            main(["plan", "layers", "vgg19", "--batch", "64", "--sweep", "--csv", *words])
        assert not ended.value.code
        told = capsys.readouterr()
        return told.out.splitlines(), told.err

    rows, said = run()
    assert (rows, "released" in said) == (run("--mode", "released")[0], True)
    assert len(rows) == 1 + 65
    assert not run("--mode", "released")[1]


def test_parts_of_the_work_have_rates_of_their_own() -> None:
    stream, clock = Terminal(), Clock()
    report = ProgressReport("fitting", stream=stream, clock=clock)
    clock.now = 20.0
    report.count(2, 4, "fits")
    fits = stream.getvalue().rpartition("\x1b[K")[2].split("  ")
    assert fits == [" 50%", "2 of 4 fits", "6/min", "20 s so far", "about 20 s left", "fitting"]
    report.count(0, 1000, "executions", "ranking")
    clock.now = 30.0
    report.count(500, 1000, "executions")
    ranked = stream.getvalue().rpartition("\x1b[K")[2].split("  ")
    assert ranked == [" 50%", "500 of 1,000 executions", "50/s", "30 s so far", "about 10 s left", "ranking"]
