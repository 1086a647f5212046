"""Calibrate: fit the calibrated model to measured runs of one's own cluster."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="calibrate",
    title="Calibrate",
    group=NavigationGroup.TRUST,
    place=2,
    help="Fit the calibrated model to measured runs of your own cluster.",
    needs=Needs.NOTHING,
    guide="accuracy",
    parameters={
        "calibrate_base": "base",
        "calibrate_example": "example",
        "calibrate_parameters": "parameters to fit",
        "calibrate_rank": "kind of runs",
        "calibrate_system": "system",
    },
)
