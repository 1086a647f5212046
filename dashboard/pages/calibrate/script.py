"""Calibrate: fit the calibrated model to measured runs of one's own cluster."""

from dashboard.link import state
from dashboard.pages.calibrate.view import render

render(state.theme_mode())
