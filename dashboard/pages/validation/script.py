"""Validation: what the calibrated model predicts for measured runs, and how far it is off."""

from dashboard.link import state
from dashboard.pages.validation.view import render

render(state.theme_mode())
