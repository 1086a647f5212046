"""Co-design: which of a thousand machines is the best to build or buy for a mix of models, under a budget."""

from dashboard.pages.codesign.link import PAGE_NAME, CodesignLink
from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from engine.questions.documents.codesign import DesignsQuestion

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Co-design",
    group=NavigationGroup.PLAN,
    place=7,
    help="Which of many machines is the best for a mix of models, under a budget.",
    tasks=("Design a machine under a budget",),
    needs=Needs.NOTHING,
    guide="codesign",
    parameters={
        **page_parameters(PAGE_NAME, CodesignLink),
        **page_parameters(PAGE_NAME, DesignsQuestion, only=("of", "at")),
    },
)
