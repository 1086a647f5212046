"""Differences that are rounding are no change: in words, in colour and on the drawing of a step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dashboard.charts.execution.time_bar import waterfall
from dashboard.queries.step_times import differences_in_time, time_pieces
from dashboard.words.differences import RESOLUTION, UNCHANGED, change_text, gain_tone, is_change
from engine import best

BEST = dict(best("llama-3-8B", "h100_80g_sxm", num_procs=8, max_batch_size=8, datatype="bfloat16"))
TIMES = [name for name, value in BEST.items() if name.endswith("_time") and isinstance(value, float) and value > 0]
steps = st.floats(1e-6, 1e4)
shares = st.floats(-0.9, 10, allow_nan=False)


@given(steps, shares)
def test_a_difference_is_told_where_it_counts_and_only_there(whole: float, share: float) -> None:
    change = whole * share
    text, tone = change_text("total_time", change, whole), gain_tone(share)
    assert (text == UNCHANGED) == (not is_change(change, whole))
    assert is_change(change, whole) or abs(share) <= RESOLUTION * (1 + 1e-12)
    if is_change(share, 1.0):
        assert text[0] == ("+" if share > 0 else "−")
        assert tone == ("better" if share > 0 else "worse")
    else:
        assert tone == ""


def test_the_figure_that_was_told_as_a_gain() -> None:
    assert change_text("total_time", -0.444e-15, 2.5) == UNCHANGED
    assert change_text("total_time", 0.0, 2.5) == UNCHANGED
    assert change_text("total_time", 0.0329, 2.5) == "+32.9\N{NO-BREAK SPACE}ms"


@given(st.lists(st.floats(-1e-6, 1e-6), min_size=len(TIMES), max_size=len(TIMES)))
def test_rounding_in_any_part_of_a_step_changes_nothing(noise: list[float]) -> None:
    """Every part of a step a hair longer or shorter: the words, and each figure beside the bars, say so."""
    other = BEST | {name: BEST[name] * (1 + each) for name, each in zip(TIMES, noise, strict=True)}
    assert differences_in_time(BEST, other) == "no part of the step changes"
    chart = waterfall(BEST, other=other, names=("best", "base"))
    notes = [str(note["text"]).replace("<b>", "").replace("</b>", "") for note in chart.figure.layout["annotations"]]
    changes = [text for text in notes if text[:1] in "±+−"]
    assert len(changes) >= len(time_pieces(BEST)) // 2
    assert set(changes) == {UNCHANGED}
