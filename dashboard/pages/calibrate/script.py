"""Calibrate: fit the calibrated model to measured runs of one's own cluster."""

from dashboard import state
from dashboard.calibrate_view import render

render(state.theme_mode())
