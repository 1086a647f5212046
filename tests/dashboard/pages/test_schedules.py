"""The Schedules page: what it draws, says and offers for schedules that run, do not run, and were measured."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from itertools import pairwise

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts.schedules.gantt import gantt
from dashboard.charts.schedules.held_activations import held_activations
from dashboard.charts.schedules.schedule_curves import best_bands, schedule_curves
from dashboard.link.scenario_parameters import read_scenario
from dashboard.pages.schedules.measured import measured_schedule, own_order, replay_measured
from dashboard.pages.schedules.scenario_times import scenario_times
from dashboard.pages.schedules.tables import feasibility_table
from dashboard.queries.accuracy import error_of, span
from dashboard.queries.schedules import (
    OFFERED,
    ScheduleQuestion,
    compare_along,
    drawn_replay,
    find_outcome,
    find_outcomes,
    titles,
)
from engine.simulate import ScheduleError, replay
from engine.simulate.exports import chrome_trace_json, torch_csv
from engine.simulate.imports import read_events
from engine.simulate.residence import held_over_time
from engine.simulate.schedule import drawn
from engine.simulate.schedules.contract import StagePlacement
from tests.dashboard.page_runs import html, page_alone

EQUAL = {"F": 1.0, "B": 1.0, "W": 1.0}
NUMBERS = {"schedules_from": "numbers"}
FEW = {
    "model": "llama-3-70B",
    "system": "h100_80g_sxm",
    "procs": "64",
    "batch": "64",
    "type": "bfloat16",
    "limits": "microbatch_size:1;tensor_par:8;weight_offload:off;activations_offload:off;optimizer_offload:off",
}
"""A scenario of few executions, whose best with a pipeline is found at once."""


def asked(**changes: object) -> ScheduleQuestion:
    given: dict[str, object] = {
        "ranks": 4,
        "microbatches": 8,
        "chunks": 2,
        "group": None,
        "forward": 1e-3,
        "input_gradient": 1e-3,
        "weight_gradient": 1e-3,
        "hidden": 0.0,
        "uneven": 0.0,
        "send": 0.0,
        "mode": "overlap",
        "memory": None,
    }
    return ScheduleQuestion(**given | changes)  # type: ignore[arg-type]


@functools.cache
def numbers() -> str:
    """What the page says of plain numbers."""
    return html(run(NUMBERS))


def run(link: Mapping[str, str]) -> AppTest:
    app = page_alone("schedules")
    app.session_state["_url"] = dict(link)
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def test_the_page_answers_with_plain_numbers() -> None:
    told = numbers()
    assert "33.8" in told  # 1F1B: 11 (f + x) and 16 sends of 0.05
    assert "ZB-V" in told
    assert "idle 29.0" in told


def test_the_page_takes_the_times_of_the_scenario() -> None:
    told = html(run(FEW | {"schedules_a": "1f1b", "schedules_b": "v-half", "schedules_microbatches": "8"}))
    assert "of a rank; TP" in told
    # How far a step may be off stands beside it, or that nobody measured one with the schedule.
    scenario = read_scenario(FEW).scenario
    times = scenario_times(scenario)
    assert not isinstance(times, str)
    error = error_of(scenario, {**times.row, "schedule": "1f1b"})
    assert error is not None
    first, second = (told.partition(f"Step with {letter}")[2] for letter in "AB")
    assert span(*error.most[:2]) in first.partition("Step with B")[0]
    assert "never measured: schedule V-Half" in second.partition("B against A")[0]
    assert "never measured" not in numbers()


def test_inputs_write_the_link_and_defaults_leave_it() -> None:
    app = run(NUMBERS)
    app.slider(key="_schedules_send").set_value(20).run()
    app.selectbox(key="_schedules_b").set_value("gpipe").run()
    app.number_input(key="_schedules_forward").set_value(2.5).run()
    app.toggle(key="_schedules_path").set_value(True).run()
    assert not app.exception
    written = {name: value for name, value in app.session_state["_url"].items() if name.startswith("schedules_")}
    expected = {"schedules_send": "20", "schedules_b": "gpipe", "schedules_forward": "2.5", "schedules_path": "on"}
    assert written == NUMBERS | expected
    app.slider(key="_schedules_send").set_value(5).run()
    assert "schedules_send" not in app.session_state["_url"]
    assert html(run(written)) != numbers()


def test_a_schedule_that_does_not_run_says_why_and_the_page_goes_on() -> None:
    app = run(NUMBERS | {"schedules_b": "chimera", "schedules_microbatches": "12", "schedules_along": "microbatches"})
    assert "Chimera is defined" in app.warning[0].value
    assert "Where the best schedule changes" in html(app)


def test_a_link_asks_for_too_much() -> None:
    app = run(NUMBERS | {"schedules_ranks": "9999", "schedules_microbatches": "9999", "schedules_memory": "3"})
    assert any("64 of 4,096 microbatches are replayed" in each.value for each in app.caption)


def test_all_schedules_are_compared_at_equal_work() -> None:
    question = asked()
    found = find_outcomes(question)
    assert {each.name for each in found} == set(OFFERED)
    for each in found:
        assert each.found is not None
        assert each.found.busy == pytest.approx([question.ideal] * 4)
    times = [each.found.makespan for each in found if each.found]
    assert times == sorted(times)
    heavy = find_outcome(asked(uneven=0.5), "zbv").found
    assert heavy is not None
    assert heavy.busy.sum() == pytest.approx(4 * question.ideal + 0.5 * question.ideal)


def test_a_step_may_count_as_the_longest_span() -> None:
    """Zero-bubble schedules are about the span: ZB-H2's is the work alone, its step has the skew of the ranks."""
    whole, span = (
        {each.name: each for each in find_outcomes(asked(microbatches=16, span=counted))} for counted in (False, True)
    )
    assert span["zb-h2"].took == pytest.approx(asked(microbatches=16).ideal)
    assert whole["zb-h2"].took == pytest.approx(asked(microbatches=16).ideal + 3e-3)
    assert span["1f1b"].took == whole["1f1b"].took
    curves = compare_along(asked(microbatches=16, span=True), "send")
    first = curves[curves["name"] == "zb-h2"].iloc[0]
    assert first["makespan"] == pytest.approx(span["zb-h2"].took)
    assert feasibility_table(list(span.values()))["idle"].min() == pytest.approx(0.0, abs=1e-9)


def test_a_memory_limit_sorts_out_what_holds_more() -> None:
    found = {each.name: each for each in find_outcomes(asked(memory=4.0))}
    assert found["gpipe"].too_much
    assert "8 activations" in found["gpipe"].reason
    assert found["v-min"].runs
    table = feasibility_table(list(found.values()))
    assert set(table["runs"]) == {"yes", "too much memory"}


def test_along_a_slider_all_are_those_of_single_replays() -> None:
    question = asked()
    for which in ("send", "uneven", "microbatches"):
        curves = compare_along(question, which)
        for name in ("1f1b", "zbv", "zb-auto-1p"):
            rows = curves[curves["name"] == name]
            if which == "uneven" and name == "zb-auto-1p":
                assert list(rows["value"]) == [0.0]
                continue
            last = rows.iloc[-1]
            value = int(last["value"]) if which == "microbatches" else float(last["value"])
            alone = find_outcome(asked(**{which: value}), name).found
            assert alone is not None
            assert last["makespan"] == pytest.approx(alone.makespan, rel=1e-12)
    bands = best_bands(compare_along(question, "send"))
    assert bands[0][0] == 0.0
    assert bands[-1][1] == 1.0
    assert all(one[1] == other[0] for one, other in pairwise(bands))
    chart = schedule_curves(compare_along(question, "send"), titles(), ("1f1b", "zbv"), "Send time", 0.0)
    assert "Fastest schedule by send time" in chart.alt


def test_long_schedules_leave_out_repetitions_and_tell_the_true_step() -> None:
    question = asked(microbatches=512)
    for name in ("1f1b", "zbv", "interleaved", "dualpipev"):
        shown, skipped = drawn_replay(question, name)
        assert skipped > 0
        whole = find_outcome(question, name).found
        assert whole is not None
        picture = drawn(shown, whole=whole.makespan, skipped_microbatches=skipped)
        assert picture.end == pytest.approx(shown.makespan)
        each = whole.makespan - replay_of(asked(microbatches=512 - skipped), name)
        assert each / skipped == pytest.approx(question.ideal / 512, rel=1e-9)
        assert "512 microbatches" in gantt(picture, row="rank").alt


def replay_of(question: ScheduleQuestion, name: str) -> float:
    found = find_outcome(question, name).found
    assert found is not None
    return found.makespan


def test_pairs_are_boxes_split_in_two_and_the_critical_path_is_framed() -> None:
    found = replay("dualpipev", stages=2, microbatches=6, times=EQUAL)
    path = pd.DataFrame({"stage": [0], "start": [0.0], "end": [1.0]})
    figure = gantt(drawn(found), critical=path, row="rank", zoom=True).figure
    names = [trace.name for trace in figure.data]
    assert names == ["Idle", "Forward", "Backward", "Input gradient", "Weight gradient", "Critical path"]
    forward = figure.data[names.index("Forward")]
    assert {round(float(each), 1) for each in forward.width} == {0.4, 0.8}
    assert "waits for" in str(figure.data[0].hovertext) or "fills" in str(figure.data[0].hovertext)
    held = held_activations(held_over_time(found.order, found.timing), [0, 1], 2, found.makespan)
    assert "2.50 on rank 0" in held.alt


def test_measured_events_are_read_and_compared() -> None:
    truth = replay("1f1b", stages=2, microbatches=4, times=EQUAL, sends={"mode": "overlap", "c": 0.5})
    traced = read_events(chrome_trace_json(truth))
    assert len(traced) == 16
    assert replay_measured(traced, "1f1b", 1).makespan == pytest.approx(15.0)
    assert measured_schedule(traced).step_time == pytest.approx(truth.makespan)
    torch = {
        "traceEvents": [
            {"ph": "X", "name": "PP:0F0", "ts": 5, "dur": 2, "pid": 1, "tid": 9},
            {"ph": "X", "name": "aten::mm", "ts": 5, "dur": 1},
            {"ph": "M", "name": "process_name"},
            {"ph": "X", "name": "PP:0B0", "ts": 9, "dur": 4, "pid": 1, "tid": 9},
        ],
        "distributedInfo": {"rank": 3},
    }
    assert read_events(json.dumps(torch))[["kind", "start", "end"]].to_numpy().tolist() == [
        ["F", 0.0, pytest.approx(2e-6)],
        ["BW", pytest.approx(4e-6), pytest.approx(8e-6)],
    ]
    table = "\ufeffrank,kind,start,end\r\n0,forward,0,1\r\n0,forward,1,2\r\n0,backward,2,4\r\n0,backward,4,6\r\n"
    assert read_events(table)["microbatch"].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no column start"),
        ("[]", "No event"),
        ("{}", "no list of events"),
        ("{", "no JSON"),
        ("a,b\n1,2", "no column start"),
        ('[{"name": "F0.0", "ph": "X", "ts": 1, "tid": 0}]', "no start and end"),
        ('[{"name": "F0.0", "ph": "X", "ts": 5, "end": 1, "tid": 0}]', "ends before"),
        ('[{"name": "F0.0", "ph": "X", "ts": 5, "dur": 1}]', "no rank"),
        ('[{"name": 3, "ph": "X"}, 7]', "No event"),
        ("start,kind\nx,forward\n", "no start and end"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_files_that_make_no_sense_are_told_in_a_sentence(text: str, words: str) -> None:
    with pytest.raises(ScheduleError, match=words):
        read_events(text)


def test_files_of_a_schedule_come_back() -> None:
    """Events and the table of actions as measured events, the order as an order of one's own."""
    for name, placement in (
        ("1f1b", StagePlacement.LOOP),
        ("interleaved", StagePlacement.LOOP),
        ("dualpipev", StagePlacement.V),
    ):
        found = find_outcome(asked(ranks=2, microbatches=4, send=0.5), name).found
        assert found is not None
        written = found.tasks.sort_values(["rank", "start", "kind"], ignore_index=True)
        for text in (chrome_trace_json(found), found.tasks.to_csv(index=False)):
            again = read_events(text).sort_values(["rank", "start", "kind"], ignore_index=True)
            pd.testing.assert_frame_equal(again, written[list(again)], check_dtype=False, rtol=1e-9)
        order = own_order(torch_csv(found), asked(ranks=2, microbatches=4, send=0.5), placement)
        assert order.makespan == pytest.approx(found.makespan)


def test_an_order_of_ones_own_is_checked_and_replayed() -> None:
    text = torch_csv(replay("zbv", stages=2, microbatches=4, times=EQUAL))
    found = own_order(text, asked(ranks=2, microbatches=4), StagePlacement.V)
    assert found.makespan == pytest.approx(0.5e-3 * replay("zbv", stages=2, microbatches=4, times=EQUAL).makespan)
    with pytest.raises(ScheduleError, match="waits for ever"):
        own_order("0B0,0F0\n1F0,1B0\n", asked(), StagePlacement.LOOP)
