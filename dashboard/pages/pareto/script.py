"""Pareto: the executions that no other beats in two or three figures at once."""

from dashboard import state
from dashboard.pareto_view import render

render(state.require_exploration(), state.theme_mode())
