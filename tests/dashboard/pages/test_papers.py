"""The page Papers: each figure of the register in one link, its settings readable, its CSV and search entries."""

from __future__ import annotations

import io
from unittest.mock import patch

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dashboard.charts.accuracy.papers import largest_deviation, paper_chart
from dashboard.jobs.paper_figures import computed_table
from dashboard.jobs.worker import Task
from dashboard.link import scenario_parameters
from dashboard.pages.registry import page
from dashboard.shell.search import everything_about_papers
from engine.reproductions import PAPERS, Paper, PaperFigure
from tests.dashboard.page_runs import html, page_alone, plots

FIGURES = [
    pytest.param(paper, figure, id=f"{paper.name}.{figure.name}")
    for paper in PAPERS.values()
    for figure in paper.figures
]


@pytest.mark.parametrize(("paper", "figure"), FIGURES)
def test_settings_open_on_their_page_without_a_complaint(paper: Paper, figure: PaperFigure) -> None:
    known = {*page(figure.link.page).parameters, *scenario_parameters.NAMES}
    assert set(figure.link.parameters) <= known
    reading = scenario_parameters.read_scenario(figure.link.parameters)
    assert reading.problems == ()
    if "limits" in figure.link.parameters:
        assert reading.scenario.space.total == 1


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize(("paper", "figure"), FIGURES)
def test_a_chart_has_ours_and_the_published_points_over_it(paper: Paper, figure: PaperFigure, mode: str) -> None:
    table = computed_table(Task(), paper.name, figure.name)
    chart = paper_chart(table, figure.horizontal, figure.unit, mode, details=figure.details, narrow=mode == "dark")
    marks = {each.name: len(each.x) for each in chart.figure.data}  # Plotly has looked at every property
    known = int(table["published"].notna().sum())
    assert marks.pop("published", 0) == known
    assert sum(marks.values()) == len(table)
    worst = largest_deviation(table) if known else ("", 0.0)
    assert (worst[0] if worst[1] else "all equal to ours" if known else "none of them is published") in chart.alt


def shown(link: dict[str, str]) -> AppTest:
    app = page_alone("papers")
    app.session_state["_url"] = link
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def test_the_page_opens_a_figure_from_its_link_and_by_a_click() -> None:
    app = shown({"papers_figure": "rubick.figure-8"})
    assert "Figure 8 · Zhang et al., MLSys 2025" in html(app)
    assert len(plots(app)) == 1
    assert {each.key for each in app.button} >= {
        f"papers_open_{paper.name}_{figure.name}" for paper in PAPERS.values() for figure in paper.figures
    }
    app.button(key="papers_open_korthikanti_table-5").click().run()
    assert "Table 5 · Korthikanti et al., MLSys 2023" in html(app)
    assert app.session_state["_url"]["papers_figure"] == "korthikanti.table-5"


def test_the_table_of_a_figure_comes_back() -> None:
    expected = computed_table(Task(), "korthikanti", "table-5")
    with patch("streamlit.download_button") as button:
        shown({"papers_figure": "korthikanti.table-5"})
    _, content, name, *_ = next(call.args for call in button.call_args_list if call.kwargs["key"] == "papers_csv")
    assert name == "korthikanti-table-5.csv"
    pd.testing.assert_frame_equal(pd.read_csv(io.StringIO(content())), expected, check_dtype=False)


def test_a_figure_that_is_unknown_opens_the_first_one() -> None:
    app = shown({"papers_figure": "rubick.figure-77"})
    assert "Table 5" in html(app)


def test_search_knows_papers_authors_and_figures() -> None:
    targets = {(target.words, target.parameters.get("papers_figure")) for target in everything_about_papers()}
    assert ("Figure 7 · Zhang et al., MLSys 2025, paper", "rubick.figure-7") in targets
    assert any(words.startswith("Reducing Activation Recomputation") for words, _ in targets)
