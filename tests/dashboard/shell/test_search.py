"""The search finds everything that has a name, by what people call it, and what it opens is there."""

from __future__ import annotations

from collections import Counter

import pytest

from dashboard.guide import CHAPTERS, chapter
from dashboard.guide.chapters import anchor
from dashboard.pages.registry import PAGES, page
from dashboard.shell.search import SearchTarget, everything
from engine.columns import ALL_FIELDS, HEADLINE_OF_ANY
from engine.reproductions import PAPERS
from models import names as model_names


@pytest.fixture(scope="module")
def targets() -> list[SearchTarget]:
    return everything()


def test_every_page_paper_section_term_and_model_is_found_by_its_name(targets: list[SearchTarget]) -> None:
    found = {(each.page, each.name) for each in targets}
    assert {(each.name, each.title) for each in PAGES} <= found
    assert {("guide", chapter(name).title) for name in CHAPTERS} <= found
    assert {("guide", section) for name in CHAPTERS for section in chapter(name).sections} <= found
    assert {("papers", paper.title) for paper in PAPERS.values()} <= found
    assert {("papers", figure.title) for paper in PAPERS.values() for figure in paper.figures} <= found
    terms = {each.name.split(" (")[0] for each in targets if each.kind.startswith(("term", "word"))}
    assert {column.label.split(" (")[0] for column in (*ALL_FIELDS, *HEADLINE_OF_ANY)} | {"Bubble", "Exposed"} <= terms
    assert sum(each.kind == "use this model" for each in targets) == len(model_names())
    assert [words for words, times in Counter(each.words for each in targets).items() if times > 1] == []


def test_what_is_opened_is_there(targets: list[SearchTarget]) -> None:
    for each in targets:
        assert each.change is not None or set(each.parameters) <= set(page(each.page).parameters)
        if each.page == "guide" and each.parameters:
            read = chapter(str(each.parameters["chapter"]))
            assert each.parameters["section"] in {None, *map(anchor, read.sections)}


def test_every_page_says_what_it_is_for() -> None:
    assert [each.name for each in PAGES if not each.tasks] == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("lower memory", "memory"),
        ("out of memory", "memory"),
        ("oom", "memory"),
        ("offload", "memory"),
        ("sequence length", "explore"),
        ("config.json", "explore"),
        ("launch script", "execution"),
        ("which gpu", "compare"),
        ("how many gpus", "whatif"),
        ("budget", "plan_run"),
        ("deadline", "plan_run"),
        ("serve", "serving"),
        ("fine-tune", "post_training"),
        ("lora", "post_training"),
        ("bubble", "schedules"),
        *((word.lower(), "papers") for word in ("DistIR", "DAPPLE", "Rubick", "CFP", "Figure 7")),
    ],
)
def test_a_task_is_found_in_the_words_of_people(words: str, name: str, targets: list[SearchTarget]) -> None:
    assert name in {each.page for each in targets if words in each.words.lower()}
