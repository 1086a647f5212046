"""The figures of the README are those that the code gives; `python -m tests.readme_figures` puts them there."""

from __future__ import annotations

import re

import pytest

from tests.readme_figures import FIGURE, README, STATED, found_in, outdated, updated

TEXT = README.read_text(encoding="utf-8")
ACCURACY = TEXT.split("### The calibrated model")[1].split("### Calibrating by your own runs")[0]
NOT_COMPUTED = {
    # "within 10 %", degrees of parallelism, and the GPUs of a set of runs
    "10", "2", "4", "8", "512",
}


def test_every_figure_that_can_be_computed_is_the_computed_one() -> None:
    wrong = [f"{now}\n  -> {should}" for _, now, should in outdated(TEXT)]
    assert not wrong, "run `python -m tests.readme_figures`:\n" + "\n".join(wrong)


def test_figures_of_the_calibrated_model_are_all_computed() -> None:
    """A number that stands there, and in no sentence of the list, would go stale unseen."""
    rest = ACCURACY
    for stated in STATED:
        place = found_in(rest, stated.sentence)
        if place is not None:
            rest = rest[: place.start()] + " " + rest[place.end() :]
    rest = re.sub(r"`[^`]*`", "", rest)
    numbers = re.findall(rf"(?<![\w.,-]){FIGURE}(?![\w-])", rest)
    assert set(numbers) <= NOT_COMPUTED


@pytest.mark.parametrize("stated", STATED, ids=lambda stated: stated.sentence[:40])
def test_a_wrong_figure_is_seen_and_put_right(stated: object) -> None:
    (place,) = [found_in(TEXT, each.sentence) for each in STATED if each is stated]
    assert place is not None
    start, end = place.span(1)
    wrong = f"{TEXT[:start]}7.77{TEXT[end:]}"
    assert any(sentence == stated.sentence for sentence, _, _ in outdated(wrong))  # type: ignore[attr-defined]
    assert updated(wrong) == TEXT
