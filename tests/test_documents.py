"""What README and guide say is so: figures are those of the code, links lead somewhere, commands exist.

`python -m tests.documented_figures` puts the figures there.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dashboard.guide import CHAPTERS, Picture, chapter
from dashboard.guide.chapters import anchor
from dashboard.pages.registry import PAGES
from tests.documented_figures import (
    DOCUMENTS,
    FIGURE,
    GUIDE,
    ROOT,
    STATED,
    TABLES,
    ComputedTable,
    everything,
    found_in,
    outdated,
    table_place,
    updated,
)

TEXT = everything()
ACCURACY = (GUIDE / "accuracy.md").read_text(encoding="utf-8")
ACCURACY = ACCURACY.split("## The calibrated model")[1].split("## Calibrating by your own runs")[0]
NOT_COMPUTED = {
    # "within 10 %", degrees of parallelism, and the GPUs of a set of runs
    "10",
    "2",
    "4",
    "8",
    "512",
}


def test_every_figure_that_can_be_computed_is_the_computed_one() -> None:
    wrong = [f"{now}\n  -> {should}" for _, now, should in outdated(TEXT)]
    assert not wrong, "run `python -m tests.documented_figures`:\n" + "\n".join(wrong)


def test_figures_of_the_calibrated_model_are_all_computed() -> None:
    """A number that stands there, and in no sentence of the list, would go stale unseen."""
    rest = ACCURACY
    for stated in STATED:
        place = found_in(rest, stated.sentence)
        if place is not None:
            rest = rest[: place.start()] + " " + rest[place.end() :]
    for table in TABLES:
        if place := table_place(rest, table):
            rest = rest[: place[0]] + rest[place[1] :]
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


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.header)
def test_a_wrong_row_is_seen_and_put_right(table: ComputedTable) -> None:
    first, end = table_place(TEXT, table) or (0, 0)
    for rows in ("", "| another | 1 | 2.0 | +2.0 |\n", TEXT[first:end] * 2):
        wrong = TEXT[:first] + rows + TEXT[end:]
        assert any(sentence == table.header for sentence, _, _ in outdated(wrong))
        assert updated(wrong) == TEXT


def test_the_readme_is_what_a_visitor_reads() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 200


def test_chapters_are_the_files_and_every_page_names_one() -> None:
    assert {f"{name}.md" for name in CHAPTERS} - {"glossary.md"} == {path.name for path in GUIDE.glob("*.md")}
    assert {page.guide for page in PAGES} <= set(CHAPTERS)
    for name in CHAPTERS:
        assert chapter(name).title
        assert chapter(name).text.strip()
        assert all(piece.path.exists() for piece in chapter(name).pieces() if isinstance(piece, Picture))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", document.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        file, _, heading = target.partition("#")
        path = document.parent / file if file else document
        assert path.exists() or path == GUIDE / "glossary.md", target
        if heading:
            headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in map(anchor, headings), target
