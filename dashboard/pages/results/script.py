"""Results: all feasible executions as a table: filter, sort, export."""

from dashboard.link import state
from dashboard.pages.results.view import render

render(state.require_exploration(), state.theme_mode())
