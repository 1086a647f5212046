"""Pareto: the executions that no other beats in two or three figures at once."""

from dashboard.link import state
from dashboard.pages.pareto.view import render
from dashboard.widgets import exploration_progress

render(exploration_progress.require_exploration(), state.theme_mode())
