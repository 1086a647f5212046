"""Results: all feasible executions as a table: filter, sort, export."""

from dashboard import state
from dashboard.results_view import render

render(state.require_exploration(), state.theme_mode())
