"""Execution: everything about one execution: time, memory, schedule, layers, networks."""

from dashboard.link import state
from dashboard.pages.execution.view import render

render(state.require_exploration(), state.theme_mode())
