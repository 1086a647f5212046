"""A day of service: replicas that follow a demand over a day, their cost and energy, and how many to reserve."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.day.link import ASKED_FIELDS, PAGE_NAME, DayLink
from engine.questions.documents.days import DayQuestion

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="A day of service",
    group=NavigationGroup.SERVE,
    place=2,
    help="Replicas that follow the demand of a day: GPUs, cost per million tokens, energy, what to reserve.",
    tasks=("Follow the demand of a day (autoscaling)", "Decide how many replicas to reserve"),
    needs=Needs.NOTHING,
    guide="day-of-service",
    parameters=page_parameters(PAGE_NAME, DayQuestion, only=ASKED_FIELDS) | page_parameters(PAGE_NAME, DayLink),
)
