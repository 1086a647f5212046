"""Validation: what the calibrated model predicts for measured runs, and how far it is off."""

from dashboard import state
from dashboard.validation_view import render

render(state.theme_mode())
