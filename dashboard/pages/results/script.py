"""Results: all feasible executions as a table: filter, sort, export."""

from dashboard.link import state
from dashboard.pages.results.view import render
from dashboard.widgets import exploration_progress

render(exploration_progress.require_exploration(), state.theme_mode())
