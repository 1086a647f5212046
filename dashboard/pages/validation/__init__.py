"""Validation: what the calibrated model predicts for measured runs, and how far it is off."""

from dashboard.pages.contract import NavigationGroup, Needs, Page

__all__ = ["PAGE"]

PAGE = Page(
    name="validation",
    title="Validation",
    group=NavigationGroup.TRUST,
    place=1,
    help="Predicted against measured training runs: how accurate, and where not.",
    needs=Needs.NOTHING,
    guide="accuracy",
    parameters={
        "validation_errors": "kind of error",
        "validation_field": "field",
        "validation_run": "run",
        "validation_hardware": "hardware",
        "validation_family": "family",
        "validation_source": "source",
        "validation_calculon": "comparison with Calculon",
    },
)
