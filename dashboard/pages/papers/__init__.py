"""Papers: figures of publications computed here, with the published values drawn over ours."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="papers",
    title="Papers",
    group=NavigationGroup.TRUST,
    place=4,
    help="Figures and tables of papers, computed here: published values over ours, and the deviation.",
    tasks=("Reproduce a figure of a paper",),
    needs=Needs.NOTHING,
    guide="papers",
    parameters={"papers_figure": "figure of a paper"},
)
