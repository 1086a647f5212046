"""Serving: how to run a trained model for its users, with which latencies, throughput and cost."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.serving.link import LOAD_FIELDS, PAGE_NAME, ServingLink
from engine.questions.documents.serving import DeploymentsQuestion, ServiceQuestion

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Serving",
    group=NavigationGroup.SERVE,
    place=1,
    help="The best way to serve a model: latency, throughput, memory and cost.",
    tasks=(
        "Serve a model (inference)",
        "Size serving for users or requests per second",
        "Lower latency per token (TTFT, TPOT)",
    ),
    needs=Needs.NOTHING,
    guide="serving",
    parameters=page_parameters(
        PAGE_NAME, DeploymentsQuestion, ServingLink, leave_out=("limits", "top", "frontier", "changes")
    )
    | page_parameters(PAGE_NAME, ServiceQuestion, only=LOAD_FIELDS),
)
