"""Calibrate: fit the calibrated model to measured runs of one's own cluster."""

from dashboard.pages.calibrate.link import PAGE_NAME, CalibrateLink
from dashboard.pages.contract import NavigationGroup, Needs, Page, page_parameters

__all__ = ["PAGE"]

PAGE = Page(
    name=PAGE_NAME,
    title="Calibrate",
    group=NavigationGroup.TRUST,
    place=2,
    help="Fit the calibrated model to measured runs of your own cluster.",
    tasks=("Fit the model to my own runs",),
    needs=Needs.NOTHING,
    guide="accuracy",
    parameters=page_parameters(PAGE_NAME, CalibrateLink),
)
