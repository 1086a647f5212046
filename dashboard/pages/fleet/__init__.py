"""Fleet: which training job and which service gets which GPUs in which hour."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.fleet.link import ASKED_FIELDS, PAGE_NAME, FleetLink
from engine.questions.documents.fleet import FleetQuestion

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Fleet",
    group=NavigationGroup.PLAN,
    place=2,
    help="Which training job and which service gets which GPUs of a fleet in which hour, and what binds.",
    tasks=(
        "Divide GPUs among training and serving",
        "Use GPUs at night that serving leaves idle",
        "Find out what one more node brings",
    ),
    needs=Needs.NOTHING,
    guide="fleet",
    parameters=page_parameters(PAGE_NAME, FleetQuestion, only=ASKED_FIELDS) | page_parameters(PAGE_NAME, FleetLink),
)
