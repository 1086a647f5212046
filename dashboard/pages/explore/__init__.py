"""Explore: the whole space as a map, the best execution, what each choice costs."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.explore.link import ExploreLink, MapLink
from engine.questions.documents.explorations import RecommendationTermsQuestion

__all__ = ["PAGE"]

PAGE = Page(
    name="explore",
    title="Map",
    group=NavigationGroup.EXPLORE,
    place=1,
    help="Every execution of one model on one system, as a map of tensor by pipeline parallel.",
    tasks=(
        "Find the best layout",
        "Change the sequence length or batch",
        "Use my own config.json",
        "Restrict settings, such as no offload",
        "Find out why nothing fits (out of memory, OOM)",
    ),
    needs=Needs.EXPLORATION,
    answers_first=True,
    guide="reading-the-map",
    parameters={
        **page_parameters("", ExploreLink),
        **page_parameters("map", MapLink),
        **page_parameters("recommended", RecommendationTermsQuestion),
    },
)
