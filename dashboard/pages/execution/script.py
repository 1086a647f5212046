"""Execution: everything about one execution: time, memory, schedule, layers, networks."""

from dashboard import state
from dashboard.execution_view import render

render(state.require_exploration(), state.theme_mode())
