"""Execution: everything about one execution: time, memory, schedule, layers, networks."""

from dashboard.link import state
from dashboard.pages.execution.view import render
from dashboard.widgets import exploration_progress

render(exploration_progress.require_exploration(), state.theme_mode())
