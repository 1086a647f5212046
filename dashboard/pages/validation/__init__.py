"""Validation: what the calibrated model predicts for measured runs, and how far it is off."""

from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters
from dashboard.pages.validation.link import PAGE_NAME, ValidationLink

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Validation",
    group=NavigationGroup.TRUST,
    place=1,
    help="Predicted against measured training runs: how accurate, and where not.",
    tasks=("See how accurate predictions are",),
    needs=Needs.NOTHING,
    guide="accuracy",
    parameters=page_parameters(PAGE_NAME, ValidationLink),
)
