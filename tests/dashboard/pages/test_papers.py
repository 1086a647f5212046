"""The page Papers: each figure of the register in one link, its settings readable, its CSV and search entries."""

from __future__ import annotations

import pytest

from dashboard.charts.accuracy.papers import largest_deviation, paper_chart
from dashboard.jobs.paper_figures import computed_table
from dashboard.jobs.worker import Task
from dashboard.link import scenario_parameters
from dashboard.pages.registry import page
from engine.reproductions import PAPERS, Paper, PaperFigure

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
    assert (largest_deviation(table)[0] if known else "none of them is published") in chart.alt
