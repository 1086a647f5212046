"""The Papers page: a card per paper, and one figure with our values, the published ones and the deviation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pandas as pd
import streamlit as st

from dashboard.charts.accuracy.papers import deviation_text, largest_deviation, paper_chart
from dashboard.charts.elements import markup
from dashboard.jobs.paper_figures import PaperFigureJob
from dashboard.jobs.server import server
from dashboard.link import page_links, scenario_parameters, state
from dashboard.pages import registry
from dashboard.widgets.chart import show
from dashboard.widgets.clicks import was_clicked
from dashboard.widgets.file_download import draw_download
from dashboard.widgets.job_card import found_soon
from dashboard.widgets.tables import height_of
from dashboard.widgets.window import is_narrow
from dashboard.words.markdown import literal
from dashboard.words.numbers import plain
from engine.reproductions import PAPERS, Paper, PaperFigure, find_figure, find_paper

__all__ = ["PapersView", "parse", "render"]

FIGURES: Final = {
    f"{paper.name}.{figure.name}": (paper, figure) for paper in PAPERS.values() for figure in paper.figures
}
"""Value of the link parameter -> paper and figure."""
FIRST: Final = "korthikanti.table-5"
"""Figure that the page opens on: measured batch times."""


@dataclass(frozen=True, slots=True)
class PapersView:
    """The page's part of the link."""

    mode: str
    """The theme: "light" or "dark"."""
    paper: Paper
    figure: PaperFigure

    @property
    def link_value(self) -> str:
        """Return the link parameter of the figure."""
        return f"{self.paper.name}.{self.figure.name}"


def parse() -> PapersView:
    """Reads the page's part of the link."""
    paper, _, figure = state.url_value("papers_figure", FIRST, FIGURES).partition(".")
    return PapersView(state.theme_mode(), find_paper(paper), find_figure(find_paper(paper), figure))


def render(view: PapersView) -> None:
    """Draws the page. view: what `parse` returned."""
    if is_narrow():
        _choose_figure(view)
        _draw_figure(view)
        _draw_cards(view)
        return
    cards, figure = st.columns([1, 2.2], gap="large")
    with cards:
        _draw_cards(view)
    with figure:
        _draw_figure(view)


def _choose_figure(view: PapersView) -> None:
    """Draw the list of figures as a field, for a phone."""
    key = f"papers_choice_{view.link_value}"
    names = list(FIGURES)
    st.selectbox(
        "Figure",
        names,
        index=names.index(view.link_value),
        format_func=lambda name: f"{FIGURES[name][0].short_citation}: {FIGURES[name][1].title}",
        key=key,
        on_change=lambda: state.set_url_value("papers_figure", st.session_state[key]),
    )


def _draw_cards(view: PapersView) -> None:
    for paper in PAPERS.values():
        with st.container(border=True, gap="xsmall"):
            st.html(markup.head(paper.short_citation))
            st.markdown(f"[{literal(paper.title)}]({paper.url})")
            with st.container(horizontal=True, gap="xsmall"):
                for figure in paper.figures:
                    name = f"{paper.name}.{figure.name}"
                    st.button(
                        literal(figure.title),
                        key=f"papers_open_{paper.name}_{figure.name}",
                        help=figure.summary,
                        type="primary" if name == view.link_value else "secondary",
                        on_click=state.set_url_value,
                        args=("papers_figure", name),
                    )


def _draw_figure(view: PapersView) -> None:
    paper, figure = view.paper, view.figure
    st.html(markup.head(f"{figure.title} · {paper.short_citation}", figure.summary))
    table = _find_table(paper, figure)
    if table is None:
        return
    st.html(markup.figure_strip(_deviation_tiles(table), marks=False))
    chart = paper_chart(table, figure.horizontal, figure.unit, view.mode, details=figure.details, narrow=is_narrow())
    show(chart, "papers_chart")
    st.caption(literal(chart.alt))
    with st.container(horizontal=True, gap="small"):
        _draw_settings_button(figure)
        draw_download(
            "Table as CSV",
            lambda: table.to_csv(index=False),
            f"{paper.name}-{figure.name}.csv",
            "text/csv",
            key="papers_csv",
        )
    _draw_table(table, figure)
    if figure.note:
        st.caption(literal(figure.note))
    st.caption(literal(f"Published values: {figure.source}."))


def _find_table(paper: Paper, figure: PaperFigure) -> pd.DataFrame | None:
    """Return the table of a figure, computed off the page; None while that takes, or if it failed."""
    shared, watcher = server(), state.watcher()
    job = shared.board.post(PaperFigureJob(shared.paper_figures, paper, figure), watcher)
    return found_soon(job, PaperFigureJob, watcher, lambda one: one.table)


def _deviation_tiles(table: pd.DataFrame) -> list[markup.Tile]:
    known = table["deviation_percent"].dropna()
    tiles = [markup.Tile("Values", f"{len(table):,}", f"{int(table['published'].notna().sum()):,} published")]
    if len(known):
        where, worst = largest_deviation(table)
        if worst == 0.0:
            return [*tiles, markup.Tile("Deviation", "0 %", "all published values are equal")]
        tiles += [
            markup.Tile("Mean deviation", f"{plain(float(known.abs().mean()))} %", "without sign"),
            markup.Tile("Largest deviation", deviation_text(worst), where),
        ]
    return tiles


def _draw_settings_button(figure: PaperFigure) -> None:
    """Draw the button that opens the settings of the figure on their page."""
    link = figure.link
    if not page_links.exists(link.page):
        return
    target = registry.page(link.page)
    if was_clicked(
        f"Open in {target.title}",
        key="papers_settings",
        icon=":material/arrow_forward:",
        help="With the settings of this figure.",
    ):
        named = {name: link.parameters.get(name) for name in target.parameters}

        def apply_settings() -> None:
            if any(name in link.parameters for name in scenario_parameters.NAMES):
                state.open_scenario(scenario_parameters.read_scenario(link.parameters).scenario)
            state.set_url_values(named)

        st.switch_page(page_links.target(link.page), query_params=state.before_switching(apply_settings, list(named)))


def _draw_table(table: pd.DataFrame, figure: PaperFigure) -> None:
    unit = f" [{figure.unit}]" if figure.unit else ""
    number = st.column_config.NumberColumn
    labels = {
        name: st.column_config.Column(f"{name[:1].upper()}{name[1:]}".replace("_", " "))
        for name in map(str, table.columns[:-3])
    }
    st.dataframe(
        table,
        hide_index=True,
        height=height_of(len(table), 420),
        key="papers_table",
        placeholder="–",
        alt=f"{figure.title}: our values, published values, deviation.",
        column_config={
            **labels,
            "ours": number(f"Ours{unit}", format="%.4g"),
            "published": number(f"Published{unit}", format="%.4g"),
            "deviation_percent": number("Deviation [%]", format="%.3g"),
        },
    )
