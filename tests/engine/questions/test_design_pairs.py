"""Two designs of a study next to each other: what differs, and executions that are those of the designs alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dashboard.charts.elements.palette import TIME_KINDS
from engine import codesign
from engine.codesign import StudyError
from engine.questions.design_pairs import STEP_PARTS, compare_designs, find_terms, pair_document
from engine.questions.documents.codesign import DesignsQuestion
from engine.recommendation import recommend
from tests.engine.codesign.small_study import study


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Points of the small study, of one size and batch."""
    place = tmp_path_factory.mktemp("pairs")
    codesign.run(study(sizes=[8], batches=[16]), place, workers=1)
    return place


def test_a_pair_has_what_differs_and_why(folder: Path, shardscape: Any) -> None:
    found = codesign.results(folder)
    designs = found.designs().set_index("design")
    one, other = 0, 3
    pair = compare_designs(found, one, other, DesignsQuestion())
    choices = found.choices.set_index("design")
    assert {row["name"]: (row["one"], row["other"]) for row in pair.choices.to_dict("records")} == {
        name: (choices[name][one], choices[name][other])
        for name in choices
        if choices[name][one] != choices[name][other]
    }
    assert set(pair.choices["name"]) == {"net0_size", "hbm_capacity"}
    price = next(row for row in pair.quantities.to_dict("records") if row["name"] == "usd")
    assert price["other"] - price["one"] == pytest.approx(
        pair.prices["usd_other"].fillna(0).sum() - pair.prices["usd_one"].fillna(0).sum()
    )
    assert price["other"] == designs["usd"][other]
    for place, model in enumerate(found.study.models):
        for side, number in zip(pair.sides[model.name], (one, other), strict=True):
            assert side is not None
            point = number * len(found.study.models) + place
            own = recommend(found.scenario(point)).execution or found.execution(point)
            assert own is not None
            assert side.shown.id == own["id"]
        first, second = pair.sides[model.name]
        assert first is not None
        assert second is not None
        for each in (first, second):
            parts = sum(float(each.shown.execution.get(name) or 0.0) for name in STEP_PARTS)
            assert parts == pytest.approx(each.shown.execution["total_time"], rel=1e-9)
        step = second.shown.execution["total_time"] - first.shown.execution["total_time"]
        terms = find_terms(first, second)
        assert sum(row["difference"] for row in terms) == pytest.approx(step, abs=0.02 * abs(step) + 0.02)
    code, out, _ = shardscape("codesign", folder, "--beside", f"{one},{other}", "--json")
    assert (code, json.loads(out)["pair"]) == (0, json.loads(json.dumps(pair_document(pair))))
    code, out, _ = shardscape("codesign", folder, "--beside", f"{one},{other}", "--figures-of", "fastest")
    assert (code, "fastest execution of gpt3-13B" in out, "ranked by their fastest" in out) == (0, True, True)


def test_parts_of_the_step_are_those_of_charts() -> None:
    assert set(STEP_PARTS) == {name for kind in TIME_KINDS for name in kind.statistics}


@pytest.mark.parametrize(("designs", "words"), [((1, 1), "itself"), ((0, 99), "not among the 4 computed designs")])
def test_what_is_no_pair_is_refused(folder: Path, designs: tuple[int, int], words: str) -> None:
    with pytest.raises(StudyError, match=words):
        compare_designs(codesign.results(folder), *designs, DesignsQuestion())
