"""Text on a page: nothing in it is Markdown, and no line ends between a number and its unit."""

import pytest

from dashboard.charts.elements.template import wrapped
from dashboard.words.markdown import literal
from dashboard.words.measured_runs import assumed, noted
from dashboard.words.numbers import SPACE, format_value, percent, with_unit


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Needs 394 GiB of HBM", "Needs 394_GiB of HBM"),
        ("8 GPUs at 450 GB/s for 3 s", "8_GPUs at 450_GB/s for 3_s"),
        ("a share of 5 %, 20 tokens", r"a share of 5_%, 20_tokens"),
        ("3 sheep, 4 small ones, 5 GiBs", "3 sheep, 4 small ones, 5 GiBs"),
        (f"already 5{SPACE}ms", "already 5_ms"),
        ("two \\n lines  and\ttabs", "two \\\\n lines and tabs"),
    ],
)
def test_numbers_and_units_stay_on_one_line(sentence: str, expected: str) -> None:
    assert literal(sentence).replace(SPACE, "_") == expected


def test_what_is_composed_of_a_number_and_a_unit_does_not_break() -> None:
    for text in (format_value("sample_rate", 1.68e6), percent(0.002), with_unit("1.2", "M tokens/s")):
        assert " " not in text
        assert SPACE in text
    assert with_unit("7", "") == "7"


def test_a_hover_breaks_between_words_only() -> None:
    lines = wrapped(f"it needs 200{SPACE}GiB of memory", width=14).split("<br>")
    assert lines == ["it needs", f"200{SPACE}GiB of", "memory"]


def test_what_runs_say_reads_as_words() -> None:
    note = "Graphs engine/['attn', 'moe_router']. Next."
    assert noted(note, 100) == "Graphs engine (attn, moe_router). Next."
    assert noted('["a"] and [1, 2]', 100) == "(a) and [1, 2]"
    assert noted(note, 20) == "Graphs engine …"
    assert assumed("recompute none; vpp 1; something new") == "no recompute, no interleaving, something new"
